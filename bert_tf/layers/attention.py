"""Self-attention: who may look at whom, the attention itself, the layer.

Letters in tensor names: B batch, L position, Q query, K key, D hidden size, N
attention heads, H size of one head, R row of a chunk of queries.
"""

from typing import Any
from typing import ClassVar

import keras
from keras import ops

from bert_tf.config import ATTENTION_TILE
from bert_tf.features import Tensor
from bert_tf.layers import chunks
from bert_tf.layers.basic import draw_factors
from bert_tf.layers.basic import gather_positions
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredLayer

# By default, sequences from this length on are computed in chunks of so many
# queries. Where the length is not known, models with more positions than this
# have chunks.
LONG = 512
_CHUNK = 256
# Added to the first number of a seed for each tile, to give each a mask of its
# own; any odd number would do. The second number counts a layer's calls.
_SEED_STEP = 40_503


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


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention; the caller adds the residual.

    Projections of the inputs, `attend` per head, then a dense layer over the
    joined heads (Vaswani et al. 2017, section 3.2.2).

    Args:
        config: A `BertConfig`.
        attention_chunk: How many queries are computed at once, a multiple of
            `ATTENTION_TILE`; 0 for all. None decides by the length.

    Call arguments:
        inputs: float `[batch, length, hidden]`.
        attention_mask: bool `[batch, 1 or queries, length]`, True where a
            query may look at a key.
        queries: float `[batch, queries, hidden]`, the vectors that look at
            `inputs`; None for the inputs themselves.
        seed: int `[2]` of the dropout of probabilities; None for a new one.
        return_heads: Whether to return the heads, too: a tuple of queries, keys
            and values, float `[batch, heads, positions, head size]`.

    Returns:
        float, of the shape of `queries`; with `return_heads` a pair of it and
        the heads.

    Raises:
        ValueError: If `attention_chunk` is another number.
    """

    # The layers that LoRA changes.
    adapted: ClassVar[tuple[str, ...]] = ("query", "value")

    def __init__(
        self,
        config: AnyConfig,
        attention_chunk: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        if attention_chunk is not None and not (
            isinstance(attention_chunk, int)
            and attention_chunk >= 0
            and attention_chunk % ATTENTION_TILE == 0
        ):
            raise ValueError(
                "`attention_chunk` must be 0 or a positive multiple of "
                f"{ATTENTION_TILE}. "
                f"Received: attention_chunk={attention_chunk!r}."
            )
        self.attention_chunk = attention_chunk

    def build(
        self, inputs_shape, attention_mask_shape=None, queries_shape=None
    ):
        hidden_size = self.config.hidden_size
        self.query = self.make_dense(hidden_size, "query")
        self.key = self.make_dense(hidden_size, "key")
        self.value = self.make_dense(hidden_size, "value")
        self.merge_heads = self.make_dense(hidden_size, "merge_heads")
        self.probs_dropout = self.make_dropout(
            self.config.attention_probs_dropout_prob, "probs_dropout"
        )

    def call(
        self,
        inputs,
        attention_mask,
        queries=None,
        seed=None,
        return_heads=False,
        training=None,
    ):
        if queries is None:
            queries = inputs
        query_BNQH = self._split_heads(self.query(queries, training=training))
        key_BNKH = self._split_heads(self.key(inputs, training=training))
        value_BNKH = self._split_heads(self.value(inputs, training=training))
        if training and seed is None:
            seed = self.probs_dropout.draw_seed()
        context_BNQH = attend(
            query_BNQH,
            key_BNKH,
            value_BNKH,
            attention_mask,
            self.probs_dropout.rate,
            seed if training else None,
            self._chunk(queries.shape[1]),
        )
        context_BQNH = ops.transpose(context_BNQH, (0, 2, 1, 3))
        outputs_BQD = self.merge_heads(
            ops.reshape(context_BQNH, ops.shape(queries)), training=training
        )
        if return_heads:
            return outputs_BQD, (query_BNQH, key_BNKH, value_BNKH)
        return outputs_BQD

    def get_config(self):
        return super().get_config() | {"attention_chunk": self.attention_chunk}

    def _chunk(self, length):
        """Returns how many queries are computed at once; None for all."""
        if self.attention_chunk is not None:
            return self.attention_chunk or None
        is_long = self.config.max_position_embeddings > LONG
        if isinstance(length, int):
            is_long = length >= LONG
        return _CHUNK if is_long else None

    def _split_heads(self, x_BLD):
        num_heads = self.config.num_attention_heads
        batch_size, length, hidden_size = ops.shape(x_BLD)
        x_BLNH = ops.reshape(
            x_BLD, (batch_size, length, num_heads, hidden_size // num_heads)
        )
        return ops.transpose(x_BLNH, (0, 2, 1, 3))


def attend(
    query_BNQH: Tensor,
    key_BNKH: Tensor,
    value_BNKH: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Returns softmax(Q K^T / sqrt(H) + mask) V of every head.

    Vaswani et al. 2017, section 3.2.1.

    Args:
        query_BNQH, key_BNKH, value_BNKH: float, of the same dtype.
        attention_mask: bool `[B, 1 or Q, K]`, True where a query may look at
            a key; or a pair of it and of what is added to the scores, float
            `[1 or B, N, Q, K]`, with which there are no chunks.
        dropout: Share of the probabilities that are dropped.
        seed: int `[2]`, on which the dropped ones depend; None drops none.
        chunk: How many queries are computed at once, a multiple of
            `ATTENTION_TILE`. For the gradient, each chunk is computed again.
            Memory then grows with the length, not with its square. None for
            all queries.

    Returns:
        float `[B, N, Q, H]`, of the same dtype. It does not depend on `chunk`,
        unless there is dropout and the number of queries is not known.
    """
    bias_BQK = _bias(attention_mask)
    if not dropout:
        seed = None
    inputs = (query_BNQH, key_BNKH, value_BNKH, bias_BQK, seed, dropout)
    num_queries = query_BNQH.shape[2]
    if isinstance(attention_mask, tuple):
        # The bias is as large as the scores of all chunks.
        chunk = None
    if chunk is None or not _is_longer(num_queries, chunk):
        return _attend_rows(*inputs)
    if num_queries is None and seed is not None:
        # The number of tiles is not known.
        chunk = ATTENTION_TILE
    return chunks.attend_in_chunks(
        _attend_rows, _gradients_of_rows, chunk, *inputs
    )


def attention_probs(
    query_BNQH: Tensor, key_BNKH: Tensor, attention_mask: Any
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
    """Returns the bias of the scores, float32 `[B, 1 or Q, K]`.

    With MPNet's, it is `[B, N, Q, K]`.
    """
    if isinstance(attention_mask, tuple):
        mask_BQK, bias_BNQK = attention_mask
        return _bias(mask_BQK)[:, None] + ops.cast(bias_BNQK, "float32")
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
    bias = bias_BQK if len(bias_BQK.shape) == 4 else bias_BQK[:, None]
    scores_BNQK = ops.cast(scores_BNQK, "float32") + bias
    return ops.softmax(scores_BNQK)


def _scale(query_BNQH):
    return query_BNQH.shape[-1] ** -0.5


def _attend_rows(
    query_BNRH, key_BNKH, value_BNKH, bias_BRK, seed, dropout, first_row=0
):
    """Returns the vectors of some rows of queries, float `[B, N, R, H]`."""
    probs_BNRK = _probs(query_BNRH, key_BNKH, bias_BRK)
    probs_BNRK = ops.cast(probs_BNRK, value_BNKH.dtype)
    if seed is not None:
        factors_BNRK = _factors(probs_BNRK, seed, dropout, first_row)
        probs_BNRK = probs_BNRK * factors_BNRK
    return ops.matmul(probs_BNRK, value_BNKH)


def _factors(probs_BNRK, seed, dropout, first_row):
    """Returns the factors of dropout, drawn tile by tile."""
    *batch, num_rows, num_keys = ops.shape(probs_BNRK)
    # If the number of rows is not known, all are one tile.
    num_tiles = 1
    if isinstance(num_rows, int):
        num_tiles = -(-num_rows // ATTENTION_TILE)
    shape = (*batch, ATTENTION_TILE if num_tiles > 1 else num_rows, num_keys)
    first_tile = first_row // ATTENTION_TILE
    tiles = [
        draw_factors(
            shape,
            dropout,
            _seed_of(seed, first_tile + tile),
            probs_BNRK.dtype,
        )
        for tile in range(num_tiles)
    ]
    if num_tiles == 1:
        return tiles[0]
    return ops.concatenate(tiles, axis=2)[:, :, :num_rows]


def _seed_of(seed, tile):
    first = seed[0] + ops.cast(tile * _SEED_STEP, seed.dtype)
    return ops.stack([first, seed[1]])


def _gradients_of_rows(
    up_BNRH,
    query_BNRH,
    key_BNKH,
    value_BNKH,
    bias_BRK,
    seed,
    dropout,
    first_row,
):
    """Returns the gradients of `_attend_rows` for query, key and value."""
    dtype = value_BNKH.dtype
    probs_BNRK = _probs(query_BNRH, key_BNKH, bias_BRK)
    dropped_BNRK = ops.cast(probs_BNRK, dtype)
    slopes_BNRK = ops.matmul(up_BNRH, _transpose(value_BNKH))
    if seed is not None:
        factors_BNRK = _factors(dropped_BNRK, seed, dropout, first_row)
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
