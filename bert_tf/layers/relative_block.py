"""BERT's block with a bias of its scores by relative positions (MPNet)."""

from typing import Any

import keras

from bert_tf import features
from bert_tf.features import Tensor
from bert_tf.layers import relative_positions
from bert_tf.layers.encoder_block import EncoderBlock


@keras.saving.register_keras_serializable(package="bert_tf")
class RelativeBlock(EncoderBlock):
    """An `EncoderBlock` whose layout is a pair: the mask, and the bias.

    The bias is the same in all layers, so it is computed once a batch.
    """

    def layout_of(self, inputs: features.Batch, embeddings: Any) -> Any:
        mask = super().layout_of(inputs, embeddings)
        length = keras.ops.shape(inputs[features.INPUT_IDS])[1]
        table = embeddings.relative_bias
        return mask, relative_positions.bias_of_table(table, length)

    def layout_at(self, layout: Any, positions: Tensor | int) -> Any:
        mask, bias = layout
        return (
            super().layout_at(mask, positions),
            relative_positions.gather_queries(bias, positions),
        )
