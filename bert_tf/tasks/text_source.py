"""Batches of a task's texts: raw strings, made to model inputs in tf.data."""

import abc
import dataclasses
import functools

import tensorflow as tf

from bert_tf import features
from bert_tf.input import array_source
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor


@dataclasses.dataclass(frozen=True, kw_only=True)
class StringSource(abc.ABC):
    """Examples of strings, as `input.batch_source` describes a source.

    Batches run on from one epoch into the next, as in google-research/bert:
    all are full. The order of training is a function of (seed, epoch).

    Args:
        examples: Has a length, and `labels`, an array or None.
        preprocessor: The `Preprocessor`.
        seed: Of the order of the training examples.
        is_trimmed: Whether L is the length of the batch's longest text. If
            not, it is the preprocessor's, as TPUs need it. Without dropout
            both give the same steps.
        window_batches: 0, or sort so many batches by length; see
            `array_source.ArraySource`.
    """

    examples: object
    preprocessor: Preprocessor
    seed: int = 12345
    is_trimmed: bool = False
    window_batches: int = 0

    @abc.abstractmethod
    def strings(self):
        """Returns the texts of all examples: {name: string [N, ...]}."""

    @abc.abstractmethod
    def preprocess(self, strings):
        """Returns the model inputs of a batch: {name: int32 [B, ..., L]}.

        Args:
            strings: A batch of what `strings` returned, in tensors.
        """

    @property
    def num_examples(self):
        return len(self.examples)

    def training_batches(self, batch_size, start_example=0, context=None):
        """Returns a `tf.data.Dataset` without end: {name: [B, ...]}.

        Args:
            batch_size: Examples a step, over all replicas.
            start_example: The number of the first one, counted over all
                epochs from 0.
            context: The host's `tf.distribute.InputContext`.
        """
        return self._map(
            self._rows(self._lengths).training_batches(
                batch_size, start_example, context
            )
        )

    def evaluation_batches(self, batch_size, context=None):
        """Returns a `tf.data.Dataset` of every example once, in order.

        The last batch is filled up with empty texts, whose `example_weights`
        are 0.

        Args:
            batch_size: Examples a step, over all replicas.
            context: The host's `tf.distribute.InputContext`.
        """
        return self._map(self._rows().evaluation_batches(batch_size, context))

    @functools.cached_property
    def _lengths(self):
        if not self.window_batches:
            return None
        # The longest of an example's sequences, where it has several.
        lengths = array_source.example_lengths(self)
        return lengths.reshape(self.num_examples, -1).max(axis=1)

    def _rows(self, lengths=None):
        arrays = {
            name: tf.constant(texts) for name, texts in self.strings().items()
        }
        if self.examples.labels is not None:
            arrays[features.LABELS] = tf.constant(self.examples.labels)
        return array_source.ArraySource(
            arrays=arrays,
            seed=self.seed,
            lengths=lengths,
            window_batches=self.window_batches,
        )

    def _map(self, batches):
        names = tuple(self.strings())

        @tf.autograph.experimental.do_not_convert
        def preprocess(batch):
            strings = {name: batch.pop(name) for name in names}
            return self.preprocess(strings) | batch

        return batches.map(
            preprocess, num_parallel_calls=tf.data.AUTOTUNE
        ).prefetch(tf.data.AUTOTUNE)


class TextSource(StringSource):
    """Single texts or pairs: `tsv.Examples`.

    The batches are dictionaries of the model inputs, int32 `[B, L]`, and
    `labels`, int32 or float32 `[B]`, if the examples have any.
    """

    def strings(self):
        return {
            f"text_{index}": texts
            for index, texts in enumerate(self.examples.texts)
        }

    def preprocess(self, strings):
        texts = tuple(strings.values())
        inputs = self.preprocessor(texts[0] if len(texts) == 1 else texts)
        return packing.trim_padding(inputs) if self.is_trimmed else inputs
