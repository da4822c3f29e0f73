"""Who may look at whom: the one place where attention masks are made."""

from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.gathering import gather_positions


def make_attention_mask(
    input_mask: Tensor,
    sequence_ids: Tensor | None = None,
    left_to_right: bool = False,
) -> Tensor:
    """Returns a bool mask, True where a query may look at a key.

    Args:
        input_mask: int32 `[B, L]`, 1 on tokens and 0 on padding.
        sequence_ids: int32 `[B, L]` for rows that hold several sequences:
            a token looks only at tokens of its own sequence.
        left_to_right: Whether a token sees only itself and earlier tokens
            (the LTR ablation, Devlin et al. 2018, section 5.1).

    Returns:
        bool `[B, 1, L]`, or `[B, L, L]` where queries differ.
    """
    mask = ops.cast(input_mask, "bool")[:, None, :]
    # Compared as floats, which hold these numbers exactly. On GPUs, TensorFlow
    # would compare int32 in host memory.
    if sequence_ids is not None:
        sequence_ids = ops.cast(sequence_ids, "float32")
        same = sequence_ids[:, :, None] == sequence_ids[:, None, :]
        mask = ops.logical_and(mask, same)
    if left_to_right:
        positions = ops.cast(ops.arange(ops.shape(input_mask)[1]), "float32")
        before = positions[None, :, None] >= positions[None, None, :]
        mask = ops.logical_and(mask, before)
    return mask


def gather_queries(attention_mask: Tensor, positions: Tensor | int) -> Tensor:
    """Returns the mask of only the queries at `positions`.

    Args:
        attention_mask: What `make_attention_mask` returned.
        positions: As in `gather_positions`.
    """
    if attention_mask.shape[1] == 1:
        return attention_mask
    return gather_positions(attention_mask, positions)
