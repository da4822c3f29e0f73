"""The bias's gradient: exact also where TensorFlow's own is not."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.dense import Dense


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("shape", [(4096, 3), (64, 64, 3)])
def test_gradient_of_the_bias_is_the_sum_over_all_rows(policy, shape):
    random = np.random.default_rng(0)
    dense = Dense(8, activation="tanh", dtype=policy)
    dense.build(shape)
    dense.bias.assign(random.normal(size=8))
    x = tf.constant(random.normal(size=shape), dense.compute_dtype)
    upstream = random.normal(0.1, size=(*shape[:-1], 8))
    upstream = tf.constant(upstream, dense.compute_dtype)
    with tf.GradientTape() as tape:
        outputs = dense(x, training=True)
    np.testing.assert_array_equal(outputs, dense(x))
    gradient = tape.gradient(outputs, dense.bias.value, upstream)

    # What reaches the bias, each row rounded to the dtype, summed in float64.
    slope = upstream * (1 - outputs * outputs)
    expected = np.asarray(slope, "float64").reshape(-1, 8).sum(0)
    tolerance = 1e-5 if policy == "float32" else 2**-8
    # In bfloat16 TensorFlow's own is 20 % off.
    np.testing.assert_allclose(gradient, expected, rtol=tolerance)


def test_without_a_bias_there_is_none():
    dense = Dense(2, use_bias=False)
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(dense(x, training=True), dense(x))
    assert len(dense.weights) == 1
