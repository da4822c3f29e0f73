"""Layer normalisation beside Keras's and in float64, values and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.layer_norm import LayerNorm


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("mixed_bfloat16", 2e-2)]
)
@pytest.mark.parametrize("again", [False, True])
def test_training_equals_keras(dtype, tolerance, again):
    generator = np.random.default_rng(2)
    # A mean far from 0, as after many blocks.
    x = tf.constant(generator.normal(3, 2, (3, 5, 8)), "float32")
    upstream = tf.constant(generator.normal(size=(3, 5, 8)), "float32")
    weights = generator.normal(size=(2, 8))
    results = []
    for make, training in (
        (keras.layers.LayerNormalization, {}),
        (LayerNorm, {"training": True, "recompute": again}),
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
