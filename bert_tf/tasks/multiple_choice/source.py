"""Batches of contexts with choices: raw strings, made to inputs in tf.data.

Letters: B examples, C choices, L sequence length.
"""

import tensorflow as tf

from bert_tf.tasks.text_source import StringSource
from bert_tf.text import packing

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


class ChoiceSource(StringSource):
    """Contexts with choices: `ChoiceExamples`.

    The batches are dictionaries of the model inputs, int32 `[B, C, L]`, and
    `labels` int32 `[B]`, if the examples have any.
    """

    def strings(self):
        return {
            _CONTEXTS: self.examples.contexts,
            _CHOICES: self.examples.choices,
        }

    def preprocess(self, strings):
        def preprocessor(texts):
            inputs = self.preprocessor(texts)
            return packing.trim_padding(inputs) if self.is_trimmed else inputs

        choices = strings[_CHOICES]
        inputs = make_inputs(preprocessor, strings[_CONTEXTS], choices)
        length = None if self.is_trimmed else self.preprocessor.max_seq_length
        for value in inputs.values():
            value.set_shape([*choices.shape, length])
        return inputs
