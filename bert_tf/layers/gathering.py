"""Rows of a batch: as one matrix, and picked by their places."""

from keras import ops

from bert_tf.features import Tensor


def as_matrix(x: Tensor) -> Tensor:
    """Returns the rows of `[..., D]` as one matrix, `[T, D]`.

    Of a matrix, the same tensor: no operation is added to the graph.
    """
    if len(x.shape) == 2:
        return x
    return ops.reshape(x, (-1, x.shape[-1] or ops.shape(x)[-1]))


def gather_positions(sequence: Tensor, positions: Tensor | int) -> Tensor:
    """Picks vectors by position from every row.

    Args:
        sequence: float or bool `[B, L, D]`.
        positions: int32 `[B, P]` in `[0, L)`, or P itself for the first ones.

    Returns:
        As `sequence`: `[B, P, D]`.
    """
    if isinstance(positions, int):
        return sequence[:, :positions]
    batch_size, length, size = ops.shape(sequence)
    # Whole rows of one matrix. `take_along_axis` moves single elements.
    first = ops.arange(batch_size, dtype="int32")[:, None] * length
    return ops.take(
        ops.reshape(sequence, (-1, size)),
        ops.cast(positions, "int32") + first,
        axis=0,
    )
