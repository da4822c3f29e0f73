"""BERT that scores texts for a query: a cross-encoder."""

from typing import Any

import keras
from keras import ops

from bert_tf.layers.configured import AnyConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.multiple_choice import flatten_choices


@keras.saving.register_keras_serializable(package="bert_tf")
class BertReranker(BertClassifier):
    """Scores texts for a query (Nogueira and Cho 2019, arXiv 1901.04085).

    It is a `BertClassifier` with one output. A row holds several pairs of a
    query and a text. Stored weights have the names of a `BertClassifier`.

    Args:
        config: A `BertConfig`.
        num_labels: 1.
        dropout: As in `BertClassifier`.

    Call arguments:
        inputs: A dictionary with `input_ids`, `input_mask` and `segment_ids`,
            int32 `[B, C, L]`; other keys are ignored.

    Returns:
        float32 logits `[B, C]`: the higher, the more relevant.

    Raises:
        ValueError: If `num_labels` is not 1, or as in `BertClassifier`.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertReranker
        >>> model = BertReranker(BertConfig.named("tiny", vocab_size=50))
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 4, 5), "int32") for name in names}
        >>> tuple(model(inputs).shape)
        (2, 4)
    """

    export_rank = 3

    def __init__(
        self,
        config: AnyConfig,
        num_labels: int = 1,
        dropout: float | None = None,
        **kwargs: Any,
    ) -> None:
        if num_labels != 1:
            raise ValueError(
                "`num_labels` must be 1 in a model that scores texts. "
                f"Received: num_labels={num_labels!r}."
            )
        super().__init__(config, num_labels, dropout, **kwargs)

    def call(self, inputs, encoder=None, training=None):
        flat, num_texts = flatten_choices(inputs)
        logits = super().call(flat, encoder, training=training)
        return ops.reshape(logits, (-1, num_texts))
