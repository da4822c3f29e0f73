"""Scores answers to a development set by the metric of its task."""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class DevSet:
    """The labels of a file of texts, which score answers to the texts.

    Args:
        metric: The score's name, e.g. "accuracy". Higher is better.
        num_texts: The number of texts in the file, N.
        outputs: The outputs that the score is computed from.
        score: Returns the score, at most 1, from {output: N values of rows}.
    """

    metric: str
    num_texts: int
    outputs: tuple[str, ...]
    score: Callable[[Mapping[str, Sequence[Any]]], float]


def check_no_column(label_column: str | None) -> None:
    """Raises `ValueError` if a column is named for a form that fixes it."""
    if label_column is not None:
        raise ValueError(
            "--label_column must not be given for a file of this form, which "
            "says itself where the labels are. "
            f"Received: --label_column={label_column}."
        )


def log_odds(probabilities: ArrayLike) -> np.ndarray:
    """Returns logits from probabilities of independent labels."""
    values = np.asarray(probabilities, np.float64)
    return _log(values) - _log(1.0 - values)


def log_probabilities(probabilities: ArrayLike) -> np.ndarray:
    """Returns logits from probabilities of classes: float64 `[N, K]`."""
    return _log(np.asarray(probabilities, np.float64))


def _log(values):
    # A probability may be 0 in float32.
    return np.log(np.maximum(values, 1e-45))
