"""The encoder of exports, which computes what the layers do."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf import BertEncoder
from bert_tf.serving.inference import encoder as inference
from references import families as peer
from support import family_models

CONFIG = BertConfig(
    vocab_size=len(peer.TOKENS),
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=9,
)
FAMILIES = {
    name: family_models.of_family(CONFIG, name)
    for name in ("albert", "distilbert", "electra", "roberta", "xlm-roberta")
}
CONFIGS = FAMILIES | {
    "bert": CONFIG,
    "albert with two blocks": dataclasses.replace(
        FAMILIES["albert"], num_hidden_groups=2
    ),
    "left to right": dataclasses.replace(CONFIG, is_decoder=True),
    # Neither heads nor units can be halved.
    "odd": dataclasses.replace(
        CONFIG, hidden_size=9, num_attention_heads=3, intermediate_size=13
    ),
    **{
        name: dataclasses.replace(CONFIG, hidden_act=name)
        for name in ("gelu", "linear", "relu", "tanh")
    },
}
NO_POSITIONS = {}
POSITIONS = {
    "everywhere": None,
    "nowhere": 0,
    "first two": 2,
    "some": np.array([[4, 0, 6]] * 6, "int32"),
}
OUTPUTS = ("sequence_output", "pooled_output")


def make_encoder(config, dtype="float32"):
    """Returns an encoder in which every weight matters."""
    encoder = BertEncoder(config, dtype=dtype)
    generator = np.random.default_rng(7)
    for weight in encoder.weights:
        weight.assign(generator.normal(0, 0.3, weight.shape))
    return encoder


def make_inputs(packed=False):
    """Returns rows with padding behind, in front, inside and everywhere."""
    inputs = peer.inputs_of("BertModel")
    inputs = {
        name: np.concatenate([ids, ids[:1] * (name == "segment_ids")])
        for name, ids in inputs.items()
    }
    inputs["input_ids"][5] = peer.PAD_ID
    if packed:
        places = np.array([0, 1, 2, 0, 1, 0, 1], "int32")
        inputs["sequence_ids"] = np.cumsum(places == 0, dtype="int32")
        for name, row in (
            ("position_ids", places),
            ("sequence_ids", np.cumsum(places == 0)),
            ("first_positions", np.flatnonzero(places == 0)),
        ):
            inputs[name] = np.tile(row.astype("int32"), (6, 1))
    return {name: tf.constant(ids) for name, ids in inputs.items()}


def assert_equal(found, wanted, tolerance):
    assert found.keys() == wanted.keys()
    for name in wanted:
        assert len(found[name]) == len(wanted[name])
        pairs = (found[name], wanted[name])
        if name != "encoder_outputs":
            pairs = tuple([value] for value in pairs)
        for own, layers in zip(*pairs):
            assert own.dtype == layers.dtype
            np.testing.assert_allclose(
                tf.cast(own, tf.float32),
                tf.cast(layers, tf.float32),
                rtol=tolerance,
                atol=tolerance,
            )


@pytest.mark.parametrize("are_constant", [False, True])
@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_are_those_of_the_layers(name, are_constant):
    encoder = make_encoder(CONFIGS[name])
    own = inference.InferenceEncoder(encoder, are_constant)
    for packed in (False, True):
        inputs = make_inputs(packed)
        for positions in POSITIONS.values():
            if isinstance(positions, int) and positions and packed:
                continue
            assert_equal(
                own(inputs, positions),
                encoder(inputs, positions=positions),
                1e-5,
            )
