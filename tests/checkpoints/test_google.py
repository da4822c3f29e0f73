"""TF1 checkpoints of google-research/bert: read, written, and refused."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import families
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import checkpoints as peer

CONFIG = {
    "vocab_size": 17,
    "hidden_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 3,
    "intermediate_size": 10,
    "hidden_act": "gelu",
    "max_position_embeddings": 9,
    "type_vocab_size": 2,
    "directionality": "bidi",
}
# Written down after the index files of the releases.
ENCODER = {
    "bert/embeddings/word_embeddings": (17, 12),
    "bert/embeddings/position_embeddings": (9, 12),
    "bert/embeddings/token_type_embeddings": (2, 12),
    "bert/embeddings/LayerNorm/gamma": (12,),
    "bert/embeddings/LayerNorm/beta": (12,),
    "bert/encoder/layer_0/attention/self/query/kernel": (12, 12),
    "bert/encoder/layer_0/attention/self/query/bias": (12,),
    "bert/encoder/layer_0/attention/self/key/kernel": (12, 12),
    "bert/encoder/layer_0/attention/self/key/bias": (12,),
    "bert/encoder/layer_0/attention/self/value/kernel": (12, 12),
    "bert/encoder/layer_0/attention/self/value/bias": (12,),
    "bert/encoder/layer_0/attention/output/dense/kernel": (12, 12),
    "bert/encoder/layer_0/attention/output/dense/bias": (12,),
    "bert/encoder/layer_0/attention/output/LayerNorm/gamma": (12,),
    "bert/encoder/layer_0/attention/output/LayerNorm/beta": (12,),
    "bert/encoder/layer_0/intermediate/dense/kernel": (12, 10),
    "bert/encoder/layer_0/intermediate/dense/bias": (10,),
    "bert/encoder/layer_0/output/dense/kernel": (10, 12),
    "bert/encoder/layer_0/output/dense/bias": (12,),
    "bert/encoder/layer_0/output/LayerNorm/gamma": (12,),
    "bert/encoder/layer_0/output/LayerNorm/beta": (12,),
    "bert/pooler/dense/kernel": (12, 12),
    "bert/pooler/dense/bias": (12,),
}
PRETRAINING = {
    "cls/predictions/transform/dense/kernel": (12, 12),
    "cls/predictions/transform/dense/bias": (12,),
    "cls/predictions/transform/LayerNorm/gamma": (12,),
    "cls/predictions/transform/LayerNorm/beta": (12,),
    "cls/predictions/output_bias": (17,),
    "cls/seq_relationship/output_weights": (2, 12),
    "cls/seq_relationship/output_bias": (2,),
}
CLASSIFIER = {"output_weights": (3, 12), "output_bias": (3,)}
SQUAD = {"cls/squad/output_weights": (2, 12), "cls/squad/output_bias": (2,)}


def values(shapes, slots=False):
    """Returns {name: array}; with Adam's moments and a step if asked for."""
    if slots:
        shapes = {
            name + slot: shape
            for name, shape in shapes.items()
            for slot in ("", "/adam_m", "/adam_v")
        }
    generator = np.random.default_rng(20181011)
    tensors = {
        name: generator.normal(0, 0.5, shape).astype("float32")
        for name, shape in sorted(shapes.items())
    }
    if slots:
        tensors["global_step"] = np.array(123, "int64")
    return tensors


def write(folder, tensors, prefix="bert_model.ckpt", config=CONFIG):
    """Writes a release as TensorFlow 1 did: variables, session, Saver."""
    os.makedirs(folder, exist_ok=True)
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, initializer=array, use_resource=False)
            for name, array in tensors.items()
        }
        session.run(v1.global_variables_initializer())
        v1.train.Saver(variables).save(
            session, f"{folder}/{prefix}", write_state=False
        )
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text(
        "".join(f"{token}\n" for token in peer.TOKENS)
    )
    return str(folder)


def read(folder):
    """Returns {name: array} of a checkpoint."""
    reader = tf.train.load_checkpoint(f"{folder}/bert_model.ckpt")
    return {
        name: np.asarray(reader.get_tensor(name))
        for name in reader.get_variable_to_shape_map()
    }


def assert_bit_equal(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        assert array.dtype == right[name].dtype, name
        assert array.shape == right[name].shape, name
        assert array.tobytes() == right[name].tobytes(), name


@pytest.mark.parametrize(
    ("name", "vocab_size", "num_tensors"),
    [("mini", 30522, 78), ("medium", 30522, 142), ("base", 21128, 206)],
)
def test_there_are_as_many_tensors_as_in_the_releases(
    name, vocab_size, num_tensors
):
    config = BertConfig.named(name, vocab_size=vocab_size)
    family = families.of_config(config)
    parts = family.architectures["BertForPreTraining"]
    assert len(family.table(config, parts)) == num_tensors


def test_released_form_loads(tmp_path):
    tensors = values(ENCODER | PRETRAINING)
    model = checkpoints.load(write(tmp_path, tensors), BertPretrainer)
    assert model.config.hidden_act == "gelu_new"
    assert model.coverage_report.names("new") == ()
    assert model.coverage_report.names("left over") == ()
    loaded = {v.path.split("/", 1)[1]: np.array(v) for v in model.weights}
    for keras_name, name, transposed in (
        (
            "embeddings/segment_embeddings",
            "embeddings/token_type_embeddings",
            0,
        ),
        ("layer_0/intermediate/kernel", None, 0),
        ("layer_0/attention/merge_heads/kernel", None, 0),
        ("next_sentence/dense/kernel", None, 1),
    ):
        name = {
            "layer_0/intermediate/kernel": (
                "bert/encoder/layer_0/intermediate/dense/kernel"
            ),
            "layer_0/attention/merge_heads/kernel": (
                "bert/encoder/layer_0/attention/output/dense/kernel"
            ),
            "next_sentence/dense/kernel": "cls/seq_relationship/output_weights",
        }.get(keras_name, f"bert/{name}")
        array = tensors[name].T if transposed else tensors[name]
        np.testing.assert_array_equal(loaded[keras_name], array)


def test_bit_equal_through_every_form(tmp_path):
    tensors = values(ENCODER | PRETRAINING, slots=True)
    assert len(tensors) == 3 * 30 + 1
    write(tmp_path / "a", tensors)
    steps = ("bert_tf", "hugging_face", "bert_tf", "google")
    for index, file_format in enumerate(steps):
        source, target = (tmp_path / "abcde"[i] for i in (index, index + 1))
        report = checkpoints.convert(source, target, file_format)
        # The first has the state of an optimizer.
        num_left = 2 * 30 + 1 if index == 0 else 0
        assert len(report.names("left over")) == num_left
    weights = {
        name: array
        for name, array in tensors.items()
        if name.split("/")[-1] not in ("adam_m", "adam_v", "global_step")
    }
    assert len(weights) == 30
    assert_bit_equal(read(tmp_path / "e"), weights)
    assert json.loads((tmp_path / "e/bert_config.json").read_text()) == (
        {key: CONFIG[key] for key in CONFIG if key != "directionality"}
        | {
            "attention_probs_dropout_prob": 0.1,
            "hidden_dropout_prob": 0.1,
            "initializer_range": 0.02,
        }
    )
    assert (tmp_path / "e/vocab.txt").read_bytes() == (
        tmp_path / "a/vocab.txt"
    ).read_bytes()
    assert sorted(os.listdir(tmp_path / "e")) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]


def test_bit_equal_through_models(tmp_path):
    tensors = values(ENCODER | PRETRAINING)
    write(tmp_path / "a", tensors)
    vocabulary = model_folder.read_vocabulary(tmp_path / "a")
    source = tmp_path / "a"
    for target in (tmp_path / "b", tmp_path / "c"):
        model = checkpoints.load(source, BertPretrainer)
        checkpoints.save(target, model, WordpieceSpec(vocabulary), 9)
        source = target
    checkpoints.convert(source, tmp_path / "d", "google")
    assert_bit_equal(read(tmp_path / "d"), tensors)


@pytest.mark.parametrize(
    ("head", "architecture"),
    [
        (CLASSIFIER, "BertForSequenceClassification"),
        (SQUAD, "BertForQuestionAnswering"),
    ],
)
def test_tuned_heads_go_both_ways(tmp_path, head, architecture):
    tensors = values(ENCODER | head)
    write(tmp_path / "a", tensors)
    report = checkpoints.convert(tmp_path / "a", tmp_path / "b", "hugging_face")
    config = json.loads((tmp_path / "b/config.json").read_text())
    assert config["architectures"] == [architecture]
    checkpoints.convert(tmp_path / "b", tmp_path / "c", "google")
    if architecture == "BertForQuestionAnswering":
        # Hugging Face's class has no pooler.
        dropped = ("bert/pooler/dense/bias", "bert/pooler/dense/kernel")
        assert report.names("left over") == dropped
        for name in dropped:
            del tensors[name]
        model = checkpoints.load(tmp_path / "a", BertSpanPredictor)
        np.testing.assert_array_equal(
            np.array(model.span_head.dense.kernel).T,
            tensors["cls/squad/output_weights"],
        )
    else:
        model = checkpoints.load(tmp_path / "a", BertClassifier)
        assert model.num_labels == 3
        np.testing.assert_array_equal(
            np.array(model.classification_head.dense.kernel).T,
            tensors["output_weights"],
        )
    assert_bit_equal(read(tmp_path / "c"), tensors)


@pytest.mark.parametrize(
    ("head", "architecture", "model_class"),
    [
        (CLASSIFIER, "BertForTokenClassification", BertTokenClassifier),
        (SQUAD, "BertForQuestionAnswering", BertSpanPredictor),
    ],
)
def test_heads_without_a_pooler_are_read(
    tmp_path, head, architecture, model_class
):
    tensors = values(ENCODER | head)
    del tensors["bert/pooler/dense/kernel"], tensors["bert/pooler/dense/bias"]
    write(tmp_path, tensors)
    model = checkpoints.load(tmp_path, model_class)
    assert len(model.coverage_report.names("loaded")) == len(tensors)
    outputs, _ = head.values()
    found = [variable.numpy().T for variable in model.trainable_variables]
    (kernel,) = [array for array in found if array.shape == outputs]
    np.testing.assert_array_equal(kernel, tensors[next(iter(head))])
    # A head of tokens is none of texts.
    other = checkpoints.load(tmp_path, BertClassifier, num_labels=3)
    assert len(other.coverage_report.names("loaded")) == len(tensors) - 2
    report = checkpoints.convert(tmp_path, tmp_path / "b", "hugging_face")
    assert len(report.names("loaded")) == len(tensors)
    config = json.loads((tmp_path / "b/config.json").read_text())
    assert config["architectures"] == [architecture]


def test_a_model_of_masked_words_alone_has_no_pooler(tmp_path):
    tensors = values(ENCODER | PRETRAINING)
    tensors = {
        name: value
        for name, value in tensors.items()
        if not name.startswith(("bert/pooler", "cls/seq_relationship"))
    }
    write(tmp_path / "a", tensors)
    for model_class in (BertPretrainer, BertEncoder):
        model = checkpoints.load(tmp_path / "a", model_class)
        (bias,) = [x for x in model.weights if "pooler/dense/bias" in x.path]
        assert bias.path in model.coverage_report.names("new")
    report = checkpoints.convert(tmp_path / "a", tmp_path / "b", "hugging_face")
    assert len(report.names("loaded")) == len(tensors)
    config = json.loads((tmp_path / "b/config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]
    checkpoints.convert(tmp_path / "b", tmp_path / "c", "google")
    assert_bit_equal(read(tmp_path / "c"), tensors)
    checkpoints.load(tmp_path / "c", BertEncoder)


def test_a_pooler_must_be_there_without_such_a_head(tmp_path):
    tensors = values(ENCODER | PRETRAINING)
    del tensors["bert/pooler/dense/kernel"], tensors["bert/pooler/dense/bias"]
    write(tmp_path, tensors)
    with pytest.raises(ValueError, match="bert/pooler/dense/kernel is missing"):
        checkpoints.load(tmp_path, BertEncoder)


def test_slots_are_left_over_from_the_weights(tmp_path):
    write(tmp_path, values(ENCODER | CLASSIFIER, slots=True))
    report = checkpoints.load(tmp_path, BertEncoder).coverage_report
    assert len(report.names("loaded")) == 23
    left_over = report.names("left over")
    assert len(left_over) == 2 * 25 + 1 + 2
    assert "output_weights" in left_over
    assert "output_weights/adam_m" in left_over
    assert report.summary.endswith("unused (classifier head)")


def test_path_may_be_a_prefix(tmp_path):
    tensors = values(ENCODER)
    write(tmp_path, tensors, prefix="model.ckpt-20")
    write(tmp_path, values(ENCODER | CLASSIFIER), prefix="model.ckpt-40")
    model = checkpoints.load(tmp_path / "model.ckpt-20", BertEncoder)
    np.testing.assert_array_equal(
        model.pooler.dense.bias, tensors["bert/pooler/dense/bias"]
    )
    with pytest.raises(ValueError, match=r"model\.ckpt-20, model\.ckpt-40"):
        checkpoints.load(tmp_path, BertEncoder)
    (tmp_path / "checkpoint").write_text(
        'model_checkpoint_path: "model.ckpt-20"\n'
    )
    checkpoints.load(tmp_path, BertEncoder)


@pytest.mark.parametrize("suffix", [".index", ".data-00000-of-00001"])
def test_a_file_in_place_of_the_prefix_is_told(tmp_path, suffix):
    (tmp_path / "x.ckpt.index").touch()
    with pytest.raises(ValueError, match=r"begin with: \S+/x\.ckpt\.$"):
        checkpoints.load(tmp_path / f"x.ckpt{suffix}", BertEncoder)


def test_weights_load_without_a_configuration(tmp_path):
    write(tmp_path, values(ENCODER))
    (tmp_path / "bert_config.json").unlink()
    model = BertEncoder(families.parse_config(CONFIG))
    report = checkpoints.load_weights(tmp_path / "bert_model.ckpt", model)
    assert len(report.names("loaded")) == 23
    with pytest.raises(ValueError, match=r"bert_config\.json"):
        checkpoints.load(tmp_path, BertEncoder)


def cut(folder, tensors):
    path = folder / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:900])
    return r"bert_model\.ckpt\.data.*the tensor bert/\S+ cannot be read"


def flip_a_bit(folder, tensors):
    path = folder / "bert_model.ckpt.data-00000-of-00001"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return r"bert_model\.ckpt\.data.*the tensor bert/\S+ cannot be read"


def remove_data(folder, tensors):
    (folder / "bert_model.ckpt.data-00000-of-00001").unlink()
    return r"bert_model\.ckpt\.data.*the tensor bert/\S+ cannot be read"


def cut_index(folder, tensors):
    path = folder / "bert_model.ckpt.index"
    path.write_bytes(path.read_bytes()[:100])
    return r"bert_model\.ckpt\.index: is truncated"


def drop(folder, tensors):
    name = "bert/encoder/layer_0/output/dense/bias"
    write(folder, {n: x for n, x in tensors.items() if n != name})
    return f"bert_model.ckpt.*{name} is missing"


def reshape(folder, tensors):
    name = "bert/encoder/layer_0/output/dense/kernel"
    write(folder, tensors | {name: tensors[name].T.copy()})
    return rf"{name} must .* \[10, 12\]\. Received: \[12, 10\]"


def add(folder, tensors):
    name = "bert/encoder/layer_1/output/dense/bias"
    write(folder, tensors | {name: np.ones(12, "float32")})
    return rf"{name} \[12\] has no place"


@pytest.mark.parametrize(
    "damage", [cut, flip_a_bit, remove_data, cut_index, drop, reshape, add]
)
def test_damaged_files_are_errors_that_name_file_and_tensor(tmp_path, damage):
    tensors = values(ENCODER)
    write(tmp_path, tensors)
    match = damage(tmp_path, tensors)
    with pytest.raises(ValueError, match=f"(?s){tmp_path}.*{match}"):
        checkpoints.load(tmp_path, BertEncoder)
    with pytest.raises(ValueError, match=f"(?s){tmp_path}.*{match}"):
        checkpoints.convert(tmp_path, tmp_path / "out", "bert_tf")
    assert not (tmp_path / "out").exists()


def test_training_state_is_no_model(tmp_path):
    tf.train.Checkpoint(x=tf.Variable(1.0)).write(str(tmp_path / "state-1"))
    with pytest.raises(ValueError, match="object checkpoint of TensorFlow 2"):
        checkpoints.load(tmp_path, BertEncoder)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"is_decoder": True}, "they have no left-to-right models"),
        ({"hidden_act": "gelu"}, r"hidden_act=.gelu.. .*--hidden_act=gelu_new"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05"),
    ],
)
def test_what_google_cannot_compute_is_refused(tmp_path, changes, match):
    peer.write_folder(
        tmp_path / "a", "BertModel", **({"hidden_act": "relu"} | changes)
    )
    with pytest.raises(ValueError, match=match):
        checkpoints.convert(tmp_path / "a", tmp_path / "b", "google")
    assert not (tmp_path / "b").exists()
    if "hidden_act" in changes:
        checkpoints.convert(
            tmp_path / "a", tmp_path / "b", "google", hidden_act="gelu_new"
        )
        config = families.read_config(tmp_path / "b/bert_config.json")
        assert config.hidden_act == "gelu_new"


def test_full_disk_leaves_nothing(tmp_path, monkeypatch):
    write(tmp_path / "a", values(ENCODER))

    def fail(**kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left")

    monkeypatch.setattr(tf1_checkpoint.tf.raw_ops, "SaveV2", fail)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.convert(tmp_path / "a", tmp_path / "b", "google")
    assert os.listdir(tmp_path) == ["a"]
