"""Windows beside the whole computation under a banded mask."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers.attention import attend
from bert_tf.layers.pre_norm_block import PreNormBlock
from bert_tf.layers.rotary import rotate
from bert_tf.layers.windows import attend_in_windows
from bert_tf.models.attention import attention_probs
from bert_tf.models.encoder import BertEncoder
from support.layer_checks import check_layer
from support.layer_checks import randomized

GENERATOR = np.random.default_rng(20241218)
CONFIG = BertConfig(
    vocab_size=30,
    hidden_size=12,
    num_hidden_layers=3,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=40,
    type_vocab_size=0,
    has_pooler=False,
    classifier_hidden_act="gelu",
    norm_first=True,
    has_biases=False,
    rotary_theta=100.0,
    local_rotary_theta=30.0,
    attention_window=2,
    full_attention_every=2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def rows_of(length):
    """Returns tokens and sequences of three rows: whole, padded, empty."""
    mask = np.arange(length) < np.array([[length], [length - 2], [0]])
    sequences = np.arange(length) // 4 + np.zeros((3, 1), int)
    return mask.astype("int32"), sequences.astype("int32")


def pairs(window, input_mask, sequences=None):
    """Returns bool, which tokens see which."""
    places = np.arange(input_mask.shape[1])
    mask = np.abs(places[:, None] - places) <= window
    mask = mask & (input_mask[:, None] > 0)
    if sequences is None:
        return mask
    return mask & (sequences[:, :, None] == sequences[:, None])


def whole(query, key, value, *args):
    """The same by `attend`, with a mask of all pairs."""
    mask = pairs(*args)
    swapped = [tf.transpose(x, (0, 2, 1, 3)) for x in (query, key, value)]
    return tf.transpose(attend(*swapped, tf.constant(mask)), (0, 2, 1, 3))


def outputs_and_gradients(function, tensors, upstream, *args):
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        outputs = function(*tensors, *args)
    return outputs, *tape.gradient(outputs, tensors, upstream)


@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("window", [1, 3, 4])
def test_windows_equal_the_whole_for_every_length(window, is_packed):
    for length in (2, 3, 4, 5, 7, 8, 9, 12, 13, 23):
        *tensors, upstream = (
            tf.constant(GENERATOR.normal(size=(3, length, 2, 4)), "float32")
            for _ in range(4)
        )
        mask, sequences = rows_of(length)
        # What sees nothing has outputs, but of `attend` alone gradients, too.
        args = (window, mask, *([sequences] if is_packed else []))
        upstream *= pairs(*args).any(-1)[..., None, None].astype("float32")
        found, wanted = (
            outputs_and_gradients(each, tensors, upstream, *args)
            for each in (attend_in_windows, whole)
        )
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("jit", [False, True])
def test_windows_of_rows_of_unknown_length(jit):
    spec = tf.TensorSpec([None, None, 2, 4])
    kwargs = {"jit_compile": jit, "autograph": False}
    if not jit:
        ids = tf.TensorSpec([None, None], tf.int32)
        kwargs["input_signature"] = [*[spec] * 3, ids, ids]

    @tf.function(**kwargs)
    def run(query, key, value, mask, sequences):
        return attend_in_windows(query, key, value, 3, mask, sequences)

    for length in (2, 6, 11):
        tensors = [
            tf.constant(GENERATOR.normal(size=(3, length, 2, 4)), "float32")
            for _ in range(3)
        ]
        mask, sequences = rows_of(length)
        np.testing.assert_allclose(
            run(*tensors, mask, sequences),
            whole(*tensors, 3, mask, sequences),
            atol=2e-6,
        )


def test_no_tensor_of_windows_grows_with_the_square():
    run = tf.function(lambda x, mask: attend_in_windows(x, x, x, 8, mask))
    graph = run.get_concrete_function(
        tf.TensorSpec([1, 1024, 2, 4]), tf.TensorSpec([1, 1024], tf.int32)
    ).graph
    sizes = [
        np.prod(output.shape)
        for operation in graph.get_operations()
        for output in operation.outputs
        if output.shape.rank
    ]
    # Three blocks of keys for each query and head.
    assert max(sizes) == 2 * 1024 * 3 * 8


def test_dropout_of_windows_keeps_the_mean():
    value = tf.ones((1, 4000, 1, 2))
    mask = np.ones((1, 4000), "int32")
    found = np.array(
        attend_in_windows(
            *(tf.zeros_like(value), tf.zeros_like(value), value),
            *(8, mask, None, 0.25, tf.constant([5, 7], tf.int64)),
        )
    )
    assert abs(found.mean() - 1) < 0.01 and 0.1 < found.std() < 0.2


def test_rotation_is_that_of_the_complex_plane():
    x = GENERATOR.normal(size=(2, 5, 3, 6))
    places = np.array([[0, 1, 2, 3, 4], [7, 0, 900, 8000, 1]], "int32")
    points = x[..., :3] + 1j * x[..., 3:]
    angles = places[..., None, None] * 50.0 ** (-2 * np.arange(3) / 6)
    points = points * np.exp(1j * angles)
    wanted = np.concatenate([points.real, points.imag], axis=-1)
    found = rotate(tf.constant(x, "float32"), tf.constant(places), 50.0)
    # Of an angle of 8,000, float32 holds half a thousandth.
    np.testing.assert_allclose(found, wanted, atol=2e-3)
    np.testing.assert_allclose(found[0], wanted[0], atol=2e-6)
    low = rotate(tf.constant(x, "bfloat16"), tf.constant(places), 50.0)
    assert low.dtype == tf.bfloat16
    np.testing.assert_allclose(
        np.array(low, "float32"), wanted, atol=0.02 * np.abs(x).max()
    )


INPUTS = {
    "input_ids": GENERATOR.integers(0, 30, (2, 11)).astype("int32"),
    "input_mask": np.array([[1] * 11, [0] * 2 + [1] * 8 + [0]], "int32"),
    "segment_ids": np.zeros((2, 11), "int32"),
}


@pytest.mark.parametrize("window", [2, 20])
@pytest.mark.parametrize("every", [1, 2, 3])
@pytest.mark.parametrize("positions", [0, 3, [[1, 9, 4], [5, 5, 2]]])
def test_the_last_block_is_computed_where_it_is_wanted(
    positions, every, window
):
    config = changed(attention_window=window, full_attention_every=every)
    model = randomized(BertEncoder(config))
    wanted = model(INPUTS)
    if isinstance(positions, list):
        positions = np.array(positions, "int32")
    found = model(INPUTS, positions=positions)
    rows = np.array(wanted["sequence_output"])
    if isinstance(positions, int):
        rows = rows[:, :positions]
    else:
        rows = np.take_along_axis(rows, positions[..., None], axis=1)
    np.testing.assert_allclose(found["sequence_output"], rows, atol=1e-5)
    np.testing.assert_allclose(
        found["pooled_output"], wanted["pooled_output"], atol=1e-5
    )


def changed(**fields):
    return dataclasses.replace(CONFIG, **fields)


def test_a_text_in_a_packed_row_is_as_it_is_alone():
    model = randomized(BertEncoder(CONFIG))
    ids = INPUTS["input_ids"][:1]
    alone = [
        np.array(
            model(
                {
                    "input_ids": part,
                    "input_mask": np.ones_like(part),
                    "segment_ids": np.zeros_like(part),
                }
            )["sequence_output"]
        )
        for part in (ids[:, :4], ids[:, 4:])
    ]
    packed = model(
        {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": np.zeros_like(ids),
            "sequence_ids": np.array([[0] * 4 + [1] * 7], "int32"),
            "position_ids": np.array([[*range(4), *range(7)]], "int32"),
        }
    )
    np.testing.assert_allclose(
        packed["sequence_output"], np.concatenate(alone, axis=1), atol=2e-5
    )


def test_probabilities_are_0_outside_of_the_window():
    model = randomized(BertEncoder(CONFIG))
    probs = np.array(attention_probs(model, INPUTS))
    distance = np.abs(np.arange(11)[:, None] - np.arange(11))
    assert (probs[0, 0] > 0).all() and (probs[0, 2] > 0).all()
    assert (probs[0, 1][:, distance > 2] == 0).all()
    assert (probs[0, 1][:, distance <= 2] > 0).all()
    np.testing.assert_allclose(probs.sum(-1), 1, atol=1e-5)


@pytest.mark.parametrize("is_local", [False, True])
def test_block_keeps_the_contract_of_layers(is_local, tmp_path):
    class Block(keras.Layer):
        """Takes the inputs of a layer alone, without a layout."""

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.block = PreNormBlock(
                CONFIG, is_local=is_local, is_last=True, dtype=self.dtype_policy
            )
            self.block.build(None)

        def call(self, inputs):
            mask = keras.ops.ones(keras.ops.shape(inputs)[:2], "int32")
            return self.block(
                inputs, self.block.layout_of({"input_mask": mask}, None)
            )

    x = GENERATOR.normal(size=(2, 11, 12)).astype("float32")
    with keras.saving.custom_object_scope({"Block": Block}):
        check_layer(Block, [x], tmp_path)


def test_initial_values_are_smaller_the_deeper_the_model():
    config = changed(hidden_size=120, intermediate_size=200)
    model = BertEncoder(config)
    spread = {}
    for weight in model.weights:
        _, _, name = weight.path.rpartition("encoder/")
        spread[name] = np.std(weight)
        if "layer_norm" in name:
            np.testing.assert_array_equal(weight, np.ones(weight.shape))
    # A normal distribution that is cut at two standard deviations.
    cut = 0.8796
    for name, value in spread.items():
        if name.endswith(("merge_heads/kernel", "feed_forward/output/kernel")):
            assert abs(value / (0.02 / 6**0.5) - cut) < 0.02, name
        elif name.endswith(("kernel", "embeddings")):
            assert abs(value / 0.02 - cut) < 0.02, name


def test_a_decoder_has_no_windows():
    with pytest.raises(ValueError, match="`is_decoder` must be False"):
        BertEncoder(changed(is_decoder=True))
