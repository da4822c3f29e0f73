"""Drawing classes by their logits.

Letters in tensor names: N rows, V classes, K blocks of classes, C classes per
block.
"""

from keras import ops

from bert_tf.features import Tensor

_BLOCK_SIZE = 128


def sample_classes(logits: Tensor, draws: Tensor) -> Tensor:
    """Draws a class for every row, with the probabilities of its softmax.

    A function of its arguments, without state. The first number of a row
    chooses a block of classes, the second a class of the block. Noise for every
    class (Gumbel-max) has the same distribution, but takes as many random
    numbers as there are classes. Thanks to the blocks, even a class of
    probability 1e-9 keeps its share in float32.

    Args:
        logits: float `[..., V]`; no gradient goes through.
        draws: int32 `[..., 2]`, uniform in [0, 2**23).

    Returns:
        int32 `[...]` in `[0, V)`.
    """
    num_classes = logits.shape[-1]
    num_blocks = -(-num_classes // _BLOCK_SIZE)
    shape = ops.shape(draws)[:-1]
    logits_NV = ops.stop_gradient(
        ops.reshape(ops.cast(logits, "float32"), (-1, num_classes))
    )
    powers_NV = ops.exp(logits_NV - ops.max(logits_NV, axis=-1, keepdims=True))
    # The padding has no weight.
    powers_NV = ops.pad(
        powers_NV, ((0, 0), (0, num_blocks * _BLOCK_SIZE - num_classes))
    )
    powers_NKC = ops.reshape(powers_NV, (-1, num_blocks, _BLOCK_SIZE))
    # At most 1 - 2**-23, so that the product with a sum is below the sum.
    draws_N2 = ops.cast(ops.reshape(draws, (-1, 2)), "float32") * 2.0**-23
    block_N = _pick(ops.sum(powers_NKC, axis=-1), draws_N2[:, :1])
    first_N = ops.arange(ops.shape(block_N)[0], dtype="int32") * num_blocks
    own_NC = ops.take(
        ops.reshape(powers_NV, (-1, _BLOCK_SIZE)), first_N + block_N, axis=0
    )
    class_N = block_N * _BLOCK_SIZE + _pick(own_NC, draws_N2[:, 1:])
    # Rounded sums, which differ between devices, might pick the padding.
    return ops.reshape(ops.minimum(class_N, num_classes - 1), shape)


def _pick(weights_NK, draws_N1):
    """Returns int32 `[N]`: the first k whose cumulative weight is above."""
    sums_NK = ops.cumsum(weights_NK, axis=-1)
    is_before_NK = sums_NK <= draws_N1 * sums_NK[:, -1:]
    # In float32 the count is exact. On GPUs, int32 is summed in host memory.
    number_N = ops.sum(ops.cast(is_before_NK, "float32"), axis=-1)
    return ops.cast(ops.minimum(number_N, weights_NK.shape[-1] - 1), "int32")
