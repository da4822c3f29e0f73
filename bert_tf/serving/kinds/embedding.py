"""Embeddings as they are served: one vector per text."""

import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving.kinds.hub import INPUT_NAMES
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.kinds.output import COUNTED
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_vector
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import LAST_FOUR
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.features import sentences
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.tasks.features.options import CONCATENATE
from bert_tf.tasks.features.options import MEAN

OUTPUT = "embeddings"
_LAST_FOUR = (-1, -2, -3, -4)


class Embedding(Servable):
    """A vector for a text, or for a pair.

    Its options are

        pooling    "cls": the last layer's vector of [CLS]. "mean": the mean of
                   the last layer's vectors of all tokens, [CLS] and [SEP]
                   among them. "max": the maximum of these vectors in each
                   dimension. "last_four": the means of each of the last four
                   layers, joined to one vector, the last layer first.
        normalize  whether the vector is divided by its length.
        prompt     a string put before every text, or before the first of a
                   pair; `prompt_name` chooses one of the folder's.
        count_tokens
                   whether to answer `num_tokens` and `is_cut` too.

    A folder of sentence-transformers may set their defaults and the longest
    sequence. Its layers between the pooling and the normalisation are applied,
    and the vector is cut to the dimensions that it keeps. Requests of ids must
    include the prompt.

    Attributes:
        num_left_out: How many of a sequence's first tokens are not pooled.
    """

    KIND = "embedding"
    outputs_of_ids = (
        Output(
            name=OUTPUT,
            dtype="float32",
            axes="size",
            meaning="the vector of the text",
            heading=OUTPUT,
            show=lambda answers: show_vector(answers[OUTPUT]),
        ),
    )
    outputs_of_strings = (*outputs_of_ids, *COUNTED)
    MODEL = BertEncoder
    DEFAULTS = Servable.DEFAULTS | {
        "pooling": MEAN,
        "normalize": False,
        "prompt_name": None,
        "prompt": "",
        COUNT_TOKENS: False,
    }
    # The Hub's names, so that its preprocessor can feed the model.
    input_names = INPUT_NAMES

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        self.num_left_out = 0
        number = sentences.num_prompt_tokens(
            self.options.prompt, self.preprocessor
        )
        vectors = self.source.vectors
        if vectors and not vectors.include_prompt:
            self.num_left_out = number

    @classmethod
    def read_vectors(cls, model_dir: files.AnyPath) -> SentenceVectors | None:
        return sentence_folder.read(model_dir)

    @classmethod
    def resolve(
        cls,
        options: ExportOptions,
        task: Any,
        vectors: SentenceVectors | None = None,
    ) -> ExportOptions:
        name = options.prompt_name
        if name is not None and options.prompt is not None:
            raise ValueError(
                "--prompt must not be given with --prompt_name. "
                f"Received: --prompt={options.prompt}, --prompt_name={name}."
            )
        if name is not None and vectors is None:
            raise ValueError(
                "--prompt_name must be given with a folder that has prompts, "
                f"and a {sentence_files.MODULES_FILE}. "
                f"Received: --prompt_name={name}."
            )
        if vectors is not None:
            options = _with_defaults_of(vectors, options)
        options = dataclasses.replace(options, prompt_name=None)
        return super().resolve(options, task)

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        model = super().load(checkpoint, task, options)
        num_layers = model.config.num_hidden_layers
        if options.pooling == LAST_FOUR and num_layers < len(_LAST_FOUR):
            raise ValueError(
                f"--pooling must not be {LAST_FOUR} with fewer than "
                f"{len(_LAST_FOUR)} layers. "
                f"Received: a model of {num_layers} layers."
            )
        return model

    @property
    def trained_parts(self) -> tuple[Any, ...]:
        # The pooler is not used.
        return (self.model.embeddings, *self.model.blocks)

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks whose vectors are pooled, one after the other."""
        return _LAST_FOUR if self.options.pooling == LAST_FOUR else (-1,)

    @property
    def row_shape(self) -> list[int] | None:
        hidden_size = self.model.config.hidden_size
        if len(self.layers) > 1:
            return [hidden_size * len(self.layers)]
        return [self.made_vectors.size(hidden_size)]

    @property
    def made_vectors(self) -> SentenceVectors:
        """How the vectors of one layer become the vector of a text."""
        pooling = self.options.pooling
        stored = self.source.vectors
        return SentenceVectors(
            pooling=MEAN if pooling == LAST_FOUR else pooling,
            is_normalized=self.options.normalize,
            dense=stored.dense if stored else (),
            truncate_dim=stored.truncate_dim if stored else None,
        )

    def complete(self, texts: Any) -> Any:
        prompt = self.options.prompt
        if not prompt:
            return texts
        first, *others = texts if isinstance(texts, list) else [texts]
        first = tf.strings.join([prompt, first])
        return [first, *others] if others else first

    def call_model(
        self,
        inputs: dict[str, tf.Tensor],
        training: bool,
        encoder: Callable[..., Any] | None = None,
    ) -> Any:
        outputs = (encoder or self.model)(inputs, training=training)
        mask, layers = inputs[features.INPUT_MASK], outputs["encoder_outputs"]
        if self.num_left_out:
            # Cut the prompt off, so that the first token is the one after it.
            # One position stays, as an empty batch may have no more.
            first = tf.minimum(self.num_left_out, tf.shape(mask)[1] - 1)
            mask, layers = mask[:, first:], [each[:, first:] for each in layers]
        if self.options.pooling == LAST_FOUR:
            extraction = Extraction(
                layers=_LAST_FOUR,
                combine=CONCATENATE,
                pooling=MEAN,
                normalize=self.options.normalize,
            )
            return extraction(layers, mask)
        return sentences.make_vectors(layers, mask, self.made_vectors)

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {OUTPUT: outputs}

    def read_outputs(
        self,
        found: dict[str, np.ndarray],
        rows: Sequence[Any],
        top_k: int | None,
    ) -> list[Any]:
        return [*found[OUTPUT]]


def _with_defaults_of(vectors, options):
    """Returns the options with the defaults of a model folder's files."""
    name, prompt = options.prompt_name, options.prompt
    if prompt is None:
        prompt = vectors.prompt(name)
        own = [each for each, text in vectors.prompts.items() if text]
        if own and not prompt and name is None:
            logging.warning(
                "No prompt is put before the texts: the folder has %s, but no "
                "default. Choose one with --prompt_name, or give --prompt= for "
                "none.",
                ", ".join(own),
            )
    vectors.check_normalized(options.normalize)
    pooling = options.pooling or vectors.pooling
    if vectors.dense and pooling != vectors.pooling:
        raise ValueError(
            f"--pooling must be {vectors.pooling}, which the folder's Dense "
            f"layers were trained for. Received: --pooling={pooling}."
        )
    is_normalized = options.normalize
    if is_normalized is None:
        is_normalized = vectors.is_normalized
    return dataclasses.replace(
        options,
        pooling=pooling,
        normalize=is_normalized,
        prompt=prompt,
        max_seq_length=options.max_seq_length or vectors.max_seq_length,
    )
