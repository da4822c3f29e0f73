"""Attention to a window around each token: time and memory grow with length.

The row is cut in blocks of as many tokens as a window has to each side. The
window of every token of a block then lies in the block and its two neighbours,
where a mask makes it exact. The blocks are rows of a larger batch, for which
`attend` computes all (Beltagy et al. 2020, Longformer, section 3.1, is where
such windows are from). Tokens that all see, as Longformer's, would be further
keys of each block.

Letters in tensor names: B batch, L position, C block, W position in a block, N
attention heads, H size of one head.
"""

import numpy as np
from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.attention import attend


def attend_in_windows(
    query_BLNH: Tensor,
    key_BLNH: Tensor,
    value_BLNH: Tensor,
    window: int,
    input_mask: Tensor,
    sequence_ids: Tensor | None = None,
    dropout: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """Returns what `attend` does if all tokens see only their windows.

    Args:
        query_BLNH, key_BLNH, value_BLNH: float, of the same dtype.
        window: How many tokens to each side are seen, 1 or more.
        input_mask, sequence_ids: As in `make_attention_mask`.
        dropout, seed: As in `attend`.

    Returns:
        float `[B, L, N, H]`, of the same dtype.
    """
    batch_size, length, num_heads, size = ops.shape(query_BLNH)
    mask = _around(ops.cast(input_mask, "float32"), window)[:, :, None] > 0
    mask = ops.logical_and(mask, _band(window))
    if sequence_ids is not None:
        # As floats: see `make_attention_mask`.
        ids_BL = ops.cast(sequence_ids, "float32")
        own_BCW = _blocks(ids_BL, window)
        same = own_BCW[..., None] == _around(ids_BL, window)[:, :, None]
        mask = ops.logical_and(mask, same)
    context = attend(
        _as_rows(_blocks(query_BLNH, window)),
        _as_rows(_around(key_BLNH, window)),
        _as_rows(_around(value_BLNH, window)),
        ops.reshape(mask, (-1, window, 3 * window)),
        dropout,
        seed,
    )
    context_BLNH = ops.reshape(
        ops.transpose(context, (0, 2, 1, 3)),
        (batch_size, -1, num_heads, size),
    )[:, :length]
    # Where a window has nothing but padding, `attend` takes the mean of all.
    mean_B1NH = ops.mean(value_BLNH, axis=1, keepdims=True)
    sees_BL = ops.reshape(ops.any(mask, axis=-1), (batch_size, -1))[:, :length]
    return ops.where(sees_BL[..., None, None], context_BLNH, mean_B1NH)


def _band(window):
    """Returns which of three blocks each token of the middle one sees."""
    token = np.arange(window)[:, None] + window
    return ops.convert_to_tensor(
        np.abs(token - np.arange(3 * window)) <= window
    )


def _blocks(x, window, before=0):
    """Cuts `[B, L, ...]` into `[B, C, W, ...]`, with zeros behind."""
    batch_size, length, *others = ops.shape(x)
    num_blocks = -(-length // window)
    missing = num_blocks * window - length
    axes = [(0, 0)] * len(x.shape)
    axes[1] = (before, missing + before)
    num_blocks += 2 * before // window
    x = ops.pad(x, axes)
    return ops.reshape(x, (batch_size, num_blocks, window, *others))


def _around(x, window):
    """Returns each block between its neighbours, `[B, C, 3 * W, ...]`."""
    x = _blocks(x, window, before=window)
    return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)


def _as_rows(x_BCWNH):
    """Returns blocks as rows of a batch, `[B * C, N, W, H]`."""
    x = ops.reshape(x_BCWNH, (-1, *x_BCWNH.shape[2:]))
    return ops.transpose(x, (0, 2, 1, 3))
