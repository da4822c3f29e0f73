"""Classifiers and regressions of one or two strings, as they are served."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import dev_set as dev_set_lib
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.kinds.output import COUNTED
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import are_as_good
from bert_tf.serving.kinds.servable import repeat_names
from bert_tf.serving.kinds.texts import Row
from bert_tf.tasks import columns
from bert_tf.tasks import metrics
from bert_tf.tasks import tsv
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.source import DEV

# GLUE tasks whose files have other names for the texts in their header.
_UNNAMED = ("mrpc", "mnli")
# The default name of the label column in a table.
_LABEL = "label"
# The first column of XNLI's files.
_LANGUAGE = "language"


def _show_classes(answers):
    classes = sorted(
        zip(answers["probabilities"], answers["classes"]), reverse=True
    )
    return ", ".join(
        f"{probability:.3f} {name.decode()}" for probability, name in classes
    )


def _has_labels(task):
    return bool(task.labels)


class Classification(Servable):
    """Label names and probabilities, or scores, of a `ClassificationTask`."""

    outputs_of_ids = (
        Output(
            name="labels",
            dtype="string",
            axes="",
            meaning="the likeliest class",
            of_task=_has_labels,
            heading="label",
            show=lambda answers: answers["labels"].decode(),
        ),
        Output(
            name="probabilities",
            dtype="float32",
            axes="classes",
            meaning="the probability of each class",
            of_task=_has_labels,
            heading="probabilities",
            show=_show_classes,
        ),
        Output(
            name="classes",
            dtype="string",
            axes="classes",
            meaning="the names of the classes",
            of_task=_has_labels,
        ),
        Output(
            name="scores",
            dtype="float32",
            axes="",
            meaning="the number of a regression",
            of_task=lambda task: not task.labels,
            heading="scores",
        ),
    )
    outputs_of_strings = (*outputs_of_ids, *COUNTED)
    outputs_of_methods = {
        signatures.CLASSIFY: (
            Output("classes", "string", "classes", "the names of the classes"),
            Output("scores", "float32", "classes", "their probabilities"),
        ),
        signatures.REGRESS: (
            Output("outputs", "float32", "", "the number of a regression"),
        ),
    }
    MODEL = BertClassifier
    DEFAULTS = Servable.DEFAULTS | {COUNT_TOKENS: False}

    @classmethod
    def text_features_of(cls, task: Any) -> tuple[str, ...] | None:
        return task.text_features

    @property
    def forms(self) -> dict[str, signatures.Form]:
        method = signatures.CLASSIFY
        if not self.task.labels:
            method = signatures.REGRESS
        forms = super().forms
        return forms | {
            # TensorFlow Serving's methods prescribe the name of the input.
            method: dataclasses.replace(
                forms[signatures.EXAMPLES], examples="inputs"
            )
        }

    @property
    def is_ranked(self) -> bool:
        return bool(self.task.labels)

    @property
    def row_shape(self) -> list[int] | None:
        return [self.task.num_outputs]

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        answers = self.task.decode_tensors(outputs)
        if not self.task.labels:
            return answers | {"outputs": answers["scores"]}
        return answers | {
            "classes": repeat_names(self.task.labels, outputs),
            "scores": answers["probabilities"],
        }

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        labels = answers.get("labels")
        if labels is None or labels.shape != trained["labels"].shape:
            return trained
        numbers = {
            label.encode(): number
            for number, label in enumerate(self.task.labels)
        }
        is_as_good = are_as_good(
            np.array([numbers.get(label, -1) for label in labels]),
            trained["probabilities"],
            tolerance,
        )
        return trained | {
            "labels": np.where(is_as_good, labels, trained["labels"])
        }

    def read_texts(self, path: files.AnyPath) -> list[Row]:
        return texts_lib.read_texts(path, self.text_features, **self._form)

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        task = self.task
        labels = self._read_labels(path, label_column)
        if labels is None:
            return None
        if not task.labels:
            metrics.check_can_correlate(f"{path}: the rows", len(labels))
        output = "probabilities" if task.labels else "scores"
        metric = task.metrics[0]

        def score(answers):
            values = np.asarray(answers[output])
            logits = (
                dev_set_lib.log_probabilities(values)
                if task.labels
                else values[:, np.newaxis]
            )
            return task.scores(logits, labels)[metric]

        return DevSet(
            metric=metric,
            num_texts=len(labels),
            outputs=(output,),
            score=score,
        )

    def _read_labels(self, path, label_column):
        """Returns the labels of a table; None if there are none."""
        task = self.task
        if columns.may_have_lists(path):
            if label_column is None and _LABEL not in columns.names_in(path):
                return None
            return task.read(path, DEV, label_column or _LABEL).labels
        tsv_file = texts_lib.find_table(
            path, self.text_features, label_column=label_column, **self._form
        )
        if tsv_file is None or tsv_file.label_column is None:
            return None
        _check_one_language(path, tsv_file)
        synonyms = ()
        if task.name in glue_files.GLUE_TASKS:
            synonyms = glue_files.glue_task(task.name).task.label_synonyms
        return tsv.read_tsv(
            path,
            tsv_file,
            task.labels,
            synonyms,
            # The texts were read before, and their rows told about.
            logs_rows=False,
        ).labels

    @property
    def _form(self):
        """The form of the task's own files, as `texts.read_texts` takes it."""
        name = self.task.name
        if name not in glue_files.GLUE_TASKS:
            return {}
        return {
            "dev": glue_files.glue_task(name).splits[glue_files.DEV],
            "may_be_unnamed": name in _UNNAMED,
        }


def _check_one_language(path, tsv_file):
    """Raises `ValueError` if the rows of an XNLI file have several languages.

    The score would be that of all languages together, which training never
    shows. The task does not tell which language to take.
    """
    if tsv.header(path)[0] != _LANGUAGE:
        return
    languages = dataclasses.replace(tsv_file, label_column=_LANGUAGE)
    rows = tsv.rows(path, languages, logs=False)
    found = {language or "" for _, _, language in rows}
    if len(found) > 1:
        raise ValueError(
            f"{path}: must have the rows of one language for a score, as the "
            "model's task does not say which. Received: "
            f"{', '.join(sorted(found))}."
        )
