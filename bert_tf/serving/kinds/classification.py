"""Classifiers and regressions of one or two strings, as they are served."""

import dataclasses

import numpy as np

from bert_tf import checkpoints
from bert_tf.checkpoints import config_json
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import are_as_good
from bert_tf.tasks.classification.task import ClassificationTask


class Classification(Servable):
    """Label names and probabilities, or scores.

    Args:
        task: The `ClassificationTask` that the model was tuned to.
    """

    KIND = "task"

    def __init__(self, task):
        self.task = task
        self.text_features = task.text_features
        self.outputs_of_ids = self.outputs_of_strings = (
            ("labels", "probabilities", "classes")
            if task.labels
            else ("scores",)
        )

    def load(self, model_dir, dtype=None):
        return checkpoints.load(
            model_dir,
            BertClassifier,
            num_labels=self.task.num_outputs,
            dtype=dtype,
        )

    def outputs(self, has_text):
        method = (
            {signatures.CLASSIFY: ("classes", "scores")}
            if self.task.labels
            else {signatures.REGRESS: ("outputs",)}
        )
        return super().outputs(has_text) | method

    def make_signatures(self, module, source):
        return signatures.task_signatures(module, self.task)

    def trained_answers(self, source, inputs, texts):
        answers = {
            name: value.numpy()
            for name, value in self.task.decode(source.model(inputs)).items()
        }
        if not self.task.labels:
            return answers | {"outputs": answers["scores"]}
        names = [label.encode("utf-8") for label in self.task.labels]
        return answers | {
            "classes": np.array([names] * len(texts), object),
            "scores": answers["probabilities"],
        }

    def settle_ties(self, source, texts, trained, answers, tolerance):
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


def task_of_classifier(checkpoint, text_features):
    """Returns the task of a classifier that no program of ours tuned.

    Args:
        checkpoint: What `reader.open_checkpoint` returned.
        text_features: Names of the one or two strings.

    Raises:
        ValueError: If it gives several labels to a text, or its config.json
            has names that are none.
    """
    config_values = checkpoint.config_values
    if config_values.get("problem_type") == "multi_label_classification":
        raise ValueError(
            f"{checkpoint.path}: must be a model of one label a text. "
            "Received: problem_type='multi_label_classification'."
        )
    num_labels = checkpoint.num_labels
    labels = config_json.label_names(config_values, checkpoint.folder) or [
        f"LABEL_{label}" for label in range(num_labels)
    ]
    try:
        task = ClassificationTask(
            name="classifier",
            text_features=("text",),
            labels=labels if num_labels > 1 else (),
            metrics=("accuracy",) if num_labels > 1 else ("pearson",),
        )
    except ValueError as error:
        path = f"{checkpoint.folder}/{config_json.CONFIG_FILE}"
        raise ValueError(f"{path}, id2label: {error}") from error
    # Not the file's: an error of theirs must not name it.
    return dataclasses.replace(task, text_features=text_features)
