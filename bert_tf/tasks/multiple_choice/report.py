"""The sections of a report on a multiple choice."""

import keras
import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.multiple_choice.files import ChoiceExamples
from bert_tf.tasks.task import Task


def sections(
    task: Task, examples: ChoiceExamples, logits: np.ndarray
) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`.

    Args:
        task: A `MultipleChoiceTask`.
        examples: The labelled `ChoiceExamples`.
        logits: float32 `[N, C]`.

    Returns:
        A list of (heading, Markdown): how often each choice was right and
        was answered, by its number; the confusion matrix of these numbers;
        and the wrongly answered examples with the highest loss.
    """
    assert examples.labels is not None
    names = range(examples.num_choices)
    counts = tables.confusion_matrix(
        np.argmax(logits, axis=-1), examples.labels, examples.num_choices
    )
    return [
        ("Choices", _choices(names, counts)),
        ("Confusion", tables.confusion_table(names, counts)),
        ("Worst errors", _worst(task, examples, logits)),
    ]


def _choices(names, counts):
    num_right, num_answered = counts.sum(axis=1), counts.sum(axis=0)
    shares = counts.diagonal() / np.maximum(num_right, 1)
    header = ("choice", "is right", "is answered", "accuracy where right")
    return tables.table(header, zip(names, num_right, num_answered, shares))


def _worst(task, examples, logits):
    losses, probabilities = (
        keras.ops.convert_to_numpy(values)
        for values in (
            task.example_losses(logits, examples.labels),
            keras.ops.softmax(task.at_temperature(logits), axis=-1),
        )
    )
    is_wrong = np.argmax(logits, axis=-1) != examples.labels
    rows = [
        (
            index + 1,
            examples.contexts[index],
            _with_probabilities(
                examples.choices[index],
                probabilities[index],
                examples.labels[index],
            ),
            float(losses[index]),
        )
        for index in tables.worst(losses, is_wrong)
    ]
    header = (
        "example",
        "context",
        "choices with their probabilities, the right one bold",
        "loss",
    )
    return tables.errors_table(header, rows)


def _with_probabilities(choices, probabilities, label):
    """Returns the choices of a row as lines of one cell."""
    lines = [
        f"{probability:.3f} {tables.quote(choice)}".strip()
        for choice, probability in zip(choices, probabilities)
    ]
    lines[label] = f"**{lines[label]}**"
    return tables.Markdown("<br>".join(lines))
