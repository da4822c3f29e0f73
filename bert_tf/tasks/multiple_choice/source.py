"""Batches of contexts with choices: strings, turned into model inputs.

Letters: B examples, C choices, L sequence length.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from bert_tf.features import Batch
from bert_tf.tasks.multiple_choice.files import ChoiceExamples
from bert_tf.tasks.source import Source
from bert_tf.tasks.text_source import labels_of
from bert_tf.text.preprocessor import Preprocessor


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
        def make(batch):
            contexts, choices = batch.pop("contexts"), batch.pop("choices")
            inputs = self.preprocessor.encode_choices(contexts, choices)
            inputs = self._trim(inputs)
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
