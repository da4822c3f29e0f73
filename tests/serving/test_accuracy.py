"""What an export costs in the score of its task, and the limit of that."""

import contextlib
import json
import shutil

import numpy as np
import pytest

from bert_tf.serving import exporter
from bert_tf.serving import onnx_exporter
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import accuracy
from bert_tf.serving.proof import caller
from bert_tf.serving.proof import check
from bert_tf.tasks.classification import glue_files
from support import serving_models

PAIRS = ["the quick\tlorem", "lorem\tthe", "a\tb", "b c\t", "\tquick", "x\ty"]


def write_dev(path, labels):
    """Writes the pairs with labels, a table of the model "pair"."""
    rows = zip(PAIRS, labels, strict=True)
    lines = [f"{pair}\t{label}" for pair, label in rows]
    path.write_text("\n".join(["sentence 1\tclass\tlabel", *lines, ""]))
    return path


def trained_labels():
    servable = serving_models.servable("pair")
    texts = [tuple(pair.encode().split(b"\t")) for pair in PAIRS]
    answers = servable.trained_answers(servable.encode(texts), texts)
    return [label.decode() for label in answers["labels"]]


@pytest.mark.parametrize(
    "kind, name, content, metric, answers, score",
    [
        (
            "pair",
            "dev.tsv",
            "class\tsentence 1\tlabel\na\tb\tja\nc\td\tnein\n",
            "accuracy",
            {"probabilities": [[0.1, 0.6, 0.3], [0.0, 0.0, 1.0]]},
            0.5,
        ),
        (
            "regression",
            "dev.csv",
            "sentence,label\na,1\nb,2\nc,4\n",
            "pearson",
            {"scores": [2.0, 4.0, 3.0]},
            # Deviations (-4/3, -1/3, 5/3) and (-1, 1, 0).
            1 / np.sqrt(42 / 9 * 2),
        ),
        (
            "topics",
            "dev.tsv",
            "text\tlabels\nx\ta|é\ny\t\n",
            "micro_f1",
            {"probabilities": [[0.9, 0.2, 0.1, 0.0], [1.0, 0.0, 0.0, 0.4]]},
            # One is right, one too much, one missing.
            0.5,
        ),
        (
            "pair",
            "dev.jsonl",
            '{"class": "a", "sentence 1": "b", "label": "ja"}\n'
            '{"class": "c", "sentence 1": "d", "label": 0}\n',
            "accuracy",
            {"probabilities": [[0.1, 0.6, 0.3], [0.0, 0.0, 1.0]]},
            0.5,
        ),
        (
            "regression",
            "dev.jsonl",
            '{"sentence": "a", "label": 1}\n{"sentence": "b", "label": 2.5}\n',
            "pearson",
            {"scores": [2.0, 4.0]},
            1.0,
        ),
        (
            "topics",
            "dev.jsonl",
            '{"text": "x", "labels": ["a", "é"]}\n'
            '{"text": "y", "labels": []}\n',
            "micro_f1",
            {"probabilities": [[0.9, 0.2, 0.1, 0.0], [1.0, 0.0, 0.0, 0.4]]},
            0.5,
        ),
        (
            "choice",
            "dev.jsonl",
            '{"context": "a", "choices": ["x", "y", "z"], "label": 2}\n'
            '{"context": "b", "choices": ["x", "y", "z"], "label": 0}\n',
            "accuracy",
            {"choice": [2, 2]},
            0.5,
        ),
        (
            "reranker",
            "dev.tsv",
            "query\ttext\tlabel\nq\ta\t0\nq\tb\t1\np\tc\t1\np\td\t0\n",
            "MRR@10",
            {"scores": [3.0, 2.0, 5.0, -1.0]},
            0.75,
        ),
        (
            "squad",
            "dev.json",
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "the quick é",
                                "qas": [
                                    {
                                        "id": "1",
                                        "question": "a",
                                        "answers": [
                                            {
                                                "text": "quick é",
                                                "answer_start": 4,
                                            }
                                        ],
                                    },
                                    {"id": "2", "question": "b", "answers": []},
                                ],
                            }
                        ]
                    }
                ]
            },
            "f1",
            {"answers": [b"quick", b""]},
            # Half of the words, and no answer where there is none.
            (2 / 3 + 1) / 2,
        ),
        (
            "tagger",
            "dev.conll",
            "the B-é\nquick I-é\nx O\n\nlorem B-x\n",
            "f1 of entities",
            {
                "labels": [[b"\xc3\xa9", b"x"], [b"\xc3\xa9", b""]],
                "starts": [[0, 10], [0, -1]],
                "limits": [[9, 11], [5, -1]],
            },
            # One of three is right, one of two is found.
            0.4,
        ),
    ],
    ids=[
        *("pair", "regression", "topics"),
        *("pair_objects", "regression_objects", "topics_objects"),
        *("choice", "reranker", "squad", "tagger"),
    ],
)
def test_answers_are_scored_as_the_task_names_it(
    tmp_path, kind, name, content, metric, answers, score
):
    path = tmp_path / name
    path.write_text(
        content if isinstance(content, str) else json.dumps(content)
    )
    servable = serving_models.servable(kind)
    dev_set = servable.read_dev_set(path)
    assert (
        dev_set.num_texts
        == len(servable.read_texts(path))
        == len(next(iter(answers.values())))
    )
    # As arrays of strings, integers and numbers give them.
    arrays = {
        key: list(np.array(rows, object) if key != "probabilities" else rows)
        for key, rows in answers.items()
    }
    assert {*arrays} == {*dev_set.outputs}
    assert dev_set.metric == metric
    assert dev_set.score(arrays) == pytest.approx(score)


@pytest.mark.parametrize(
    "task, header, label_column",
    [
        ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", 0),
        ("QQP", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", 5),
        ("STS-B", "i\tg\tf\ty\to\ts1\ts2\tsentence1\tsentence2\tscore", 9),
        ("SST-2", "sentence\tlabel", 1),
        ("CoLA", "gj04\t1\t\tOne more.", 1),
    ],
)
def test_labels_of_glue_are_found(tmp_path, task, header, label_column):
    path = tmp_path / "dev.tsv"
    path.write_text(f"{header}\n")
    files_of_task = glue_files.glue_task(task)
    names = header.split("\t")
    found = texts_lib.find_table(
        path,
        files_of_task.task.text_features,
        files_of_task.splits[glue_files.DEV],
        may_be_unnamed=task == "MRPC",
    )
    assert found.label_column in (label_column, names[label_column])


@pytest.mark.parametrize(
    "task, header",
    [
        ("STS-B", "i\tg\tf\ty\to\ts1\ts2\tsentence1\tsentence2"),
        ("QNLI", "index\tquestion\tsentence"),
        ("RTE", "index\tsentence1\tsentence2"),
    ],
)
def test_glues_test_sets_are_texts_to_compare(tmp_path, task, header):
    path = tmp_path / "test.tsv"
    path.write_text(f"{header}\n{'x' + header[1:]}\n")
    files_of_task = glue_files.glue_task(task)
    form = (
        *(path, files_of_task.task.text_features),
        files_of_task.splits[glue_files.DEV],
    )
    assert texts_lib.find_table(*form).label_column is None
    ((*texts,),) = texts_lib.read_texts(*form)
    assert texts == [name.encode() for name in header.split("\t")[-2:]]


def with_dev_set(path, **options):
    return Classification.resolve(
        ExportOptions(eval_file=path, **options), serving_models.PAIR_TASK
    )


def test_a_file_without_labels_has_no_score(tmp_path):
    servable = serving_models.servable("pair")
    lines, table = tmp_path / "texts.txt", tmp_path / "dev.tsv"
    lines.write_text("a\tb\n")
    table.write_text("sentence 1\tclass\na\tb\n")
    for path in (lines, table):
        assert servable.read_dev_set(path) is None
        servable.options = with_dev_set(path, max_accuracy_loss=0.1)
        with pytest.raises(ValueError, match=f"Received: {path}, for classes"):
            accuracy.read_dev_set(servable)
    # Only where it is needed are wrong labels an error.
    write_dev(table, ["maybe"] * len(PAIRS))
    with pytest.raises(ValueError, match="dev.tsv, line 2: the label must be"):
        accuracy.read_dev_set(servable)
    servable.options = with_dev_set(table)
    assert not accuracy.read_dev_set(servable)


def test_what_is_odd_about_the_rows_is_told_once(tmp_path, caplog):
    path = tmp_path / "dev.tsv"
    path.write_text('class\tsentence 1\tlabel\n"a"\tb\tja\nc\td\tnein\n')
    servable = serving_models.servable("pair", eval_file=str(path))
    with caplog.at_level("INFO", logger="absl"):
        servable.check_texts()
        dev_set = accuracy.read_dev_set(servable)
    assert dev_set is not None
    assert caplog.text.count("1 of the rows has fields in quotation") == 1


@pytest.mark.parametrize(
    "values, message",
    [
        ({"max_accuracy_loss": 1.5, "eval_file": "a"}, "must be from 0 to 1"),
        ({"max_accuracy_loss": 0.1}, "must be given with --eval_file"),
        ({"label_column": "y"}, "must be given with --eval_file"),
        ({"token_column": "y"}, "must be given with --eval_file"),
        (
            {"eval_file": "a", "check": False},
            "must not be given with --nocheck",
        ),
    ],
)
def test_wrong_limits(values, message):
    with pytest.raises(ValueError, match=message):
        ExportOptions(**values)


@pytest.fixture
def export_bfloat16(monkeypatch, tmp_path):
    """Returns a function that exports "pair", which answers two texts wrong."""
    source = serving_models.exported("bfloat16")
    monkeypatch.setattr(exporter, "make", lambda *_: None)
    monkeypatch.setattr(exporter, "sign", lambda *_: {})
    monkeypatch.setattr(
        exporter,
        "write",
        lambda folder, *_: shutil.copytree(source, folder, dirs_exist_ok=True),
    )
    # What no difference is too large for: the score alone decides.
    monkeypatch.setattr(check, "BFLOAT16_TOLERANCE", 2.0)

    @contextlib.contextmanager
    def calling(path, requests, *arguments, **others):
        with serving_models.calling(path, requests) as (version, answers):
            answers = list(answers)
            # Of the last batch: its last two texts get each the other class's
            # probabilities.
            for answer in answers[-5:]:
                if "probabilities" in answer:
                    rows = answer["probabilities"][-2:]
                    assert len(rows) == 2
                    rows[:] = np.roll(rows, 1, axis=1)
            yield version, iter(answers)

    monkeypatch.setattr(caller, "calling", calling)
    dev = write_dev(tmp_path / "dev.tsv", trained_labels())

    def export(**options):
        return exporter.export(
            serving_models.model_dir("pair"),
            tmp_path / "name",
            ExportOptions(precision="bfloat16", eval_file=dev, **options),
        )

    return export


def test_too_much_lost_is_told_and_leaves_nothing(
    export_bfloat16, tmp_path, monkeypatch
):
    written = []
    write = saved_model.write_settings
    monkeypatch.setattr(
        saved_model,
        "write_settings",
        lambda folder, settings: (
            written.append(settings) or write(folder, settings)
        ),
    )
    with pytest.raises(ValueError, match="scores too much less") as error:
        export_bfloat16(max_accuracy_loss=0.33)
    assert str(error.value).splitlines()[-1] == (
        "accuracy on 6 labelled texts: trained 1.0000, served 0.6667, lost "
        "0.3333"
    )
    assert written[-1]["accuracy"]["served"] == pytest.approx(2 / 3)
    assert not list((tmp_path / "name").iterdir())


@pytest.mark.parametrize(
    "most, exceeds", [(None, False), (0.2, False), (0.19, True)]
)
def test_the_limit_itself_is_allowed(most, exceeds):
    # In float64 the difference is a little more than 0.2.
    found = accuracy.Accuracy(metric="f1", num_texts=9, trained=0.9, served=0.7)
    assert found.loss > 0.2
    assert found.exceeds(most) is exceeds


@pytest.mark.parametrize("name", ["trained", "served"])
def test_a_score_that_is_no_number_is_not_let_pass(name):
    scores = {"trained": 0.9, "served": 0.9} | {name: np.nan}
    found = accuracy.Accuracy(metric="pearson", num_texts=9, **scores)
    assert found.exceeds(1.0) and not found.exceeds(None)


def test_one_row_has_no_correlation(tmp_path):
    servable = serving_models.servable("regression")
    table = tmp_path / "dev.tsv"
    table.write_text("sentence\tlabel\na\t1\n")
    with pytest.raises(ValueError) as error:
        servable.read_dev_set(table)
    assert str(error.value) == (
        f"{table}: the rows: must be two or more, to correlate their scores. "
        "Received: 1."
    )
    # Where no score is needed, the export is made without one.
    servable.options = with_dev_set(table, kind="task")
    assert not accuracy.read_dev_set(servable)


def test_a_score_that_is_not_defined_is_null_in_the_settings(tmp_path):
    table = tmp_path / "dev.tsv"
    table.write_text("sentence\tlabel\na\t1\nb\t1\n")
    path = exporter.export(
        serving_models.model_dir("regression"),
        tmp_path / "name",
        ExportOptions(eval_file=table, label_column="label"),
    ).path
    with open(f"{path}/assets.extra/bert_tf.json") as stream:
        stored = json.load(stream, parse_constant=pytest.fail)["accuracy"]
    assert stored["trained"] is stored["served"] is None


def test_where_there_is_nothing_to_lose_a_limit_is_refused():
    found = accuracy.Accuracy(metric="f1", num_texts=9, trained=0.0, served=0.0)
    assert not found.exceeds(None)
    with pytest.raises(ValueError, match="scores more than 0. Received: f1"):
        found.exceeds(0.1)


XNLI_HEADER = [
    *("language", "gold_label", "sentence1_binary_parse"),
    *("sentence2_binary_parse", "sentence1_parse", "sentence2_parse"),
    *("sentence1", "sentence2", "promptID"),
]


def test_xnli_is_scored_in_one_language(tmp_path):
    task = glue_files.glue_task("xnli-en").task
    servable = serving_models.make_servable(Classification, task=task)
    rows = {
        language: [language, label, "", "", "", "", f"{language} a", "b", "1"]
        for language, label in (("en", "neutral"), ("zh", "entailment"))
    }
    path = tmp_path / "xnli.dev.tsv"

    def write(*languages):
        lines = [XNLI_HEADER, *(rows[language] for language in languages)]
        path.write_text("".join("\t".join(line) + "\n" for line in lines))

    write("en", "zh")
    assert servable.read_texts(path) == [(b"en a", b"b"), (b"zh a", b"b")]
    with pytest.raises(ValueError, match="of one language .* en, zh"):
        servable.read_dev_set(path)
    write("en", "en")
    dev_set = servable.read_dev_set(path)
    assert dev_set.num_texts == 2
    answers = {"probabilities": [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]}
    assert dev_set.score(answers) == 0.5


def test_labels_of_a_named_column_are_read_of_a_float32_export(tmp_path):
    dev = write_dev(tmp_path / "dev.tsv", trained_labels())
    with pytest.raises(ValueError, match="must have a column 'wrong', once"):
        exporter.export(
            serving_models.model_dir("pair"),
            tmp_path / "name",
            ExportOptions(eval_file=dev, label_column="wrong"),
        )


def test_8_bits_of_onnx_are_bounded(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    dev = write_dev(tmp_path / "dev.tsv", trained_labels())
    load = onnx_exporter.load

    def load_worse(path):
        answer = load(path)
        if onnx_exporter.INT8_FILE not in path:
            return answer
        return lambda inputs: -answer(inputs)

    monkeypatch.setattr(onnx_exporter, "load", load_worse)
    export_dir = tmp_path / "name"
    with pytest.raises(ValueError, match="int8.onnx scores too much") as error:
        onnx_exporter.export(
            serving_models.model_dir("pair"),
            export_dir,
            ExportOptions(eval_file=dev, max_accuracy_loss=0.9),
        )
    table = str(error.value)
    for line in (
        "model.onnx: accuracy on 6 labelled texts: trained 1.0000, served "
        "1.0000, lost 0.0000",
        "model_int8.onnx: accuracy on 6 labelled texts: trained 1.0000, served "
        "0.0000, lost 1.0000",
    ):
        assert line in table
    assert not list(export_dir.iterdir())
