"""What TensorFlow makes of an export: few operations, the same numbers."""

import collections

import numpy as np
import pytest
import tensorflow as tf

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
        y = tf.matmul(x + 1.0, tf.ones([8, 8]))
        session.run(
            tf.nn.relu(y),
            {x: np.zeros((2, 8))},
            options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
            run_metadata=metadata,
        )
    return "_Mkl" in str(metadata.step_stats)


@pytest.mark.parametrize(
    "kind, most_of_a_block, most, halves, products",
    # Constants are used in halves. Queries, keys and values are one product;
    # that of a second half is not fused where its sum with the first follows.
    [("pair", 52, 680, 1, 6), ("frozen_pair", 52, 533, 2, 6)],
)
def test_a_block_runs_few_operations(
    kind, most_of_a_block, most, halves, products, runs_onednn
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
    assert block["Rsqrt"] == 2
    assert block["_MklFusedBatchMatMulV2"] == halves
    assert block["_MklNativeFusedMatMul"] == products
    assert sum(block.values()) <= most_of_a_block, block
    assert len(nodes) <= most, len(nodes)
