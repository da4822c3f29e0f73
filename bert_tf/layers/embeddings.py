"""The input embeddings: word + position + segment, normalised.

Letters in tensor names: B batch, L position, D hidden size.
"""

from typing import Any
from typing import Self

import keras
from keras import ops

from bert_tf.layers import relative_positions
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredLayer


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(ConfiguredLayer):
    """Sum of three embeddings, LayerNorm, dropout (Devlin et al., fig. 2).

    There are two in a family without segments, and one if queries and keys are
    turned by their positions instead.

    With an `embedding_size`, a dense layer then projects them to the hidden
    size (factorised embeddings, Lan et al. 2020, arXiv 1909.11942, section
    3.1).

    Args:
        config: A `BertConfig`.
        shared: None, or a layer with embeddings of the same width, to use its
            tables and LayerNorm (ELECTRA's generator and discriminator, Clark
            et al. 2020, section 3.2). Keras's files do not record this: a copy
            has weights of its own.

    Call arguments:
        input_ids: int32 `[batch, length]` in `[0, vocab_size)`.
        segment_ids: int32 `[batch, length]` in `[0, type_vocab_size)`; ignored
            if there are fewer than two segments.
        position_ids: int32 `[batch, length]` in
            `[0, max_position_embeddings)`: each token's place in its own
            sequence. None counts from 0 in every row; with a `padding_idx`,
            from the first token that is not padding.
        trained: int32 or bool `[batch, length]`, or None for all. Where it is
            0, the word embeddings get no gradient, and with a `padding_idx`
            neither do the position embeddings.

    Ids out of range are not looked for, which would be a pass over the input.
    On CPUs TensorFlow raises an error if one is too large, but -1 counts from
    the end of the table. In training, a segment out of range adds nothing.

    Returns:
        float `[batch, length, hidden]`.
    """

    def __init__(
        self, config: AnyConfig, shared: Self | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        # Inputs are ids, which 16 bits cannot hold; see `ConfiguredModel`.
        self.autocast = False
        # A function, so that Keras does not track the other layer: its tables
        # are shared, but its projection is not.
        self._shared = None if shared is None else lambda: shared

    def build(self, *input_shapes):
        config = self.config
        if self._shared is not None:
            self._take(self._shared())
        else:
            self._make_tables()
        rate = config.embedding_dropout_prob
        self.output_dropout = self.make_dropout(
            config.hidden_dropout_prob if rate is None else rate,
            "output_dropout",
        )
        if config.embedding_size is not None:
            self.projection = self.make_dense(
                config.hidden_size,
                "projection",
                num_inputs=config.embedding_size,
            )

    def _make_tables(self):
        config = self.config
        self.word_embeddings = self._table("word_embeddings", config.vocab_size)
        if config.rotary_theta is None:
            self.position_embeddings = self._table(
                "position_embeddings",
                config.first_position + config.max_position_embeddings,
            )
        if config.type_vocab_size:
            self.segment_embeddings = self._table(
                "segment_embeddings", config.type_vocab_size
            )
        if config.has_relative_bias:
            self.relative_bias = relative_positions.add_table(self)
        self.layer_norm = self.make_layer_norm(
            "layer_norm", config.embedding_width
        )

    def _take(self, other):
        """Uses the tables and the LayerNorm of another layer."""
        if other.config.embedding_width != self.config.embedding_width:
            raise ValueError(
                "`shared` must have embeddings as wide as the configuration's "
                f"{self.config.embedding_width}. Received: "
                f"{other.config.embedding_width}."
            )
        self.word_embeddings = other.word_embeddings
        if self.config.rotary_theta is None:
            self.position_embeddings = other.position_embeddings
        if self.config.type_vocab_size:
            self.segment_embeddings = other.segment_embeddings
        if self.config.has_relative_bias:
            self.relative_bias = other.relative_bias
        self.layer_norm = other.layer_norm

    def call(
        self,
        input_ids,
        segment_ids,
        position_ids=None,
        trained=None,
        training=None,
    ):
        length = input_ids.shape[1]
        longest = self.config.max_position_embeddings
        counts_on = position_ids is None and isinstance(length, int)
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
        # Summed in float32, even if the tables have fewer bits.
        x_BLD = _float32(ops.take(self.word_embeddings, input_ids, axis=0))
        x_BLD = _trained_at(x_BLD, trained)
        if self.config.rotary_theta is None:
            places = self._places(input_ids, position_ids, trained)
            # Not `+=`, which PyTorch does in place, in the caller's tensors.
            x_BLD = x_BLD + _float32(places)
        num_segments = self.config.type_vocab_size
        if num_segments == 1:
            x_BLD = x_BLD + _float32(self.segment_embeddings)
        elif num_segments and not training:
            segments = ops.take(self.segment_embeddings, segment_ids, axis=0)
            x_BLD = x_BLD + _float32(segments)
        elif num_segments:
            # A product with few rows is cheaper than a gather, and so is its
            # gradient: a scatter would hit every row many times.
            segments = ops.one_hot(segment_ids, num_segments, dtype="float32")
            table = _float32(self.segment_embeddings)
            x_BLD = x_BLD + ops.matmul(segments, table)
        x_BLD = self.layer_norm(x_BLD)
        x_BLD = self.output_dropout(x_BLD, training=training)
        if self.config.embedding_size is None:
            return x_BLD
        return self.projection(x_BLD)

    def compute_output_shape(self, input_ids_shape, *other_shapes):
        return (*input_ids_shape, self.config.hidden_size)

    def _places(self, input_ids, position_ids, trained):
        """Returns the position embeddings, float `[L, D]` or `[B, L, D]`."""
        if position_ids is not None:
            position_ids = ops.cast(position_ids, "int32")
            position_ids = position_ids + self.config.first_position
        elif self.config.padding_idx is not None:
            position_ids = self._positions_of_tokens(input_ids)
        if position_ids is None:
            return self._leading_rows(ops.shape(input_ids)[1])
        places = ops.take(self.position_embeddings, position_ids, axis=0)
        if self.config.padding_idx is not None:
            places = _trained_at(places, trained)
        return places

    def _leading_rows(self, length):
        """Returns the first rows of the table, float `[L, D]`."""
        if isinstance(length, int) or ops.is_tensor(length):
            return self.position_embeddings[:length]
        # A symbol, as JAX has for a length that is not known. A slice would be
        # as long as another symbol, the smaller of this and the table's length.
        return ops.take(self.position_embeddings, ops.arange(length), axis=0)

    def _positions_of_tokens(self, input_ids):
        """Returns the rows of the table as RoBERTa counts them, int32 `[B, L]`.

        Counted from the ids, not from the mask: padding before the text shifts
        no token, and all padding shares one row (fairseq's `make_positions`).
        """
        padding_idx = self.config.padding_idx
        is_token_BL = 1 - ops.cast(ops.equal(input_ids, padding_idx), "int32")
        return ops.cumsum(is_token_BL, axis=1) * is_token_BL + padding_idx

    def _table(self, name, num_rows):
        return self.add_weight(
            shape=(num_rows, self.config.embedding_width),
            initializer=self.make_kernel_initializer(),
            # The picked rows and their gradients are summed in float32 under
            # every dtype policy. Autocasting would convert the whole table.
            autocast=False,
            name=name,
        )


def _trained_at(x_BLD, trained_BL):
    if trained_BL is None:
        return x_BLD
    is_trained = ops.cast(trained_BL, "bool")[..., None]
    return ops.where(is_trained, x_BLD, ops.stop_gradient(x_BLD))


def _float32(x):
    return ops.cast(x, "float32")
