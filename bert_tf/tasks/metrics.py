"""Scores of the predictions for a whole evaluation set.

They are GLUE's official ones (accuracy, F1, and the correlations of Matthews,
Pearson and Spearman), and beside them macro-F1 and AUC.

None of them is a mean over batches, so they are computed once, in NumPy and
float64, from all predictions. Where a score is not defined it is what GLUE's
scripts report: 0 for F1 and Matthews' correlation, as in scikit-learn, and NaN
for those of Pearson and Spearman, as in SciPy.
"""

import math

import numpy as np
from absl import logging
from numpy.typing import ArrayLike


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Returns the share of equal pairs.

    Args:
        predictions: int `[N]`, N at least 1.
        labels: int `[N]`.
    """
    predictions, labels = _pairs(predictions, labels)
    return float(np.mean(predictions == labels))


def f1(predictions: ArrayLike, labels: ArrayLike, positive: int = 1) -> float:
    """Returns the F1 of a class: 2 TP / (2 TP + FP + FN).

    Args:
        predictions: int `[N]`.
        labels: int `[N]`.
        positive: The class; every other is negative.
    """
    predictions, labels = _pairs(predictions, labels)
    is_predicted, is_true = predictions == positive, labels == positive
    total = np.sum(is_predicted) + np.sum(is_true)
    return float(2 * np.sum(is_predicted & is_true) / total) if total else 0.0


def macro_f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Returns the mean of the F1s of all classes that occur.

    Args:
        predictions: int `[N]`.
        labels: int `[N]`.
    """
    right, predicted, true = _counts(predictions, labels)
    return float(np.mean(2 * right / (predicted + true)))


def _counts(predictions, labels):
    """Returns how often each class that occurs is right, answered and true."""
    predictions, labels = _pairs(predictions, labels)
    _, ids = np.unique(np.stack([predictions, labels]), return_inverse=True)
    predictions, labels = ids.reshape(2, -1)
    size = int(ids.max()) + 1
    return tuple(
        np.bincount(each, minlength=size).astype(np.float64)
        for each in (labels[predictions == labels], predictions, labels)
    )


def auc(scores: ArrayLike, is_positive: ArrayLike) -> float:
    """Returns the area under the ROC curve.

    That is the share of pairs, of a positive and a negative example, in which
    the positive one has the higher score; equal scores count half. Without
    such pairs it is 0.

    Args:
        scores: float `[N]`.
        is_positive: bool `[N]`.
    """
    is_positive = np.asarray(is_positive, bool)
    num_positive = int(is_positive.sum())
    num_pairs = num_positive * (len(is_positive) - num_positive)
    if not num_pairs:
        return 0.0
    ranks = _ranks(np.asarray(scores, np.float64))[is_positive]
    least = num_positive * (num_positive + 1) / 2
    return float((ranks.sum() - least) / num_pairs)


def mean_auc(logits: ArrayLike, labels: ArrayLike) -> float:
    """Returns the mean over the classes of the AUC of each against the rest.

    For two classes both are equal. Classes without an example are left out.

    Args:
        logits: float `[N, K]`.
        labels: int `[N]`.
    """
    logits, labels = np.asarray(logits, np.float64), np.asarray(labels)

    # Running sums over the classes before each, and over those after it: two
    # passes sum all other classes, instead of one pass for each class.
    nothing = np.full_like(logits[:, :1], -np.inf)
    before = np.logaddexp.accumulate(logits[:, :-1], axis=1)
    after = np.logaddexp.accumulate(logits[:, :0:-1], axis=1)[:, ::-1]
    # Log-odds have the order of the probabilities, but do not round to one
    # value where those are close to 1.
    odds = logits - np.logaddexp(
        np.hstack([nothing, before]), np.hstack([after, nothing])
    )
    areas = [auc(odds[:, k], labels == k) for k in np.unique(labels)]
    return float(np.mean(areas))


def matthews_correlation(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Returns Matthews' coefficient, for two classes or more.

    It is the correlation of the two indicator matrices (Gorodkin 2004,
    "Comparing two K-category assignments", equation 8), which for two classes
    is (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN)).

    Args:
        predictions: int `[N]`.
        labels: int `[N]`.
    """
    right, predicted, true = _counts(predictions, labels)
    total = true.sum()
    covariance = right.sum() * total - predicted @ true
    variances = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return float(covariance / np.sqrt(variances)) if variances > 0 else 0.0


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Returns Pearson's linear correlation.

    It is not defined if all predictions or all labels are equal; then it is
    NaN, with a warning.

    Args:
        predictions: float `[N]`, N at least 2.
        labels: float `[N]`.

    Raises:
        ValueError: If N is less than 2.
    """
    predictions, labels = _pairs(predictions, labels)
    check_can_correlate("The examples", len(labels))
    for name, values in (("predictions", predictions), ("labels", labels)):
        if np.ptp(values) == 0:
            logging.warning(
                "A correlation is not defined, and given as nan: all %d %s "
                "are equal.",
                len(values),
                name,
            )
            return math.nan
    return float(np.corrcoef(predictions, labels)[0, 1])


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Returns Spearman's correlation: Pearson's of the ranks.

    Equal values share the mean of the ranks that they take up.

    Args:
        predictions, labels: See `pearson`, also for what is raised.
    """
    predictions, labels = _pairs(predictions, labels)
    return pearson(_ranks(predictions), _ranks(labels))


def check_can_correlate(name: str, num_examples: int) -> None:
    """Raises `ValueError` if a set is too small for a correlation.

    Args:
        name: Name of the set in the message.
        num_examples: The number of its examples.
    """
    if num_examples < 2:
        raise ValueError(
            f"{name}: must be two or more, to correlate their scores. "
            f"Received: {num_examples}."
        )


def comparable(score: float) -> float:
    """Returns a score to compare with others: NaN is the lowest."""
    return -math.inf if math.isnan(score) else score


def _pairs(predictions, labels):
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if np.issubdtype(predictions.dtype, np.floating):
        return predictions.astype(np.float64), labels.astype(np.float64)
    return predictions, labels


def _ranks(values):
    _, inverse, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last_ranks = np.cumsum(counts)
    return (last_ranks - (counts - 1) / 2)[inverse]
