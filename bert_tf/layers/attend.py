"""Attention itself: mask, softmax and dropout in one place.

Letters in tensor names: B batch, Q query, K key, N attention heads, H size of
one head.
"""

from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.chains import runner_here
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.gradients import with_gradient
from bert_tf.layers.gradients import zero_after

# From this many scores per head on, training recomputes them for the gradient.
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

    Vaswani et al. 2017, section 3.2.1. For long sequences, training keeps no
    scores, probabilities or dropout masks. It recomputes them for the gradient
    from queries, keys, values and a seed.

    Args:
        query_BNQH: float, already divided by sqrt(H), which is cheaper than
            dividing the scores.
        key_BNKH, value_BNKH: float, of the same dtype.
        attention_mask: bool `[B, 1 or Q, K]`, True where a query may look at
            a key.
        dropout: The layer that drops attention probabilities.
        training: Whether to drop any.

    Returns:
        float `[B, Q, N, H]`, of the same dtype.
    """
    bias_BQK = _bias(attention_mask)
    if training:
        return _attend_in_training(
            query_BNQH, key_BNKH, value_BNKH, bias_BQK, dropout
        )
    probs_BNQK = _probs(query_BNQH, key_BNKH, bias_BQK)
    probs_BNQK = ops.cast(probs_BNQK, value_BNKH.dtype)
    return ops.transpose(ops.matmul(probs_BNQK, value_BNKH), (0, 2, 1, 3))


def attention_probs(
    query_BNQH: Tensor, key_BNKH: Tensor, attention_mask: Tensor
) -> Tensor:
    """Returns the weights that `attend` gives the values, without dropout.

    Args:
        query_BNQH: float, already divided by sqrt(H).
        key_BNKH, attention_mask: As in `attend`.

    Returns:
        float32 `[B, N, Q, K]`; each query's weights add up to 1.
    """
    return _probs(query_BNQH, key_BNKH, _bias(attention_mask))


def is_long(num_queries: int | None, num_keys: int | None) -> bool:
    """Returns whether training recomputes a block's large tensors.

    Args:
        num_queries, num_keys: Lengths, or None if they are not known.
    """
    # JAX has symbols instead of None.
    if not isinstance(num_queries, int) or not isinstance(num_keys, int):
        return False
    return num_queries * num_keys >= _MIN_SCORES


def _bias(attention_mask):
    """Returns the bias of the scores, float32 `[B, 1 or Q, K]`."""
    # Finite, because -inf would turn a row that is all padding into NaN.
    # Python numbers would take Keras's `floatx`, in which -1e9 may be infinite.
    zero, masked = (
        ops.convert_to_tensor(value, "float32") for value in (0.0, -1e9)
    )
    return ops.where(attention_mask, zero, masked)


def _probs(query_BNQH, key_BNKH, bias_BQK):
    """Returns the probabilities, in float32 under every dtype policy."""
    scores_BNQK = ops.matmul(query_BNQH, _transpose(key_BNKH))
    scores_BNQK = ops.cast(scores_BNQK, "float32")
    return ops.softmax(scores_BNQK + bias_BQK[:, None])


def _attend_in_training(query_BNQH, key_BNKH, value_BNKH, bias_BQK, dropout):
    """Does what `attend` does, with a gradient that takes few passes.

    All rows are computed at once, because a loop over them would leave GPUs
    idle. `keras.remat` does not help with long sequences: the TPU compiler
    recognises the second computation as the first and keeps the results.
    """
    dtype = value_BNKH.dtype
    seed = dropout.draw_seed(True)
    recompute = is_long(query_BNQH.shape[2], key_BNKH.shape[2])

    def weigh(query_BNQH, key_BNKH):
        """Returns probabilities, the same after dropout, and its factors."""
        probs_BNQK = _probs(query_BNQH, key_BNKH, bias_BQK)
        if seed is None:
            return probs_BNQK, ops.cast(probs_BNQK, dtype), None
        late_seed = seed
        if recompute:
            # A mask depends on its seed alone. Without the query's 0, the masks
            # of all blocks would be made at the start of the step.
            late_seed += zero_after(query_BNQH, seed.dtype)
        return probs_BNQK, *dropout.multiply(probs_BNQK, late_seed, dtype)

    @with_gradient
    def attend_in_training(query_BNQH, key_BNKH, value_BNKH):
        kept = _, dropped_BNQK, _ = weigh(query_BNQH, key_BNKH)
        context_BQNH = ops.transpose(
            ops.matmul(dropped_BNQK, value_BNKH), (0, 2, 1, 3)
        )

        def gradient(upstream_BQNH):
            weighed, late_BQNH = kept, context_BQNH
            if recompute:
                late = zero_after(upstream_BQNH, dtype)
                weighed = weigh(query_BNQH + late, key_BNKH)
                # Otherwise it is cast at once and both copies are kept.
                late_BQNH += late
            probs_BNQK, dropped_BNQK, factors_BNQK = weighed
            up_BNQH = ops.transpose(upstream_BQNH, (0, 2, 1, 3))
            slopes_BNQK = runner_here().run(
                _slopes,
                ops.matmul(up_BNQH, _transpose(value_BNKH)),
                factors_BNQK,
                probs_BNQK,
                upstream_BQNH,
                late_BQNH,
            )
            return (
                ops.matmul(slopes_BNQK, key_BNKH),
                ops.matmul(_transpose(slopes_BNQK), query_BNQH),
                ops.matmul(_transpose(dropped_BNQK), up_BNQH),
            )

        return context_BQNH, gradient

    return attend_in_training(query_BNQH, key_BNKH, value_BNKH)


def _slopes(
    slopes_BNQK, factors_BNQK, probs_BNQK, up_BQNH, context_BQNH, dtype
):
    """Returns the gradient of the scores; a chain.

    The gradient of a softmax is (slope - mean) p. The mean of the slopes,
    weighted by p, is the upstream gradient times the context. In 16 bits the
    context is rounded, so the slopes of a query add up to almost 0, not to 0.
    This shows only where all keys are nearly the same. There the query's
    gradient may be a tenth off in bfloat16; exact slopes would make it a
    hundredth.

    Args:
        slopes_BNQK: float gradient of the probabilities after dropout.
        factors_BNQK: What dropout multiplied by, of the same dtype, or None.
        probs_BNQK: float32 probabilities before dropout.
        up_BQNH: float gradient of the context.
        context_BQNH: float, what `attend` returns.
        dtype: See `chains.Chain`.
    """
    kept_dtype = slopes_BNQK.dtype
    if factors_BNQK is not None:
        slopes_BNQK = ops.cast(slopes_BNQK, dtype)
        slopes_BNQK *= ops.cast(factors_BNQK, dtype)
    mean_BQN1 = ops.sum(
        ops.cast(up_BQNH, "float32") * ops.cast(context_BQNH, "float32"),
        axis=-1,
        keepdims=True,
    )
    mean_BNQ1 = ops.transpose(mean_BQN1, (0, 2, 1, 3))
    slopes_BNQK = ops.cast(slopes_BNQK, "float32") - mean_BNQ1
    return ops.cast(slopes_BNQK * probs_BNQK, kept_dtype)


def _transpose(x):
    """Returns each matrix of `[B, N, rows, columns]` transposed."""
    return ops.transpose(x, (0, 1, 3, 2))
