"""Gradients are summed over the replicas, and clipped: nowhere else."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.features import Tensor

# Gradients are summed over the replicas in packs of about this many bytes. A
# pack is summed while the rest of the backward pass is computed. By default
# TensorFlow makes a single pack, and waits for the last gradient.
_BYTES_PER_PACK = 50 * 2**20


def sum_and_clip(
    gradients: Sequence[Tensor | None], largest_norm: float | None
) -> tuple[list[Tensor | None], Tensor]:
    """Sums gradients over the replicas, then clips them by their global norm.

    They are clipped once, after the sum, so that the number of devices changes
    nothing. On TensorFlow it is called in replica context. On JAX and PyTorch,
    gradients that Keras passes on are already those of all devices.

    Args:
        gradients: This replica's, dense, or None for variables that the loss
            does not depend on. Their sum is the gradient of the whole batch.
        largest_norm: Largest norm of all gradients together, or None.

    Returns:
        The gradients, the same on all replicas, and their norm before
        clipping, a float32 scalar.
    """
    present = _sum_over_replicas([g for g in gradients if g is not None])
    norm = ops.sqrt(
        sum(ops.sum(ops.square(ops.cast(g, "float32"))) for g in present)
    )
    if largest_norm is not None:
        share = largest_norm / ops.maximum(norm, largest_norm)
        present = [g * ops.cast(share, g.dtype) for g in present]
    rest = iter(present)
    return [None if g is None else next(rest) for g in gradients], norm


def dense(
    gradients: Sequence[Any], variables: Sequence[Any]
) -> list[Tensor | None]:
    """Returns gradients as tensors of their variables' shapes; None stays.

    On TensorFlow those of embeddings are IndexedSlices, in which a row may
    occur twice: their norm would be wrong. For trimmed batches it does not know
    all shapes, e.g. of the position embeddings' gradient, and packs only
    gradients whose shapes it knows.
    """
    if keras.backend.backend() != "tensorflow":
        return list(gradients)
    import tensorflow as tf

    found = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
    for gradient, variable in zip(found, variables, strict=True):
        if gradient is not None:
            gradient.set_shape(variable.shape)
    return found


def num_replicas() -> int:
    """Returns among how many replicas TensorFlow divides a batch."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def _sum_over_replicas(gradients):
    if num_replicas() == 1:
        return gradients
    import tensorflow as tf

    return tf.distribute.get_replica_context().all_reduce(
        tf.distribute.ReduceOp.SUM,
        gradients,
        options=tf.distribute.experimental.CommunicationOptions(
            bytes_per_pack=_BYTES_PER_PACK
        ),
    )
