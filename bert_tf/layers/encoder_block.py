"""One block of the encoder: self-attention and feed-forward.

Letters in tensor names: B batch, L position, Q position that is computed, T
row of all of them in the batch, D hidden size, F width of the feed-forward
layer.
"""

import keras
from keras import ops

from bert_tf.layers.activations import apply_activation
from bert_tf.layers.attention_mask import gather_queries
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.gathering import gather_positions
from bert_tf.layers.layer_norm import LayerNorm
from bert_tf.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(keras.layers.Layer):
    """A post-LayerNorm Transformer block (Vaswani et al. 2017, section 3.1).

    Args:
        num_heads: Number of attention heads. Must divide the hidden size.
        intermediate_size: Width inside the feed-forward layer.
        activation: Name of its activation, one of `config.ACTIVATIONS`.
        dropout: Fraction of each sublayer's output dropped in training.
        attention_dropout: Fraction of attention probabilities dropped.
        init_stddev: Standard deviation of the initial kernels.
        layer_norm_eps: Added to the variance in LayerNorm.

    Call arguments:
        inputs: float `[batch, length, hidden]`.
        attention_mask: bool `[batch, 1 or length, length]`, True where a
            query may look at a key.
        positions: None, or int32 `[batch, positions]` in `[0, length)`: the
            block is computed at these places alone.

    Returns:
        float `[batch, length, hidden]`, or `[batch, positions, hidden]`.
    """

    def __init__(
        self,
        num_heads,
        intermediate_size,
        activation="gelu_new",
        dropout=0.1,
        attention_dropout=0.1,
        init_stddev=0.02,
        layer_norm_eps=1e-12,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_size = intermediate_size
        self.activation = activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.init_stddev = init_stddev
        self.layer_norm_eps = layer_norm_eps

    def build(
        self, inputs_shape, attention_mask_shape=None, positions_shape=None
    ):
        hidden_size = inputs_shape[-1]
        self.attention = SelfAttention(
            self.num_heads,
            self.attention_dropout,
            self.init_stddev,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention.build(inputs_shape, attention_mask_shape)
        self.attention_dropout_layer = self._dropout("attention_dropout")
        self.attention_layer_norm = self._layer_norm("attention_layer_norm")
        self.attention_layer_norm.build(inputs_shape)

        self.intermediate = self._dense(self.intermediate_size, "intermediate")
        self.intermediate.build(inputs_shape)
        self.output_dense = self._dense(hidden_size, "output")
        self.output_dense.build((*inputs_shape[:-1], self.intermediate_size))
        self.output_dropout = self._dropout("output_dropout")
        self.output_layer_norm = self._layer_norm("output_layer_norm")
        self.output_layer_norm.build(inputs_shape)

    def call(self, inputs, attention_mask, positions=None, training=None):
        queries_BQD = None
        if positions is not None:
            queries_BQD = gather_positions(inputs, positions)
            attention_mask = gather_queries(attention_mask, positions)

        # Self-attention.
        x_BQD = self.attention(
            inputs, attention_mask, queries_BQD, training=training
        )
        if queries_BQD is None:
            queries_BQD = inputs
        x_BQD = self.attention_dropout_layer(x_BQD, training=training)
        attended_BQD = self.attention_layer_norm(
            queries_BQD + x_BQD, training=training
        )

        # Feed-forward. TensorFlow fuses the product of two matrices with the
        # bias, and outside training with the activation.
        x_TD = ops.reshape(attended_BQD, (-1, inputs.shape[-1]))
        x_TF = apply_activation(
            self.activation, self.intermediate(x_TD), training=training
        )
        x_BQD = ops.reshape(self.output_dense(x_TF), ops.shape(attended_BQD))
        x_BQD = self.output_dropout(x_BQD, training=training)
        return self.output_layer_norm(attended_BQD + x_BQD, training=training)

    def compute_output_shape(
        self, inputs_shape, attention_mask_shape=None, positions_shape=None
    ):
        if positions_shape is None:
            return inputs_shape
        return (*positions_shape, inputs_shape[-1])

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "intermediate_size": self.intermediate_size,
            "activation": self.activation,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "init_stddev": self.init_stddev,
            "layer_norm_eps": self.layer_norm_eps,
        }

    def _dense(self, units, name):
        return keras.layers.Dense(
            units,
            kernel_initializer=keras.initializers.TruncatedNormal(
                stddev=self.init_stddev
            ),
            dtype=self.dtype_policy,
            name=name,
        )

    def _dropout(self, name):
        return Dropout(self.dropout, dtype=self.dtype_policy, name=name)

    def _layer_norm(self, name):
        return LayerNorm(
            epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name=name
        )
