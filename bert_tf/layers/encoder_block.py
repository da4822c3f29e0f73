"""One block of the encoder: self-attention and feed-forward.

Letters in tensor names: B batch, L position, D hidden size, F width of the
feed-forward layer.
"""

import keras

from bert_tf.layers.activations import apply_activation
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

    Returns:
        float `[batch, length, hidden]`.
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

    def build(self, inputs_shape, attention_mask_shape=None):
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

    def call(self, inputs, attention_mask, training=None):
        # Self-attention.
        x_BLD = self.attention(inputs, attention_mask, training=training)
        x_BLD = self.attention_dropout_layer(x_BLD, training=training)
        attended_BLD = self.attention_layer_norm(inputs + x_BLD)

        # Feed-forward.
        x_BLF = apply_activation(
            self.activation, self.intermediate(attended_BLD)
        )
        x_BLD = self.output_dense(x_BLF)
        x_BLD = self.output_dropout(x_BLD, training=training)
        return self.output_layer_norm(attended_BLD + x_BLD)

    def compute_output_shape(self, inputs_shape, attention_mask_shape=None):
        return inputs_shape

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
        return keras.layers.Dropout(
            self.dropout, dtype=self.dtype_policy, name=name
        )

    def _layer_norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.layer_norm_eps, dtype=self.dtype_policy, name=name
        )
