"""Dense layers: the bias's exact gradient."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.basic import Dense


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
    tolerance = 1e-5 if policy == "float32" else _bfloat16_tolerance()
    # In bfloat16 TensorFlow's own is 20 % off.
    np.testing.assert_allclose(gradient, expected, rtol=tolerance)


def _bfloat16_tolerance():
    """Returns the rounding of a sum that is added up in float32.

    Without AVX-512 oneDNN makes no products in bfloat16, and TensorFlow's own
    round the sums of blocks of rows too.
    """
    path = pathlib.Path("/proc/cpuinfo")
    has_avx512 = path.exists() and "avx512f" in path.read_text("utf-8")
    return 2**-8 if has_avx512 else 2**-7


def test_without_a_bias_there_is_none():
    dense = Dense(2, use_bias=False)
    x = np.ones((3, 4), "float32")
    np.testing.assert_array_equal(dense(x, training=True), dense(x))
    assert len(dense.weights) == 1
