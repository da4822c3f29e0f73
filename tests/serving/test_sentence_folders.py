"""Folders of sentence-transformers keep their vectors without being told."""

import json
import shutil

import numpy as np
import pytest

from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from support import peers
from support import serving_models

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
    assert servable.options.settings == {"embedding": mode, "normalize": True}
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
        settings={"embedding": "cls", "normalize": False},
        max_seq_length=7,
    )
    servable = opening.open_folder(folder, options)
    assert servable.options.settings == options.settings
    assert servable.options.max_seq_length == 7


def test_other_folders_are_as_before(folder):
    servable = opening.open_folder(folder, OPTIONS)
    assert servable.options.settings == {
        "embedding": "mean",
        "normalize": False,
    }


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
