"""BERT with its pre-training heads."""

from typing import Any

import keras

from bert_tf import features
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.heads import MaskedLMHead
from bert_tf.models.encoder_model import EncoderModel
from bert_tf.models.inputs import check_names


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(EncoderModel):
    """Masked-LM and next-sentence prediction (Devlin et al. 2018, 3.1).

    For ALBERT the second head predicts the order of sentences. Families that
    are not pre-trained on pairs of sentences have only the first.

    Args:
        config: A `BertConfig`.
        has_next_sentence_head: Whether there is the second head, if the family
            has it. A model loaded from a checkpoint has it if the checkpoint
            does. Without it the pooler is neither used nor trained.

    Call arguments:
        inputs: `BertEncoder`'s, and `masked_lm_positions` int32 `[B, P]`.
        encoder: As in every `EncoderModel`, which makes `self.encoder`.

    Returns:
        A dictionary of float32 logits: `masked_lm_logits`
        `[B, P, vocab_size]` and, if the model has that head,
        `next_sentence_logits` `[B, 2]`, or `[B, S, 2]` if `first_positions`
        were given.

    Raises:
        ValueError: If `config` is a dictionary not made by a `BertConfig`.

    Example:

        >>> import numpy as np
        >>> from bert_tf import BertConfig, BertPretrainer
        >>> model = BertPretrainer(BertConfig.named("tiny", vocab_size=50))
        >>> names = ("input_ids", "input_mask", "segment_ids")
        >>> inputs = {name: np.ones((2, 5), "int32") for name in names}
        >>> inputs["masked_lm_positions"] = np.array([[1, 2], [3, 1]], "int32")
        >>> outputs = model(inputs)
        >>> tuple(outputs["masked_lm_logits"].shape)
        (2, 2, 50)
        >>> tuple(outputs["next_sentence_logits"].shape)
        (2, 2)
    """

    # Families without pairs of sentences are pre-trained without a pooler.
    replaces_pooler = True
    export_inputs = (*features.MODEL_INPUTS, features.MASKED_LM_POSITIONS)

    def __init__(
        self,
        config: AnyConfig,
        has_next_sentence_head: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(config, **kwargs)
        self.masked_lm_head = MaskedLMHead(
            self.config, dtype=self.dtype_policy, name="masked_lm"
        )
        self.has_next_sentence_head = has_next_sentence_head
        self.next_sentence_head = None
        if not has_next_sentence_head:
            self.encoder.pooler.leave_out()
        elif self.config.is_trained_on_pairs:
            self.next_sentence_head = self.make_head(2, "next_sentence")
        self.build()

    def build(self, input_shape=None):
        if self.built:
            return
        self.masked_lm_head.build((None, None, self.config.hidden_size))
        if self.next_sentence_head is not None:
            self.next_sentence_head.build((None, self.config.hidden_size))

    def call(self, inputs, encoder=None, training=None):
        check_names(inputs, self.export_inputs)
        encoder = encoder or self.encoder
        outputs = encoder(
            inputs, inputs[features.MASKED_LM_POSITIONS], training=training
        )
        return self.score(
            outputs["sequence_output"], outputs["pooled_output"], training
        )

    def score(
        self,
        predicted: features.Tensor,
        pooled: features.Tensor,
        training: bool | None = None,
    ) -> dict[str, features.Tensor]:
        """Returns the logits for outputs of the encoder.

        Args:
            predicted: float `[B, P, hidden_size]`: the encoder's outputs at the
                masked positions.
            pooled: The encoder's `pooled_output`.
            training: Whether there is dropout.
        """
        logits = {
            "masked_lm_logits": self.masked_lm_head(
                predicted, None, self.encoder.embeddings.word_embeddings
            )
        }
        if self.next_sentence_head is not None:
            logits["next_sentence_logits"] = self.next_sentence_head(
                pooled, training=training
            )
        return logits

    def get_config(self):
        return super().get_config() | {
            "has_next_sentence_head": self.has_next_sentence_head
        }
