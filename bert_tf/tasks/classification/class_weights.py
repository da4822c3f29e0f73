"""Weights of classes in the loss, where some have few examples."""

import csv
import io
from collections.abc import Sequence

import numpy as np

AUTO = "auto"


def parse(
    text: str, labels: Sequence[str], class_ids: np.ndarray
) -> tuple[float, ...]:
    """Returns the weight of every class, a tuple of floats.

    Args:
        text: `AUTO`, or a weight for every class: "yes:2,no:0.5". As in a
            CSV, a class with a comma is put in quotation marks. With N
            examples of K classes, `AUTO` gives a class with n examples the
            weight N / (K * n): all classes then have the same total weight,
            and the mean over the examples is 1.
        labels: Names of the classes by class id.
        class_ids: int32 `[N]`, the training examples' classes.

    Raises:
        ValueError: If a class is not named exactly once, a weight is not a
            number or is below 0, or all weights are 0.
    """
    if not labels:
        raise ValueError("--class_weights must not be given for a regression.")
    if text == AUTO:
        counts = np.bincount(class_ids, minlength=len(labels))
        # A class without examples has no loss to weigh.
        weights = len(class_ids) / (len(labels) * np.maximum(counts, 1))
        return tuple(weights.tolist())
    pairs = [part.rpartition(":") for part in _split(text)]
    weights = {name: _parse_weight(weight) for name, _, weight in pairs}
    if sorted(name for name, _, _ in pairs) != sorted(labels):
        raise ValueError(
            f"--class_weights must name each of {', '.join(labels)} once, as "
            f"in {_joined([f'{labels[0]}:1', f'{labels[1]}:2'])}. Received: "
            f"--class_weights={text}."
        )
    if not any(weights.values()):
        raise ValueError(
            "--class_weights must not all be 0. Received: "
            f"--class_weights={text}."
        )
    return tuple(weights[name] for name in labels)


def _split(text):
    try:
        return next(csv.reader([text]))
    except csv.Error as error:
        raise ValueError(
            "--class_weights must be names and weights separated by commas. "
            f"Received: --class_weights={text!r}."
        ) from error


def _joined(parts):
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(parts)
    return text.getvalue()


def _parse_weight(text):
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight < float("inf"):
        raise ValueError(
            f"--class_weights must be numbers of 0 or more. Received: {text!r}."
        )
    return weight
