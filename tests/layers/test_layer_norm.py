"""Layer normalisation beside Keras's and in float64, values and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer_norm import LayerNorm


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("mixed_bfloat16", 2e-2)]
)
def test_training_equals_keras(dtype, tolerance):
    generator = np.random.default_rng(2)
    # A mean far from 0, as after many blocks.
    x = tf.constant(generator.normal(3, 2, (3, 5, 8)), "float32")
    upstream = tf.constant(generator.normal(size=(3, 5, 8)), "float32")
    weights = generator.normal(size=(2, 8))
    results = []
    for make, training in (
        (keras.layers.LayerNormalization, {}),
        (LayerNorm, {"training": True}),
    ):
        layer = make(epsilon=1e-12, dtype=dtype)
        layer.build((None, None, 8))
        layer.set_weights(weights)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, **training)
            loss = tf.reduce_sum(tf.cast(y, "float32") * upstream)
        assert y.dtype == layer.compute_dtype
        sources = [x, layer.gamma.value, layer.beta.value]
        results.append([tf.cast(y, "float32"), *tape.gradient(loss, sources)])
    for got, expected in zip(*reversed(results)):
        np.testing.assert_allclose(
            got, expected, atol=tolerance * np.abs(expected).max()
        )


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.4])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("mixed_bfloat16", 2e-2)]
)
def test_a_sum_with_dropout_equals_keras(dtype, tolerance, rate, again):
    generator = np.random.default_rng(2)
    inputs, added, upstream = (
        tf.constant(generator.normal(mean, 2, (3, 5, 8)), "float32")
        for mean in (3, 1, 0)
    )
    weights = generator.normal(size=(2, 8))
    dropout = Dropout(rate, seed=7)
    seed = dropout.draw_seed(True)
    factors = dropout.drop(tf.ones((3, 5, 8)), seed)
    if rate:
        assert 0.4 < np.mean(factors > 0) < 0.8

    def expect(layer):
        return layer(inputs + added * factors)

    def compute(layer):
        with dropout.given(seed):
            return layer.add(
                tf.cast(inputs, layer.compute_dtype),
                tf.cast(added, layer.compute_dtype),
                dropout,
                training=True,
                recompute=again,
            )

    results = []
    for make, call, policy in (
        (keras.layers.LayerNormalization, expect, "float32"),
        (LayerNorm, compute, dtype),
    ):
        layer = make(epsilon=1e-12, dtype=policy)
        layer.build((None, None, 8))
        layer.set_weights(weights)
        with tf.GradientTape() as tape:
            tape.watch([inputs, added])
            y = call(layer)
            loss = tf.reduce_sum(tf.cast(y, "float32") * upstream)
        assert y.dtype == layer.compute_dtype
        sources = [inputs, added, layer.gamma.value, layer.beta.value]
        results.append([tf.cast(y, "float32"), *tape.gradient(loss, sources)])
    for got, expected in zip(*reversed(results)):
        np.testing.assert_allclose(
            got, expected, atol=tolerance * np.abs(expected).max()
        )


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
