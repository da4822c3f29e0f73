"""What TensorFlow makes of an export: few operations, the same numbers."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers import substitutes
from bert_tf.layers.layer_norm import LayerNorm
from bert_tf.serving.graph import fused
from support import serving_models


def executed(path):
    """Returns how often a session, as servers use it, runs each operation.

    Of an answer to one string, by the names of the nodes.
    """
    v1 = tf.compat.v1
    trace = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    metadata = v1.RunMetadata()
    with v1.Session(graph=tf.Graph()) as session:
        loaded = v1.saved_model.load(session, ["serve"], path)
        signature = loaded.signature_def["serving_default"]
        feed = {each.name: ["the quick"] for each in signature.inputs.values()}
        fetches = [each.name for each in signature.outputs.values()]
        session.run(fetches, feed, options=trace, run_metadata=metadata)
    return [
        (node.node_name, node.timeline_label.split(" = ")[-1].split("(")[0])
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
    ]


@pytest.fixture(scope="module")
def runs_onednn():
    """Whether TensorFlow runs oneDNN's operations here."""
    v1 = tf.compat.v1
    metadata = v1.RunMetadata()
    with v1.Session(graph=tf.Graph()) as session:
        x = v1.placeholder(tf.float32, [None, 8])
        y = fused.layer_norm(x + 1.0, tf.ones([8]), tf.zeros([8]), 1e-12)
        session.run(
            tf.nn.relu(y),
            {x: np.zeros((2, 8))},
            options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
    return "_MklLayerNorm" in str(metadata.step_stats)


@pytest.mark.parametrize("shape", [(0, 6), (5, 6), (3, 4, 6)])
@pytest.mark.parametrize("epsilon", [1e-12, 0.5])
def test_layer_norm_is_the_formula(shape, epsilon):
    generator = np.random.default_rng(0)
    x = generator.normal(2.0, 3.0, shape)
    gamma, beta = generator.normal(size=(2, shape[-1]))

    @tf.function(input_signature=[tf.TensorSpec([None] * x.ndim)])
    def normalize(x):
        x = tf.ensure_shape(x, [*x.shape[:-1], shape[-1]]) * 1.0
        y = fused.layer_norm(
            x,
            tf.constant(gamma, tf.float32),
            tf.constant(beta, tf.float32),
            epsilon,
        )
        return y * 1.0

    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centered).mean(axis=-1, keepdims=True)
    expected = centered / np.sqrt(variance + epsilon) * gamma + beta
    answered = normalize(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(answered, expected, atol=1e-5)


def test_a_substitute_is_used_within_its_block_and_not_in_training():
    layer = LayerNorm()
    x = np.ones((2, 3), np.float32)
    own = layer(x).numpy()
    with substitutes.using(lambda x, *others: x + 5.0):
        assert (layer(x).numpy() == 6.0).all()
        np.testing.assert_array_equal(layer(x, training=True).numpy(), own)
    np.testing.assert_array_equal(layer(x).numpy(), own)


# Of a frozen export a normalisation is one operation. Others have the plain
# form, which is as fast there, and not slower where oneDNN is off.
@pytest.mark.parametrize(
    "kind, num_norms, most_of_a_block, most",
    [("pair", 0, 52, 680), ("frozen_pair", 2, 36, 510)],
)
def test_a_block_runs_few_operations(
    kind, num_norms, most_of_a_block, most, runs_onednn
):
    if not runs_onednn:
        pytest.skip("TensorFlow fuses these with oneDNN's operations alone.")
    nodes = executed(serving_models.exported(kind))
    block = collections.Counter(
        operation for name, operation in nodes if "/layer_0" in name
    )
    # The weights, which no graph can do without.
    is_frozen = kind != "pair"
    assert block.pop("ReadVariableOp", 0) == (0 if is_frozen else 16)
    # Constants cost nothing; the mask's and the shapes' are of all blocks.
    del block["Const"]
    assert block["_MklLayerNorm"] == num_norms
    assert block["FusedBatchNormV3"] == 0
    assert block["Rsqrt"] == 2 - num_norms
    assert block["_MklFusedBatchMatMulV2"] == 1
    assert block["_MklNativeFusedMatMul"] == 6
    assert sum(block.values()) <= most_of_a_block, block
    assert len(nodes) <= most, len(nodes)
