"""Encoders as they are served, with the names and objects of TF Hub.

The text API is https://www.tensorflow.org/hub/common_saved_model_apis/text.
Only this module knows the Hub's names of the model inputs.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import parts
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_vector
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import ExportOptions

# {our name: the Hub's}.
INPUT_NAMES = {
    features.INPUT_IDS: "input_word_ids",
    features.INPUT_MASK: "input_mask",
    features.SEGMENT_IDS: "input_type_ids",
}


class _MaskedLM(tf.__internal__.tracking.AutoTrackable):
    """The encoder together with the masked-LM head, called as one."""

    def __init__(self, pretrainer, module):
        super().__init__()
        # The next-sentence head is not called, and so not saved.
        parts = (pretrainer.encoder, pretrainer.masked_lm_head)
        self.variables = [
            variable.value for part in parts for variable in part.variables
        ]
        self.trainable_variables = [
            variable.value
            for part in parts
            for variable in part.trainable_variables
        ]
        self.regularization_losses = []

        def call_model(inputs, training):
            positions = inputs_lib.check_positions(
                inputs[features.MASKED_LM_POSITIONS],
                inputs[INPUT_NAMES[features.INPUT_IDS]],
            )
            outputs = module(
                {name: inputs[name] for name in module.ids_spec()},
                training=training,
            )
            logits = pretrainer.masked_lm_head(
                outputs["sequence_output"],
                positions,
                pretrainer.encoder.embeddings.word_embeddings,
            )
            return outputs | {"mlm_logits": logits}

        self._call_model = call_model
        positions = tf.TensorSpec(
            [None, None], tf.int32, name=features.MASKED_LM_POSITIONS
        )
        spec = module.ids_spec() | {features.MASKED_LM_POSITIONS: positions}
        for training in (False, True):
            self.__call__.get_concrete_function(spec, training=training)

    @tf.function(autograph=False)
    def __call__(self, inputs, training=False):
        return self._call_model(inputs, training)


class HubEncoder(ServingModule):
    """An encoder with the interface of those on the Hub.

    `__call__` takes `input_word_ids`, `input_mask` and `input_type_ids`,
    int32 `[B, L]`, and returns `pooled_output`, `default` (the same),
    `sequence_output` and the list `encoder_outputs`. If the checkpoint has a
    masked-LM head, there is also `mlm`. In addition, it takes
    `masked_lm_positions` int32 `[B, P]` and returns `mlm_logits`
    `[B, P, vocab_size]`.

    Args:
        servable: An `Encoder`, of a `BertEncoder` or a `BertPretrainer`.
        vocab_path: As in `ServingModule`.
    """

    def __init__(self, servable: Any, vocab_path: str) -> None:
        super().__init__(servable, vocab_path)
        if hasattr(servable.model, "masked_lm_head"):
            self.mlm = _MaskedLM(servable.model, self)


class Encoder(Servable):
    """The vectors of the tokens and of the whole text, in every layer."""

    KIND = "encoder"
    outputs_of_strings = outputs_of_ids = (
        Output(
            name="pooled_output",
            dtype="float32",
            axes="hidden",
            meaning="the vector of the text",
            heading="pooled_output",
            show=lambda answers: show_vector(answers["pooled_output"]),
        ),
        Output("default", "float32", "hidden", "the same as `pooled_output`"),
        Output(
            name="sequence_output",
            dtype="float32",
            axes="length hidden",
            meaning="the vectors of the tokens",
        ),
        # One tensor with an axis of layers; the callable returns a list.
        Output(
            name="encoder_outputs",
            dtype="float32",
            axes="layers length hidden",
            meaning="the vectors of the tokens in every layer",
        ),
        Output(
            name=features.INPUT_MASK,
            dtype="int32",
            axes="length",
            meaning="1 where there is a token, 0 at padding",
        ),
    )
    MODEL = BertEncoder
    MODULE = HubEncoder
    # It can be trained by its API.
    FIXED = {"freeze": False}
    input_names = INPUT_NAMES

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        found = checkpoint.found_parts
        # There is a configuration if there are `found_parts`.
        assert checkpoint.config is not None
        if checkpoint.config.has_pooler and parts.POOLER not in found:
            raise ValueError(
                f"{checkpoint.path}: must have a pooler, which an encoder's "
                f"`pooled_output` comes from. Its parts: {', '.join(found)}."
            )
        model_class = BertPretrainer if parts.MASKED_LM in found else cls.MODEL
        return checkpoints.load_open(
            checkpoint, model_class, dtype=options.dtype
        )

    @property
    def kept_model(self) -> Any:
        return self.encoder

    def call_model(
        self,
        inputs: dict[str, tf.Tensor],
        training: bool,
        encoder: Callable[..., Any] | None = None,
    ) -> Any:
        # Clients get float32 in every precision.
        outputs = tf.nest.map_structure(
            lambda value: tf.cast(value, tf.float32),
            (encoder or self.encoder)(inputs, training=training),
        )
        return outputs | {"default": outputs["pooled_output"]}

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        layers = tf.stack(outputs["encoder_outputs"], axis=1)
        return outputs | {"encoder_outputs": layers}

    def decode_rows(
        self, inputs: dict[str, tf.Tensor], outputs: Any
    ) -> dict[str, tf.Tensor]:
        mask = tf.identity(inputs[features.INPUT_MASK])
        return self.decode(outputs) | {features.INPUT_MASK: mask}
