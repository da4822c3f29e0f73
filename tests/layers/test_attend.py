"""Attention, whose gradient keeps its probabilities or makes them again."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers import attend as attend_lib
from bert_tf.layers.dropout import Dropout

# Batch 3, heads 2, queries 4, keys 5, head size 6.
GENERATOR = np.random.default_rng(20220527)
QUERY = GENERATOR.normal(size=(3, 2, 4, 6))
KEY = GENERATOR.normal(size=(3, 2, 5, 6))
VALUE = GENERATOR.normal(size=(3, 2, 5, 6))
UPSTREAM = GENERATOR.normal(size=(3, 4, 2, 6))
ROW_MASK = np.arange(5) < np.array([5, 3, 1])[:, None, None]
QUERY_MASK = np.tril(np.ones((3, 4, 5), bool)) & ROW_MASK


def run(monkeypatch, is_again, mask, rate, dtype="float32", jit_compile=False):
    """Returns outputs, the three gradients, and the seeds' next state."""
    monkeypatch.setattr(attend_lib, "_MIN_SCORES", 1 if is_again else 10**9)
    dropout = Dropout(rate, seed=7, dtype=dtype)

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step(query, key, value, upstream):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            outputs = attend_lib.attend(
                query, key, value, tf.constant(mask), dropout, training=True
            )
        return outputs, tape.gradient(outputs, [query, key, value], upstream)

    outputs, gradients = step(
        *(tf.cast(x, dtype) for x in (QUERY, KEY, VALUE, UPSTREAM))
    )
    seed = [] if rate == 0 else dropout.seed_generator.state.numpy().tolist()
    return [np.array(x, "float32") for x in (outputs, *gradients)], seed


def oracle(query, key, value, mask, factors):
    """The formula as it is written, in float64, with the mask that is given."""
    scores = np.einsum("bnqh,bnkh->bnqk", query, key)
    scores += np.where(mask, 0.0, -1e9)[:, None]
    exps = np.exp(scores - scores.max(-1, keepdims=True))
    probs = exps / exps.sum(-1, keepdims=True) * factors
    return np.einsum("bnqk,bnkh->bqnh", probs, value)


def differences(mask, factors):
    """Gradients of sum(outputs * UPSTREAM) by central differences."""
    for place in range(3):
        tensors = [QUERY.copy(), KEY.copy(), VALUE.copy()]
        moved = tensors[place]
        gradient = np.zeros_like(moved)
        for index in np.ndindex(moved.shape):
            kept = moved[index]
            sums = []
            for step in (1e-5, -1e-5):
                moved[index] = kept + step
                sums.append(np.sum(oracle(*tensors, mask, factors) * UPSTREAM))
            moved[index] = kept
            gradient[index] = (sums[0] - sums[1]) / 2e-5
        yield gradient


@pytest.mark.parametrize("is_again", [False, True])
@pytest.mark.parametrize("mask", [ROW_MASK, QUERY_MASK])
def test_outputs_and_gradients_equal_the_formula(monkeypatch, mask, is_again):
    got, _ = run(monkeypatch, is_again, mask, 0.4)
    dropout = Dropout(0.4, seed=7)
    seed = dropout.seed_generator.next()
    factors = np.array(dropout.drop(np.ones((3, 2, 4, 5), "float32"), seed))
    assert 0.4 < np.mean(factors > 0) < 0.8
    expected = oracle(QUERY, KEY, VALUE, mask, factors)
    np.testing.assert_allclose(got[0], expected, atol=2e-6)
    for gradient, wanted in zip(got[1:], differences(mask, factors)):
        np.testing.assert_allclose(gradient, wanted, atol=5e-6)


@pytest.mark.parametrize(
    ("dtype", "atol"),
    [("float32", 1e-5), ("float16", 0.02), ("bfloat16", 0.03)],
)
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_values_are_those_of_kept_probabilities(monkeypatch, dtype, atol, rate):
    # One row is padding alone.
    mask = QUERY_MASK & np.array([True, True, False])[:, None, None]
    kept, seed = run(monkeypatch, False, mask, rate, dtype)
    again, next_seed = run(monkeypatch, True, mask, rate, dtype)
    # The same bits; the gradient's sums have another order.
    np.testing.assert_array_equal(again[0], kept[0])
    for gradient, wanted in zip(again[1:], kept[1:]):
        np.testing.assert_allclose(
            gradient, wanted, atol=atol * np.abs(wanted).max()
        )
    assert next_seed == seed


def test_xla_makes_the_same_numbers(monkeypatch):
    plain, _ = run(monkeypatch, True, ROW_MASK, 0.4)
    compiled, _ = run(monkeypatch, True, ROW_MASK, 0.4, jit_compile=True)
    for values, wanted in zip(compiled, plain):
        # Of numbers up to 5: 2.2e-6 was seen, on a processor with AVX2 alone.
        np.testing.assert_allclose(values, wanted, atol=3e-6)


@pytest.mark.parametrize("is_again", [True, False])
def test_no_scores_are_kept_for_the_gradient(monkeypatch, is_again):
    monkeypatch.setattr(attend_lib, "_MIN_SCORES", 1 if is_again else 10**9)
    dropout = Dropout(0.4, seed=7)
    kept = set()

    @tf.function(autograph=False)
    def step(query, key, value):
        with tf.GradientTape() as tape:
            tape.watch([query, key, value])
            outputs = attend_lib.attend(
                query, key, value, tf.constant(ROW_MASK), dropout, training=True
            )
        graph = tf.compat.v1.get_default_graph()
        forward = set(graph.get_operations())
        gradients = tape.gradient(outputs, [query, key, value])
        for op in set(graph.get_operations()) - forward:
            kept.update(tuple(x.shape) for x in op.inputs if x.op in forward)
        return gradients

    step.get_concrete_function(
        *(tf.constant(x, "float32") for x in (QUERY, KEY, VALUE))
    )
    # Scores, probabilities and the mask have the shape [B, N, Q, K].
    assert ((3, 2, 4, 5) in kept) != is_again
    assert (3, 2, 5, 6) in kept
