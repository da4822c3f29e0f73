"""Fill-mask, embeddings, the Hub's preprocessor; old versions."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import files
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.kinds.hub import Encoder
from bert_tf.serving.kinds.hub_preprocessor import Preprocessing
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import check
from bert_tf.serving.proof import report
from bert_tf.tasks import families
from bert_tf.tasks import fill_mask
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import paths
from support import serving_models
from support.serving_models import loaded

VOCABULARY = serving_models.VOCABULARY
MASKED = [
    b"the [MASK] fox[MASK]",
    b"no mask",
    "é [MASK] 我".encode(),
]
TEXTS = [b"the quick", "Crème 我".encode(), b"", b"lorem " * 30]


@pytest.fixture(scope="module")
def preprocessor():
    return Preprocessor.from_folder(serving_models.model_dir("encoder"))


@pytest.fixture(scope="module")
def pretrainer():
    folder = serving_models.model_dir("pretrainer")
    return checkpoints.load(folder, BertPretrainer)


@pytest.fixture(scope="module")
def encoder():
    return checkpoints.load(serving_models.model_dir("encoder"), BertEncoder)


def examples(texts):
    rows = []
    for text in texts:
        example = tf.train.Example()
        example.features.feature["text"].bytes_list.value.append(text)
        rows.append(example.SerializeToString())
    return tf.constant(rows)


def hub_inputs(inputs):
    return {
        "input_word_ids": inputs["input_ids"],
        "input_mask": inputs["input_mask"],
        "input_type_ids": inputs["segment_ids"],
    }


def described(kind):
    """Returns {signature: {input: dtype and shape}}, and of outputs."""
    signatures = saved_model.read_signatures(serving_models.exported(kind))
    return tuple(
        {
            name: {
                key: saved_model.describe(value)
                for key, value in getattr(signature, side).items()
            }
            for name, signature in signatures.items()
        }
        for side in ("inputs", "outputs")
    )


IDS = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), "int32 [?, ?]")
HUB_IDS = dict.fromkeys(
    ("input_word_ids", "input_mask", "input_type_ids"), "int32 [?, ?]"
)


def test_a_task_that_is_not_there_is_told():
    options = ExportOptions(kind="task")
    for kind, message in (
        ("encoder", "encoder: must be tuned to a task .*Received: BertModel"),
        ("pretrainer", "must be tuned to a task .*BertForPreTraining"),
    ):
        folder = serving_models.model_dir(kind)
        with pytest.raises(ValueError, match=message):
            opening.open_folder(folder, options)
        assert isinstance(opening.open_folder(folder), Encoder)
    servable = opening.open_folder(serving_models.model_dir("pair"), options)
    assert isinstance(servable, Classification)


def test_choices_without_their_number_are_refused(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(serving_models.model_dir("choice"), folder)
    (folder / "task.json").unlink()
    for kind in (None, "task"):
        with pytest.raises(
            ValueError,
            match="model: must have a task.json, .*BertForMultipleChoice",
        ):
            opening.open_folder(folder, ExportOptions(kind=kind))
    servable = opening.open_folder(folder, ExportOptions(kind="encoder"))
    assert isinstance(servable, Encoder)


def test_fill_mask_signatures():
    inputs, outputs = described("fill_mask")
    assert inputs == {
        "serving_default": {"text": "string [?]"},
        "examples": {"examples": "string [?]"},
        "ids": IDS,
        "ids_examples": {"examples": "string [?]"},
    }
    answers = {
        "tokens": "string [?, ?, 3]",
        "ids": "int32 [?, ?, 3]",
        "scores": "float32 [?, ?, 3]",
        "num_masks": "int32 [?]",
    }
    with_texts = answers | {
        "sequences": "string [?, ?, 3]",
        "is_cut": "bool [?]",
    }
    assert outputs == {
        "serving_default": with_texts,
        "examples": with_texts,
        "ids": answers,
        "ids_examples": answers,
    }


def test_fill_mask_answers_are_the_pretrainers(preprocessor, pretrainer):
    inputs = fill_mask.encode(tf.constant(MASKED), preprocessor)
    wanted = fill_mask.decode(
        *fill_mask.predict(inputs, pretrainer, VOCABULARY), VOCABULARY, 3
    )
    wanted["sequences"] = fill_mask.fill(
        tf.constant(MASKED), wanted, preprocessor.tokenizer.spec
    )
    wanted["is_cut"] = [False] * 3
    np.testing.assert_array_equal(wanted["num_masks"], [2, 0, 1])
    of = loaded("fill_mask").signatures
    for answer in (
        of["serving_default"](text=tf.constant(MASKED)),
        of["examples"](examples=examples(MASKED)),
        of["ids"](**inputs),
        loaded("fill_mask")(inputs),
    ):
        for name, value in answer.items():
            if name == "scores":
                np.testing.assert_allclose(value, wanted[name], atol=1e-6)
            else:
                np.testing.assert_array_equal(value, wanted[name])
    nothing = of["serving_default"](text=tf.zeros([0], tf.string))
    assert nothing["sequences"].shape == (0, 1, 3)


def test_tokens_of_one_score_may_change_places(preprocessor):
    servable = serving_models.make_servable(
        FillMask, preprocessor=preprocessor, top_k=2
    )
    texts = [(b"a [MASK]",)]
    probabilities = np.zeros([1, 1, len(VOCABULARY)], "float32")
    first, second, third = (VOCABULARY.index(token) for token in "abc")
    probabilities[0, 0, [first, second, third]] = 0.5, 0.25, 0.25
    trained = {
        name: value.numpy()
        for name, value in fill_mask.decode(
            probabilities, tf.constant([1]), VOCABULARY, 2
        ).items()
    } | {"probabilities": probabilities}
    # The third token has the second's score: it is as good.
    answer = {"ids": np.array([[[first, third]]], "int32")}
    settled = servable.settle_ties(texts, trained, answer, 1e-5)
    np.testing.assert_array_equal(settled["ids"], answer["ids"])
    assert settled["tokens"].tolist() == [[[b"a", b"c"]]]
    assert settled["sequences"].tolist() == [[[b"a a", b"a c"]]]
    # The first has not.
    answer = {"ids": np.array([[[second, first]]], "int32")}
    settled = servable.settle_ties(texts, trained, answer, 1e-5)
    np.testing.assert_array_equal(settled["ids"], [[[first, second]]])


def test_embedding_signatures_and_answers(preprocessor, encoder):
    inputs, outputs = described("embedding")
    assert inputs["serving_default"] == {"text": "string [?]"}
    assert inputs["ids"] == HUB_IDS
    assert set(map(str, outputs.values())) == {
        "{'embeddings': 'float32 [?, 8]'}"
    }
    ids = preprocessor(tf.constant(TEXTS))
    layer = encoder(ids)["encoder_outputs"][-1].numpy()
    lengths = ids["input_mask"].numpy().sum(axis=1)
    wanted = np.stack(
        [row[:length].mean(axis=0) for row, length in zip(layer, lengths)]
    )
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    of = loaded("embedding").signatures
    for vectors in (
        of["serving_default"](text=tf.constant(TEXTS))["embeddings"],
        of["examples"](examples=examples(TEXTS))["embeddings"],
        of["ids"](**hub_inputs(ids))["embeddings"],
        loaded("embedding")(hub_inputs(ids)),
    ):
        np.testing.assert_allclose(vectors, wanted, atol=1e-6)


@pytest.mark.parametrize(
    "embedding, extraction",
    [
        ("cls", Extraction(layers=(-1,), combine="mean", pooling="cls")),
        (
            "last_four",
            Extraction(
                layers=(-1, -2, -3, -4), combine="concatenate", pooling="mean"
            ),
        ),
    ],
)
def test_embeddings_of_other_layers(embedding, extraction):
    outputs = [tf.random.normal([3, 5, 2]) for _ in range(6)]
    mask = tf.constant([[1] * 5, [1, 1, 0, 0, 0], [1, 1, 1, 0, 0]])

    class Model:
        def __call__(self, inputs, training):
            return {"encoder_outputs": outputs}

    servable = serving_models.make_servable(
        Embedding, Model(), pooling=embedding
    )
    found = servable.trained_answers({"input_mask": mask}, [])
    np.testing.assert_allclose(
        found["embeddings"], extraction(outputs, mask), atol=1e-6
    )


def test_preprocessor_and_encoder_chained_are_the_encoder_of_strings():
    texts = tf.constant(TEXTS)
    preprocess = loaded("preprocessor")
    answer = loaded("encoder").signatures["serving_default"](text=texts)
    chained = loaded("encoder")(preprocess(texts))
    np.testing.assert_allclose(
        chained["pooled_output"], answer["pooled_output"], atol=1e-5
    )
    for name, value in preprocess.signatures["serving_default"](
        text=texts
    ).items():
        np.testing.assert_array_equal(value, preprocess(texts)[name])
    layer = keras.layers.TFSMLayer(
        serving_models.exported("preprocessor"), call_endpoint="__call__"
    )
    for name, value in layer(texts).items():
        np.testing.assert_array_equal(value, preprocess(texts)[name])


def test_preprocessor_in_two_halves(preprocessor):
    kept = loaded("preprocessor")
    first, second = tf.constant(TEXTS), tf.constant(TEXTS[::-1])
    special = kept.tokenize.get_special_tokens_dict()
    assert {name: int(value) for name, value in special.items()} == {
        "vocab_size": len(VOCABULARY),
        "padding_id": VOCABULARY.pad_id,
        "start_of_sequence_id": VOCABULARY.cls_id,
        "end_of_segment_id": VOCABULARY.sep_id,
        "mask_id": VOCABULARY.mask_id,
    }
    a, b = kept.tokenize(first), kept.tokenize(second)
    assert a.to_list() == preprocessor.tokenizer.tokenize(first).to_list()
    flat = [a.merge_dims(1, 2), b.merge_dims(1, 2)]
    for length in (5, 40):
        wanted = hub_inputs(
            Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=length)(
                (first, second)
            )
        )
        for packed in (
            kept.bert_pack_inputs([a, b], length),
            kept.bert_pack_inputs([a, b], seq_length=tf.constant(length)),
            kept.bert_pack_inputs(flat, tf.constant(length)),
        ):
            for name, value in wanted.items():
                np.testing.assert_array_equal(packed[name], value)
    whole = hub_inputs(preprocessor(first))
    for packed in (kept.bert_pack_inputs([a]), kept.bert_pack_inputs(flat[:1])):
        for name, value in whole.items():
            np.testing.assert_array_equal(packed[name], value)
    with pytest.raises(tf.errors.InvalidArgumentError, match="special tokens"):
        kept.bert_pack_inputs([a, b], 2)


@pytest.mark.parametrize("kind", ["embedding", "fill_mask"])
def test_gradients_reach_all_trainable_variables_of_loaded_kinds(
    kind, preprocessor
):
    module = loaded(kind)
    inputs = fill_mask.encode(tf.constant(MASKED), preprocessor)
    if kind == "embedding":
        inputs = hub_inputs(inputs)

    def values(training):
        outputs = module(inputs, training=training)
        return outputs if kind == "embedding" else outputs["scores"]

    with tf.GradientTape() as tape:
        value = tf.reduce_sum(values(training=True) ** 2)
    gradients = tape.gradient(value, module.trainable_variables)
    assert len(gradients) > 20 and None not in gradients
    assert len(module.variables) > len(gradients)
    assert np.abs(values(True) - values(True)).max() > 1e-4
    np.testing.assert_array_equal(values(False), values(False))


def test_strings_that_change_in_bfloat16_are_counted():
    expected = {
        "labels": np.array([b"a", b"b", b"c"], object),
        "scores": np.array([0.1, 0.2, 0.3], "float32"),
    }
    answer = expected | {"labels": np.array([b"a", b"x", b"y"], object)}
    texts = [(b"1",), (b"2",), (b"3",)]
    declared = {
        "labels": Output("labels", "string", "", ""),
        "scores": Output("scores", "float32", "", ""),
    }
    arguments = (answer, expected, texts, declared)
    assert check._difference(*arguments, must_be_equal=True)[0] == np.inf
    found = check._difference(*arguments, must_be_equal=False)
    assert found == check.Difference(0.0, "labels of b'1'", num_changed=2)


@pytest.mark.parametrize(
    "kind, settings, message",
    [
        ("encoder", {"top_k": 3}, "--top_k must not be .* --kind=encoder"),
        (None, {"pooling": "cls"}, "--pooling must not .* --kind=task"),
        ("embedding", {"pooling": "sum"}, "one of cls, mean, max, last_four"),
        ("fill_mask", {"top_k": 0}, "--top_k must be positive"),
        ("fill_mask", {"top_k": 2.5}, "--top_k must be an integer"),
        ("embedding", {"pooling": ["cls"]}, "--pooling must be one of cls"),
        # Any string would be taken for yes.
        ("embedding", {"normalize": "no"}, "--normalize must be true, false"),
        ("embedding", {"prompt": 3}, "--prompt must be a string"),
        ("embedding", {"prompt_name": 3}, "--prompt_name must be a string"),
    ],
)
def test_wrong_settings(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        serving_models.servable(
            "encoder" if kind else "pair", kind=kind, **settings
        )


@pytest.mark.parametrize(
    "model, options, message",
    [
        ("encoder", {"kind": "fill_mask"}, "must have a masked-LM head"),
        (
            "pretrainer",
            {"kind": "fill_mask", "top_k": 99},
            "size of the vocabulary, 94",
        ),
        (
            "pretrainer",
            {"kind": "fill_mask", "text_features": ["a", "b"]},
            "must be one name: the input is one string",
        ),
        (
            "encoder",
            {"kind": "embedding", "pooling": "last_four"},
            "--pooling must not be last_four .* a model of 2",
        ),
    ],
)
def test_models_that_cannot_answer(model, options, message):
    with pytest.raises(ValueError, match=message):
        serving_models.servable(model, **options)


def test_answers_of_the_new_kinds_are_shown():
    rows = [(text,) for text in MASKED]
    answers = {
        name: value.numpy()
        for name, value in loaded("fill_mask")
        .signatures["serving_default"](text=tf.constant(MASKED))
        .items()
    }
    lines = report.answers_table(rows, answers, FillMask).splitlines()
    assert lines[0].split() == ["text", "masks"]
    token = answers["tokens"][0, 0, 0].decode()
    assert f"  {token} {answers['scores'][0, 0, 0]:.3f}, " in lines[1]
    assert lines[1].count(";") >= 1
    assert lines[2] == "no mask"
    assert "norm 5.0" in report.answers_table(
        rows[:1], {"embeddings": np.array([[3.0, 4.0]])}, Embedding
    )
    table = report.answers_table(
        rows[:1],
        {
            "input_word_ids": np.array([[2, 7, 0]]),
            "input_mask": np.array([[1, 1, 0]]),
        },
        Preprocessing,
    )
    assert table.splitlines()[1].endswith("  2 7")


@pytest.mark.parametrize("contents", ["text", "ids"])
@pytest.mark.parametrize(
    "model", ["pair", "regression", "topics", "tagger", "choice", "squad"]
)
def test_exports_name_the_family_that_those_of_0_2_0_show(
    model, contents, tmp_path
):
    exported = serving_models.exported(model, contents)
    task = serving_models.servable(model).task
    settings = saved_model.read_settings(exported)
    assert settings["family"] == task.family
    kind = families.find(task.family).load("servable")
    assert opening.kind_of_export(exported) is kind
    path = tmp_path / "export"
    shutil.copytree(exported, path)
    del settings["family"]
    saved_model.write_settings(path, settings)
    assert opening.kind_of_export(path) is kind


def test_every_family_of_tasks_has_a_kind():
    for row in families.FAMILIES.values():
        assert row.load("servable").outputs_of_ids
        assert callable(row.load("onnx"))
        assert row.load("shown")


def table_of_outputs():
    """Yields the rows of README's table, of what the kinds declare."""
    of_tasks = {
        name: row.load("servable") for name, row in families.FAMILIES.items()
    }
    for name, kind in (of_tasks | opening.KINDS).items():
        # By what is asked, of each output once.
        asked = {}
        for what, outputs in (
            ("strings", kind.outputs_of_strings),
            ("ids", kind.outputs_of_ids),
            *kind.outputs_of_methods.items(),
        ):
            for output in outputs:
                asked.setdefault(output, []).append(what)
        for output, of in asked.items():
            shape = ", ".join(["B", *output.axes.split()])
            missing = output.missing
            if isinstance(missing, bytes):
                missing = f'"{missing.decode()}"'
            yield (
                f"| `{name}` | {', '.join(of)} | `{output.name}` | "
                f"{output.dtype} [{shape}] | {output.meaning} | "
                f"{'' if missing is None else missing} |"
            )


def test_readme_has_the_outputs_that_are_declared():
    path = paths.ROOT / "export/serving/README.md"
    section = path.read_text("utf-8").split("## Outputs")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| `")]
    assert table == list(table_of_outputs())


def make_versions(folder, numbers):
    for number in numbers:
        (folder / str(number)).mkdir()
        (folder / str(number) / saved_model.FILE).write_text("")


@pytest.mark.parametrize(
    "num_versions, keep, removed",
    [(1, 10, [2, 3, 4]), (2, 10, [2, 3]), (9, 10, []), (2, 3, [2, 4])],
)
def test_old_versions_are_removed(tmp_path, num_versions, keep, removed):
    make_versions(tmp_path, [2, 3, 4, 10])
    # Neither a version that is being written nor another folder.
    (tmp_path / "5").mkdir()
    (tmp_path / "notes").mkdir()
    assert saved_model.prune(tmp_path, num_versions, keep) == removed
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"2", "3", "4", "10", "5", "notes"} - set(map(str, removed))


def test_a_version_that_another_exporter_removes_too(tmp_path, monkeypatch):
    make_versions(tmp_path, [1, 2])
    remove = files.remove

    def remove_after_another(path):
        monkeypatch.setattr(files, "remove", remove)
        (tmp_path / "1" / saved_model.FILE).unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr(files, "remove", remove_after_another)
    assert saved_model.prune(tmp_path, 1, keep=2) == [1]
    assert files.list_folder(tmp_path) == ["2"]


def test_a_version_that_cannot_be_removed_is_named(
    tmp_path, monkeypatch, caplog
):
    make_versions(tmp_path, [1, 2, 3])
    remove, pauses = files.remove, []

    def remove_but_one(path):
        if path.endswith("/1"):
            raise FileNotFoundError(path)
        remove(path)

    monkeypatch.setattr(files, "remove", remove_but_one)
    monkeypatch.setattr(saved_model.time, "sleep", pauses.append)
    with caplog.at_level("WARNING", "absl"):
        assert saved_model.prune(tmp_path, 1, keep=3) == [2]
    (line,) = caplog.messages
    assert line.startswith(f"{tmp_path}/1 is an old version")
    assert 5 < sum(pauses) < 60
    assert files.list_folder(tmp_path) == ["1", "3"]


def read_texts(path, kind, task_name=None, text_features=("text",)):
    task = serving_models.PAIR_TASK if kind == "pair" else None
    if task_name:
        task = ClassificationTask(
            name=task_name,
            text_features=text_features,
            labels=("0", "1"),
            metrics=("accuracy",),
        )
    if task:
        servable = serving_models.make_servable(Classification, task=task)
    else:
        servable = serving_models.make_servable(
            Embedding, text_features=text_features
        )
    return servable.read_texts(path)


def test_development_sets_are_read_as_the_task_reads_them(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_bytes("q\tclass\tlabel\tsentence 1\n1\tB\tja\tÄ\n".encode())
    assert read_texts(path, "pair") == [("Ä".encode(), b"B")]
    pair = ("sentence1", "sentence2")
    path.write_bytes(b"Quality\t1\t2\t1 String\t2 String\n0\t7\t8\tA\tB\n")
    assert read_texts(path, "glue", "mrpc", pair) == [(b"A", b"B")]
    path.write_bytes(b"gj04\t1\t\tOur friends.\n")
    assert read_texts(path, "glue", "cola", ("sentence",)) == [
        (b"Our friends.",)
    ]
    # MRPC's test set is called so.
    path = tmp_path / "msr_paraphrase_test.txt"
    path.write_bytes(b"Quality\t1\t2\t1 String\t2 String\n0\t7\t8\tA\tB\n")
    assert read_texts(path, "glue", "mrpc", pair) == [(b"A", b"B")]


def test_files_of_other_names_have_a_text_a_line(tmp_path):
    path = tmp_path / "dev.txt"
    path.write_bytes(b"a\tb\n\xff\t\n")
    assert read_texts(path, "pair") == [(b"a", b"b"), (b"\xff", b"")]
    pair = ("sentence1", "sentence2")
    assert read_texts(path, "glue", "mrpc", pair)[1] == (b"\xff", b"")
    # A byte order mark is no text.
    path.write_bytes("\ufeffa\tb\n\ufeffc\td\n".encode())
    assert read_texts(path, "pair")[0] == (b"a", b"b")
    assert read_texts(path, "pair")[1] == ("\ufeffc".encode(), b"d")
    # Also where a first line looks like a header.
    path.write_bytes(b"class\tsentence 1\na\tb\n")
    assert read_texts(path, "pair") == [(b"class", b"sentence 1"), (b"a", b"b")]
    path.write_bytes(b"text\tlabel\nand\tanother\n")
    assert read_texts(path, "encoder") == [
        (b"text\tlabel",),
        (b"and\tanother",),
    ]


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_texts_of_objects_are_not_their_lines(tmp_path, suffix):
    def write(rows):
        path = tmp_path / f"dev{suffix}"
        if suffix == ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        else:
            pyarrow = pytest.importorskip("pyarrow")
            parquet = pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pyarrow.Table.from_pylist(rows), path)
        return path

    path = write([{"class": "b", "sentence 1": "Ä"}])
    assert read_texts(path, "pair") == [("Ä".encode(), b"b")]
    with pytest.raises(ValueError, match=f"dev{suffix}.*text"):
        read_texts(path, "encoder")
    path = write([{"text": "a\tb", "x": 1}])
    assert read_texts(path, "encoder") == [(b"a\tb",)]
    path = write([{"words": ["the", "quick"], "tags": ["O", "O"]}])
    with pytest.raises(ValueError, match=f"dev{suffix}.*text"):
        serving_models.servable("tagger").read_texts(path)


def test_columns_of_texts_are_found_by_the_header(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_bytes('\ufefftext\tlabel\nÄ "b"\tja\n'.encode())
    assert read_texts(path, "encoder") == [('Ä "b"'.encode(),)]
    path.write_bytes(b"text\none\n")
    assert read_texts(path, "encoder") == [(b"one",)]
    path = tmp_path / "dev.csv"
    path.write_bytes(b'class,label,sentence 1\n"B, b",ja,"""A"""\n')
    assert read_texts(path, "pair") == [(b'"A"', b"B, b")]
    path.write_bytes(b"text\none\n")
    assert read_texts(path, "encoder") == [(b"one",)]
    # GLUE's test files have other columns than the development sets.
    path = tmp_path / "test.tsv"
    path.write_bytes(b"index\tsentence\n0\tA\n")
    assert read_texts(path, "glue", "sst-2", ("sentence",)) == [(b"A",)]
    pair = ("question1", "question2")
    path.write_bytes(
        b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        b"0\t1\t2\tA\tB\t0\n0\t1\t2\tA\n"
    )
    assert read_texts(path, "glue", "qqp", pair) == [(b"A", b"B")]


@pytest.mark.parametrize(
    "name, header, kind",
    [
        ("dev.tsv", "sentence\tlabel", "encoder"),
        ("dev.tsv", "sentence", "encoder"),
        ("dev.tsv", "premise\thypothesis", "pair"),
        ("dev.TSV", "id\tq\tclass", "pair"),
        ("dev.csv", "sentence,label", "encoder"),
        ("dev.csv", "sentence", "encoder"),
        ("dev.csv", "", "encoder"),
    ],
)
def test_rows_of_unknown_columns_are_no_texts(tmp_path, name, header, kind):
    path = tmp_path / name
    path.write_text(f"{header}\na\tb\n")
    with pytest.raises(ValueError, match=f"{name}, line 1: .*--text_features"):
        read_texts(path, kind)


def test_rows_of_another_set_are_not_taken_for_glues(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("id\tlabel\ttext\n7\t0\tA\n")
    with pytest.raises(ValueError, match="must have the columns sentence, "):
        read_texts(path, "glue", "sst-2", ("sentence",))


def test_layer_0_is_an_option_that_was_given():
    with pytest.raises(ValueError, match="--layer must not be given with"):
        serving_models.servable("encoder", kind="embedding", layer=0)
