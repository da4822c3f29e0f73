"""Attention chunk by chunk, in memory that grows with the length alone.

`layers.attention` says what is computed for the rows of a chunk; here they are
cut, computed one after the other, and put together.
"""

from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.backend import custom_gradient
from bert_tf.backend import fori_loop
from bert_tf.backend import traced_once
from bert_tf.features import Tensor


@traced_once
def attend_in_chunks(
    attend_rows: Callable[..., Tensor],
    gradients_of_rows: Callable[..., tuple[Tensor, Tensor, Tensor]],
    chunk: int,
    query_BNQH: Tensor,
    key_BNKH: Tensor,
    value_BNKH: Tensor,
    bias_BQK: Tensor,
    seed: Tensor | None,
    dropout: float,
) -> Tensor:
    """Returns what `attend_rows` returns for all queries.

    For the gradient, each chunk is computed again.

    Args:
        attend_rows: Function of queries, keys, values, bias, seed, dropout and
            the number of the first query.
        gradients_of_rows: Function of what is passed up, and of the same.
        chunk: Queries of a chunk.
        query_BNQH, key_BNKH, value_BNKH, bias_BQK, seed, dropout: Arguments of
            `attend_rows`.
    """
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
    def attend(query_BNQH, key_BNKH, value_BNKH, bias_BQK, *seeds):
        def rows(index) -> tuple[Any, ...]:
            """Returns the arguments of `attend_rows` for a chunk."""
            return (
                cut(query_BNQH, index),
                key_BNKH,
                value_BNKH,
                cut(bias_BQK, index) if has_bias_of_queries else bias_BQK,
                seeds[0] if seeds else None,
                dropout,
                index * chunk,
            )

        def add_context(index, context_BNQH):
            return put(context_BNQH, attend_rows(*rows(index)), index)

        def gradient(up_BNQH):
            def add_gradients(index, sums):
                query_sum, key_sum, value_sum = sums
                of_query, of_key, of_value = gradients_of_rows(
                    cut(up_BNQH, index), *rows(index)
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

    context_BNQH = attend(
        pad(query_BNQH),
        key_BNKH,
        value_BNKH,
        pad(bias_BQK) if has_bias_of_queries else bias_BQK,
        *([] if seed is None else [seed]),
    )
    return context_BNQH[:, :, :num_queries]
