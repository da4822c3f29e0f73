"""Markdown tables that the reports of several tasks share."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

# Characters of a text; longer ones are cut.
_MAX_TEXT = 400
_NUM_WORST = 20
# The most classes whose matrix is readable. With thousands, it would take
# minutes and fill the memory.
_MAX_MATRIX = 100
_NUM_CONFUSIONS = 50


class Markdown(str):
    """The text of a cell that is already Markdown, e.g. from `quote`."""


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table in Markdown; texts are quoted, long ones cut."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines
    )


def quote(text: str) -> str:
    """Returns Markdown that shows a text as it is, a long one cut."""
    if len(text) > _MAX_TEXT:
        text = text[: _MAX_TEXT - 1] + "…"
    # Backslash first. & and $ too: otherwise &lt; is shown as <, and $x$ as a
    # formula.
    for character in "\\`*_<>[]|~&$":
        text = text.replace(character, f"\\{character}")
    return text


def worst(badness: ArrayLike, is_wrong: ArrayLike) -> np.ndarray:
    """Returns the indices of the worst errors, the worst one first.

    Args:
        badness: float `[N]`, for every example.
        is_wrong: bool `[N]`: which of them are errors.
    """
    order = np.argsort(-np.asarray(badness), kind="stable")
    return order[np.asarray(is_wrong)[order]][:_NUM_WORST]


def errors_table(header: Sequence[Any], rows: Sequence[Sequence[Any]]) -> str:
    """Returns the table of errors, or a sentence if there are none."""
    return table(header, rows) if rows else "None: every answer is right."


def confusions(
    names: Sequence[Any], predictions: ArrayLike, labels: ArrayLike
) -> str:
    """Returns the confusion matrix or, for many classes, the top confusions.

    Args:
        names: Names of the K classes.
        predictions: int `[N]`.
        labels: int `[N]`.
    """
    if len(names) <= _MAX_MATRIX:
        counts = confusion_matrix(predictions, labels, len(names))
        return confusion_table(names, counts)
    pairs = np.stack([labels, predictions], axis=1)
    pairs, numbers = np.unique(
        pairs[pairs[:, 0] != pairs[:, 1]], axis=0, return_counts=True
    )
    order = np.argsort(-numbers, kind="stable")[:_NUM_CONFUSIONS]
    rows = [
        (names[label], names[prediction], number)
        for (label, prediction), number in zip(pairs[order], numbers[order])
    ]
    return errors_table(("is", "answered", "number"), rows)


def confusion_matrix(
    predictions: ArrayLike, labels: ArrayLike, num_labels: int
) -> np.ndarray:
    """Returns int `[num_labels, num_labels]`: [label, prediction] -> count."""
    counts = np.zeros((num_labels, num_labels), np.int64)
    np.add.at(counts, (np.asarray(labels), np.asarray(predictions)), 1)
    return counts


def confusion_table(names: Iterable[Any], counts: np.ndarray) -> str:
    """Returns the table of a confusion matrix of named classes."""
    rows = [(f"is {name}", *counts[index]) for index, name in enumerate(names)]
    return table(("", *(f"answered {name}" for name in names)), rows)


def _cell(value):
    if not isinstance(value, Markdown):
        value = quote(
            f"{value:.4g}" if isinstance(value, float) else str(value)
        )
    return " ".join(value.split())
