"""BERT with a classification head over every token."""

from typing import Any

import keras

from bert_tf.layers.configured import AnyConfig
from bert_tf.models.encoder_model import EncoderModel

# Unlike other heads, this one does not take it from the configuration.
DEFAULT_DROPOUT = 0.1


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(EncoderModel):
    """Classes of every token: tagging (Devlin et al. 2018, section 5.3).

    The pooler is not used, nor trained.

    Args:
        config: A `BertConfig`.
        num_labels: Number of classes, at least 1.
        dropout: Fraction of the encoder's output dropped in training, in
            `[0, 1)`.

    Call arguments:
        inputs: `BertEncoder`'s.

    Returns:
        float32 logits `[B, L, num_labels]`. There is no softmax: use a loss
        with `from_logits=True`.

    Raises:
        ValueError: If a value is out of its range.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertTokenClassifier
        >>> model = BertTokenClassifier(
        ...     BertConfig.named("tiny", vocab_size=50), num_labels=9
        ... )
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> tuple(model(inputs).shape)
        (2, 5, 9)
    """

    def __init__(
        self,
        config: AnyConfig,
        num_labels: int,
        dropout: float = DEFAULT_DROPOUT,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.encoder.pooler.leave_out()
        self.hidden_layer = self.make_shared_layer()
        self.classification_head = self.make_head(
            num_labels, "token_classifier", dropout
        )
        # As Python numbers: Keras's files cannot hold NumPy's.
        self.num_labels = self.classification_head.num_labels
        self.dropout = self.classification_head.dropout
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        shape = (None, None, self.config.hidden_size)
        if self.hidden_layer is not None:
            self.hidden_layer.build(shape)
        self.classification_head.build(shape)

    def call(self, inputs, encoder=None, training=None):
        outputs = (encoder or self.encoder)(inputs, training=training)
        x = outputs["sequence_output"]
        if self.hidden_layer is not None:
            x = self.hidden_layer(x, training=training)
        return self.classification_head(x, training=training)

    def get_config(self):
        return super().get_config() | {
            "num_labels": self.num_labels,
            "dropout": self.dropout,
        }
