"""The sections of a report on a classification or a regression."""

import keras
import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.task import Task
from bert_tf.tasks.tsv import Examples


def sections(
    task: Task, examples: Examples, logits: np.ndarray
) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`.

    Args:
        task: A `ClassificationTask`.
        examples: The labelled `Examples`.
        logits: float32 `[N, num_outputs]`.

    Returns:
        A list of (heading, Markdown): for a classification, the scores of
        every class and the confusion matrix, or with many classes the
        commonest confusions; and the wrongly answered examples with the
        highest loss.
    """
    assert examples.labels is not None
    parts = []
    if task.labels:
        predictions = np.argmax(logits, axis=-1)
        parts = [
            ("Classes", _classes(task, predictions, examples.labels)),
            (
                "Confusion",
                tables.confusions(task.labels, predictions, examples.labels),
            ),
        ]
    return [*parts, ("Worst errors", _worst(task, examples, logits))]


def _classes(task, predictions, labels):
    num_labelled, num_predicted, hits = (
        np.bincount(classes, minlength=len(task.labels))
        for classes in (labels, predictions, labels[predictions == labels])
    )
    rows = zip(
        task.labels,
        num_labelled,
        hits / np.maximum(num_predicted, 1),
        hits / np.maximum(num_labelled, 1),
        2 * hits / np.maximum(num_predicted + num_labelled, 1),
    )
    header = ("class", "examples", "precision", "recall", "F1")
    return tables.table(header, rows)


def _worst(task, examples, logits):
    losses = keras.ops.convert_to_numpy(
        task.example_losses(logits, examples.labels)
    )
    if task.labels:
        predictions = np.argmax(logits, axis=-1)
        is_wrong = predictions != examples.labels
        names = np.array(task.labels)
        labels, predictions = names[examples.labels], names[predictions]
    else:
        is_wrong = losses > 0
        labels, predictions = examples.labels, logits[:, 0]
    rows = [
        (
            index + 1,
            *(texts[index] for texts in examples.texts),
            labels[index],
            predictions[index],
            float(losses[index]),
        )
        for index in tables.worst(losses, is_wrong)
    ]
    header = ("example", *task.text_features, "label", "prediction", "loss")
    return tables.errors_table(header, rows)
