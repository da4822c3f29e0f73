"""One block of the encoder: self-attention and feed-forward.

Letters in tensor names: B batch, L position, Q position that is computed, T
position counted over the whole batch, D hidden size, F width of the
feed-forward layer.
"""

import keras
from keras import ops

from bert_tf.layers.activations import apply_activation
from bert_tf.layers.attend import is_long
from bert_tf.layers.attention_mask import gather_queries
from bert_tf.layers.configured import ConfiguredLayer
from bert_tf.layers.gathering import as_matrix
from bert_tf.layers.gathering import gather_positions
from bert_tf.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable(package="bert_tf")
class EncoderBlock(ConfiguredLayer):
    """A post-LayerNorm Transformer block (Vaswani et al. 2017, section 3.1).

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: float `[batch, length, hidden]`; without `positions` also the
            rows of one matrix, `[batch * length, hidden]`.
        attention_mask: bool `[batch, 1 or length, length]`, True where a
            query may look at a key.
        positions: Where the block is computed: int32 `[batch, positions]` in
            `[0, length)`, or an int for that many from the start. None for
            everywhere.
        return_heads: As in `SelfAttention`.

    Returns:
        float, of the shape of the inputs, or `[batch, positions, hidden]`; with
        `return_heads` a pair of it and the heads.
    """

    def build(
        self, inputs_shape, attention_mask_shape=None, positions_shape=None
    ):
        config = self.config
        self.attention = SelfAttention(
            config, dtype=self.dtype_policy, name="attention"
        )
        self.attention.build((None, None, config.hidden_size))
        self.attention_output_dropout = self.make_dropout(
            config.hidden_dropout_prob, "attention_output_dropout"
        )
        self.attention_layer_norm = self.make_layer_norm("attention_layer_norm")
        self.intermediate = self.make_dense(
            config.intermediate_size, "intermediate"
        )
        self.output_dense = self.make_dense(
            config.hidden_size, "output", num_inputs=config.intermediate_size
        )
        self.output_dropout = self.make_dropout(
            config.hidden_dropout_prob, "output_dropout"
        )
        self.output_layer_norm = self.make_layer_norm("output_layer_norm")

    def call(
        self,
        inputs,
        attention_mask,
        positions=None,
        return_heads=False,
        training=None,
    ):
        queries_BQD = inputs
        if positions is not None:
            queries_BQD = gather_positions(inputs, positions)
            attention_mask = gather_queries(attention_mask, positions)
        is_matrix = len(queries_BQD.shape) == 2
        length = attention_mask.shape[-1]
        num_queries = length if is_matrix else queries_BQD.shape[1]
        # For long sequences, training keeps little and recomputes the rest.
        recompute = bool(training) and is_long(num_queries, length)

        # Self-attention.
        x_BQD, heads = self.attention(
            inputs,
            attention_mask,
            None if positions is None else queries_BQD,
            return_heads=True,
            training=training,
        )
        attended_BQD = self.attention_layer_norm.add(
            queries_BQD,
            x_BQD,
            self.attention_output_dropout,
            training=training,
            recompute=recompute,
        )

        # Feed-forward. TensorFlow fuses the product of two matrices with the
        # bias and, outside training, with the activation.
        attended_TD = as_matrix(attended_BQD)
        activation = self.config.hidden_act
        if recompute:
            x_BQD = self.output_dense.call_activated(
                activation, self.intermediate(attended_TD)
            )
        else:
            x_TF = apply_activation(
                activation, self.intermediate(attended_TD), training=training
            )
            x_BQD = self.output_dense(x_TF)
        if not is_matrix:
            x_BQD = ops.reshape(x_BQD, ops.shape(attended_BQD))
        outputs_BQD = self.output_layer_norm.add(
            attended_BQD,
            x_BQD,
            self.output_dropout,
            training=training,
            recompute=recompute,
        )
        return (outputs_BQD, heads) if return_heads else outputs_BQD

    def compute_output_shape(
        self, inputs_shape, attention_mask_shape=None, positions_shape=None
    ):
        if positions_shape is None:
            return inputs_shape
        return (*positions_shape, self.config.hidden_size)
