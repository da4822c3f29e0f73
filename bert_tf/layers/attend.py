"""Attention itself: mask, softmax and dropout in one place.

Letters in tensor names: B batch, Q query, K key, N attention heads, H size of
one head.
"""

import keras
from keras import ops

from bert_tf.features import Tensor


def attend(
    query_BNQH: Tensor,
    key_BNKH: Tensor,
    value_BNKH: Tensor,
    attention_mask: Tensor,
    dropout: keras.layers.Layer,
    training: bool | None = False,
) -> Tensor:
    """Returns softmax(Q K^T + mask) V of every head, the heads joined.

    Vaswani et al. 2017, section 3.2.1.

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
    key_BNHK = ops.transpose(key_BNKH, (0, 1, 3, 2))
    # The softmax is in float32 under every dtype policy.
    scores_BNQK = ops.cast(ops.matmul(query_BNQH, key_BNHK), "float32")
    # A finite bias: -inf would make NaN of a row that is all padding.
    bias_BQK = ops.where(attention_mask, 0.0, -1e9)
    probs_BNQK = ops.softmax(scores_BNQK + bias_BQK[:, None])
    probs_BNQK = ops.cast(probs_BNQK, value_BNKH.dtype)
    probs_BNQK = dropout(probs_BNQK, training=training)
    return ops.transpose(ops.matmul(probs_BNQK, value_BNKH), (0, 2, 1, 3))
