"""BERT with one score for each of several choices."""

from typing import Any

import keras
from keras import ops

from bert_tf import features
from bert_tf.layers.configured import AnyConfig
from bert_tf.models.encoder_model import EncoderModel
from bert_tf.models.inputs import check_alike
from bert_tf.models.inputs import check_axes
from bert_tf.models.inputs import check_bidirectional
from bert_tf.models.inputs import check_names


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMultipleChoice(EncoderModel):
    """Scores of choices (Devlin et al. 2018, section 4.4).

    Each choice is packed with the context into a sequence of its own, and a
    vector scores the pooled outputs. Like Hugging Face's model it has a bias,
    which cancels in a softmax over the choices.

    Args:
        config: A `BertConfig`.
        dropout: Fraction of the pooled output dropped in training, in `[0, 1)`;
            None for the configuration's.

    Call arguments:
        inputs: A dictionary with `input_ids`, `input_mask` and `segment_ids`,
            int32 `[B, C, L]`; other keys are ignored.

    Returns:
        float32 logits `[B, C]`. There is no softmax: use a loss with
        `from_logits=True`.

    Raises:
        ValueError: If the configuration is of a left-to-right model, or a value
            is out of its range.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertMultipleChoice
        >>> model = BertMultipleChoice(BertConfig.named("tiny", vocab_size=50))
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 4, 5), "int32") for name in names}
        >>> tuple(model(inputs).shape)
        (2, 4)
    """

    export_rank = 3

    def __init__(
        self, config: AnyConfig, dropout: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(config, **kwargs)
        check_bidirectional(self.config)
        if dropout is None:
            dropout = self.config.classifier_dropout_prob
        self.hidden_layer = self.make_hidden_layer("multiple_choice_hidden")
        self.choice_head = self.make_head(1, "multiple_choice", dropout)
        # As a Python number: Keras's files cannot hold NumPy's.
        self.dropout = self.choice_head.dropout
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        if self.hidden_layer is not None:
            self.hidden_layer.build((None, self.config.hidden_size))
        self.choice_head.build((None, self.config.hidden_size))

    def call(self, inputs, encoder=None, training=None):
        flat, num_choices = flatten_choices(inputs)
        if self.config.shared_head and self.config.classifier_pooling == "cls":
            # As in transformers, the first token, behind what padding there is.
            first = ops.argmax(flat[features.INPUT_MASK], axis=1)
            flat = {**flat, features.FIRST_POSITIONS: first[:, None]}
        pooled = self.pooled(flat, encoder, training)
        pooled = ops.reshape(pooled, (-1, self.config.hidden_size))
        if self.hidden_layer is not None:
            pooled = self.hidden_layer(pooled, training=training)
        logits = self.choice_head(pooled, training=training)
        return ops.reshape(logits, (-1, num_choices))

    def get_config(self):
        return super().get_config() | {"dropout": self.dropout}


def flatten_choices(inputs: features.Batch) -> tuple[features.Batch, Any]:
    """Returns inputs `[B, C, L]` as sequences `[B * C, L]`, and C.

    Raises:
        ValueError: If one is missing, they do not have three axes, or their
            shapes differ.
    """
    check_names(inputs, features.MODEL_INPUTS)
    check_axes(inputs, "[B, C, L], C sequences per example")
    check_alike(inputs, features.MODEL_INPUTS)
    _, num_choices, length = ops.shape(inputs[features.INPUT_IDS])
    flat = {
        name: ops.reshape(inputs[name], (-1, length))
        for name in features.MODEL_INPUTS
    }
    return flat, num_choices
