"""Rows of a batch, picked by position."""

from keras import ops

from bert_tf.features import Tensor


def gather_positions(sequence: Tensor, positions: Tensor | int) -> Tensor:
    """Picks vectors by position from every row.

    Args:
        sequence: float or bool `[B, L, D]`.
        positions: int32 `[B, P]` in `[0, L)`, or P itself for the first P. Not
            checked: another position may be in another row.

    Returns:
        `[B, P, D]`, of the dtype of `sequence`.
    """
    if isinstance(positions, int):
        return sequence[:, :positions]
    batch_size, length, size = ops.shape(sequence)
    # Takes whole rows of one matrix; `take_along_axis` moves single elements.
    first = ops.arange(batch_size, dtype="int32")[:, None] * length
    return ops.take(
        ops.reshape(sequence, (-1, size)),
        ops.cast(positions, "int32") + first,
        axis=0,
    )
