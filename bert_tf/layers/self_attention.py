"""Multi-head self-attention.

Letters in tensor names: B batch, L position (Q as query, K as key), D hidden
size, N attention heads, H size of one head.
"""

from typing import Any

import keras
from keras import ops

from bert_tf.config import ATTENTION_TILE
from bert_tf.layers.attend import attend
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredLayer

# By default, sequences from this length on are computed in chunks of so many
# queries. If a length is not known, that of all positions decides, which must
# be more.
LONG = 512
_CHUNK = 256


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
