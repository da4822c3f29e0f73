"""What every kind of export says of itself.

A class for each kind stands in a module beside this one (`classification`,
`hub`, ...); `source` chooses one for a model folder. The exporter, the
warm-up and the check know no more of a kind than is here.
"""

import abc

import numpy as np
import tensorflow as tf

from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds import texts as texts_lib


class Servable(abc.ABC):
    """One kind of answers to texts.

    Attributes:
        KIND: Its name in the settings of an export.
        text_features: Names of the strings that it is given; None where the
            exporter's user names them.
        input_names: What the model inputs are called outside, {name in
            `features.MODEL_INPUTS`: other name}; {} where they keep theirs.
        SETTINGS: Names of the arguments that an exporter's user can give,
            which are attributes too.
        BOUNDS: Names of the bounds of a request, which are attributes too. An
            exporter's user can set them; what is beyond is cut.
        BOUNDS_OF_IDS: Those of them that bound a request of ids too.
        max_text_bytes: How many bytes of a text are read.
        MODULE: The class of the root object of the SavedModel.
        outputs_of_ids: Names of what is answered to ids.
        outputs_of_strings: Names of what is answered to strings.
        SCORES_OF_CHOICES: Of the outputs the numbers that belong to the
            strings and integers beside them: where another is chosen they
            are another's.
    """

    KIND = None
    MODULE = ServingModule
    SETTINGS = ()
    BOUNDS = ("max_text_bytes",)
    BOUNDS_OF_IDS = ()
    max_text_bytes = 2**20
    text_features = None
    input_names = {}
    outputs_of_ids = ()
    outputs_of_strings = ()
    SCORES_OF_CHOICES = ()

    @property
    def settings(self):
        """The arguments that it was made with, for JSON."""
        return {name: getattr(self, name) for name in self.SETTINGS}

    @property
    def bounds(self):
        """The bounds of a request, for JSON."""
        return {name: getattr(self, name) for name in self.BOUNDS}

    def set_bounds(self, bounds):
        """Sets bounds of a request: {name in `BOUNDS`: integer}.

        Raises:
            ValueError: If the kind does not have one of them, or its value.
        """
        for name, value in bounds.items():
            if name not in self.BOUNDS:
                raise ValueError(
                    f"`{name}` must not be given with the kind {self.KIND}, "
                    f"which has {', '.join(self.BOUNDS)}. "
                    f"Received: {name}={value!r}."
                )
            # Places in a text are int32.
            if type(value) is not int or not 0 < value < 2**31 - 1:
                raise ValueError(
                    f"`{name}` must be a positive integer less than 2^31 - 1. "
                    f"Received: {name}={value!r}."
                )
            setattr(self, name, value)

    def check_text_features(self, text_features):
        """Raises `ValueError` unless the texts may be these, one or two."""
        del text_features  # Most take any.

    @abc.abstractmethod
    def load(self, model_dir, dtype=None):
        """Returns the Keras model of a model folder.

        Args:
            model_dir: The folder.
            dtype: The Keras dtype policy, or its name.

        Raises:
            ValueError: If it cannot be loaded, or is no model for this.
        """

    def make_module(self, source, vocab_path, takes_text):
        """Returns the `ServingModule`, or what is saved in its stead.

        Args:
            source: The `Source`.
            vocab_path: The vocabulary, a local file.
            takes_text: Whether strings go in, or ids only.
        """
        return self.MODULE(
            source.model,
            source.preprocessor,
            vocab_path,
            takes_text=takes_text,
            is_frozen=source.is_frozen,
            max_text_bytes=self.max_text_bytes,
        )

    @abc.abstractmethod
    def make_signatures(self, module, source):
        """Returns {name: ConcreteFunction} of what `make_module` returned."""

    def outputs(self, has_text):
        """Returns what an export must have: {signature: names of outputs}.

        Args:
            has_text: Whether it takes strings, or ids only.
        """
        if not has_text:
            return {
                signatures.DEFAULT: self.outputs_of_ids,
                signatures.EXAMPLES: self.outputs_of_ids,
            }
        return {
            signatures.IDS: self.outputs_of_ids,
            signatures.IDS_EXAMPLES: self.outputs_of_ids,
            signatures.DEFAULT: self.outputs_of_strings,
            signatures.EXAMPLES: self.outputs_of_strings,
        }

    @abc.abstractmethod
    def trained_answers(self, source, inputs, texts):
        """Returns what the signatures must answer, by the name of the output.

        Args:
            source: The `Source`.
            inputs: What `encode` returned.
            texts: Rows of one or two strings, bytes.

        Returns:
            {name: array}, of all outputs that any signature has.
        """

    def read_texts(self, path):
        """Returns the texts of a file of the task's, None if it has no form.

        Args:
            path: The file.

        Returns:
            Rows of strings, bytes.

        Raises:
            ValueError: If the file is not of the task's form.
        """
        del path  # Most kinds have no files of their own.

    def settle_ties(self, source, texts, trained, answers, tolerance):
        """Returns trained answers that choose as `answers` do between equals.

        Args:
            source, texts: As of `trained_answers`.
            trained: What `trained_answers` returned.
            answers: What a signature answered, {name: array}.
            tolerance: The largest difference between equals.
        """
        return trained

    def encode(self, preprocessor, texts):
        """Returns the model inputs: {name: int32 tensor [B, L]}.

        Args:
            preprocessor: The trained model's.
            texts: Rows of one or two strings, bytes.
        """
        columns = self.columns(texts)
        return preprocessor(columns[0] if len(columns) == 1 else columns)

    def columns(self, texts):
        """Returns what is read of rows of strings: a string `[B]` each."""
        return [
            inputs_lib.cut_texts(tf.constant(column), self.max_text_bytes)[0]
            for column in zip(*texts)
        ]

    def hard_texts(self, num_strings):
        """Returns rows of strings that would show a difference."""
        return texts_lib.hard_texts(num_strings)


def are_as_good(chosen, scores, tolerance):
    """Returns whether what rows chose has their best score: bool `[B]`.

    Args:
        chosen: int `[B]`; what is out of range is not as good.
        scores: `[B, C]`.
        tolerance: As of `Servable.settle_ties`.
    """
    num_choices = scores.shape[1]
    rows = np.arange(len(chosen))
    found = scores[rows, np.clip(chosen, 0, num_choices - 1)]
    is_choice = (chosen >= 0) & (chosen < num_choices)
    return is_choice & (scores.max(axis=1) - found <= tolerance)
