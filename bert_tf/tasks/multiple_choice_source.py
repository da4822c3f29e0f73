"""Batches of contexts with choices: raw strings, made to inputs in tf.data.

Letters: B examples, C choices, L sequence length.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.tasks.multiple_choice_files import ChoiceExamples
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.training import input_pipeline

_CONTEXTS = "contexts"
_CHOICES = "choices"


def make_inputs(preprocessor, contexts, choices):
    """Returns the model inputs of contexts with choices, int32 `[B, C, L]`.

    Each choice is packed with the context as a pair: what does not fit is cut
    from the end of the longer of the two.

    Args:
        preprocessor: A `Preprocessor`, or what is called like one.
        contexts: string `[B]`.
        choices: string `[B, C]`.
    """
    num_choices = tf.shape(choices)[1]
    contexts = tf.tile(contexts[:, tf.newaxis], [1, num_choices])
    inputs = preprocessor(
        [tf.reshape(contexts, [-1]), tf.reshape(choices, [-1])]
    )
    return by_example(inputs, num_choices)


def by_example(inputs, num_choices):
    """Returns inputs `[B * C, L]` as `[B, C, L]`."""
    return {
        name: tf.reshape(values, [-1, num_choices, tf.shape(values)[1]])
        for name, values in inputs.items()
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceSource:
    """Examples as `training.input_pipeline` describes a source.

    The batches are dictionaries of the model inputs, int32 `[B, C, L]`, and
    `labels` int32 `[B]`, if the examples have any. The order of training is a
    function of (seed, epoch).

    Args:
        examples: The `ChoiceExamples`.
        preprocessor: The `Preprocessor`.
        seed: Of the order of the training examples.
        is_trimmed: Whether L is the length of the batch's longest sequence.
            If not, it is the preprocessor's, as TPUs need it.
        window_batches: 0, or sort so many batches by length; see
            `input_pipeline.ArraySource`.
    """

    examples: ChoiceExamples
    preprocessor: Preprocessor
    seed: int = 12345
    is_trimmed: bool = False
    window_batches: int = 0

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
        return self._preprocess(
            self._rows(self._lengths).training_batches(
                batch_size, start_example, context
            )
        )

    def evaluation_batches(self, batch_size, max_batches=None, context=None):
        """Returns a `tf.data.Dataset` of every example once, in order.

        The last batch is filled up with empty texts, whose `example_weights`
        are 0.

        Args:
            batch_size: Examples a step, over all replicas.
            max_batches: If given, stop after so many.
            context: The host's `tf.distribute.InputContext`.
        """
        return self._preprocess(
            self._rows().evaluation_batches(batch_size, max_batches, context)
        )

    @functools.cached_property
    def _lengths(self):
        if not self.window_batches:
            return None
        return np.max(input_pipeline.example_lengths(self), axis=-1)

    def _rows(self, lengths=None):
        arrays = {
            _CONTEXTS: tf.constant(self.examples.contexts),
            _CHOICES: tf.constant(self.examples.choices),
        }
        if self.examples.labels is not None:
            arrays[features.LABELS] = tf.constant(self.examples.labels)
        return input_pipeline.ArraySource(
            arrays=arrays,
            seed=self.seed,
            lengths=lengths,
            window_batches=self.window_batches,
        )

    def _preprocess(self, batches):
        def preprocessor(texts):
            inputs = self.preprocessor(texts)
            return packing.trim_padding(inputs) if self.is_trimmed else inputs

        def preprocess(batch):
            choices = batch.pop(_CHOICES)
            inputs = make_inputs(preprocessor, batch.pop(_CONTEXTS), choices)
            length = (
                None if self.is_trimmed else self.preprocessor.max_seq_length
            )
            for value in inputs.values():
                value.set_shape([*choices.shape, length])
            return inputs | batch

        return batches.map(
            preprocess, num_parallel_calls=tf.data.AUTOTUNE
        ).prefetch(tf.data.AUTOTUNE)
