"""Attention itself: mask, softmax and dropout in one place.

Letters in tensor names: B batch, Q query, K key, N attention heads, H size of
one head.
"""

import keras
from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.dropout import Dropout

# From so many scores of a head on, training makes them a second time.
_MIN_SCORES = 256 * 256


def attend(
    query_BNQH: Tensor,
    key_BNKH: Tensor,
    value_BNKH: Tensor,
    attention_mask: Tensor,
    dropout: Dropout,
    training: bool | None = False,
) -> Tensor:
    """Returns softmax(Q K^T + mask) V of every head, the heads joined.

    Vaswani et al. 2017, section 3.2.1. Of long sequences, training keeps
    neither scores nor probabilities nor dropout's mask of any block, but makes
    them again for the gradient, from queries, keys, values and a seed.

    Args:
        query_BNQH: float, already divided by sqrt(H), which is cheaper than
            dividing the scores.
        key_BNKH, value_BNKH: float, of the same dtype.
        attention_mask: bool `[B, 1 or Q, K]`, True where a query may look at
            a key.
        dropout: The layer that drops attention probabilities.
        training: Whether it does.

    Returns:
        float `[B, Q, N, H]`, of the same dtype.
    """
    # A finite bias: -inf would make NaN of a row that is all padding.
    bias_BQK = ops.where(attention_mask, 0.0, -1e9)
    is_long = training and _is_long(query_BNQH.shape[2], key_BNKH.shape[2])
    seed = dropout.draw_seed(training)

    def compute(query_BNQH, key_BNKH, value_BNKH):
        key_BNHK = ops.transpose(key_BNKH, (0, 1, 3, 2))
        # The softmax is in float32 under every dtype policy.
        scores_BNQK = ops.cast(ops.matmul(query_BNQH, key_BNHK), "float32")
        probs_BNQK = ops.softmax(scores_BNQK + bias_BQK[:, None])
        probs_BNQK = ops.cast(probs_BNQK, value_BNKH.dtype)
        probs_BNQK = dropout.drop(
            probs_BNQK, _after(query_BNQH, seed) if is_long else seed
        )
        return ops.transpose(ops.matmul(probs_BNQK, value_BNKH), (0, 2, 1, 3))

    # All rows at once: GPUs and TPUs would idle beside a loop over them.
    return (keras.remat(compute) if is_long else compute)(
        query_BNQH, key_BNKH, value_BNKH
    )


def _is_long(num_queries, num_keys):
    """Whether making the scores twice costs little beside what it saves."""
    if num_queries is None or num_keys is None:
        return False
    return num_queries * num_keys >= _MIN_SCORES


def _after(x, seed):
    """Returns the seed, but not before `x` is known.

    A mask needs nothing but its seed: all blocks' masks would be made at the
    start of the step, those for the gradient too.
    """
    if seed is None:
        return None
    is_nan = ops.any(ops.isnan(x[:1, :1, :1, :1]))
    return seed + ops.cast(is_nan, seed.dtype)
