"""Families: configurations of released files, and a second family."""

import dataclasses
import json
import re

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import families
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import transforms
from bert_tf.checkpoints.families import bert
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Stored
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.transforms import IDENTITY
from bert_tf.checkpoints.transforms import TRANSPOSE
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import checkpoints as peer

# google-research/bert's bert_config.json of BERT-Base, Chinese, as released.
GOOGLE_CHINESE = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pooler_fc_size": 768,
    "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128,
    "pooler_type": "first_token_transform",
    "type_vocab_size": 2,
    "vocab_size": 21128,
}


def test_google_s_gelu_is_the_tanh_form():
    config = families.parse_config(GOOGLE_CHINESE)
    assert config == BertConfig(vocab_size=21128)
    assert config.hidden_act == "gelu_new"


def test_hugging_face_s_gelu_is_the_erf_form():
    values = {"model_type": "bert", "vocab_size": 99}
    values["hidden_act"] = "gelu_pytorch_tanh"
    assert families.parse_config(values).hidden_act == "gelu_new"
    values["hidden_act"] = "gelu"
    assert families.parse_config(values).hidden_act == "gelu"
    for key, value in (
        ("architectures", ["BertModel"]),
        ("torchscript", False),
    ):
        values = {key: value, "vocab_size": 99}
        assert families.parse_config(values).hidden_act == "gelu"


@pytest.mark.parametrize("model_type", ["bert", "roberta", "distilbert"])
def test_what_early_releases_write_of_generation_is_not_read(model_type):
    values = {"model_type": model_type, "vocab_size": 99}
    config = families.parse_config(values)
    # As transformers 2.
    others = {
        "do_sample": False,
        "eos_token_ids": 0,
        "length_penalty": 1.0,
        "max_length": 20,
        "num_beams": 1,
        "num_return_sequences": 1,
        "output_past": True,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
        "torchscript": False,
        "use_bfloat16": False,
    }
    assert families.parse_config(values | others) == config


def test_missing_segments_are_as_many_as_the_original_has():
    assert families.parse_config({"vocab_size": 9}).type_vocab_size == 16
    values = {"model_type": "bert", "vocab_size": 9}
    assert families.parse_config(values).type_vocab_size == 2


def test_json_round_trip(tmp_path):
    config = BertConfig.named("mini", hidden_act="gelu", layer_norm_eps=1e-6)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert families.read_config(path) == config
    assert json.loads(path.read_text())["model_type"] == "bert"


def test_left_to_right_is_told_in_hugging_face_s_word():
    config = BertConfig.named("tiny", is_decoder=True)
    values = families.of_config(config).write_config(config)
    assert values["is_decoder"] is True
    assert families.parse_config(values) == config


@pytest.mark.parametrize(
    "values, message",
    [
        ({"hidden_size": 8}, "no `vocab_size`"),
        ({"vocab_size": 9, "model_type": "xlnet"}, "model_type='xlnet'"),
        (
            {"vocab_size": 9, "model_type": ["bert"]},
            r"one of albert, bert, .*'bert'",
        ),
        (
            {"vocab_size": 9, "position_embedding_type": "relative_key"},
            "position_embedding_type='relative_key'",
        ),
        *(
            ({"vocab_size": 9, "model_type": "roberta"} | changed, key)
            for key, changed in (
                ("quantization_config", {"quantization_config": {"bits": 4}}),
                ("per_layer_config", {"per_layer_config": {"0": {}}}),
                ("pruned_heads", {"pruned_heads": {"0": [1]}}),
                ("scale_embedding", {"scale_embedding": True}),
                ("add_cross_attention", {"add_cross_attention": True}),
            )
        ),
        (
            {"vocab_size": 9, "model_type": "albert", "is_decoder": True},
            "is_decoder=True",
        ),
        (
            {
                "vocab_size": 9,
                "model_type": "distilbert",
                "dim": 768,
                "hidden_size": 64,
            },
            "`hidden_size` must be the same as `dim`. .*=64, dim=768",
        ),
        ({"vocab_size": 0, "model_type": "bert"}, "vocab_size=0"),
        ([], "JSON object. Received: list"),
    ],
)
def test_wrong_values_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        families.parse_config(values)


def test_errors_name_the_file(tmp_path):
    path = tmp_path / "bert_config.json"
    path.write_text('{"vocab_size": 0}')
    with pytest.raises(ValueError, match="bert_config.json: `vocab_size` must"):
        families.read_config(path)
    path.write_text('{"vocab_size": 9,')
    with pytest.raises(ValueError, match="bert_config.json: not JSON"):
        families.read_config(path)
    with pytest.raises(ValueError, match="There is no file .*absent.json"):
        families.read_config(tmp_path / "absent.json")


# A second family, of this file alone: other names of tensors and fields, and
# kernels that lie as in Keras where BERT's are transposed, and the reverse.
FIELDS = {
    "words": "vocab_size",
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "inner_width": "intermediate_size",
    "places": "max_position_embeddings",
}


def toy_tensors(config, num_labels):
    for tensor in bert.FAMILY.tensors(config, num_labels):
        is_kernel = tensor.keras.endswith("kernel")
        # Files with "gamma" are old ones of Hugging Face's.
        name = re.sub("gamma$|beta$", r"norm_\g<0>", tensor.keras)
        yield Tensor(
            part=tensor.part,
            keras=tensor.keras,
            shape=tensor.shape,
            hugging_face=Stored(f"toy.{name.replace('/', '.')}"),
            google=Stored(
                f"toy/{tensor.keras}", TRANSPOSE if is_kernel else IDENTITY
            ),
        )


def read_toy_config(values):
    fields = {FIELDS[key]: values[key] for key in FIELDS}
    return BertConfig(model_type="toy", hidden_act="relu", **fields)


def write_toy_google_config(config):
    return {key: getattr(config, field) for key, field in FIELDS.items()}


TOY = Family(
    model_type="toy",
    architectures={
        "Toy": (parts.ENCODER, parts.POOLER),
        "ToyWithLabels": (parts.ENCODER, parts.POOLER, parts.CLASSIFIER),
    },
    bare_architecture="Toy",
    tensors=toy_tensors,
    read_config=read_toy_config,
    write_config=lambda config: (
        {"model_type": "toy"} | write_toy_google_config(config)
    ),
    google_config_file="toy_config.json",
    write_google_config=write_toy_google_config,
    prefix="toy.",
    bare_names=("embeddings.", "layer_", "pooler."),
)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES, TOY))
    return BertConfig(
        model_type="toy",
        vocab_size=len(peer.TOKENS),
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=10,
        hidden_act="relu",
        max_position_embeddings=9,
    )


def save(folder, model, **kwargs):
    vocabulary = Vocabulary(tokens=peer.TOKENS)
    checkpoints.save(folder, model, WordpieceSpec(vocabulary), 9, **kwargs)
    return folder


def assert_equal_weights(model, other):
    for left, right in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(left, right)


def test_a_family_is_one_file(tmp_path, toy):
    model = BertClassifier(toy, num_labels=3)
    save(tmp_path / "a", model)
    config = json.loads((tmp_path / "a/config.json").read_text())
    assert config["architectures"] == ["ToyWithLabels"]
    assert config["model_type"] == "toy" and config["width"] == 12
    assert len(config["id2label"]) == 3
    tensors = safetensors.numpy.load_file(tmp_path / "a/model.safetensors")
    assert tensors["toy.layer_1.intermediate.kernel"].shape == (12, 10)
    loaded = checkpoints.load(tmp_path / "a", BertClassifier)
    assert loaded.config == toy
    assert loaded.coverage_report.names("new") == ()
    assert loaded.coverage_report.names("left over") == ()
    assert_equal_weights(loaded, model)


def test_another_family_goes_through_every_form(tmp_path, toy):
    model = BertClassifier(toy, num_labels=3)
    save(tmp_path / "a", model)
    checkpoints.convert(tmp_path / "a", tmp_path / "b", "google")
    config = json.loads((tmp_path / "b/toy_config.json").read_text())
    assert config == {key: getattr(toy, FIELDS[key]) for key in FIELDS}
    reader = tf.train.load_checkpoint(str(tmp_path / "b/bert_model.ckpt"))
    kernel = reader.get_tensor("toy/layer_1/intermediate/kernel")
    found = model.encoder.blocks[1].intermediate.kernel
    np.testing.assert_array_equal(kernel.T, found)
    loaded = checkpoints.load(tmp_path / "b", BertClassifier)
    assert loaded.num_labels == 3 and loaded.config == toy
    assert_equal_weights(loaded, model)
    checkpoints.convert(tmp_path / "b", tmp_path / "c", "bert_tf")
    left, right = (
        safetensors.numpy.load_file(tmp_path / folder / "model.safetensors")
        for folder in "ac"
    )
    assert left.keys() == right.keys()
    for key, array in left.items():
        np.testing.assert_array_equal(array, right[key], err_msg=key)


def test_a_bare_model_s_names_have_no_prefix(tmp_path, toy):
    model = BertEncoder(toy)
    save(tmp_path, model)
    names = safetensors.numpy.load_file(tmp_path / "model.safetensors")
    assert not any(name.startswith("toy.") for name in names)
    assert_equal_weights(checkpoints.load(tmp_path, BertEncoder), model)


def test_families_are_not_mistaken(tmp_path, toy):
    save(tmp_path, BertEncoder(toy))
    model = BertEncoder(dataclasses.replace(toy, model_type="bert"))
    with pytest.raises(ValueError, match="model_type='toy' in the checkpoint"):
        checkpoints.load_weights(tmp_path, model)
    with pytest.raises(ValueError, match="`model_type` must be 'bert'"):
        save(tmp_path, model)


def test_a_family_may_have_no_google_form(tmp_path, toy, monkeypatch):
    save(tmp_path / "a", BertEncoder(toy))
    family = dataclasses.replace(TOY, write_google_config=None)
    monkeypatch.setattr(families, "FAMILIES", (*families.FAMILIES[:1], family))
    with pytest.raises(ValueError, match="a: .*model_type='toy'"):
        checkpoints.convert(tmp_path / "a", tmp_path / "b", "google")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("transform", transforms.TRANSFORMS)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 5)])
def test_every_transform_has_an_inverse(transform, shape):
    array = np.random.default_rng(0).normal(size=shape).astype("float32")
    stored = transform.to_file(array)
    assert stored.shape == transform.file_shape(shape)
    assert transform.variable_shape(stored.shape) == shape
    back = transform.to_variable(stored)
    assert back.dtype == array.dtype
    assert back.tobytes() == array.tobytes()
    again = transform.to_file(transform.to_variable(array))
    np.testing.assert_array_equal(again, array)
