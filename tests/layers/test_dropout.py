"""Dropout's masks: their share, their scale, and that they change."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.basic import Dropout


# An odd number of elements: the last word serves one.
@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_keep_their_share_and_the_mean(rate):
    layer = Dropout(rate, seed=3)
    first, second = (
        np.array(layer(np.ones((301, 403), "float32"), training=True))
        for _ in range(2)
    )
    num_kept = 2**16 - round(rate * 2**16)
    assert set(np.unique(first)) == {0, np.float32(2**16 / num_kept)}
    # Five standard deviations of the share of 121,303 draws.
    bound = 5 * (rate * (1 - rate) / first.size) ** 0.5
    assert abs(np.mean(first == 0) - rate) < bound
    # One call's mask says nothing of the next one's, nor an element's of its
    # neighbour's, with which it shares a word.
    both = rate**2
    assert abs(np.mean((first == 0) & (second == 0)) - both) < bound
    flat = first.ravel() == 0
    assert abs(np.mean(flat[:-1] & flat[1:]) - both) < bound


# Of an odd width, of an even one, and of one that the graph does not know;
# None is without a graph.
@pytest.mark.parametrize(
    "shape, known",
    [
        ((7, 5, 9), None),
        ((7, 5, 8), None),
        ((7, 5, 9), (7, 5, 9)),
        ((7, 5, 8), (7, 5, 8)),
        ((7, 5, 8), (None, None, 8)),
        ((7, 5, 8), (None, 5, None)),
        ((7, 5, 9), (None, None, None)),
        ((), ()),
    ],
)
def test_masks_are_of_the_halves_of_random_words(shape, known):
    layer = Dropout(0.3, seed=5)
    call = functools.partial(layer, training=True)
    if known is not None:
        layer.build(shape)
        signature = [tf.TensorSpec(known, "float32")]
        call = tf.function(call, input_signature=signature)
    # Runs of older releases are resumed: the bits stay what they are.
    mask = np.array(call(tf.ones(shape)))
    size = int(np.prod(shape))
    words = keras.random.randint(
        ((size + 1) // 2, 1),
        *(-(2**31), 2**31 - 1),
        seed=keras.random.SeedGenerator(5),
    )
    halves = np.array(words).view("int16").ravel()[:size]
    keeps = halves < round(0.7 * 2**16) - 2**15
    np.testing.assert_array_equal(mask != 0, keeps.reshape(shape))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_gradient_is_the_mask_under_any_length(jit_compile):
    layer = Dropout(0.3, seed=5, dtype="mixed_bfloat16")

    @tf.function(
        jit_compile=jit_compile,
        input_signature=[tf.TensorSpec([None, 5], "bfloat16")],
    )
    def run(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x)

    for length in (3, 4):
        y, gradient = run(tf.ones((length, 5), "bfloat16"))
        assert y.dtype == "bfloat16"
        assert 0 < np.count_nonzero(y) < 5 * length
        np.testing.assert_array_equal(y, gradient)


def test_a_rate_that_rounds_to_0_drops_nothing():
    """The threshold of 16 bits overflowed, and all was dropped."""
    inputs = np.ones((3, 4), "float32")
    outputs = Dropout(1e-6)(inputs, training=True)
    np.testing.assert_array_equal(outputs, inputs)


def test_nothing_is_dropped_outside_training_or_at_rate_0():
    x = np.ones((3, 5), "float32")
    np.testing.assert_array_equal(Dropout(0.5)(x), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)


@pytest.mark.parametrize("options", [{"rate": 1.0}, {"noise_shape": (1, 5)}])
def test_what_is_not_offered_is_refused(options):
    with pytest.raises(ValueError, match="`noise_shape` None. Received"):
        Dropout(**{"rate": 0.1} | options)
