"""Embeddings as they are served: one vector a text."""

import dataclasses
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving.kinds.hub import INPUT_NAMES
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.kinds.output import COUNTED
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_vector
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import EMBEDDINGS
from bert_tf.serving.options import LAST_FOUR
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.tasks.features.options import CLS
from bert_tf.tasks.features.options import CONCATENATE
from bert_tf.tasks.features.options import MAX
from bert_tf.tasks.features.options import MEAN

OUTPUT = "embeddings"
# What the layers and the tokens are put together to: [layers, pooling].
_EXTRACTIONS = {
    CLS: ((-1,), CLS),
    MEAN: ((-1,), MEAN),
    MAX: ((-1,), MAX),
    LAST_FOUR: ((-1, -2, -3, -4), MEAN),
}


def _extraction_of(options):
    layers, pooling = _EXTRACTIONS[options.settings["embedding"]]
    return Extraction(
        layers=layers,
        combine=CONCATENATE,
        pooling=pooling,
        is_normalized=options.settings["normalize"],
    )


class Embedding(Servable):
    """A vector for a text, or for a pair.

    Its settings are

        embedding  "cls": the last layer's vector of [CLS]. "mean": the mean of
                   the last layer's vectors of all tokens, [CLS] and [SEP]
                   among them. "max": the largest of each of their numbers.
                   "last_four": the same of the last four layers,
                   one after the other in one vector, the last one first.
        normalize  whether the vector is divided by its length.
        count_tokens
                   whether `num_tokens` and `is_cut` are answered too.

    Where a folder of sentence-transformers tells them, and the longest
    sequence, those are the defaults.
    """

    KIND = "embedding"
    outputs_of_ids = (
        Output(
            *(OUTPUT, "float32", "size", "the vector of the text"),
            heading=OUTPUT,
            show=lambda answers: show_vector(answers[OUTPUT]),
        ),
    )
    outputs_of_strings = (*outputs_of_ids, *COUNTED)
    MODEL = BertEncoder
    SETTINGS = {"embedding": MEAN, "normalize": False, COUNT_TOKENS: False}
    # The Hub's, so that its preprocessor may stand before.
    input_names = INPUT_NAMES

    @classmethod
    def with_folder(
        cls, options: ExportOptions, model_dir: files.AnyPath
    ) -> ExportOptions:
        told = sentence_folder.read(model_dir)
        if told is None:
            return options
        return dataclasses.replace(
            options,
            settings={
                "embedding": told.pooling,
                "normalize": told.is_normalized,
                **options.settings,
            },
            max_seq_length=options.max_seq_length or told.max_seq_length,
        )

    @classmethod
    def resolve(cls, options: ExportOptions, task: Any) -> ExportOptions:
        options = super().resolve(options, task)
        embedding = options.settings["embedding"]
        if embedding not in EMBEDDINGS:
            raise ValueError(
                f"`embedding` must be one of {', '.join(EMBEDDINGS)}. "
                f"Received: embedding={embedding!r}."
            )
        return options

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        model = super().load(checkpoint, task, options)
        extraction = _extraction_of(options)
        extraction.check_layers(model.config.num_hidden_layers)
        return model

    @property
    def trained_parts(self) -> tuple[Any, ...]:
        # The pooler has no part in it.
        return (self.model.embeddings, *self.model.blocks)

    @property
    def extraction(self) -> Extraction:
        """What is made of the encoder's layers."""
        return _extraction_of(self.options)

    @property
    def row_shape(self) -> list[int] | None:
        layers = self.extraction.layers
        return [self.model.config.hidden_size * len(layers)]

    def call_model(self, inputs: dict[str, tf.Tensor], training: bool) -> Any:
        outputs = self.model(inputs, training=training)
        return self.extraction(
            outputs["encoder_outputs"], inputs[features.INPUT_MASK]
        )

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {OUTPUT: outputs}
