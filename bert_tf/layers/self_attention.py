"""Multi-head self-attention.

Letters in tensor names: B batch, L position (Q as query, K as key), D hidden
size, N attention heads, H size of one head.
"""

import keras
from keras import ops


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
        attention_mask: bool `[batch, 1 or length, length]`, True where a
            query may look at a key.

    Returns:
        float `[batch, length, hidden]`.
    """

    def __init__(self, num_heads, dropout=0.1, init_stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self.init_stddev = init_stddev

    def build(self, inputs_shape, attention_mask_shape=None):
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
        self.probs_dropout = keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name="probs_dropout"
        )

    def call(self, inputs, attention_mask, training=None):
        hidden_size = inputs.shape[-1]
        # Dividing the queries is L / H times cheaper than the scores.
        scale = (hidden_size // self.num_heads) ** -0.5
        query_BNQH = self._split_heads(self.query(inputs) * scale)
        key_BNHK = ops.transpose(
            self._split_heads(self.key(inputs)), (0, 1, 3, 2)
        )
        value_BNKH = self._split_heads(self.value(inputs))

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
        return self.merge_heads(ops.reshape(context_BQNH, ops.shape(inputs)))

    def compute_output_shape(self, inputs_shape, attention_mask_shape=None):
        return inputs_shape

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "dropout": self.dropout,
            "init_stddev": self.init_stddev,
        }

    def _split_heads(self, x_BLD):
        batch_size, length, _ = ops.shape(x_BLD)
        head_size = x_BLD.shape[-1] // self.num_heads
        x_BLNH = ops.reshape(
            x_BLD, (batch_size, length, self.num_heads, head_size)
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
