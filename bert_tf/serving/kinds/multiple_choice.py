"""Multiple choice as it is served: which of the choices fits a context."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.serving.kinds import dev_set
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import are_as_good
from bert_tf.serving.kinds.texts import Row
from bert_tf.tasks import metrics
from bert_tf.tasks.multiple_choice import files as multiple_choice_files
from bert_tf.text import packing
from bert_tf.text.preprocessor import encode_choices

CONTEXT = "context"
CHOICES = "choices"


class MultipleChoice(Servable):
    """The number of the likeliest choice of a `MultipleChoiceTask`.

    The strings are `context` `[B]` and `choices` `[B, C]`; ids are
    `[B, C, L]`. In Examples, the ids of the choices are padded to one length
    and stand one after the other.
    """

    outputs_of_strings = outputs_of_ids = (
        Output(
            name="choice",
            dtype="int32",
            axes="",
            meaning="the number of the likeliest choice",
            heading="choice",
        ),
        Output(
            name="probabilities",
            dtype="float32",
            axes="choices",
            meaning="the probability of each choice",
        ),
    )
    MODEL = BertMultipleChoice

    @classmethod
    def text_features_of(cls, task: Any) -> tuple[str, ...] | None:
        return (CONTEXT, *[CHOICES] * task.num_choices)

    @property
    def num_choices(self) -> int | None:
        return self.task.num_choices

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return self.task.decode_tensors(outputs)

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        inputs = encode_choices(
            lambda pairs: packing.trim_padding(encode(pairs)),
            texts[CONTEXT],
            texts[CHOICES],
        )
        return self.answer_ids(inputs, model)

    def encode(self, texts: Sequence[Row]) -> dict[str, tf.Tensor]:
        contexts, *choices = self.columns(texts)
        return self.preprocessor.encode_choices(
            contexts, tf.stack(choices, axis=1)
        )

    def read_texts(self, path: files.AnyPath) -> list[Row]:
        if not multiple_choice_files.is_file_of_choices(path):
            return super().read_texts(path)
        examples = multiple_choice_files.read_choices(
            str(path), has_labels=False, num_choices=self.num_choices
        )
        return [
            tuple(text.encode() for text in (context, *choices))
            for context, choices in zip(examples.contexts, examples.choices)
        ]

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        if not multiple_choice_files.is_file_of_choices(path):
            return None
        if not multiple_choice_files.has_named_labels(path):
            dev_set.check_no_column(label_column)
        labels = multiple_choice_files.read_choices(
            str(path),
            num_choices=self.num_choices,
            label_column=label_column or "label",
        ).labels
        assert labels is not None
        return DevSet(
            metric="accuracy",
            num_texts=len(labels),
            outputs=("choice",),
            score=lambda answers: metrics.accuracy(answers["choice"], labels),
        )

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        choice = answers.get("choice")
        if choice is None or choice.shape != trained["choice"].shape:
            return trained
        is_as_good = are_as_good(choice, trained["probabilities"], tolerance)
        return trained | {
            "choice": np.where(is_as_good, choice, trained["choice"])
        }

    def hard_texts(self) -> list[Row]:
        # Each hard string is the context once, and each of the choices once.
        hard = texts_lib.HARD_STRINGS
        return [
            tuple(
                hard[(row + column) % len(hard)]
                for column in range(len(self.text_features))
            )
            for row in range(len(hard))
        ]
