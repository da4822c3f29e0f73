"""Folders of sentence-transformers keep their vectors without being told."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.serving import exporter
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.features import sentences
from support import peers
from support import sentence_models
from support import serving_models
from support.sentence_models import VECTORS

MODULES = ("Transformer", "Pooling", "Normalize")
OPTIONS = ExportOptions(kind="embedding")
TEXTS = ["the quick lorem", "a", "lorem the a b c d e f g h i j k l m n o p"]


def write(folder, pooling, modules=MODULES, length=9, package="models"):
    """Writes the files of sentence-transformers into a folder."""
    listed = [
        {
            "idx": n,
            "name": str(n),
            "path": f"{n}_{name}" if n else "",
            "type": f"sentence_transformers.{package}.{name}",
        }
        for n, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    values = {"max_seq_length": length, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(values))


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(serving_models.model_dir("encoder"), tmp_path / "model")
    return tmp_path / "model"


OLD = {
    "word_embedding_dimension": 8,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
}


@pytest.mark.parametrize(
    "pooling, modules, expected",
    [
        (OLD, MODULES, ("mean", True)),
        (OLD, MODULES[:2], ("mean", False)),
        (
            {"embedding_dimension": 8, "pooling_mode": "cls"},
            MODULES,
            ("cls", True),
        ),
        ({"pooling_mode": ["max"]}, MODULES[:2], ("max", False)),
    ],
)
def test_files_of_all_versions_are_read(folder, pooling, modules, expected):
    assert sentence_folder.read(folder) is None
    write(folder, pooling, modules)
    assert sentence_folder.read(f"{folder}/") == SentenceVectors(
        pooling=expected[0], is_normalized=expected[1], max_seq_length=9
    )


def vectors_of(servable, texts):
    rows = [(text.encode(),) for text in texts]
    inputs = servable.encode(rows)
    return inputs, servable.trained_answers(inputs, rows)["embeddings"]


@pytest.mark.parametrize("mode", ["cls", "mean", "max"])
def test_vectors_are_as_the_folder_says(folder, mode):
    write(folder, {"pooling_mode": mode})
    servable = opening.open_folder(folder, OPTIONS)
    options = servable.options
    assert (options.pooling, options.normalize) == (mode, True)
    assert (options.prompt, options.count_tokens) == ("", False)
    inputs, found = vectors_of(servable, TEXTS)
    lengths = inputs["input_mask"].numpy().sum(axis=1)
    assert lengths.max() == servable.options.max_seq_length == 9
    outputs = servable.model(inputs)["encoder_outputs"][-1].numpy()
    pool = {
        "cls": lambda rows: rows[0],
        "mean": lambda rows: rows.mean(axis=0),
        "max": lambda rows: rows.max(axis=0),
    }[mode]
    wanted = np.stack(
        [pool(row[:length]) for row, length in zip(outputs, lengths)]
    )
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_what_is_asked_for_comes_first(folder):
    write(folder, OLD)
    options = ExportOptions(
        kind="embedding",
        pooling="cls",
        normalize=False,
        prompt="a ",
        max_seq_length=7,
    )
    servable = opening.open_folder(folder, options)
    resolved = servable.options
    assert (resolved.pooling, resolved.normalize) == ("cls", False)
    assert (resolved.prompt, resolved.max_seq_length) == ("a ", 7)


def test_other_folders_are_as_before(folder):
    options = opening.open_folder(folder, OPTIONS).options
    assert (options.pooling, options.normalize) == ("mean", False)
    assert (options.prompt, options.count_tokens) == ("", False)


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("modules.json", {}, "modules.json: must be a list of modules"),
        (
            "modules.json",
            [{"type": "a.Transformer", "path": ""}],
            "modules.json: the modules must be Transformer, Pooling, Dense, ",
        ),
        (
            "modules.json",
            [
                {"type": "a.Transformer", "path": ""},
                {"type": "a.Pooling", "path": "1_Pooling"},
                {"type": "a.LSTM", "path": "2_LSTM"},
            ],
            "Received: Transformer, Pooling, LSTM",
        ),
        (
            "modules.json",
            [
                {"type": "a.Transformer", "path": "0_Transformer"},
                {"type": "a.Pooling", "path": "1_Pooling"},
            ],
            "in the folder itself.*0_Transformer",
        ),
        (
            "1_Pooling/config.json",
            {"pooling_mode": "lasttoken"},
            "config.json: the pooling must be one of cls, mean, max.*lasttoken",
        ),
        (
            "1_Pooling/config.json",
            OLD | {"pooling_mode_cls_token": True},
            "the pooling must be one of",
        ),
        (
            "sentence_bert_config.json",
            {"max_seq_length": "x"},
            "`max_seq_length` must be a positive integer",
        ),
    ],
)
def test_what_we_do_not_do_is_refused(folder, name, values, message):
    write(folder, OLD)
    (folder / name).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message):
        opening.open_folder(folder, OPTIONS)


def expected_vectors(servable, texts, vectors, num_left_out):
    """Returns what NumPy makes of the encoder's outputs."""
    inputs = servable.preprocessor([text.encode() for text in texts])
    outputs = servable.model(inputs)["encoder_outputs"][-1].numpy()
    expected = []
    for row, mask in zip(outputs, inputs["input_mask"].numpy()):
        tokens = row[mask == 1][num_left_out:]
        vector = {
            "cls": lambda tokens: tokens[0],
            "mean": lambda tokens: tokens.mean(axis=0),
            "max": lambda tokens: tokens.max(axis=0),
        }[vectors.pooling](tokens)
        for layer in vectors.dense:
            vector = vector @ layer.kernel
            if layer.bias is not None:
                vector = vector + layer.bias
            if layer.activation == "tanh":
                vector = np.tanh(vector)
        expected.append(vector / np.linalg.norm(vector))
    return expected


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_layers_and_prompts_are_the_folders(tmp_path, pooling):
    vectors = dataclasses.replace(VECTORS, pooling=pooling)
    sentence_models.save(tmp_path / "model", vectors)
    servable = opening.open_folder(tmp_path / "model", OPTIONS)
    assert servable.options.prompt == "query: "
    _, found = vectors_of(servable, TEXTS)
    assert found.shape == (3, 3)
    # [CLS], the word in five pieces, and the colon.
    wanted = expected_vectors(
        servable, [f"query: {text}" for text in TEXTS], vectors, 7
    )
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    if pooling != "mean":
        return
    for settings, prompt, num_left_out in (
        ({"prompt_name": "document"}, "", 0),
        ({"prompt": "a: "}, "a: ", 3),
    ):
        options = ExportOptions(kind="embedding", **settings)
        other = opening.open_folder(tmp_path / "model", options)
        assert other.options.prompt == prompt
        _, found = vectors_of(other, TEXTS)
        wanted = expected_vectors(
            other, [prompt + text for text in TEXTS], vectors, num_left_out
        )
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_vectors_are_cut_as_the_folder_says(tmp_path):
    folder = tmp_path / "model"
    whole = SentenceVectors(pooling="mean", is_normalized=True)
    sentence_models.save(folder, dataclasses.replace(whole, truncate_dim=3))
    servable = opening.open_folder(folder, OPTIONS)
    _, found = vectors_of(servable, TEXTS)
    # As in sentence-transformers what is left is not divided by its length.
    wanted = expected_vectors(servable, TEXTS, whole, 0)
    np.testing.assert_allclose(found, np.array(wanted)[:, :3], atol=1e-6)
    assert servable.row_shape == [3]
    embedder = sentences.open_embedder(folder)
    assert embedder.dimension == 3
    np.testing.assert_allclose(embedder(TEXTS), found, atol=1e-6)
    loaded = bert_tf.load(folder)
    vectors = loaded.model(loaded.preprocessor(TEXTS))
    np.testing.assert_allclose(vectors, found, atol=1e-6)
    assert loaded.model.vector_size == 3
    bert_tf.save(tmp_path / "again", *loaded)
    assert sentence_folder.read(tmp_path / "again").truncate_dim == 3
    plain = SentenceVectors(pooling="mean", is_normalized=False, truncate_dim=3)
    sentence_models.save(folder, plain)
    options = ExportOptions(kind="embedding", normalize=True)
    with pytest.raises(ValueError, match="`truncate_dim` cuts .* to 3 numbers"):
        opening.open_folder(folder, options)
    with pytest.raises(ValueError, match="`truncate_dim` must be a positive"):
        dataclasses.replace(plain, truncate_dim=0)


def test_an_export_has_them_too(tmp_path):
    sentence_models.save(tmp_path / "model", VECTORS)
    servable = opening.open_folder(tmp_path / "model", OPTIONS)
    inputs, expected = vectors_of(servable, TEXTS)
    options = dataclasses.replace(OPTIONS, check=False)
    exporter.export(tmp_path / "model", tmp_path / "export", options)
    signatures = tf.saved_model.load(
        saved_model.newest(str(tmp_path / "export"))
    ).signatures
    found = signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(found["embeddings"], expected, atol=1e-5)
    ids = {
        outside: inputs[name] for name, outside in servable.input_names.items()
    }
    found = signatures["ids"](**ids)
    np.testing.assert_allclose(found["embeddings"], expected, atol=1e-5)
    # Where there are fewer tokens than the prompt's, the last one is left.
    found = signatures["ids"](**{key: ids[key][:, :4] for key in ids})
    cut = {name: value[:, :4] for name, value in inputs.items()}
    hidden = servable.model(cut)["encoder_outputs"][-1][:, 3:]
    mask = cut["input_mask"][:, 3:]
    wanted = sentences.make_vectors([hidden], mask, VECTORS)
    np.testing.assert_allclose(found["embeddings"], wanted, atol=1e-5)
    found = signatures["serving_default"](text=tf.constant([], tf.string))
    assert found["embeddings"].shape == (0, 3)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"prompt_name": "passage"}, "The name of a prompt must be one"),
        (
            {"prompt_name": "query", "prompt": "q"},
            "--prompt must not be given with --prompt_name",
        ),
        ({"prompt": 3}, "--prompt must be a string.* Received: --prompt=3"),
        (
            {"prompt": "a " * 99},
            "prompt must leave room for a text among .* 99",
        ),
        ({"pooling": "max"}, "--pooling must be cls, which the"),
    ],
)
def test_what_does_not_fit_the_folder_is_refused(tmp_path, settings, message):
    sentence_models.save(tmp_path / "model", VECTORS)
    with pytest.raises(ValueError, match=message):
        opening.open_folder(
            tmp_path / "model", ExportOptions(kind="embedding", **settings)
        )


def test_prompts_of_which_none_is_chosen_are_told(tmp_path, caplog):
    vectors = dataclasses.replace(VECTORS, default_prompt_name=None)
    sentence_models.save(tmp_path / "model", vectors)
    with caplog.at_level("WARNING", logger="absl"):
        opening.open_folder(tmp_path / "model", OPTIONS)
    assert "the folder has query, but no default. Choose one with" in (
        caplog.text
    )
    caplog.clear()
    options = ExportOptions(kind="embedding", prompt="")
    with caplog.at_level("WARNING", logger="absl"):
        opening.open_folder(tmp_path / "model", options)
    assert not caplog.text


def test_a_prompt_of_a_folder_without_any_is_refused(folder):
    options = ExportOptions(kind="embedding", prompt_name="query")
    with pytest.raises(ValueError, match="--prompt_name must be given with a"):
        opening.open_folder(folder, options)


def test_folders_are_loaded_and_written_again(tmp_path):
    vectors = dataclasses.replace(VECTORS, dense=VECTORS.dense[:1])
    sentence_models.save(tmp_path / "model", vectors)
    model, preprocessor, task = bert_tf.load(tmp_path / "model")
    assert isinstance(model, BertSentenceEncoder)
    assert task is None
    found = model(preprocessor([f"query: {text}" for text in TEXTS]))
    bert_tf.save(tmp_path / "again", model, preprocessor, task)
    again = sentence_folder.read(tmp_path / "again")
    for name in ("pooling", "is_normalized", "prompts", "include_prompt"):
        assert getattr(again, name) == getattr(vectors, name)
    assert again.default_prompt_name == "query"
    np.testing.assert_array_equal(
        again.dense[0].kernel, vectors.dense[0].kernel
    )
    servable = opening.open_folder(tmp_path / "again", OPTIONS)
    # Of this pooling the model's own includes the prompt.
    wanted = expected_vectors(
        servable, [f"query: {text}" for text in TEXTS], vectors, 0
    )
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    # What the model cannot have is told, and what it is without is loaded.
    sentence_models.save(tmp_path / "other", VECTORS)
    model, _, _ = bert_tf.load(tmp_path / "other")
    assert isinstance(model, BertEncoder)


VECTORS_OF_ALL = """
import json, sys
import sentence_transformers as st
texts = json.load(open(sys.argv[1], encoding="utf-8"))
found = []
for folder in sys.argv[2:]:
    model = st.SentenceTransformer(folder, device="cpu")
    found.append(model.encode(texts).tolist())
    model.save(folder + "_theirs")
print(json.dumps(found))
"""


@pytest.mark.peers
def test_what_we_write_has_equal_vectors_there(tmp_path):
    texts = [*TEXTS, "", "query: a"]
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(texts), "utf-8")
    folders = []
    for pooling in ("cls", "mean", "max"):
        for changes in (
            {},
            {"include_prompt": True},
            {"dense": (), "is_normalized": False, "prompts": {}}
            | {"default_prompt_name": None},
        ):
            vectors = dataclasses.replace(VECTORS, pooling=pooling, **changes)
            folders.append(tmp_path / f"{pooling}_{len(folders)}")
            sentence_models.save(folders[-1], vectors)
    printed = peers.run("-c", VECTORS_OF_ALL, path, *folders)
    expected = json.loads(printed.splitlines()[-1])
    for folder, wanted in zip(folders, expected, strict=True):
        # Ours, and what they write of it.
        for each in (folder, f"{folder}_theirs"):
            servable = opening.open_folder(each, OPTIONS)
            _, found = vectors_of(servable, texts)
            np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.peers
def test_vectors_of_minilm_are_sentence_transformers(tmp_path):
    texts = [
        "A man is eating food.",
        "The  quick brown fox, naïve café…",
        "word " * 400,
        "",
    ]
    (tmp_path / "texts.json").write_text(json.dumps(texts), "utf-8")
    printed = peers.run(
        "-c",
        "import json, sys, sentence_transformers as st; "
        "model = st.SentenceTransformer(sys.argv[1], device='cpu'); "
        "texts = json.load(open(sys.argv[2], encoding='utf-8')); "
        "print(json.dumps(model.encode(texts).tolist()))",
        peers.minilm(),
        tmp_path / "texts.json",
    )
    servable = opening.open_folder(peers.minilm(), OPTIONS)
    assert servable.options.max_seq_length == 256
    _, found = vectors_of(servable, texts)
    np.testing.assert_allclose(
        found, json.loads(printed.splitlines()[-1]), atol=1e-5
    )
