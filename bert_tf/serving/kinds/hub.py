"""Encoders as they are served, with the names and objects of the TF Hub.

The text API is https://www.tensorflow.org/hub/common_saved_model_apis/text.
Only this module knows the Hub's names of the model inputs.
"""

import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds.servable import Servable

# Our names to the Hub's.
INPUT_NAMES = {
    features.INPUT_IDS: "input_word_ids",
    features.INPUT_MASK: "input_mask",
    features.SEGMENT_IDS: "input_type_ids",
}


class Encoder(Servable):
    """The vectors of the tokens and of the whole text, in every layer."""

    KIND = "encoder"
    input_names = INPUT_NAMES
    outputs_of_ids = outputs_of_strings = (
        *("pooled_output", "default", "sequence_output", "encoder_outputs"),
        features.INPUT_MASK,
    )

    def load(self, model_dir, dtype=None):
        with reader.open_checkpoint(model_dir) as checkpoint:
            found = checkpoint.found_parts
        if parts.POOLER not in found:
            raise ValueError(
                f"{model_dir}: must have a pooler, which an encoder's "
                f"`pooled_output` comes from. Its parts: {', '.join(found)}."
            )
        model_class = (
            BertPretrainer if parts.MASKED_LM in found else BertEncoder
        )
        return checkpoints.load(model_dir, model_class, dtype=dtype)

    def make_module(self, source, vocab_path, takes_text):
        if source.is_frozen:
            raise ValueError(
                "`is_frozen` must be False with the kind encoder, whose API "
                "has it trained. Received: is_frozen=True."
            )
        return HubEncoder(
            source.model,
            source.preprocessor,
            vocab_path,
            takes_text=takes_text,
            max_text_bytes=self.max_text_bytes,
        )

    def make_signatures(self, module, source):
        return signatures.encoder_signatures(module, source.text_features)

    def trained_answers(self, source, inputs, texts):
        encoder = getattr(source.model, "encoder", source.model)
        answers = _with_default(encoder(inputs))
        answers["encoder_outputs"] = tf.stack(
            answers["encoder_outputs"], axis=1
        )
        answers[features.INPUT_MASK] = inputs[features.INPUT_MASK]
        return {name: value.numpy() for name, value in answers.items()}


class HubEncoder(ServingModule):
    """An encoder that answers as those of the Hub do.

    `__call__` takes `input_word_ids`, `input_mask` and `input_type_ids`,
    int32 `[B, L]`, and returns `pooled_output`, `default` (the same),
    `sequence_output` and the list `encoder_outputs`. `mlm`, there where the
    checkpoint has a masked-LM head, takes also `masked_lm_positions` int32
    `[B, P]` and returns also `mlm_logits` `[B, P, vocab_size]`.

    Args:
        model: A `BertEncoder` or a `BertPretrainer`.
        preprocessor, vocab_path, takes_text, max_text_bytes: As of
            `ServingModule`.
    """

    def __init__(
        self,
        model,
        preprocessor,
        vocab_path,
        *,
        max_text_bytes,
        takes_text=True,
    ):
        pretrainer = model if hasattr(model, "masked_lm_head") else None
        encoder = pretrainer.encoder if pretrainer else model
        super().__init__(
            encoder,
            preprocessor,
            vocab_path,
            takes_text=takes_text,
            input_names=INPUT_NAMES,
            max_text_bytes=max_text_bytes,
        )
        self._call_model = lambda inputs, training: _with_default(
            encoder(inputs, training=training)
        )
        if pretrainer:
            self.mlm = _MaskedLM(pretrainer, self)

    def trace(self):
        super().trace()
        if hasattr(self, "mlm"):
            self.mlm.trace()


class _MaskedLM(tf.__internal__.tracking.AutoTrackable):
    """The encoder together with the masked-LM head, called as one."""

    def __init__(self, pretrainer, module):
        super().__init__()
        # The next-sentence head is not called: it stays outside.
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
        self._ids_spec = module.ids_spec

        def call_model(inputs, training):
            positions = inputs[features.MASKED_LM_POSITIONS]
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

    def trace(self):
        positions = tf.TensorSpec(
            [None, None], tf.int32, name=features.MASKED_LM_POSITIONS
        )
        spec = self._ids_spec() | {features.MASKED_LM_POSITIONS: positions}
        for training in (False, True):
            self.__call__.get_concrete_function(spec, training=training)

    @tf.function(autograph=False)
    def __call__(self, inputs, training=False):
        return self._call_model(inputs, training)


def _with_default(outputs):
    # Clients get float32 in every precision.
    outputs = tf.nest.map_structure(
        lambda value: tf.cast(value, tf.float32), outputs
    )
    return outputs | {"default": outputs["pooled_output"]}
