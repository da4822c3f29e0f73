"""Multi-head self-attention.

Letters in tensor names: B batch, L position (Q as query, K as key), T position
counted over the whole batch, D hidden size, N attention heads, H size of one
head.
"""

import keras
from keras import ops

from bert_tf.layers.attend import attend
from bert_tf.layers.configured import ConfiguredLayer
from bert_tf.layers.dense import add_bias
from bert_tf.layers.gathering import as_matrix


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(ConfiguredLayer):
    """Multi-head self-attention; the caller adds the residual.

    Projections of the inputs, `attend` per head, then a dense layer over the
    joined heads (Vaswani et al. 2017, section 3.2.2).

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: float `[batch, length, hidden]`, or the same as one matrix,
            `[batch * length, hidden]`.
        attention_mask: bool `[batch, 1 or queries, length]`, True where a
            query may look at a key.
        queries: float `[batch, queries, hidden]`, the vectors that look at
            `inputs`; None for the inputs themselves.
        return_heads: Whether to return the heads, too: a tuple of the queries,
            divided by the square root of the head size, the keys and the
            values, float `[batch, heads, positions, head size]`.

    Returns:
        float, of the shape of `queries`, or of `inputs` if that is None; with
        `return_heads` a pair of it and the heads.
    """

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
        return_heads=False,
        training=None,
    ):
        hidden_size = self.config.hidden_size
        # All blocks share the mask, so TensorFlow computes its sizes once. With
        # few tokens, the time depends on the number of operations.
        batch_size, _, length = ops.shape(attention_mask)
        num_queries = length if queries is None else ops.shape(queries)[1]
        # The whole batch as one matrix: TensorFlow fuses the product of two
        # matrices with the bias.
        x_TD = as_matrix(inputs)
        if queries is None and training:
            query_BNQH, key_BNKH, value_BNKH = self._project_at_once(
                x_TD, batch_size, length
            )
        else:
            query_TD = self.query(
                x_TD if queries is None else as_matrix(queries)
            )
            query_BNQH = self._split_heads(
                query_TD * self._scale(), batch_size, num_queries
            )
            key_BNKH = self._split_heads(self.key(x_TD), batch_size, length)
            value_BNKH = self._split_heads(self.value(x_TD), batch_size, length)
        context_BQNH = attend(
            query_BNQH,
            key_BNKH,
            value_BNKH,
            attention_mask,
            self.probs_dropout,
            training,
        )
        outputs = self.merge_heads(ops.reshape(context_BQNH, (-1, hidden_size)))
        if queries is not None or len(inputs.shape) != 2:
            outputs = ops.reshape(
                outputs, (batch_size, num_queries, hidden_size)
            )
        if return_heads:
            return outputs, (query_BNQH, key_BNKH, value_BNKH)
        return outputs

    def compute_output_shape(
        self, inputs_shape, attention_mask_shape=None, queries_shape=None
    ):
        return queries_shape or inputs_shape

    def _heads(self):
        """Returns the number of heads and the size of one.

        Both are static. Left to TensorFlow, they would be unknown in batches of
        unknown length, but losses on heads need them.
        """
        num_heads = self.config.num_attention_heads
        return num_heads, self.config.hidden_size // num_heads

    def _scale(self):
        _, head_size = self._heads()
        return head_size**-0.5

    def _project_at_once(self, x_TD, batch_size, length):
        """Returns queries, keys and values in training, each `[B, N, L, H]`.

        One product with the concatenated kernels is faster than three, and so
        is its gradient. If there are few rows, concatenating costs more than it
        saves.
        """
        projections = (self.query, self.key, self.value)
        kernels = [projection.kernel for projection in projections]
        biases = [projection.bias for projection in projections]
        kernels[0] = kernels[0] * self._scale()
        biases[0] = biases[0] * self._scale()
        x = add_bias(
            ops.matmul(x_TD, ops.concatenate(kernels, axis=1)),
            ops.concatenate(biases),
        )
        x = ops.reshape(x, (batch_size, length, 3, *self._heads()))
        return tuple(ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 3))

    def _split_heads(self, x_TD, batch_size, length):
        x_BLNH = ops.reshape(x_TD, (batch_size, length, *self._heads()))
        return ops.transpose(x_BLNH, (0, 2, 1, 3))
