"""Layer normalisation beside Keras's and in float64, values and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer_norm import LayerNorm

GENERATOR = np.random.default_rng(2)
WEIGHTS = GENERATOR.normal(size=(2, 8))
# Means far from 0, as after many blocks.
INPUTS, ADDED, UPSTREAM = (
    tf.constant(GENERATOR.normal(mean, 2, (3, 5, 8)), "float32")
    for mean in (3, 1, 0)
)
PRECISIONS = pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("mixed_bfloat16", 2e-2)]
)


def run(make, dtype, call, *sources):
    """Returns outputs, and the gradients of tensors, gamma and beta."""
    layer = make(epsilon=1e-12, dtype=dtype)
    layer.build((None, None, 8))
    layer.set_weights(WEIGHTS)
    with tf.GradientTape() as tape:
        tape.watch(sources)
        y = call(layer)
        loss = tf.reduce_sum(tf.cast(y, "float32") * UPSTREAM)
    assert y.dtype == layer.compute_dtype
    sources = [*sources, layer.gamma.value, layer.beta.value]
    return [tf.cast(y, "float32"), *tape.gradient(loss, sources)]


def assert_close(got, expected, tolerance):
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(
            ours, theirs, atol=tolerance * np.abs(theirs).max()
        )


@PRECISIONS
def test_training_equals_keras(dtype, tolerance):
    expected = run(
        keras.layers.LayerNormalization,
        dtype,
        lambda each: each(INPUTS),
        INPUTS,
    )
    got = run(
        LayerNorm, dtype, lambda each: each(INPUTS, training=True), INPUTS
    )
    assert_close(got, expected, tolerance)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@PRECISIONS
def test_a_sum_with_dropout_equals_keras(dtype, tolerance, rate, again):
    dropout = Dropout(rate, seed=7)
    seed = dropout.draw_seed(True)
    factors = dropout.drop(tf.ones((3, 5, 8)), seed)
    if rate:
        assert 0.4 < np.mean(factors > 0) < 0.8

    def expect(layer):
        return layer(INPUTS + ADDED * factors)

    def compute(layer):
        with dropout.given(seed):
            return layer.add(
                tf.cast(INPUTS, layer.compute_dtype),
                tf.cast(ADDED, layer.compute_dtype),
                dropout,
                training=True,
                recompute=again,
            )

    expected = run(
        keras.layers.LayerNormalization, "float32", expect, INPUTS, ADDED
    )
    got = run(LayerNorm, dtype, compute, INPUTS, ADDED)
    assert_close(got, expected, tolerance)


def test_outside_training_nothing_is_dropped():
    layer, dropout = LayerNorm(epsilon=1e-12), Dropout(0.4, seed=7)
    x = np.random.default_rng(2).normal(size=(3, 8)).astype("float32")
    np.testing.assert_array_equal(layer.add(x, x, dropout), layer(x + x))


def test_outside_training_it_is_the_formula():
    generator = np.random.default_rng(2)
    # Few bits are left of a spread that is small beside the mean.
    x = generator.normal(50, 0.5, (3, 5, 8)).astype("float32")
    gamma, beta = generator.normal(size=(2, 8)).astype("float32")
    layer = LayerNorm(epsilon=1e-12)
    layer.build(x.shape)
    layer.set_weights([gamma, beta])
    centered = x - x.mean(-1, dtype="float64", keepdims=True)
    variance = np.square(centered).mean(-1, keepdims=True)
    np.testing.assert_allclose(
        layer(x), centered / np.sqrt(variance + 1e-12) * gamma + beta, atol=5e-5
    )
