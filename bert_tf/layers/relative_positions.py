"""A bias of attention scores by how far the key is from the query (MPNet).

Raffel et al. 2020 (arXiv 1910.10683), section 2.1: a number for each bucket of
distances and each head, which all layers share.

Letters in tensor names: Q query, K key, N attention heads, R distance.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.config import RELATIVE_BUCKETS
from bert_tf.features import Tensor
from bert_tf.layers.configured import ConfiguredLayer

# Distances beyond are in the buckets of this one.
FARTHEST = 128
# Smaller distances have buckets of their own; it is half of each side's.
_NUM_EXACT = RELATIVE_BUCKETS // 4


def add_table(layer: ConfiguredLayer) -> keras.Variable:
    """Returns a new table, float `[RELATIVE_BUCKETS, N]`."""
    return layer.add_weight(
        shape=(RELATIVE_BUCKETS, layer.config.num_attention_heads),
        initializer=layer.make_kernel_initializer(),
        autocast=False,
        name="relative_bias",
    )


def by_distance(table: Tensor) -> Tensor:
    """Returns the bias by distance, key minus query, float32 `[N, R]`.

    The distances are -FARTHEST to FARTHEST.

    Args:
        table: float `[RELATIVE_BUCKETS, N]`.
    """
    table_NB = ops.transpose(ops.cast(table, "float32"))
    return ops.take(table_NB, _buckets(), axis=1)


def bias_of_table(table: Tensor, length: Any) -> Tensor:
    """Returns float32 `[1, N, length, length]` from a table."""
    places = ops.arange(length, dtype="int32")
    distances_QK = ops.clip(places[None] - places[:, None], -FARTHEST, FARTHEST)
    return ops.take(by_distance(table), distances_QK + FARTHEST, axis=1)[None]


def gather_queries(bias_1NQK: Tensor, positions: Tensor | int) -> Tensor:
    """Returns the bias of only the queries at `positions`.

    Args:
        bias_1NQK: What `bias_of_table` returned.
        positions: As in `gather_positions`.
    """
    if isinstance(positions, int):
        return bias_1NQK[:, :, :positions]
    positions = ops.cast(positions, "int32")
    bias_NBQK = ops.take(bias_1NQK[0], positions, axis=1)
    return ops.transpose(bias_NBQK, (1, 0, 2, 3))


def _buckets():
    """Returns the buckets of the distances, key minus query, int32 `[R]`."""
    distances = np.arange(-FARTHEST, FARTHEST + 1)
    far = np.maximum(np.abs(distances), _NUM_EXACT) / _NUM_EXACT
    log = _NUM_EXACT * np.log(far) / np.log(FARTHEST / _NUM_EXACT)
    is_exact = np.abs(distances) < _NUM_EXACT
    bucket = np.where(is_exact, np.abs(distances), _NUM_EXACT + log)
    bucket = np.minimum(bucket.astype(np.int32), RELATIVE_BUCKETS // 2 - 1)
    return bucket + RELATIVE_BUCKETS // 2 * (distances > 0).astype(np.int32)
