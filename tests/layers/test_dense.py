"""Dense layers: the bias's exact gradient, inputs activated twice."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers import attend
from bert_tf.layers.activations import apply_activation
from bert_tf.layers.dense import Dense
from bert_tf.layers.encoder_block import EncoderBlock


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


def kept_by_the_gradient(function, *tensors):
    """Returns [shape] of what a function's forward pass hands the backward."""
    shapes = {}

    @tf.function(autograph=False)
    def step(*tensors):
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = function(*tensors)
        graph = outputs.graph
        forward = set(graph.get_operations())
        gradients = tape.gradient(outputs, tensors)
        for op in set(graph.get_operations()) - forward:
            for x in op.inputs:
                # The shape of a tensor is no tensor of that shape.
                if x.op in forward and op.type not in ("Shape", "OnesLike"):
                    shapes[x.name] = tuple(x.shape)
        return gradients

    step.get_concrete_function(*tensors)
    return list(shapes.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["gelu", "gelu_new", "relu"])
def test_a_layer_of_inputs_that_are_activated_twice(name, dtype):
    random = np.random.default_rng(11)
    layer = Dense(4, dtype=dtype)
    layer.build((None, 6))
    layer.bias.assign(random.normal(size=4))
    inputs = tf.cast(2 * random.normal(size=(9, 6)), dtype)
    upstream = tf.cast(random.normal(size=(9, 4)), dtype)

    def once(x):
        return layer(apply_activation(name, x, True), training=True)

    def twice(x):
        return layer.call_activated(name, x)

    @tf.function(autograph=False)
    def run(function):
        variables = [weight.value for weight in layer.trainable_weights]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = function(inputs)
        return outputs, tape.gradient(outputs, [inputs, *variables], upstream)

    outputs, gradients = run(twice)
    wanted, wanted_gradients = run(once)
    np.testing.assert_array_equal(outputs, wanted)
    for gradient, expected in zip(gradients, wanted_gradients, strict=True):
        assert gradient.dtype == expected.dtype == dtype
        np.testing.assert_allclose(
            tf.cast(gradient, "float32"),
            tf.cast(expected, "float32"),
            rtol=1e-6 if dtype == "float32" else 1e-2,
            atol=1e-6 if dtype == "float32" else 2e-2,
        )
    if name != "relu":
        assert kept_by_the_gradient(once, inputs).count((9, 6)) == 2
        assert kept_by_the_gradient(twice, inputs).count((9, 6)) == 1


@pytest.mark.parametrize("min_scores", [1, 10**9])
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_blocks_of_long_sequences_keep_little(monkeypatch, min_scores, dtype):
    monkeypatch.setattr(attend, "_MIN_SCORES", min_scores)
    config = BertConfig.named("tiny", vocab_size=9, intermediate_size=7)
    block = EncoderBlock(config, dtype=dtype)
    block.build((None, None, config.hidden_size))
    mask = tf.ones((2, 1, 5), "bool")
    x = tf.ones((10, config.hidden_size), block.compute_dtype)
    kept = kept_by_the_gradient(lambda x: block(x, mask, training=True), x)
    is_long = min_scores == 1
    assert kept.count((10, 7)) == (1 if is_long else 2)
    # The input, the context, what the feed-forward layer gets, and of each
    # layer normalisation one tensor; of short sequences two masks of dropout.
    assert (kept.count((10, config.hidden_size)) == 5) == is_long


@pytest.mark.parametrize(
    ("dtype", "atol"), [("float32", 1e-5), ("mixed_bfloat16", 0.03)]
)
def test_blocks_of_long_sequences_compute_the_same(monkeypatch, dtype, atol):
    config = BertConfig.named("tiny", vocab_size=9, intermediate_size=7)
    block = EncoderBlock(config, dtype=dtype)
    block.build((None, None, config.hidden_size))
    mask = tf.constant([[[True] * 5], [[True] * 3 + [False] * 2]])
    draw = np.random.default_rng(1).normal
    inputs = tf.constant(draw(size=(10, config.hidden_size)), "float32")
    upstream = tf.constant(draw(size=inputs.shape), "float32")

    def run(min_scores):
        monkeypatch.setattr(attend, "_MIN_SCORES", min_scores)
        for layer in block._flatten_layers():
            if hasattr(layer, "seed_generator"):
                layer.seed_generator.state.assign([3, 0])

        @tf.function(autograph=False)
        def step(inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = tf.cast(block(inputs, mask, training=True), "float32")
            sources = [inputs, *block.trainable_weights]
            return outputs, tape.gradient(outputs, sources, upstream)

        return step(inputs)

    outputs, gradients = run(1)
    wanted, wanted_gradients = run(10**9)
    np.testing.assert_array_equal(outputs, wanted)
    for gradient, expected in zip(gradients, wanted_gradients, strict=True):
        # That of the keys' bias is 0, but for rounding.
        largest = max(np.abs(expected).max(), 0.02)
        np.testing.assert_allclose(gradient, expected, atol=atol * largest)
