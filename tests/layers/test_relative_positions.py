"""MPNet's bias of attention scores: buckets, positions, chunks, recomputing."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.layers import relative_positions
from bert_tf.models.attention import attention_probs
from bert_tf.models.encoder import BertEncoder
from support.family_models import of_family
from support.layer_checks import randomized

# From transformers 5.23, `MPNetEncoder.relative_position_bucket` of the keys
# at -600 to 600: (bucket, how many distances in a row).
BUCKETS = [
    *((15, 510), (14, 27), (13, 18), (12, 14), (11, 9), (10, 7), (9, 4)),
    *((8, 4), (7, 1), (6, 1), (5, 1), (4, 1), (3, 1), (2, 1), (1, 1), (0, 1)),
    *((17, 1), (18, 1), (19, 1), (20, 1), (21, 1), (22, 1), (23, 1), (24, 4)),
    *((25, 4), (26, 7), (27, 9), (28, 14), (29, 18), (30, 27), (31, 510)),
]
CONFIG = of_family(
    BertConfig(
        vocab_size=30,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=10,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
    "mpnet",
)


def inputs(length):
    generator = np.random.default_rng(7)
    ids = generator.integers(1, 30, (2, length)).astype("int32")
    mask = np.ones_like(ids)
    mask[1, length - 3 :] = ids[1, length - 3 :] = 0
    return {
        features.INPUT_IDS: ids,
        features.INPUT_MASK: mask,
        features.SEGMENT_IDS: np.zeros_like(ids),
    }


def test_buckets_are_those_of_transformers():
    table = np.arange(32.0)[:, None] * [1, -1]
    bias = np.array(relative_positions.bias_of_table(table, 601))
    assert bias.shape == (1, 2, 601, 601)
    expected = np.repeat(*np.transpose(BUCKETS))
    for query in (0, 1, 300, 600):
        row = expected[600 - query :][:601]
        np.testing.assert_array_equal(bias[0, 0, query], row)
        np.testing.assert_array_equal(bias[0, 1, query], -row)


@pytest.mark.parametrize("positions", [4, np.array([[3, 9], [0, 20]])])
def test_the_last_block_at_positions(positions):
    model = randomized(BertEncoder(CONFIG))
    whole = model(inputs(23))["sequence_output"]
    found = model(inputs(23), positions=positions)["sequence_output"]
    if isinstance(positions, int):
        expected = whole[:, :positions]
    else:
        expected = tf.gather(whole, positions, batch_dims=1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_probabilities_have_the_bias():
    model = randomized(BertEncoder(CONFIG))
    probs = attention_probs(model, inputs(23))
    inside = model(inputs(23), return_inside=True)
    _, _, values = inside["heads"][0]
    # Without a bias, the others would attend to other values.
    none = dataclasses.replace(CONFIG, has_relative_bias=False)
    other = BertEncoder(none)
    other.set_weights(
        [each for each in model.weights if each.name != "relative_bias"]
    )
    assert np.abs(probs - attention_probs(other, inputs(23))).max() > 0.01
    block = model.blocks[0].attention
    context = tf.matmul(probs[:, 0], values)
    context = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), (2, 23, 12))
    embedded = inside["embedding_output"]
    mask = np.array(inputs(23)[features.INPUT_MASK], bool)[:, None]
    bias = relative_positions.bias_of_table(model.embeddings.relative_bias, 23)
    found = block(embedded, (mask, bias))
    np.testing.assert_allclose(found, block.merge_heads(context), atol=1e-5)


def test_recomputed_blocks_train_the_bias():
    gradients = []
    for rematerialize in (False, True):
        model = BertEncoder(CONFIG, rematerialize=rematerialize)
        randomized(model)
        with tf.GradientTape() as tape:
            outputs = model(inputs(23), training=True)["sequence_output"]
            loss = tf.reduce_sum(outputs[..., :5] ** 2)
        table = model.embeddings.relative_bias.value
        gradients.append(tf.convert_to_tensor(tape.gradient(loss, table)))
    assert np.abs(gradients[0]).max() > 0.01
    np.testing.assert_allclose(*gradients, atol=1e-4)
