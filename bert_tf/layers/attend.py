"""Attention itself: mask, softmax and dropout in one place.

Letters in tensor names: B batch, Q query, K key, N attention heads, H size of
one head, C chunk of queries, R row of a chunk.
"""

from keras import ops

from bert_tf.backend import custom_gradient
from bert_tf.backend import fori_loop
from bert_tf.backend import traced_once
from bert_tf.config import ATTENTION_TILE as TILE
from bert_tf.features import Tensor
from bert_tf.layers.dropout import draw_factors

# Added to the first number of a seed for each tile. The second number counts a
# layer's calls.
_SEED_STEP = 40_503


def attend(
    query_BNQH: Tensor,
    key_BNKH: Tensor,
    value_BNKH: Tensor,
    attention_mask: Tensor,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Returns softmax(Q K^T / sqrt(H) + mask) V of every head.

    Vaswani et al. 2017, section 3.2.1.

    Args:
        query_BNQH, key_BNKH, value_BNKH: float, of the same dtype.
        attention_mask: bool `[B, 1 or Q, K]`, True where a query may look at
            a key.
        dropout: Share of the probabilities that are dropped.
        seed: int `[2]`, on which the dropped ones depend; None drops none.
        chunk: How many queries are computed at once, a multiple of `TILE`.
            For the gradient, each chunk is computed again. Memory then grows
            with the length, not with its square. None for all queries.

    Returns:
        float `[B, N, Q, H]`, of the same dtype. It does not depend on `chunk`,
        unless there is dropout and the number of queries is not known.
    """
    bias_BQK = _bias(attention_mask)
    if not dropout:
        seed = None
    num_queries = query_BNQH.shape[2]
    if chunk is None or not _is_longer(num_queries, chunk):
        return _attend_rows(
            query_BNQH, key_BNKH, value_BNKH, bias_BQK, seed, dropout
        )
    if num_queries is None and seed is not None:
        # The number of tiles is not known.
        chunk = TILE
    return _attend_in_chunks(
        query_BNQH, key_BNKH, value_BNKH, bias_BQK, seed, dropout, chunk
    )


def attention_probs(
    query_BNQH: Tensor, key_BNKH: Tensor, attention_mask: Tensor
) -> Tensor:
    """Returns the weights that `attend` gives the values, without dropout.

    Args:
        query_BNQH, key_BNKH, attention_mask: As in `attend`.

    Returns:
        float32 `[B, N, Q, K]`; each query's weights add up to 1.
    """
    return _probs(query_BNQH, key_BNKH, _bias(attention_mask))


def _is_longer(num_queries, chunk):
    """Returns whether there may be more queries than in a chunk."""
    # None if TensorFlow does not know it; JAX then has a symbol, which only
    # stands for shapes.
    return num_queries is None or (
        isinstance(num_queries, int) and num_queries > chunk
    )


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
    # Dividing the queries is cheaper than dividing the scores.
    query_BNQH = query_BNQH * _scale(query_BNQH)
    scores_BNQK = ops.matmul(query_BNQH, _transpose(key_BNKH))
    # The axis of heads is added here. On CPUs TensorFlow 2.21 fuses product and
    # sum, and runs neither if what is added comes as it is into a loop.
    scores_BNQK = ops.cast(scores_BNQK, "float32") + bias_BQK[:, None]
    return ops.softmax(scores_BNQK)


def _scale(query_BNQH):
    return query_BNQH.shape[-1] ** -0.5


def _attend_rows(
    query_BNQH, key_BNKH, value_BNKH, bias_BQK, seed, dropout, first_tile=0
):
    probs_BNQK = _probs(query_BNQH, key_BNKH, bias_BQK)
    probs_BNQK = ops.cast(probs_BNQK, value_BNKH.dtype)
    if seed is not None:
        factors_BNQK = _factors(probs_BNQK, seed, dropout, first_tile)
        probs_BNQK = probs_BNQK * factors_BNQK
    return ops.matmul(probs_BNQK, value_BNKH)


def _factors(probs_BNQK, seed, dropout, first_tile):
    """Returns the factors of dropout, drawn tile by tile."""
    *batch, num_rows, num_keys = ops.shape(probs_BNQK)
    # If the number of rows is not known, all are one tile.
    num_tiles = -(-num_rows // TILE) if isinstance(num_rows, int) else 1
    shape = (*batch, TILE if num_tiles > 1 else num_rows, num_keys)
    tiles = [
        draw_factors(
            shape,
            dropout,
            _seed_of(seed, first_tile + tile),
            probs_BNQK.dtype,
        )
        for tile in range(num_tiles)
    ]
    if num_tiles == 1:
        return tiles[0]
    return ops.concatenate(tiles, axis=2)[:, :, :num_rows]


def _seed_of(seed, tile):
    first = seed[0] + ops.cast(tile * _SEED_STEP, seed.dtype)
    return ops.stack([first, seed[1]])


@traced_once
def _attend_in_chunks(
    query_BNQH, key_BNKH, value_BNKH, bias_BQK, seed, dropout, chunk
):
    """Does what `_attend_rows` does, chunk by chunk."""
    num_queries = ops.shape(query_BNQH)[2]
    num_rows = chunk
    if not isinstance(num_queries, int):
        num_rows = ops.minimum(chunk, num_queries)
    num_chunks = -(-num_queries // num_rows)

    def cut(x, index):
        """Returns the rows of a chunk."""
        *batch, _, size = ops.shape(x)
        start = (*(0 for _ in batch), index * num_rows, 0)
        return ops.slice(x, start, (*batch, num_rows, size))

    def put(x, rows, index):
        return ops.slice_update(x, (0, 0, index * num_rows, 0), rows)

    def pad(x):
        """Returns zeros behind the queries, to whole chunks."""
        num_missing = num_chunks * num_rows - num_queries
        axes = [(0, 0)] * len(x.shape)
        axes[-2] = (0, num_missing)
        return ops.pad(x, axes)

    has_bias_of_queries = bias_BQK.shape[1] != 1

    # JAX wants all tensors as arguments.
    @custom_gradient
    def attend_in_chunks(query_BNQH, key_BNKH, value_BNKH, bias_BQK, *seeds):
        def arguments(index):
            """Returns those of `_attend_rows` for a chunk."""
            return (
                cut(query_BNQH, index),
                key_BNKH,
                value_BNKH,
                cut(bias_BQK, index) if has_bias_of_queries else bias_BQK,
                seeds[0] if seeds else None,
                dropout,
                index * (chunk // TILE),
            )

        def add_context(index, context_BNQH):
            return put(context_BNQH, _attend_rows(*arguments(index)), index)

        def gradient(up_BNQH):
            def add_gradients(index, sums):
                query_sum, key_sum, value_sum = sums
                of_query, of_key, of_value = _gradients_of_rows(
                    cut(up_BNQH, index), *arguments(index)
                )
                return (
                    put(query_sum, of_query, index),
                    key_sum + ops.cast(of_key, "float32"),
                    value_sum + ops.cast(of_value, "float32"),
                )

            query_sum, key_sum, value_sum = fori_loop(
                0,
                num_chunks,
                add_gradients,
                (
                    ops.zeros_like(query_BNQH),
                    ops.zeros_like(key_BNKH, dtype="float32"),
                    ops.zeros_like(value_BNKH, dtype="float32"),
                ),
            )
            return (
                query_sum,
                ops.cast(key_sum, key_BNKH.dtype),
                ops.cast(value_sum, value_BNKH.dtype),
                None,
                *(None for _ in seeds),
            )

        context_BNQH = fori_loop(
            0, num_chunks, add_context, ops.zeros_like(query_BNQH)
        )
        return context_BNQH, gradient

    context_BNQH = attend_in_chunks(
        pad(query_BNQH),
        key_BNKH,
        value_BNKH,
        pad(bias_BQK) if has_bias_of_queries else bias_BQK,
        *([] if seed is None else [seed]),
    )
    return context_BNQH[:, :, :num_queries]


def _gradients_of_rows(
    up_BNRH,
    query_BNRH,
    key_BNKH,
    value_BNKH,
    bias_BRK,
    seed,
    dropout,
    first_tile,
):
    """Returns the gradients of `_attend_rows` for query, key and value."""
    dtype = value_BNKH.dtype
    probs_BNRK = _probs(query_BNRH, key_BNKH, bias_BRK)
    dropped_BNRK = ops.cast(probs_BNRK, dtype)
    slopes_BNRK = ops.matmul(up_BNRH, _transpose(value_BNKH))
    if seed is not None:
        factors_BNRK = _factors(dropped_BNRK, seed, dropout, first_tile)
        dropped_BNRK = dropped_BNRK * factors_BNRK
        slopes_BNRK = slopes_BNRK * factors_BNRK
    # The gradient of a softmax is (slope - mean) p.
    slopes_BNRK = ops.cast(slopes_BNRK, "float32")
    mean_BNR1 = ops.sum(slopes_BNRK * probs_BNRK, axis=-1, keepdims=True)
    slopes_BNRK = ops.cast((slopes_BNRK - mean_BNR1) * probs_BNRK, dtype)
    slopes_BNRK = slopes_BNRK * _scale(query_BNRH)
    return (
        ops.matmul(slopes_BNRK, key_BNKH),
        ops.matmul(_transpose(slopes_BNRK), query_BNRH),
        ops.matmul(_transpose(dropped_BNRK), up_BNRH),
    )


def _transpose(x):
    """Returns each matrix of `[B, N, rows, columns]` transposed."""
    return ops.transpose(x, (0, 1, 3, 2))
