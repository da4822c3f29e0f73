"""The base of all models with an encoder and heads."""

import dataclasses
from typing import Any
from typing import ClassVar

import keras
from keras import ops

from bert_tf import features
from bert_tf.layers.configured import AnyConfig
from bert_tf.layers.configured import ConfiguredModel
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.heads import ClassificationHead
from bert_tf.layers.heads import HiddenLayer
from bert_tf.layers.heads import Transform
from bert_tf.models import inputs as inputs_lib
from bert_tf.models.encoder import BertEncoder

# The smallest divisor of a mean, as in sentence-transformers.
_SMALLEST_COUNT = 1e-9


class EncoderModel(ConfiguredModel):
    """A model with an encoder, and with heads that its own `build` builds.

    Args:
        config: A `BertConfig`.
        shared_embeddings, attention_chunk, rematerialize: As in `BertEncoder`.

    Call arguments of every subclass, besides its inputs:
        encoder: What is called instead of the model's own encoder, with its
            arguments and results; None for that.

    Attributes:
        export_inputs: Names of the inputs in the signature of `export`.
        export_rank: Number of axes of each input, all of any length.
        replaces_pooler: Whether the model has no use for a pooler that was
            not trained on pairs of sentences.
        trains_padding: As in `BertEncoder`.
    """

    export_inputs: ClassVar[tuple[str, ...]] = features.MODEL_INPUTS
    export_rank: ClassVar[int] = 2
    replaces_pooler: ClassVar[bool] = False
    trains_padding: ClassVar[bool] = True

    def __init__(
        self,
        config: AnyConfig,
        shared_embeddings: BertEmbeddings | None = None,
        attention_chunk: int | None = None,
        rematerialize: bool = False,
        **kwargs: Any,
    ) -> None:
        if "num_classes" in kwargs:
            raise ValueError(
                "`num_classes` is called num_labels here. "
                f"Received: num_classes={kwargs['num_classes']}."
            )
        super().__init__(config, **kwargs)
        encoder_config = self.config
        if self.replaces_pooler and not self.config.is_trained_on_pairs:
            encoder_config = dataclasses.replace(self.config, has_pooler=False)
        self.encoder = BertEncoder(
            encoder_config,
            shared_embeddings,
            attention_chunk,
            rematerialize,
            self.trains_padding,
            dtype=self.dtype_policy,
            name="encoder",
        )

    def get_config(self):
        return super().get_config() | {
            "attention_chunk": self.encoder.attention_chunk,
            "rematerialize": self.encoder.rematerialize,
        }

    def fit(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        self._check_data(x, y)
        return super().fit(x, y, *args, **kwargs)

    def evaluate(
        self, x: Any = None, y: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        self._check_data(x, y)
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        inputs_lib.check_is_no_text(x)
        return super().predict(x, *args, **kwargs)

    def export(
        self,
        filepath,
        format="tf_saved_model",
        verbose=None,
        input_signature=None,
        **kwargs,
    ):
        # Keras would take the shapes that `build` was called with, but the
        # models here build themselves before there are inputs.
        if input_signature is None:
            spec = keras.InputSpec(
                dtype="int32", shape=(None,) * self.export_rank
            )
            input_signature = [dict.fromkeys(self.export_inputs, spec)]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def make_head(
        self, num_labels: int, name: str, dropout: float = 0.0
    ) -> ClassificationHead:
        return ClassificationHead(
            self.config, num_labels, dropout, dtype=self.dtype_policy, name=name
        )

    def make_hidden_layer(
        self, name: str, dropout: float = 0.0
    ) -> HiddenLayer | Transform | None:
        """Returns a classifier's hidden layer; None if the pooler is it."""
        if self.config.shared_head:
            return self.make_shared_layer()
        activation = self.config.classifier_hidden_act
        if activation is None or self.encoder.config.has_pooler:
            return None
        return HiddenLayer(
            self.config,
            activation,
            dropout,
            dtype=self.dtype_policy,
            name=name,
        )

    def make_shared_layer(self) -> Transform | None:
        """Returns what all heads of some families begin with; None elsewhere.

        Its weights have the names of the masked-LM head's, from which they are
        loaded.
        """
        if not self.config.shared_head:
            return None
        return Transform(self.config, dtype=self.dtype_policy, name="masked_lm")

    def pooled(
        self,
        inputs: features.Batch,
        encoder: BertEncoder | None,
        training: bool | None,
    ) -> features.Tensor:
        """Returns what the configuration's `classifier_pooling` says.

        Args:
            inputs: Inputs of the encoder.
            encoder: What is called, or None for the model's own.
            training: Whether there is dropout.
        """
        encoder = encoder or self.encoder
        if self.config.classifier_pooling == "cls":
            outputs = encoder(inputs, positions=0, training=training)
            return outputs["pooled_output"]
        if features.FIRST_POSITIONS in inputs:
            raise ValueError(
                f"`{features.FIRST_POSITIONS}` must not be given where the "
                "mean of a row's tokens is classified: "
                "classifier_pooling='mean'."
            )
        sequence = encoder(inputs, training=training)["sequence_output"]
        mean = mean_of_tokens(sequence, inputs[features.INPUT_MASK])
        return ops.cast(mean, sequence.dtype)

    def _check_data(self, x, y):
        # What Keras and TensorFlow would say late, in many lines or not at all.
        inputs_lib.check_is_no_text(x)
        inputs_lib.check_labels(y, getattr(self, "num_labels", None), self.loss)
        inputs_lib.check_takes_logits(self.loss)


def mean_of_tokens(
    sequence: features.Tensor, input_mask: features.Tensor
) -> features.Tensor:
    """Returns the mean of the vectors that are no padding, float32 `[B, D]`.

    Args:
        sequence: float `[B, L, D]`.
        input_mask: `[B, L]`, 1 on tokens and 0 on padding.
    """
    # Sums over many tokens: in float32 under every dtype policy.
    mask_BL1 = ops.cast(input_mask, "float32")[..., None]
    count_B1 = ops.maximum(ops.sum(mask_BL1, 1), _SMALLEST_COUNT)
    sum_BD = ops.sum(mask_BL1 * ops.cast(sequence, "float32"), axis=1)
    return sum_BD / count_B1
