"""Embeddings as they are served: one vector per text."""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving import options as options_lib
from bert_tf.serving.kinds.hub import INPUT_NAMES
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.kinds.output import COUNTED
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_vector
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.options import EMBEDDINGS
from bert_tf.serving.options import LAST_FOUR
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.features import sentences
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.tasks.features.options import CONCATENATE
from bert_tf.tasks.features.options import MEAN

OUTPUT = "embeddings"
_PROMPT, _PROMPT_NAME = "prompt", "prompt_name"
_LAST_FOUR = (-1, -2, -3, -4)


class Embedding(Servable):
    """A vector for a text, or for a pair.

    Its settings are

        embedding  "cls": the last layer's vector of [CLS]. "mean": the mean of
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
        dense: The `DenseLayer`s of the folder.
        truncate_dim: How many of the vector's first numbers the folder keeps;
            None for all.
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
    SETTINGS = {
        "embedding": MEAN,
        "normalize": False,
        _PROMPT: "",
        COUNT_TOKENS: False,
    }
    # The Hub's names, so that its preprocessor can feed the model.
    input_names = INPUT_NAMES

    def __init__(self, *arguments: Any, **others: Any) -> None:
        super().__init__(*arguments, **others)
        # What `load` found in the folder.
        stored = getattr(self.model, "sentence_vectors", None)
        self.dense = stored.dense if stored else ()
        self.truncate_dim = stored.truncate_dim if stored else None
        self.num_left_out = 0
        number = sentences.num_prompt_tokens(
            self.options.settings[_PROMPT], self.preprocessor
        )
        if stored and not stored.include_prompt:
            self.num_left_out = number

    @classmethod
    def with_folder(
        cls, options: ExportOptions, model_dir: files.AnyPath
    ) -> ExportOptions:
        stored = sentence_folder.read(model_dir)
        settings = dict(options.settings)
        name = settings.pop(_PROMPT_NAME, None)
        if name is not None:
            options_lib.check_setting(_PROMPT_NAME, name, "")
        if name is not None and _PROMPT in settings:
            raise ValueError(
                f"`{_PROMPT}` must not be given with `{_PROMPT_NAME}`. "
                f"Received: {_PROMPT}={settings[_PROMPT]!r}, "
                f"{_PROMPT_NAME}={name!r}."
            )
        if stored is None:
            if name is not None:
                raise ValueError(
                    f"`{_PROMPT_NAME}` must be given with a folder that has "
                    f"prompts. Received: {_PROMPT_NAME}={name!r}, and in "
                    f"{model_dir} no {sentence_files.MODULES_FILE}."
                )
            return options
        with files.errors_named(model_dir):
            prompt = stored.prompt(name)
        stored.check_normalized(settings.get("normalize"))
        own = [each for each, text in stored.prompts.items() if text]
        if own and not prompt and name is None and _PROMPT not in settings:
            logging.warning(
                "%s: no prompt is put before the texts: the folder has %s, but "
                "no default. Choose one with --%s, or give --%s= for none.",
                model_dir,
                ", ".join(own),
                _PROMPT_NAME,
                _PROMPT,
            )
        embedding = settings.get("embedding", stored.pooling)
        if stored.dense and embedding != stored.pooling:
            raise ValueError(
                f"`embedding` must be {stored.pooling!r}, which the Dense "
                f"layers of {model_dir} were trained for. "
                f"Received: embedding={embedding!r}."
            )
        return dataclasses.replace(
            options,
            settings={
                "embedding": embedding,
                "normalize": stored.is_normalized,
                _PROMPT: prompt,
                **settings,
            },
            max_seq_length=options.max_seq_length or stored.max_seq_length,
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
        num_layers = model.config.num_hidden_layers
        embedding = options.settings["embedding"]
        if embedding == LAST_FOUR and num_layers < len(_LAST_FOUR):
            raise ValueError(
                f"`embedding` must not be {LAST_FOUR} with fewer than "
                f"{len(_LAST_FOUR)} layers, as the model has {num_layers}. "
                f"Received: embedding={embedding!r}."
            )
        model.sentence_vectors = sentence_folder.read(checkpoint.folder)
        return model

    @property
    def trained_parts(self) -> tuple[Any, ...]:
        # The pooler is not used.
        return (self.model.embeddings, *self.model.blocks)

    @property
    def layers(self) -> tuple[int, ...]:
        """The blocks whose vectors are pooled, one after the other."""
        is_last_four = self.options.settings["embedding"] == LAST_FOUR
        return _LAST_FOUR if is_last_four else (-1,)

    @property
    def pooling(self) -> str:
        """How `layers` are pooled: "cls", "mean" or "max"."""
        embedding = self.options.settings["embedding"]
        return MEAN if embedding == LAST_FOUR else embedding

    @property
    def row_shape(self) -> list[int] | None:
        hidden_size = self.model.config.hidden_size
        if len(self.layers) > 1:
            return [hidden_size * len(self.layers)]
        return [self.vectors.size(hidden_size)]

    @property
    def vectors(self) -> SentenceVectors:
        """How the vectors of one layer become the vector of a text."""
        return SentenceVectors(
            pooling=self.pooling,
            is_normalized=self.options.settings["normalize"],
            dense=self.dense,
            truncate_dim=self.truncate_dim,
        )

    def complete(self, texts: Any) -> Any:
        prompt = self.options.settings[_PROMPT]
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
        settings = self.options.settings
        if settings["embedding"] == LAST_FOUR:
            return _last_four(settings["normalize"])(layers, mask)
        return sentences.make_vectors(layers, mask, self.vectors)

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {OUTPUT: outputs}


def _last_four(normalize):
    return Extraction(
        layers=_LAST_FOUR,
        combine=CONCATENATE,
        pooling=MEAN,
        is_normalized=normalize,
    )
