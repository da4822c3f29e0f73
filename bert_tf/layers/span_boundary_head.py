"""SpanBERT's head.

Letters in tensor names: B batch, P predictions per row, N all predictions of
the batch, D hidden size, V vocabulary.
"""

import keras
from keras import ops

from bert_tf.layers.basic import apply_activation
from bert_tf.layers.configured import ConfiguredLayer
from bert_tf.layers.heads import add_output_bias
from bert_tf.layers.heads import score_words


@keras.saving.register_keras_serializable(package="bert_tf")
class SpanBoundaryHead(ConfiguredLayer):
    """Scores every word for the tokens of a span, from what is around it.

    The inputs are the encoder's outputs before and after the span, and an
    embedding of the token's place in it. They pass twice through dense,
    activation and LayerNorm. Then comes the product with the word embeddings,
    which the head does not own, plus a bias of its own (SpanBERT, Joshi et al.
    2020, section 3.2).

    Args:
        config: A `BertConfig`.

    Call arguments:
        before, after: float `[batch, predictions, hidden]`.
        places: int32 `[batch, predictions]` in `[0, NUM_PLACES)`.
        word_embeddings: float `[vocab_size, width of the embeddings]`.

    Returns:
        float32 logits `[batch, predictions, vocab_size]`.
    """

    # As in SpanBERT's code.
    NUM_PLACES = 15
    PLACE_WIDTH = 200

    def build(self, *input_shapes):
        width = self.config.embedding_width
        self.place_embeddings = self.add_weight(
            shape=(self.NUM_PLACES, self.PLACE_WIDTH),
            initializer=self.make_kernel_initializer(),
            name="place_embeddings",
        )
        self.dense_1 = self.make_dense(
            self.config.hidden_size,
            "dense_1",
            num_inputs=2 * self.config.hidden_size + self.PLACE_WIDTH,
        )
        self.layer_norm_1 = self.make_layer_norm("layer_norm_1")
        self.dense_2 = self.make_dense(width, "dense_2")
        self.layer_norm_2 = self.make_layer_norm("layer_norm_2", width)
        self.output_bias = add_output_bias(self)

    def call(self, before, after, places, word_embeddings, training=None):
        x_BPD = ops.concatenate(
            [before, after, ops.take(self.place_embeddings, places, axis=0)],
            axis=-1,
        )
        batch_size, num_predictions, num_inputs = ops.shape(x_BPD)
        x_ND = ops.reshape(x_BPD, (-1, num_inputs))
        for dense, layer_norm in (
            (self.dense_1, self.layer_norm_1),
            (self.dense_2, self.layer_norm_2),
        ):
            x_ND = dense(x_ND)
            x_ND = apply_activation(self.config.hidden_act, x_ND)
            x_ND = layer_norm(x_ND)
        logits_NV = score_words(x_ND, word_embeddings, self.output_bias)
        return ops.reshape(
            logits_NV, (batch_size, num_predictions, self.config.vocab_size)
        )

    def compute_output_spec(
        self, before, after, places, word_embeddings, training=None
    ):
        return keras.KerasTensor(
            (*places.shape, self.config.vocab_size), dtype="float32"
        )
