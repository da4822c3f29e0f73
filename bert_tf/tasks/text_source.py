"""Batches of single texts or pairs: strings, turned into model inputs."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.tasks.source import Source
from bert_tf.tasks.tsv import Examples
from bert_tf.text.preprocessor import Preprocessor


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSource(Source):
    """Single texts or pairs.

    The batches are dictionaries of the model inputs, int32 `[B, L]`, and
    `labels`, int32 or float32 `[B]`, if the examples have any.

    Args:
        preprocessor: The `Preprocessor`.
    """

    examples: Examples
    preprocessor: Preprocessor

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        return {
            f"text_{index}": texts
            for index, texts in enumerate(self.examples.texts)
        } | labels_of(self.examples)

    @property
    def num_texts(self) -> int:
        return len(self.examples.texts)

    def input_maker(self) -> Callable[[Batch], Batch]:
        def make(batch):
            texts = [
                batch.pop(f"text_{index}") for index in range(self.num_texts)
            ]
            return self._trim(self.preprocessor(texts)) | batch

        return make


def labels_of(examples: Any) -> dict[str, np.ndarray]:
    """Returns the examples' labels, if any, as an array of a source."""
    if examples.labels is None:
        return {}
    return {features.LABELS: examples.labels}
