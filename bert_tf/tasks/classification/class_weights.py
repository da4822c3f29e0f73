"""Weights of classes in the loss, where some have few examples."""

from collections.abc import Sequence

import numpy as np

AUTO = "auto"


def parse(
    text: str, labels: Sequence[str], class_ids: np.ndarray
) -> tuple[float, ...]:
    """Returns the weight of every class, a tuple of floats.

    Args:
        text: `AUTO`, or a weight for every class: "yes:2,no:0.5". With N
            examples of K classes, `AUTO` gives a class with n examples the
            weight N / (K * n): all classes then have the same total weight,
            and the mean over the examples is 1.
        labels: Names of the classes by class id.
        class_ids: int32 `[N]`, the training examples' classes.

    Raises:
        ValueError: If a class is not named exactly once, or a weight is not a
            number.
    """
    if not labels:
        raise ValueError("--class_weights must not be given for a regression.")
    if text == AUTO:
        counts = np.bincount(class_ids, minlength=len(labels))
        # A class without examples has no loss to weigh.
        weights = len(class_ids) / (len(labels) * np.maximum(counts, 1))
        return tuple(weights.tolist())
    pairs = [part.rpartition(":") for part in text.split(",")]
    given = {name: weight for name, _, weight in pairs}
    try:
        # The task checks their range.
        if len(given) == len(pairs) == len(labels):
            return tuple(float(given[name]) for name in labels)
    except (KeyError, ValueError):
        pass
    raise ValueError(
        f"--class_weights must have a number for each of {', '.join(labels)}, "
        f"as in {labels[0]}:1,{labels[1]}:2. Received: --class_weights={text}."
    )
