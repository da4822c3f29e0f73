"""The input embeddings: word + position + segment, normalised.

Letters in tensor names: B batch, L position, D hidden size.
"""

import keras
from keras import ops

from bert_tf.layers.configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(ConfiguredLayer):
    """Sum of three embeddings, LayerNorm, dropout (Devlin et al., fig. 2).

    Args:
        config: A `BertConfig`.

    Call arguments:
        input_ids: int32 `[batch, length]` in `[0, vocab_size)`.
        segment_ids: int32 `[batch, length]` in `[0, type_vocab_size)`.
        position_ids: int32 `[batch, length]` in
            `[0, max_position_embeddings)`: each token's place in its own
            sequence; None counts from 0 in every row.

    Returns:
        float `[batch, length, hidden]`.
    """

    def build(self, *input_shapes):
        config = self.config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        self.position_embeddings = self._table(
            "position_embeddings", config.max_position_embeddings
        )
        self.segment_embeddings = self._table(
            "segment_embeddings", config.type_vocab_size
        )
        self.layer_norm = self.make_layer_norm("layer_norm")
        self.output_dropout = self.make_dropout(
            config.hidden_dropout_prob, "output_dropout"
        )

    def call(self, input_ids, segment_ids, position_ids=None, training=None):
        length = input_ids.shape[1]
        longest = self.config.max_position_embeddings
        counts_on = position_ids is None and length is not None
        if counts_on and length > longest:
            raise ValueError(
                "The sequence must not be longer than "
                "`max_position_embeddings`. Received: "
                f"length={length}, max_position_embeddings={longest}."
            )
        # Keras's `fit` on mirrored devices builds a model from the mean of
        # the devices' first batches, which makes floats of ids (Keras 3.15).
        input_ids = ops.cast(input_ids, "int32")
        segment_ids = ops.cast(segment_ids, "int32")
        # Summed in float32, also where the tables are of fewer bits.
        x_BLD = _float32(ops.take(self.word_embeddings, input_ids, axis=0))
        if position_ids is None:
            places = self.position_embeddings[: ops.shape(input_ids)[1]]
        else:
            places = ops.take(self.position_embeddings, position_ids, axis=0)
        x_BLD += _float32(places)
        # A product with few rows: cheaper than a gather, and its gradient
        # than a scatter with every row hit many times.
        segments = ops.one_hot(
            segment_ids, self.config.type_vocab_size, dtype="float32"
        )
        x_BLD += ops.matmul(segments, _float32(self.segment_embeddings))
        x_BLD = self.layer_norm(x_BLD, training=training)
        return self.output_dropout(x_BLD, training=training)

    def compute_output_shape(self, input_ids_shape, *other_shapes):
        return (*input_ids_shape, self.config.hidden_size)

    def _table(self, name, num_rows):
        return self.add_weight(
            shape=(num_rows, self.config.hidden_size),
            initializer=self.make_kernel_initializer(),
            # The few rows that are picked, and their gradients, are summed
            # in float32 under every dtype policy; a cast would be of all.
            autocast=False,
            name=name,
        )


def _float32(x):
    return ops.cast(x, "float32")
