"""Attention itself: mask, softmax and dropout in one place.

Letters in tensor names: B batch, Q query, K key, N attention heads, H size of
one head. A row is an element of the batch.
"""

from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.gradients import with_gradient

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
    neither scores nor probabilities nor dropout's mask, but makes them again
    for the gradient, row by row (Dao et al. 2022, arXiv 2205.14135).

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
    if training and _is_long(query_BNQH, key_BNKH):
        return _attend_by_row(
            query_BNQH, key_BNKH, value_BNKH, bias_BQK, dropout
        )
    probs_BNQK = _probs(query_BNQH, key_BNKH, bias_BQK)
    probs_BNQK = ops.cast(probs_BNQK, value_BNKH.dtype)
    probs_BNQK = dropout(probs_BNQK, training=training)
    return ops.transpose(ops.matmul(probs_BNQK, value_BNKH), (0, 2, 1, 3))


def _is_long(query_BNQH, key_BNKH):
    """Whether making the scores twice costs little beside what it saves."""
    sizes = (query_BNQH.shape[0], query_BNQH.shape[2], key_BNKH.shape[2])
    return None not in sizes and sizes[1] * sizes[2] >= _MIN_SCORES


def _probs(query_BNQH, key_BNKH, bias_BQK):
    """Returns the probabilities, in float32 under every dtype policy."""
    scores_BNQK = ops.matmul(query_BNQH, _transpose(key_BNKH))
    return ops.softmax(ops.cast(scores_BNQK, "float32") + bias_BQK[:, None])


def _attend_by_row(query_BNQH, key_BNKH, value_BNKH, bias_BQK, dropout):
    """The same numbers, from a row at a time.

    Dropout's mask is drawn for the whole batch at once, so that it is the one
    that `dropout` itself makes.
    """
    dtype = value_BNKH.dtype
    shape = (*ops.shape(query_BNQH)[:3], ops.shape(key_BNKH)[2])
    seed = dropout.seed_generator.next() if dropout.scale > 1 else None

    def make_keeps(seed, after):
        if seed is None:
            return ()
        # Adds 0, but not before `after` is known: else all blocks' masks would
        # be drawn at the start, and kept until the gradient.
        seed = seed + ops.cast(ops.isnan(after[0, 0, 0, 0]), seed.dtype)
        return (dropout.make_keeps(shape, seed),)

    @with_gradient
    def attend_rows(query_BNQH, key_BNKH, value_BNKH):
        inputs = (query_BNQH, key_BNKH, value_BNKH, bias_BQK)

        def outputs_of(query, key, value, bias, keeps=None):
            probs = ops.cast(_probs(query, key, bias), dtype)
            if keeps is not None:
                probs *= ops.cast(keeps, dtype) * dropout.scale
            context = ops.matmul(probs, value)
            return (ops.transpose(context, (0, 2, 1, 3)),)

        def gradients_of(query, key, value, bias, context, up, keeps=None):
            # Of the softmax: (g - mean) p, where the mean of g weighted by p
            # is the upstream gradient times the context.
            mean = ops.sum(
                ops.cast(up, "float32") * ops.cast(context, "float32"),
                axis=-1,
                keepdims=True,
            )
            mean_BNQ1 = ops.transpose(mean, (0, 2, 1, 3))
            up_BNQH = ops.transpose(up, (0, 2, 1, 3)) * dropout.scale
            probs = _probs(query, key, bias)
            dropped = ops.cast(probs, dtype)
            slopes = ops.matmul(up_BNQH, _transpose(value))
            if keeps is not None:
                kept = ops.cast(keeps, dtype)
                dropped *= kept
                slopes *= kept
            slopes = (ops.cast(slopes, "float32") - mean_BNQ1) * probs
            slopes = ops.cast(slopes, dtype)
            # What is transposed is small: no scores.
            return (
                ops.matmul(slopes, key),
                _transpose(ops.matmul(_transpose(query), slopes)),
                _transpose(ops.matmul(_transpose(up_BNQH), dropped)),
            )

        (context_BQNH,) = _map_rows(
            outputs_of,
            (*inputs, *make_keeps(seed, query_BNQH)),
            [ops.transpose(query_BNQH[0], (1, 0, 2))],
        )

        def gradient(upstream):
            return _map_rows(
                gradients_of,
                (*inputs, context_BQNH, upstream, *make_keeps(seed, upstream)),
                (query_BNQH[0], key_BNKH[0], value_BNKH[0]),
            )

        return context_BQNH, gradient

    return attend_rows(query_BNQH, key_BNKH, value_BNKH)


def _map_rows(function, tensors, like):
    """Returns a function's outputs for each row, made one after the other.

    Args:
        function: Function of batches of one row, which returns a tuple.
        tensors: Batches of all rows.
        like: Tensors of the shapes and types of the outputs for one row.
    """

    def call(_, row):
        outputs = tuple(x[0] for x in function(*(x[None] for x in row)))
        return outputs, outputs

    # `ops.map` would work on several rows at once, and take their memory.
    init = tuple(ops.zeros_like(x) for x in like)
    return ops.scan(call, init, tuple(tensors))[1]


def _transpose(x):
    """Returns each matrix of `[B, N, rows, columns]` transposed."""
    return ops.transpose(x, (0, 1, 3, 2))
