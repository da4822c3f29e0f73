"""Multi-head self-attention.

Letters in tensor names: B batch, L position (Q as query, K as key), T row of
all of them in the batch, D hidden size, N attention heads, H size of one head.
"""

import keras
from keras import ops

from bert_tf.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="bert_tf")
class SelfAttention(keras.layers.Layer):
    """Multi-head self-attention; the caller adds the residual.

    softmax(Q K^T / sqrt(H) + mask) V per head, then a dense layer over the
    joined heads (Vaswani et al. 2017, section 3.2).

    Args:
        num_heads: Number of attention heads. Must divide the hidden size.
        dropout: Fraction of attention probabilities dropped in training.
        init_stddev: Standard deviation of the initial projection kernels.

    Call arguments:
        inputs: float `[batch, length, hidden]`.
        attention_mask: bool `[batch, 1 or queries, length]`, True where a
            query may look at a key.
        queries: float `[batch, queries, hidden]`: what looks at `inputs`.
            None for the inputs themselves.

    Returns:
        float `[batch, queries, hidden]`.
    """

    def __init__(self, num_heads, dropout=0.1, init_stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self.init_stddev = init_stddev

    def build(
        self, inputs_shape, attention_mask_shape=None, queries_shape=None
    ):
        hidden_size = inputs_shape[-1]
        if hidden_size % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the hidden size. Received: "
                f"num_heads={self.num_heads}, hidden_size={hidden_size}."
            )
        self.query = self._dense(hidden_size, "query")
        self.key = self._dense(hidden_size, "key")
        self.value = self._dense(hidden_size, "value")
        self.merge_heads = self._dense(hidden_size, "merge_heads")
        for dense in (self.query, self.key, self.value, self.merge_heads):
            dense.build(inputs_shape)
        self.probs_dropout = Dropout(
            self.dropout, dtype=self.dtype_policy, name="probs_dropout"
        )

    def call(self, inputs, attention_mask, queries=None, training=None):
        hidden_size = inputs.shape[-1]
        # The mask is one tensor for all blocks, so that TensorFlow finds the
        # sizes once: a block of few tokens costs as many operations as one of
        # many, and then they are what takes the time.
        batch_size, _, length = ops.shape(attention_mask)
        num_queries = length if queries is None else ops.shape(queries)[1]
        if queries is None and training:
            query_BNQH, key_BNKH, value_BNKH = self._project_at_once(
                inputs, batch_size, length
            )
        else:
            # Rows of all the batch: TensorFlow fuses the product of two
            # matrices with the bias.
            x_TD = ops.reshape(inputs, (-1, hidden_size))
            queries_TD = x_TD
            if queries is not None:
                queries_TD = ops.reshape(queries, (-1, hidden_size))
            # Dividing the queries is L / H times cheaper than the scores.
            query_BNQH = self._split_heads(
                self.query(queries_TD) * self._scale(), batch_size, num_queries
            )
            key_BNKH = self._split_heads(self.key(x_TD), batch_size, length)
            value_BNKH = self._split_heads(self.value(x_TD), batch_size, length)
        key_BNHK = ops.transpose(key_BNKH, (0, 1, 3, 2))

        # The softmax is in float32 under every dtype policy.
        scores_BNQK = ops.cast(ops.matmul(query_BNQH, key_BNHK), "float32")
        # A finite bias: -inf would make NaN of a row that is all padding.
        bias_BQK = ops.where(attention_mask, 0.0, -1e9)
        probs_BNQK = ops.softmax(scores_BNQK + bias_BQK[:, None])
        probs_BNQK = ops.cast(probs_BNQK, self.compute_dtype)
        probs_BNQK = self.probs_dropout(probs_BNQK, training=training)

        context_BQNH = ops.transpose(
            ops.matmul(probs_BNQK, value_BNKH), (0, 2, 1, 3)
        )
        outputs_TD = self.merge_heads(
            ops.reshape(context_BQNH, (-1, hidden_size))
        )
        return ops.reshape(outputs_TD, (batch_size, num_queries, hidden_size))

    def compute_output_shape(
        self, inputs_shape, attention_mask_shape=None, queries_shape=None
    ):
        return queries_shape or inputs_shape

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "init_stddev": self.init_stddev,
        }

    def _scale(self):
        head_size = self.query.units // self.num_heads
        return head_size**-0.5

    def _project_at_once(self, inputs_BLD, batch_size, length):
        """Returns queries, keys and values, each `[B, N, L, H]`, scaled.

        One product with the kernels side by side: in training, where rows are
        many, this is faster than three, and so is its gradient. Where rows
        are few, laying the kernels side by side costs more.
        """
        kernel = ops.concatenate(
            [
                self.query.kernel * self._scale(),
                self.key.kernel,
                self.value.kernel,
            ],
            axis=1,
        )
        bias = ops.concatenate(
            [self.query.bias * self._scale(), self.key.bias, self.value.bias],
            axis=0,
        )
        x_TD = ops.reshape(inputs_BLD, (-1, inputs_BLD.shape[-1]))
        x = ops.reshape(
            ops.add(ops.matmul(x_TD, kernel), bias),
            (batch_size, length, 3, self.num_heads, -1),
        )
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 3)

    def _split_heads(self, x_TD, batch_size, length):
        head_size = x_TD.shape[-1] // self.num_heads
        x_BLNH = ops.reshape(
            x_TD, (batch_size, length, self.num_heads, head_size)
        )
        return ops.transpose(x_BLNH, (0, 2, 1, 3))

    def _dense(self, units, name):
        return keras.layers.Dense(
            units,
            # A new instance each time: a shared one repeats its values.
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=self.init_stddev
            ),
            dtype=self.dtype_policy,
            name=name,
        )
