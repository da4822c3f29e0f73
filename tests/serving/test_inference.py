"""The encoder of exports, which computes what the layers do."""

import dataclasses

import keras
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
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=9,
)
FAMILIES = {
    name: family_models.of_family(CONFIG, name)
    for name in (
        *("albert", "distilbert", "electra", "mpnet", "roberta"),
        "xlm-roberta",
    )
}
CONFIGS = FAMILIES | {
    "bert": CONFIG,
    "albert with two blocks": dataclasses.replace(
        FAMILIES["albert"], num_hidden_layers=3, num_hidden_groups=2
    ),
    "left to right": dataclasses.replace(CONFIG, is_decoder=True),
    # Neither heads nor units can be halved.
    "odd": dataclasses.replace(
        CONFIG, hidden_size=9, num_attention_heads=3, intermediate_size=13
    ),
}
SOME = np.array([[4, 0, 6]] * 6, "int32")
POSITIONS = (None, 0, 2, SOME)
# Of rows that hold several sequences, the first so many mean nothing.
POSITIONS_OF_PACKED = (None, 0, SOME)


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
        for name, row in (
            ("position_ids", places),
            ("sequence_ids", np.cumsum(places == 0)),
            ("first_positions", np.flatnonzero(places == 0)),
        ):
            inputs[name] = np.tile(row.astype("int32"), (6, 1))
    return {name: tf.constant(ids) for name, ids in inputs.items()}


def assert_equal(found, wanted, tolerance):
    """Compares what encoders returned, also the dtypes."""
    found, wanted = map(tf.nest.flatten, (found, wanted))
    assert len(found) == len(wanted)
    for own, layers in zip(found, wanted):
        assert own.dtype == layers.dtype
        np.testing.assert_allclose(
            tf.cast(own, tf.float32),
            tf.cast(layers, tf.float32),
            rtol=tolerance,
            atol=tolerance,
        )


def of_constants(encoder, *args):
    """Returns outputs of a graph that holds the weights, as exports do."""
    own = inference.InferenceEncoder(encoder, are_constant=True)
    values = [(weight, weight.numpy()) for weight in encoder.weights]

    @tf.function(autograph=False)
    def call():
        with keras.StatelessScope(state_mapping=values):
            return own(*args)

    return call()


@pytest.mark.parametrize("name", CONFIGS)
def test_outputs_are_those_of_the_layers(name):
    encoder = make_encoder(CONFIGS[name])
    assert inference.is_known(encoder.config)
    own = inference.InferenceEncoder(encoder)
    for inputs, all_positions in (
        (make_inputs(), POSITIONS),
        (make_inputs(packed=True), POSITIONS_OF_PACKED),
    ):
        for positions in all_positions:
            wanted = encoder(inputs, positions=positions)
            assert_equal(own(inputs, positions), wanted, 1e-5)
            if positions is SOME:
                found = of_constants(encoder, inputs, positions)
                assert_equal(found, wanted, 1e-5)


@pytest.mark.parametrize("activation", ["linear", "relu", "tanh"])
def test_activations_are_those_of_the_layers(activation):
    encoder = make_encoder(dataclasses.replace(CONFIG, hidden_act=activation))
    inputs = make_inputs()
    own = inference.InferenceEncoder(encoder)
    assert_equal(own(inputs), encoder(inputs), 1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_outputs_in_16_bits_are_those_of_the_layers(dtype):
    encoder = make_encoder(CONFIGS["electra"], dtype)
    inputs = make_inputs()
    own = inference.InferenceEncoder(encoder)
    for positions in (None, SOME):
        wanted = encoder(inputs, positions=positions)
        # A rounding in bfloat16 is up to 2^-9, and there are many.
        assert_equal(own(inputs, positions), wanted, 0.05)
        found = of_constants(encoder, inputs, positions)
        assert_equal(found, wanted, 0.05)
        # What would be alike whatever the weights shows nothing.
        assert np.ptp(tf.cast(wanted["sequence_output"], tf.float32)) > 1


def test_a_saved_graph_has_the_variables_of_the_layers(tmp_path):
    encoder = make_encoder(CONFIG)
    own = inference.InferenceEncoder(encoder)
    inputs = make_inputs()
    spec = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
    module = tf.Module()
    module.weights = [weight.value for weight in encoder.weights]
    module.call = tf.function(own, [spec], autograph=False)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    wanted = encoder(inputs)
    assert_equal(loaded.call(inputs), wanted, 1e-5)
    bias = encoder.blocks[1].intermediate.bias
    bias.assign(bias + 1.0)
    changed = encoder(inputs)
    moved = changed["pooled_output"] - wanted["pooled_output"]
    assert np.abs(moved).max() > 1e-3
    assert_equal(module.call(inputs), changed, 1e-5)
    for weight, kept in zip(encoder.weights, loaded.weights):
        kept.assign(weight)
    assert_equal(loaded.call(inputs), changed, 1e-5)


def test_low_rank_updates_count():
    encoder = make_encoder(CONFIG)
    encoder.enable_lora(2)
    for block in encoder.blocks:
        block.attention.query.lora_kernel_b.assign(np.ones((2, 8)))
    inputs = make_inputs()
    own = inference.InferenceEncoder(encoder)
    assert_equal(own(inputs), encoder(inputs), 1e-5)


def test_training_is_left_to_the_layers():
    encoder = make_encoder(dataclasses.replace(CONFIG, hidden_dropout_prob=0.5))
    own = inference.InferenceEncoder(encoder)
    inputs = make_inputs()
    outputs = own(inputs, 0, training=True)["pooled_output"]
    assert np.abs(outputs - own(inputs, 0)["pooled_output"]).max() > 0.1


def test_what_is_not_known_is_left_to_the_layers():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class NewConfig(BertConfig):
        rotary_size: int | None = None

    values = CONFIG.to_dict()
    assert inference.is_known(NewConfig(**values))
    assert not inference.is_known(NewConfig(**values, rotary_size=4))
    longer = dataclasses.replace(CONFIG, max_position_embeddings=1024)
    assert not inference.is_known(longer)
