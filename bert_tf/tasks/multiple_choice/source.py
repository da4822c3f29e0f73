"""Batches of contexts with choices: strings, turned into model inputs.

Letters: B examples, C choices, L sequence length.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_tf.features import Batch
from bert_tf.tasks.multiple_choice.files import ChoiceExamples
from bert_tf.tasks.source import Source
from bert_tf.tasks.text_source import labels_of
from bert_tf.text.preprocessor import Preprocessor


def make_inputs(
    preprocessor: Callable[[Any], dict[str, tf.Tensor]],
    contexts: tf.Tensor,
    choices: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Returns the model inputs of contexts with choices, int32 `[B, C, L]`.

    Each choice is packed with the context as a pair. If the pair is too long,
    the longer of the two is cut at its end.

    Args:
        preprocessor: A `Preprocessor`, or a callable like one.
        contexts: string `[B]`.
        choices: string `[B, C]`.
    """
    num_choices = tf.shape(choices)[1]
    contexts = tf.tile(contexts[:, tf.newaxis], [1, num_choices])
    inputs = preprocessor(
        [tf.reshape(contexts, [-1]), tf.reshape(choices, [-1])]
    )
    return {
        name: tf.reshape(values, [-1, num_choices, tf.shape(values)[1]])
        for name, values in inputs.items()
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowSource(Source):
    """Rows of one string and several others, each packed with it as a pair.

    `arrays` has `contexts`, N strings, and `choices`, N rows of C strings. The
    batches are dictionaries of the model inputs, int32 `[B, C, L]`, and of the
    other values in `arrays`.

    Args:
        preprocessor: The `Preprocessor`.
    """

    num_texts = 2

    preprocessor: Preprocessor

    def input_maker(self) -> Callable[[Batch], Batch]:
        def preprocessor(texts):
            return self._trim(self.preprocessor(texts))

        def make(batch):
            choices = batch.pop("choices")
            inputs = make_inputs(preprocessor, batch.pop("contexts"), choices)
            length = (
                None if self.is_trimmed else self.preprocessor.max_seq_length
            )
            for value in inputs.values():
                value.set_shape([*choices.shape, length])
            return inputs | batch

        return make


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceSource(RowSource):
    """Contexts with choices.

    The batches are dictionaries of the model inputs, int32 `[B, C, L]`, and
    `labels` int32 `[B]`, if the examples have any.
    """

    examples: ChoiceExamples

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        return {
            "contexts": self.examples.contexts,
            "choices": self.examples.choices,
        } | labels_of(self.examples)
