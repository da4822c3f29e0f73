"""Models in ONNX: the trained model's answers, through ONNX Runtime."""

import dataclasses
import json
import logging
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving import onnx_exporter
from bert_tf.serving import options as options_lib
from bert_tf.serving.formats.onnx_graph import OnnxGraph
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.token_embeddings import TokenEmbeddings
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import check
from bert_tf.serving.proof import progress
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import sentence_models
from support import serving_models
from support.disk import full_disk
from support.paths import ROOT

CONFIG = serving_models.CONFIG
TEXTS = [(b"the quick",), (b"",), (b"lorem the " * 30,), (b"a b c",)]
TASK = ClassificationTask(
    name="one",
    text_features=("text",),
    labels=("a", "b"),
    metrics=("accuracy",),
)
# What families differ in: see `BertConfig`.
FAMILIES = {
    "bert": {},
    "roberta": {
        "padding_idx": 0,
        "type_vocab_size": 1,
        "hidden_act": "gelu",
        "has_pooler": False,
        "classifier_hidden_act": "tanh",
    },
    "mpnet": {
        "padding_idx": 0,
        "type_vocab_size": 0,
        "has_relative_bias": True,
        "has_pooler": False,
        "classifier_hidden_act": "tanh",
    },
    "albert": {
        "embedding_size": 6,
        "num_hidden_groups": 1,
        "hidden_act": "silu",
    },
    "electra": {
        "has_pooler": False,
        "hidden_act": "quick_gelu",
        "classifier_hidden_act": "gelu",
    },
    "modernbert": {
        "type_vocab_size": 0,
        "hidden_act": "gelu",
        "has_pooler": False,
        "classifier_hidden_act": "gelu",
        "norm_first": True,
        "has_biases": False,
        "rotary_theta": 160.0,
        "local_rotary_theta": 10.0,
        "attention_window": 2,
        "full_attention_every": 2,
        "shared_head": True,
        "classifier_pooling": "mean",
    },
    "distilbert": {
        "type_vocab_size": 0,
        "hidden_act": "relu",
        "has_pooler": False,
        "classifier_hidden_act": "relu",
    },
}


def servable_of(kind, model, task=None, **options):
    for variable in model.trainable_variables:
        noise = np.random.default_rng(0).normal(size=variable.shape)
        variable.assign(variable.value + 0.3 * noise)
    preprocessor = Preprocessor(
        WordpieceSpec(serving_models.VOCABULARY),
        serving_models.MAX_SEQ_LENGTH,
    )
    return serving_models.make_servable(
        kind, model, preprocessor, task, **options
    )


def difference(servable, folder, texts=TEXTS):
    """Returns how far the model in float32 is from the trained one."""
    onnxruntime = pytest.importorskip("onnxruntime")
    assert onnxruntime
    path = folder / "model.onnx"
    path.write_bytes(onnx_exporter.make_model(servable).SerializeToString())
    inputs = servable.encode(texts)
    trained = servable.call_model(inputs, training=False)
    found = onnx_exporter.load(str(path))(inputs)
    # Of several outputs, by their names.
    tf.nest.assert_same_structure(found, trained)
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(trained))
    return max(distance(*pair) for pair in pairs)


def distance(found, trained):
    found, trained = np.asarray(found), np.asarray(trained)
    assert found.shape == trained.shape
    return np.abs(found - trained).max() / max(1.0, np.abs(trained).max())


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_a_family_are_the_trained_models(family, tmp_path):
    pytest.importorskip("onnx")
    config = dataclasses.replace(CONFIG, **FAMILIES[family])
    servable = servable_of(Classification, BertClassifier(config, 2), TASK)
    assert difference(servable, tmp_path) < check.TOLERANCE


@pytest.mark.parametrize("embedding", options_lib.POOLINGS)
def test_vectors_are_the_trained_models(embedding, tmp_path):
    pytest.importorskip("onnx")
    config = dataclasses.replace(CONFIG, num_hidden_layers=4)
    servable = servable_of(
        Embedding,
        BertEncoder(config),
        pooling=embedding,
        normalize=embedding == "mean",
    )
    assert difference(servable, tmp_path) < check.TOLERANCE


@pytest.mark.parametrize("options", [{}, {"kind": "reranker"}])
def test_scores_of_a_reranker_are_the_trained_models(tmp_path, options):
    pytest.importorskip("onnx")
    servable = serving_models.servable("reranker", **options)
    # Of the kind, whatever it was tuned to, the task is not asked for.
    assert (servable.task is None) == bool(options)
    pairs = [(b"the quick", b"a"), (b"", b"lorem " * 30), (b"a", b"")]
    assert difference(servable, tmp_path, pairs) < check.TOLERANCE


@pytest.mark.parametrize("kind", ["tagger", "squad"])
def test_logits_of_tokens_are_the_trained_models(kind, tmp_path):
    """Both models answer, and names and tokenizer stand beside them."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    servable = serving_models.servable(kind)
    pairs = servable.hard_texts()[:6]
    assert difference(servable, tmp_path, pairs) < check.TOLERANCE
    exported = onnx_exporter.export(
        serving_models.model_dir(kind), tmp_path / "onnx", ExportOptions()
    )
    float32, int8, alone = exported.check_table.split("Loaded by")[1:]
    assert "equal" in float32 and "model_int8.onnx" in int8
    assert "model_int8.onnx, a text at a time" in alone
    folder = tmp_path / "onnx" / "1"
    assert {"vocab.txt", "tokenizer.json"} <= {*os.listdir(folder)}
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "bert"
    if kind == "tagger":
        labels = serving_models.TAGGING_TASK.labels
        assert [*config["id2label"].values()] == [*labels]
        assert config["label2id"]["B-é"] == 1


@pytest.mark.parametrize("layer", [-1, 0])
def test_vectors_of_tokens_are_the_trained_models(layer, tmp_path):
    pytest.importorskip("onnx")
    servable = servable_of(TokenEmbeddings, BertEncoder(CONFIG), layer=layer)
    assert difference(servable, tmp_path) < check.TOLERANCE


def test_scores_of_choices_are_the_trained_models(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    servable = serving_models.servable("choice")
    exported = onnx_exporter.export(
        serving_models.model_dir("choice"), tmp_path, ExportOptions()
    )
    float32, *_ = exported.check_table.split("Loaded by")[1:]
    assert "equal" in float32
    model = onnx_exporter.load(f"{exported.path}/{onnx_exporter.FLOAT_FILE}")
    inputs = servable.encode(servable.hard_texts()[:6])
    # As the trained model's, they may be of any number of choices, and texts.
    for num_texts, num_choices in ((6, 3), (6, 2), (0, 3)):
        part = {
            name: inputs[name][:num_texts, :num_choices]
            for name in features.MODEL_INPUTS
        }
        logits = servable.call_model(part, training=False)
        calibrated = logits / servable.task.temperature
        np.testing.assert_allclose(model(part), calibrated, atol=1e-5)


@pytest.mark.parametrize("kind", ["choice", "pair", "topics"])
def test_logits_are_calibrated(kind, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    servable = serving_models.servable(kind)
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_exporter.make_model(servable).SerializeToString())
    texts = servable.hard_texts()[:5]
    inputs = servable.encode(texts)
    logits = onnx_exporter.load(str(path))(inputs)
    probabilities = tf.nn.sigmoid if kind == "topics" else tf.nn.softmax
    np.testing.assert_allclose(
        probabilities(logits),
        servable.trained_answers(inputs, texts)["probabilities"],
        atol=1e-6,
    )


def test_layers_and_prompts_of_a_folder_are_there(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    vectors = sentence_models.VECTORS
    options = ExportOptions(kind="embedding")
    for pooling, size in (("mean", None), ("max", 2)):
        folder = tmp_path / pooling
        told = dataclasses.replace(vectors, pooling=pooling, truncate_dim=size)
        sentence_models.save(folder, told)
        servable = opening.open_folder(folder, options)
        assert servable.row_shape == [size or 3]
        # [CLS], the word in five pieces, and the colon.
        assert servable.num_left_out == 7
        assert len(servable.made_vectors.dense) == 2
        assert difference(servable, folder) < check.TOLERANCE
        # The last token is left of ids that are shorter than the prompt.
        ids = tf.constant([[2, 5, 6, 3], [2, 9, 3, 0]])
        inputs = {
            "input_ids": ids,
            "input_mask": tf.ones_like(ids),
            "segment_ids": tf.zeros_like(ids),
        }
        found = onnx_exporter.load(str(folder / "model.onnx"))(inputs)
        trained = servable.call_model(inputs, training=False)
        assert distance(found, trained) < check.TOLERANCE
    sentence_models.save(tmp_path / "cls", vectors)
    exported = onnx_exporter.export(
        tmp_path / "cls", tmp_path / "export", options
    )
    assert "equal" in exported.check_table
    # What whoever makes ids has to put before a text.
    path = tmp_path / "export" / "1" / "bert_tf.json"
    described = json.loads(path.read_text())
    assert described.pop("weights_sha256").keys() == {"model.safetensors"}
    assert described == {
        "format_version": 3,
        "format": "onnx",
        "kind": "embedding",
        "family": None,
        "text_features": ["text"],
        "max_seq_length": serving_models.MAX_SEQ_LENGTH,
        "pooling": "cls",
        "normalize": True,
        "prompt": "query: ",
    }


def test_a_constant_has_one_value():
    graph = OnnxGraph()
    for _ in range(2):
        assert graph.constant("scale", [0.5, np.nan]) == "scale"
    for value, dtype in (
        ([0.5, 1.0], np.float32),
        ([0.5], np.float32),
        ([0.5, np.nan], np.float64),
    ):
        with pytest.raises(AssertionError, match="two constants scale"):
            graph.constant("scale", value, dtype)


def test_an_export_is_whole_and_checked(tmp_path, caplog):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    # Of an exporter that was killed.
    (tmp_path / ".export.abc").mkdir()
    exported = onnx_exporter.export(
        serving_models.model_dir("pair"), tmp_path, ExportOptions()
    )
    assert exported.path == f"{tmp_path}/1"
    assert "incomplete versions: .export.abc." in caplog.text
    assert {"model.onnx", "model_int8.onnx", "vocab.txt"} <= set(
        os.listdir(exported.path)
    )
    assert "equal" in exported.check_table
    settings = json.loads((tmp_path / "1" / "bert_tf.json").read_text())
    assert settings["labels"] == list(serving_models.PAIR_TASK.labels)


@pytest.mark.parametrize("kind", ["choice", "pair", "tagger", "squad"])
def test_int8_is_asked_a_text_at_a_time_too(kind, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    exported = onnx_exporter.export(
        serving_models.model_dir(kind),
        tmp_path,
        ExportOptions(check=False),
    )
    servable = serving_models.servable(kind)
    texts = servable.hard_texts()[:5]
    *_, alone = onnx_exporter.compare(exported.path, servable, texts)
    each = [
        onnx_exporter.compare(exported.path, servable, [text])[1]
        for text in texts
    ]
    found = [one.max_difference for one in each]
    assert alone.max_difference == pytest.approx(max(found), rel=1e-3)
    assert alone.num_changed == sum(one.num_changed for one in each)


def test_quantizing_is_silent(tmp_path, caplog):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    level = logging.getLogger().level
    with caplog.at_level(logging.INFO):
        onnx_exporter.export(
            serving_models.model_dir("pair"),
            tmp_path,
            ExportOptions(check=False),
        )
    assert not [each for each in caplog.records if each.name == "root"]
    assert logging.getLogger().level == level


# In the model that is made on the way, and in the one of 8 bits.
@pytest.mark.parametrize("num_bytes", [18_000, 25_000])
def test_a_full_disk_is_told_with_the_file(tmp_path, num_bytes):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    told = r"^model_int8.onnx cannot be written; is the disk full\? "
    with full_disk(num_bytes), pytest.raises(OSError, match=told):
        onnx_exporter.export(
            serving_models.model_dir("pair"),
            tmp_path,
            ExportOptions(check=False),
        )
    assert not os.listdir(tmp_path)


def test_a_long_comparison_tells_how_far_it_is(tmp_path, caplog, monkeypatch):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    caplog.set_level("INFO", logger="absl")
    onnx_exporter.export(
        serving_models.model_dir("pair"), tmp_path, ExportOptions()
    )
    number = len(serving_models.servable("pair").hard_texts())
    told = f"The model in ONNX is compared: text {number} of {number} ("
    assert told in caplog.text


def test_the_documents_consumer_reads_long_pairs_as_the_model_did(tmp_path):
    """`encode` of docs/serving.md, on pairs of which both are cut."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers")
    onnx_exporter.export(
        serving_models.model_dir("pair"),
        tmp_path,
        ExportOptions(check=False),
    )
    text = (ROOT / "docs" / "serving.md").read_text()
    (snippet,) = re.findall(r"(?ms)^def encode\(.*?(?=^\S+ = )", text)
    path = str(tmp_path / "1" / "tokenizer.json")
    names = {
        "tokenizer": tokenizers.Tokenizer.from_file(path),
        "longest": serving_models.MAX_SEQ_LENGTH,
    }
    exec(snippet, names)
    servable = opening.open_folder(serving_models.model_dir("pair"))
    words = [
        "the quick a b c " * 9,
        "lorem a the b " * 9,
        "a b c",
        "",
        "a " * 7,
    ]
    for a in words:
        for b in words:
            row = names["encode"](a, b)
            inputs = servable.encode([(a.encode(), b.encode())])
            length = len(row)
            ids, segments = (
                inputs[name].numpy()[0]
                for name in (features.INPUT_IDS, features.SEGMENT_IDS)
            )
            assert ids[:length].tolist() == row.ids and not ids[length:].any()
            assert segments[:length].tolist() == row.type_ids


def test_a_difference_leaves_nothing(tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(onnx_exporter.onnx_graph, "_MASKED", 0.0)
    with pytest.raises(ValueError, match="does not answer as"):
        onnx_exporter.export(
            serving_models.model_dir("pair"), tmp_path, ExportOptions()
        )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "kind, options, message",
    [
        (
            "fill_mask",
            {"kind": "fill_mask"},
            "must be saved_model for this kind",
        ),
        ("pair", {"precision": "bfloat16"}, "--precision must not be given"),
        ("pair", {"freeze": True}, "--freeze must not be given"),
        (
            "reranker",
            {"count_tokens": True},
            "--count_tokens must not be given with --format=onnx",
        ),
    ],
)
def test_what_has_no_form_in_onnx(kind, options, message, tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    with pytest.raises(ValueError, match=message):
        onnx_exporter.export(
            serving_models.model_dir(kind), tmp_path, ExportOptions(**options)
        )
