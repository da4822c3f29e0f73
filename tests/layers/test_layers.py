"""Every layer: the contract, and numbers against loops in NumPy."""

import ast
import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import layers
from bert_tf.config import ATTENTION_TILE as TILE
from bert_tf.config import BertConfig
from bert_tf.layers.attention import SelfAttention
from bert_tf.layers.attention import gather_queries
from bert_tf.layers.attention import make_attention_mask
from bert_tf.layers.basic import Dense
from bert_tf.layers.basic import Dropout
from bert_tf.layers.basic import apply_activation
from bert_tf.layers.basic import gather_positions
from bert_tf.layers.discriminator_head import DiscriminatorHead
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder_block import EncoderBlock
from bert_tf.layers.heads import ClassificationHead
from bert_tf.layers.heads import HiddenLayer
from bert_tf.layers.heads import MaskedLMHead
from bert_tf.layers.heads import Pooler
from bert_tf.layers.span_boundary_head import SpanBoundaryHead
from bert_tf.models.encoder import BertEncoder
from references import model as reference
from support.layer_checks import check_layer
from support.layer_checks import randomized

# Batch 3, length 5, hidden 8, heads 2 (of 4), feed-forward 12, vocabulary 11,
# positions 7, segments 2: a transposed axis cannot go unseen.
CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=7,
)
GENERATOR = np.random.default_rng(20181011)
SEQUENCE = GENERATOR.normal(size=(3, 5, 8)).astype("float32")
LENGTHS = np.array([5, 3, 1])
INPUT_MASK = (np.arange(5) < LENGTHS[:, None]).astype("int32")
MASK = INPUT_MASK[:, None, :].astype(bool)
INPUT_IDS = GENERATOR.integers(0, 11, (3, 5)).astype("int32")
SEGMENT_IDS = GENERATOR.integers(0, 2, (3, 5)).astype("int32")
POSITION_IDS = GENERATOR.integers(0, 7, (3, 5)).astype("int32")
POSITIONS = GENERATOR.integers(0, 5, (3, 2)).astype("int32")
WORD_EMBEDDINGS = GENERATOR.normal(size=(11, 8)).astype("float32")

CASES = {
    "embeddings": (
        lambda **kwargs: BertEmbeddings(CONFIG, **kwargs),
        [INPUT_IDS, SEGMENT_IDS],
    ),
    "packed_embeddings": (
        lambda **kwargs: BertEmbeddings(CONFIG, **kwargs),
        [INPUT_IDS, SEGMENT_IDS, POSITION_IDS],
    ),
    "self_attention": (
        lambda **kwargs: SelfAttention(CONFIG, **kwargs),
        [SEQUENCE, MASK],
    ),
    "encoder_block": (
        lambda **kwargs: EncoderBlock(CONFIG, **kwargs),
        [SEQUENCE, MASK],
    ),
    "pooler": (lambda **kwargs: Pooler(CONFIG, **kwargs), [SEQUENCE]),
    "packed_pooler": (
        lambda **kwargs: Pooler(CONFIG, **kwargs),
        [SEQUENCE, POSITIONS],
    ),
    "masked_lm_head": (
        lambda **kwargs: MaskedLMHead(CONFIG, **kwargs),
        [SEQUENCE, POSITIONS, WORD_EMBEDDINGS],
    ),
    "classification_head": (
        lambda **kwargs: ClassificationHead(CONFIG, 3, dropout=0.1, **kwargs),
        [SEQUENCE],
    ),
    "hidden_layer": (
        lambda **kwargs: HiddenLayer(CONFIG, "tanh", 0.1, **kwargs),
        [SEQUENCE],
    ),
    "discriminator_head": (
        lambda **kwargs: DiscriminatorHead(CONFIG, **kwargs),
        [SEQUENCE],
    ),
    "span_boundary_head": (
        lambda **kwargs: SpanBoundaryHead(CONFIG, **kwargs),
        [SEQUENCE, SEQUENCE[::-1], POSITION_IDS, WORD_EMBEDDINGS],
    ),
    "dense": (lambda **kwargs: Dense(6, **kwargs), [SEQUENCE]),
    "dropout": (lambda **kwargs: Dropout(0.3, **kwargs), [SEQUENCE]),
}


def with_dropout(rate):
    return dataclasses.replace(
        CONFIG, hidden_dropout_prob=rate, attention_probs_dropout_prob=rate
    )


@pytest.mark.parametrize("name", CASES)
def test_layer_keeps_the_contract(name, tmp_path):
    make_layer, inputs = CASES[name]
    check_layer(make_layer, inputs, tmp_path)


def _built(name, **options):
    make_layer, inputs = CASES[name]
    layer = make_layer(**options)
    layer(*inputs)
    randomized(layer)
    return layer, reference.weights_of(layer), np.array(layer(*inputs))


@pytest.mark.parametrize("name", ["embeddings", "packed_embeddings"])
def test_embeddings_equal_loops(name):
    _, weights, outputs = _built(name)
    positions = POSITION_IDS if name.startswith("packed") else [None] * 3
    for row in range(3):
        expected = reference.embeddings(
            weights, INPUT_IDS[row], SEGMENT_IDS[row], positions[row]
        )
        np.testing.assert_allclose(outputs[row], expected, atol=1e-5)


def test_self_attention_equals_loops():
    _, weights, outputs = _built("self_attention")
    for row in range(3):
        mask_LL = np.repeat(MASK[row], 5, axis=0)
        expected = reference.self_attention(weights, SEQUENCE[row], mask_LL, 2)
        np.testing.assert_allclose(outputs[row], expected, atol=2e-5)


def test_self_attention_under_a_mask_for_every_query_equals_loops():
    layer, weights, _ = _built("self_attention")
    mask = np.tril(np.ones((3, 5, 5), bool)) & MASK
    outputs = np.array(layer(SEQUENCE, mask))
    for row in range(3):
        expected = reference.self_attention(
            weights, SEQUENCE[row], mask[row], 2
        )
        np.testing.assert_allclose(outputs[row], expected, atol=2e-5)


def test_self_attention_of_padding_only_is_finite():
    layer, _, _ = _built("self_attention")
    assert np.all(np.isfinite(layer(SEQUENCE, np.zeros_like(MASK))))


def test_query_key_and_value_start_different():
    layer = SelfAttention(CONFIG)
    layer(SEQUENCE, MASK)
    assert not np.array_equal(layer.query.kernel, layer.key.kernel)
    assert not np.array_equal(layer.query.kernel, layer.value.kernel)


def test_encoder_block_equals_loops():
    _, weights, outputs = _built("encoder_block")
    for row in range(3):
        mask_LL = np.repeat(MASK[row], 5, axis=0)
        expected = reference.encoder_block(weights, SEQUENCE[row], mask_LL, 2)
        np.testing.assert_allclose(outputs[row], expected, atol=1e-4)


def test_masked_lm_head_equals_loops():
    _, weights, outputs = _built("masked_lm_head")
    for row in range(3):
        expected = reference.masked_lm_logits(
            weights, SEQUENCE[row][POSITIONS[row]], WORD_EMBEDDINGS
        )
        np.testing.assert_allclose(outputs[row], expected, atol=5e-5)


@pytest.mark.parametrize(
    "policy, rtol", [("float32", 1e-5), ("bfloat16", 0.02)]
)
def test_masked_lm_head_has_the_gradient_of_its_plain_form(policy, rtol):
    # So many rows that sums in 16 bits would be far off.
    random = np.random.default_rng(3)
    sequence = random.normal(size=(1, 2000, CONFIG.hidden_size))
    sequence = tf.constant(sequence, "float32")
    words = tf.Variable(WORD_EMBEDDINGS, dtype="float32")
    upstream = random.normal(0.1, size=(1, 2000, CONFIG.vocab_size))
    upstream = tf.constant(upstream, "float32")

    def gradients(dtype, training):
        layer, _, _ = _built("masked_lm_head", dtype=dtype)
        with tf.GradientTape() as tape:
            tape.watch(sequence)
            outputs = layer(sequence, None, words, training=training)
        sources = [sequence, words, layer.output_bias.value]
        return outputs, *tape.gradient(outputs, sources, upstream)

    dtype = "float32" if policy == "float32" else f"mixed_{policy}"
    got = gradients(dtype, training=True)
    wanted = gradients("float32", training=False)
    for ours, theirs in zip(got, wanted, strict=True):
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        assert error < rtol
    # The bias's is summed in float32 under every policy.
    expected = np.asarray(upstream, "float64").sum((0, 1))
    np.testing.assert_allclose(got[-1], expected, rtol=1e-4)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize(
    ("name", "bias"),
    [("masked_lm_head", "output_bias"), ("classification_head", "bias")],
)
def test_logits_have_their_bias_in_float32(name, bias, policy):
    make_layer, inputs = CASES[name]
    layer = make_layer(dtype=policy)
    layer(*inputs)
    for weight in layer.weights:
        is_bias = weight.path.endswith(f"/{bias}")
        # In bfloat16 10.03 is 10, in float16 10.03125.
        weight.assign(np.full(weight.shape, 10.03 if is_bias else 0.0))
    variable = next(w for w in layer.weights if w.path.endswith(f"/{bias}"))
    with tf.GradientTape() as tape:
        logits = layer(*inputs)
        loss = tf.reduce_sum(logits * 10.03)
    assert logits.dtype == "float32"
    np.testing.assert_array_equal(logits, np.full(logits.shape, 10.03, "f"))
    places = np.prod(logits.shape[:-1])
    gradient = tape.gradient(loss, variable.value)
    np.testing.assert_allclose(gradient, places * 10.03, rtol=1e-6)


def test_poolers_equal_loops():
    layer, weights, outputs = _built("pooler")
    for row in range(3):
        expected = np.tanh(
            reference.dense(reference.scope(weights, "dense"), SEQUENCE[row, 0])
        )
        np.testing.assert_allclose(outputs[row], expected, atol=1e-5)
    packed = np.array(layer(SEQUENCE, np.array([[0, 4]] * 3)))
    np.testing.assert_allclose(packed[:, 0], outputs, atol=1e-6)
    moved = np.roll(SEQUENCE, 1, axis=1)
    np.testing.assert_allclose(packed[:, 1], layer(moved), atol=1e-6)


def test_gather_positions_picks_rows():
    picked = np.array(gather_positions(SEQUENCE, POSITIONS))
    for row in range(3):
        for index in range(2):
            expected = SEQUENCE[row, POSITIONS[row, index]]
            np.testing.assert_array_equal(picked[row, index], expected)


def test_dropout_acts_in_training_only():
    layer = EncoderBlock(with_dropout(0.5))
    layer(SEQUENCE, MASK)
    randomized(layer)
    quiet = layer(SEQUENCE, MASK)
    np.testing.assert_array_equal(quiet, layer(SEQUENCE, MASK, training=False))
    noisy = layer(SEQUENCE, MASK, training=True)
    assert np.mean(np.abs(noisy - quiet)) > 0.1


def test_embeddings_refuse_a_sequence_beyond_the_positions():
    config = dataclasses.replace(CONFIG, max_position_embeddings=4)
    layer = BertEmbeddings(config)
    with pytest.raises(ValueError, match="length=5, max_position_embeddings=4"):
        layer(INPUT_IDS, SEGMENT_IDS)


def test_initial_kernels_have_the_stated_deviation():
    config = dataclasses.replace(CONFIG, vocab_size=500, hidden_size=64)
    layer = BertEmbeddings(config)
    layer.build()
    values = np.array(layer.word_embeddings)
    # A normal truncated at two deviations has 0.8796 of its deviation;
    # Keras, as TensorFlow 1, does not widen it. Both bounds: 3 sigma.
    assert 0.0170 < values.std() < 0.0182
    assert np.abs(values).max() <= 0.04


@pytest.mark.parametrize(
    "name, expected",
    [
        # x Phi(x) and the tanh form at x = 1, from their formulas.
        ("gelu", 0.8413447460685429),
        ("gelu_new", 0.8411919906082768),
        ("linear", 1.0),
        ("quick_gelu", 1 / (1 + math.exp(-1.702))),
        ("relu", 1.0),
        ("silu", 1 / (1 + math.exp(-1.0))),
        ("tanh", 0.7615941559557649),
    ],
)
def test_activations_at_one(name, expected):
    value = apply_activation(name, np.ones((), "float32"))
    assert float(value) == pytest.approx(expected, abs=2e-7)


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "quick_gelu", "silu"])
def test_slopes_of_activations_are_those_of_their_values(name):
    x = np.linspace(-9, 9, 181)
    inputs = tf.constant(x, "float32")
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = apply_activation(name, inputs)
    below, above = (
        apply_activation(name, tf.constant(x + change, "float64"))
        for change in (-1e-6, 1e-6)
    )
    np.testing.assert_allclose(
        tape.gradient(outputs, inputs), (above - below) / 2e-6, atol=5e-6
    )


@pytest.mark.parametrize("name", ["gelu", "gelu_new"])
def test_activations_of_large_float16_have_a_slope(name):
    """Of 256, whose square is infinite there, it was no number."""
    x = tf.constant([-60000.0, -256.0, -70.0, 70.0, 256.0, 60000.0], "float16")
    with tf.GradientTape() as tape:
        tape.watch(x)
        values = apply_activation(name, x)
    np.testing.assert_array_equal(values, np.maximum(x, 0))
    np.testing.assert_array_equal(tape.gradient(values, x), x > 0)


@pytest.mark.parametrize("mask", [MASK, np.tril(np.ones((3, 5, 5), bool))])
def test_encoder_block_for_some_queries_is_the_block_there(mask):
    layer = EncoderBlock(with_dropout(0.0))
    layer(SEQUENCE, mask)
    randomized(layer)
    got = layer(
        SEQUENCE,
        gather_queries(mask, POSITIONS),
        gather_positions(SEQUENCE, POSITIONS),
    )
    whole = layer(SEQUENCE, mask)
    np.testing.assert_allclose(
        got, gather_positions(whole, POSITIONS), atol=2e-5
    )


def test_layers_compute_what_their_arguments_say():
    """No module state, context variable or tracing state changes a layer."""
    folder = Path(layers.__path__[0])
    sources = [*folder.glob("*.py"), *(folder.parent / "models").glob("*.py")]
    assert len(sources) > 20
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in getattr(node, "names", [])]
            if isinstance(node, ast.ImportFrom):
                names.append(node.module)
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not {"contextvars", "threading"} & {*names}, path
            assert not isinstance(node, ast.Global | ast.Nonlocal), path
            # Attributes are set in an object's own methods alone.
            for target in getattr(node, "targets", ()):
                if isinstance(target, ast.Attribute):
                    owner = getattr(target.value, "id", None)
                    is_own = owner in ("self", "layer")
                    assert is_own or target.attr == "trainable", path


def test_attention_mask_of_padding():
    mask = np.array(make_attention_mask(INPUT_MASK))
    assert mask.shape == (3, 1, 5)
    np.testing.assert_array_equal(mask, MASK)


def test_attention_mask_of_packed_and_left_to_right_rows():
    input_mask = np.array([[1, 1, 1, 1, 0]], "int32")
    sequence_ids = np.array([[1, 1, 2, 2, 0]], "int32")
    packed = np.array(make_attention_mask(input_mask, sequence_ids))
    for query in range(4):
        for key in range(5):
            same = key < 4 and query // 2 == key // 2
            assert packed[0, query, key] == same
    both = np.array(make_attention_mask(input_mask, sequence_ids, True))
    np.testing.assert_array_equal(both[0], packed[0] & np.tri(5, dtype=bool))


@pytest.mark.parametrize("chunk", [TILE // 2, -TILE, 1.5 * TILE, True, "128"])
def test_chunks_of_attention_are_of_whole_tiles(chunk):
    message = (
        "`attention_chunk` must be 0 or a positive multiple of 128. Received: "
        f"attention_chunk={chunk!r}."
    )
    for make in (SelfAttention, BertEncoder):
        with pytest.raises(ValueError, match=re.escape(message)):
            make(CONFIG, attention_chunk=chunk)
