"""Attention beside its formula, at once and in chunks."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers import attention
from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.attention import attend
from bert_tf.layers.basic import draw_factors

SEED = tf.constant([5, 7], tf.int64)
# Batch 3, heads 2, queries 4, keys 5, head size 6.
GENERATOR = np.random.default_rng(20220527)
SMALL = [
    GENERATOR.normal(size=shape)
    for shape in ((3, 2, 4, 6), (3, 2, 5, 6), (3, 2, 5, 6), (3, 2, 4, 6))
]
ROW_MASK = np.arange(5) < np.array([5, 3, 1])[:, None, None]
QUERY_MASK = np.tril(np.ones((3, 4, 5), bool)) & ROW_MASK
# Of three tiles, the last one not full.
LONG = [GENERATOR.normal(size=(2, 3, 300, 4)) for _ in range(4)]
LONG_MASKS = [
    np.arange(300) < np.array([300, 170])[:, None, None],
    GENERATOR.random((2, 300, 300)) < 0.8,
]


def run(tensors, mask, rate, dtype="float32", spec=None, jit=False, **options):
    """Returns outputs and the three gradients."""

    @tf.function(
        jit_compile=jit, autograph=False, input_signature=spec and [spec] * 4
    )
    def step(query, key, value, upstream):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            outputs = attend(
                query, key, value, tf.constant(mask), rate, SEED, **options
            )
        return outputs, *tape.gradient(outputs, [query, key, value], upstream)

    found = step(*(tf.cast(x, dtype) for x in tensors))
    return [np.array(x, "float32") for x in found]


def oracle(query, key, value, mask, factors):
    """The formula as it is written, in float64, with the mask that is given."""
    scores = np.einsum("bnqh,bnkh->bnqk", query, key) / query.shape[-1] ** 0.5
    scores += np.where(mask, 0.0, -1e9)[:, None]
    exps = np.exp(scores - scores.max(-1, keepdims=True))
    probs = exps / exps.sum(-1, keepdims=True) * factors
    return np.einsum("bnqk,bnkh->bnqh", probs, value)


def differences(mask, factors):
    """Gradients of sum(outputs * upstream) by central differences."""
    *inputs, upstream = SMALL
    for place in range(3):
        tensors = [x.copy() for x in inputs]
        moved = tensors[place]
        gradient = np.zeros_like(moved)
        for index in np.ndindex(moved.shape):
            kept = moved[index]
            sums = []
            for step in (1e-5, -1e-5):
                moved[index] = kept + step
                sums.append(np.sum(oracle(*tensors, mask, factors) * upstream))
            moved[index] = kept
            gradient[index] = (sums[0] - sums[1]) / 2e-5
        yield gradient


@pytest.mark.parametrize("spec", [None, tf.TensorSpec([3, 2, None, 6])])
@pytest.mark.parametrize("mask", [ROW_MASK, QUERY_MASK])
def test_outputs_and_gradients_equal_the_formula(mask, spec):
    got = run(SMALL, mask, 0.4, spec=spec)
    factors = np.array(draw_factors((3, 2, 4, 5), 0.4, SEED, "float32"))
    assert 0.4 < np.mean(factors > 0) < 0.8
    expected = oracle(*SMALL[:3], mask, factors)
    np.testing.assert_allclose(got[0], expected, atol=2e-6)
    for gradient, wanted in zip(got[1:], differences(mask, factors)):
        np.testing.assert_allclose(gradient, wanted, atol=5e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 128},
        {"chunk": 256},
        {"chunk": 128, "jit": True},
        {"chunk": 256, "jit": True},
        {"chunk": 256, "spec": tf.TensorSpec([None, 3, None, 4])},
    ],
)
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("mask", LONG_MASKS)
def test_chunks_compute_the_same(mask, rate, options):
    at_once = run(LONG, mask, rate)
    for got, wanted in zip(run(LONG, mask, rate, **options), at_once):
        np.testing.assert_allclose(got, wanted, atol=3e-6)


@pytest.mark.parametrize(
    ("dtype", "atol"), [("float16", 0.02), ("bfloat16", 0.03)]
)
def test_chunks_in_16_bits(dtype, atol):
    at_once = run(LONG, LONG_MASKS[0], 0.3)
    got = run(LONG, LONG_MASKS[0], 0.3, dtype, chunk=128)
    for values, wanted in zip(got, at_once):
        np.testing.assert_allclose(
            values, wanted, atol=atol * np.abs(wanted).max()
        )


def test_each_tile_of_queries_drops_others():
    seeds = [attention._seed_of(SEED, tile) for tile in range(3)]
    tiles = [
        np.array(draw_factors((1, 2, 128, 64), 0.5, seed, "float32")) > 0
        for seed in seeds
    ]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.mean(tiles[one] == tiles[other]) - 0.5) < 0.02


def test_chunks_keep_no_scores_for_the_gradient():
    kept = set()

    @tf.function(autograph=False)
    def step(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            outputs = attend(
                query, key, value, tf.constant(LONG_MASKS[0]), 0.3, SEED, 128
            )
        graph = tf.compat.v1.get_default_graph()
        forward = set(graph.get_operations())
        gradients = tape.gradient(outputs, [query, key, value])
        for op in set(graph.get_operations()) - forward:
            kept.update(tuple(x.shape) for x in op.inputs if x.op in forward)
        return gradients

    step.get_concrete_function(*(tf.constant(x, "float32") for x in LONG[:3]))
    assert (2, 3, 300, 4) in kept
    # Queries are padded to whole chunks.
    assert max(np.prod(shape) for shape in kept) <= 2 * 3 * 384 * 4


def test_graphs_add_no_gradients_to_the_registry():
    """Each trace of a custom gradient stayed in it, with the graph around."""
    from tensorflow.python.framework import ops

    run(LONG, LONG_MASKS[0], 0.3, chunk=128)
    before = len(ops.gradient_registry.list())
    for _ in range(3):
        run(LONG, LONG_MASKS[0], 0.3, chunk=128)
    assert len(ops.gradient_registry.list()) == before


@pytest.mark.parametrize(
    ("positions", "length", "is_in_chunks"),
    [
        (512, 511, False),
        (512, 512, True),
        # That a length is not known is the rule in exports.
        (512, None, False),
        (513, None, True),
    ],
)
def test_long_sequences_are_computed_in_chunks(positions, length, is_in_chunks):
    config = BertConfig.named(
        "tiny", vocab_size=5, max_position_embeddings=positions
    )
    layer = SelfAttention(config)
    spec = tf.TensorSpec((1, length, 128))
    graph = (
        tf.function(lambda x: layer(x, tf.ones((1, 1, 1), bool)))
        .get_concrete_function(spec)
        .graph.as_graph_def()
    )
    called = {
        node.op for each in graph.library.function for node in each.node_def
    }
    assert ("StatelessWhile" in called) == is_in_chunks
