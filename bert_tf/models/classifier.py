"""BERT with a classification or regression head over the pooled output."""

from typing import Any

import keras

from bert_tf.layers.configured import AnyConfig
from bert_tf.models.encoder_model import EncoderModel
from bert_tf.models.inputs import check_bidirectional


@keras.saving.register_keras_serializable(package="bert_tf")
class BertClassifier(EncoderModel):
    """Classes of a sequence or a pair (Devlin et al. 2018, section 4.1).

    Args:
        config: A `BertConfig`.
        num_labels: Number of classes; 1 for a regression.
        dropout: Fraction of the pooled output dropped in training, in `[0, 1)`;
            None for the configuration's.

    Call arguments:
        inputs: `BertEncoder`'s.

    Returns:
        float32 logits `[B, num_labels]`, or `[B, S, num_labels]` if
        `first_positions` were given. There is no softmax: use a loss with
        `from_logits=True`.

    Raises:
        ValueError: If the configuration is of a left-to-right model, or a value
            is out of its range.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertClassifier, BertConfig
        >>> model = BertClassifier(
        ...     BertConfig.named("tiny", vocab_size=50), num_labels=3
        ... )
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> tuple(model(inputs).shape)
        (2, 3)
    """

    replaces_pooler = True

    def __init__(
        self,
        config: AnyConfig,
        num_labels: int = 2,
        dropout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        check_bidirectional(self.config)
        if dropout is None:
            dropout = self.config.classifier_dropout_prob
        self.hidden_layer = self.make_hidden_layer(
            "classifier_hidden",
            dropout if self.config.drops_classifier_input else 0.0,
        )
        self.classification_head = self.make_head(
            num_labels, "classifier", dropout
        )
        # As Python numbers: Keras's files cannot hold NumPy's.
        self.num_labels = self.classification_head.num_labels
        self.dropout = self.classification_head.dropout
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        if self.hidden_layer is not None:
            self.hidden_layer.build((None, self.config.hidden_size))
        self.classification_head.build((None, self.config.hidden_size))

    def call(self, inputs, encoder=None, training=None):
        pooled = self.pooled(inputs, encoder, training)
        if self.hidden_layer is not None:
            pooled = self.hidden_layer(pooled, training=training)
        return self.classification_head(pooled, training=training)

    def get_config(self):
        return super().get_config() | {
            "num_labels": self.num_labels,
            "dropout": self.dropout,
        }
