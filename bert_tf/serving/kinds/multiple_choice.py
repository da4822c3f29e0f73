"""Multiple choice as it is served: which of its choices a context has."""

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.serving.graph import signatures
from bert_tf.serving.graph.module import ServingModule
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import are_as_good
from bert_tf.tasks.multiple_choice import files as multiple_choice_files
from bert_tf.tasks.multiple_choice import source as multiple_choice_source
from bert_tf.text import packing

CONTEXT = "context"
CHOICES = "choices"


class MultipleChoiceModule(ServingModule):
    """A `BertMultipleChoice`; called with ids `[B, C, L]`."""

    def ids_spec(self):
        return {
            name: tf.TensorSpec([None, None, None], tf.int32, name=name)
            for name in features.MODEL_INPUTS
        }


class MultipleChoice(Servable):
    """The number of the likeliest choice, and all probabilities.

    Strings are `context` `[B]` and `choices` `[B, C]`, ids `[B, C, L]`; the
    answers are `MultipleChoiceTask.decode`'s. In Examples the ids of the
    choices, filled up to one length, stand one after the other.

    Args:
        task: The `MultipleChoiceTask` that the model was tuned to.
    """

    KIND = "task"
    MODULE = MultipleChoiceModule
    outputs_of_ids = outputs_of_strings = ("choice", "probabilities")

    def __init__(self, task):
        self.task = task
        self.text_features = (CONTEXT, *[CHOICES] * task.num_choices)

    def load(self, model_dir, dtype=None):
        return checkpoints.load(model_dir, BertMultipleChoice, dtype=dtype)

    def make_signatures(self, module, source):
        def answer(inputs):
            return self.task.decode(module(inputs, training=False))

        of_ids = signatures.of_ids(module, answer, self.task.num_choices)
        if module.preprocessor is None:
            return of_ids

        def answer_texts(texts):
            inputs = multiple_choice_source.make_inputs(
                lambda pairs: packing.trim_padding(module.preprocessor(pairs)),
                texts[CONTEXT],
                texts[CHOICES],
            )
            return answer(module.from_model_inputs(inputs))

        return of_ids | signatures.of_strings(answer_texts, self.text_features)

    def encode(self, preprocessor, texts):
        contexts, *choices = self.columns(texts)
        return multiple_choice_source.make_inputs(
            preprocessor, contexts, tf.stack(choices, axis=1)
        )

    def read_texts(self, path):
        if not path.lower().endswith(multiple_choice_files.SUFFIXES):
            return None
        examples = multiple_choice_files.read_choices(
            path, has_labels=False, num_choices=self.task.num_choices
        )
        return [
            tuple(text.encode() for text in (context, *choices))
            for context, choices in zip(examples.contexts, examples.choices)
        ]

    def trained_answers(self, source, inputs, texts):
        answers = self.task.decode(source.model(inputs))
        return {name: value.numpy() for name, value in answers.items()}

    def settle_ties(self, source, texts, trained, answers, tolerance):
        choice = answers.get("choice")
        if choice is None or choice.shape != trained["choice"].shape:
            return trained
        is_as_good = are_as_good(choice, trained["probabilities"], tolerance)
        return trained | {
            "choice": np.where(is_as_good, choice, trained["choice"])
        }

    def hard_texts(self, num_strings):
        # Each hard string as context and, one further on, as every choice.
        hard = [text for (text,) in texts_lib.hard_texts(1)]
        return [
            tuple(
                hard[(row + column) % len(hard)]
                for column in range(num_strings)
            )
            for row in range(len(hard))
        ]
