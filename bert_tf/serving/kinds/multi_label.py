"""Multi-label classifications of one or two strings, as they are served."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.kinds import dev_set as dev_set_lib
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.kinds.output import COUNTED
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import repeat_names
from bert_tf.serving.kinds.texts import Row
from bert_tf.tasks import columns
from bert_tf.tasks.source import DEV

# The column of a table that `MultiLabelTask.read` reads.
_LABELS = "labels"


def _show_labels(answers):
    labels = sorted(
        zip(answers["probabilities"], answers["classes"], answers["is_label"]),
        reverse=True,
    )
    return ", ".join(
        f"{probability:.3f} {name.decode()}{'' if is_label else ' (no)'}"
        for probability, name, is_label in labels
    )


class MultiLabel(Servable):
    """The probability of each label of a `MultiLabelTask`."""

    outputs_of_ids = (
        Output(
            name="is_label",
            dtype="bool",
            axes="classes",
            meaning="whether the label is likelier than not",
        ),
        Output(
            name="probabilities",
            dtype="float32",
            axes="classes",
            meaning="the probability of each label",
            heading="labels",
            show=_show_labels,
        ),
        Output("classes", "string", "classes", "the names of the labels"),
    )
    outputs_of_strings = (*outputs_of_ids, *COUNTED)
    MODEL = BertClassifier
    is_ranked = True
    DEFAULTS = Servable.DEFAULTS | {COUNT_TOKENS: False}

    @classmethod
    def text_features_of(cls, task: Any) -> tuple[str, ...] | None:
        return task.text_features

    @property
    def row_shape(self) -> list[int] | None:
        return [len(self.task.labels)]

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return self.task.decode_tensors(outputs) | {
            "classes": repeat_names(self.task.labels, outputs),
        }

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        is_label = answers.get("is_label")
        if is_label is None or is_label.shape != trained["is_label"].shape:
            return trained
        is_even = np.abs(trained["probabilities"] - 0.5) <= tolerance
        return trained | {
            "is_label": np.where(is_even, is_label, trained["is_label"])
        }

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        task = self.task
        if not columns.may_have_lists(path) and not texts_lib.find_table(
            path, self.text_features
        ):
            return None
        if label_column is None and _LABELS not in columns.names_in(path):
            return None
        labels = task.read(str(path), DEV, label_column or _LABELS).labels
        metric = task.metrics[0]
        return DevSet(
            metric=metric,
            num_texts=len(labels),
            outputs=("probabilities",),
            score=lambda answers: task.scores(
                dev_set_lib.log_odds(answers["probabilities"]), labels
            )[metric],
        )
