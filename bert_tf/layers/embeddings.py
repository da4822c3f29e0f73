"""The input embeddings: word + position + segment, normalised.

Letters in tensor names: B batch, L position, D hidden size.
"""

import keras
from keras import ops

from bert_tf.layers.dropout import Dropout
from bert_tf.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(keras.layers.Layer):
    """Sum of three embeddings, LayerNorm, dropout (Devlin et al., fig. 2).

    Args:
        vocab_size: Number of words.
        hidden_size: Width of the embeddings.
        max_positions: The longest sequence.
        num_segments: Number of segment ids.
        dropout: Fraction of the sum's elements dropped in training.
        init_stddev: Standard deviation of the initial embeddings.
        layer_norm_eps: Added to the variance in LayerNorm.

    Call arguments:
        input_ids: int32 `[batch, length]` in `[0, vocab_size)`.
        segment_ids: int32 `[batch, length]` in `[0, num_segments)`.
        position_ids: int32 `[batch, length]` in `[0, max_positions)`; None
            counts from 0 in every row.

    Returns:
        float `[batch, length, hidden]`.
    """

    def __init__(
        self,
        vocab_size,
        hidden_size,
        max_positions=512,
        num_segments=2,
        dropout=0.1,
        init_stddev=0.02,
        layer_norm_eps=1e-12,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.max_positions = max_positions
        self.num_segments = num_segments
        self.dropout = dropout
        self.init_stddev = init_stddev
        self.layer_norm_eps = layer_norm_eps

    def build(self, *input_shapes):
        self.word_embeddings = self._table("word_embeddings", self.vocab_size)
        self.position_embeddings = self._table(
            "position_embeddings", self.max_positions
        )
        self.segment_embeddings = self._table(
            "segment_embeddings", self.num_segments
        )
        self.layer_norm = LayerNorm(
            epsilon=self.layer_norm_eps,
            dtype=self.dtype_policy,
            name="layer_norm",
        )
        self.layer_norm.build((None, None, self.hidden_size))
        self.output_dropout = Dropout(
            self.dropout, dtype=self.dtype_policy, name="output_dropout"
        )

    def call(self, input_ids, segment_ids, position_ids=None, training=None):
        length = input_ids.shape[1]
        counts_on = position_ids is None and length is not None
        if counts_on and length > self.max_positions:
            raise ValueError(
                "The sequence must not be longer than `max_positions`. "
                f"Received: length={length}, "
                f"max_positions={self.max_positions}."
            )
        # Keras's `fit` on mirrored devices builds a model from the mean of
        # the devices' first batches, which makes floats of ids (Keras 3.15).
        input_ids = ops.cast(input_ids, "int32")
        segment_ids = ops.cast(segment_ids, "int32")
        # Summed in float32, also where the tables are of fewer bits.
        x_BLD = _float32(ops.take(self.word_embeddings, input_ids, axis=0))
        if position_ids is None:
            positions = self.position_embeddings[: ops.shape(input_ids)[1]]
        else:
            positions = ops.take(self.position_embeddings, position_ids, axis=0)
        x_BLD += _float32(positions)
        # A product with few rows: cheaper than a gather, and its gradient
        # than a scatter with every row hit many times.
        segments = ops.one_hot(segment_ids, self.num_segments, dtype="float32")
        x_BLD += ops.matmul(segments, _float32(self.segment_embeddings))
        x_BLD = self.layer_norm(x_BLD, training=training)
        return self.output_dropout(x_BLD, training=training)

    def compute_output_shape(self, input_ids_shape, *other_shapes):
        return (*input_ids_shape, self.hidden_size)

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "max_positions": self.max_positions,
            "num_segments": self.num_segments,
            "dropout": self.dropout,
            "init_stddev": self.init_stddev,
            "layer_norm_eps": self.layer_norm_eps,
        }

    def _table(self, name, num_rows):
        return self.add_weight(
            shape=(num_rows, self.hidden_size),
            initializer=keras.initializers.TruncatedNormal(
                stddev=self.init_stddev
            ),
            # The few rows that are picked, and their gradients, are summed
            # in float32 under every dtype policy; a cast would be of all.
            autocast=False,
            name=name,
        )


def _float32(x):
    return ops.cast(x, "float32")
