"""GLUE's official scores, from the predictions for a whole evaluation set.

None of them is a mean over batches, so they are computed once, in NumPy and
float64, from all predictions. Where a score is not defined (a constant
prediction has no correlation, a set without positives no F1) it is 0, as the
benchmark's scripts have it, not NaN.
"""

import numpy as np


def accuracy(predictions, labels):
    """Returns the share of equal pairs.

    Args:
        predictions: int `[N]`, N at least 1.
        labels: int `[N]`.
    """
    predictions, labels = _pairs(predictions, labels)
    return float(np.mean(predictions == labels))


def f1(predictions, labels):
    """Returns the F1 of class 1: 2 TP / (2 TP + FP + FN).

    Args:
        predictions: int `[N]`; class 1 is the positive one, every other is
            negative.
        labels: int `[N]`.
    """
    predictions, labels = _pairs(predictions, labels)
    true_positives = np.sum((predictions == 1) & (labels == 1))
    total = np.sum(predictions == 1) + np.sum(labels == 1)
    return float(2 * true_positives / total) if total else 0.0


def matthews_correlation(predictions, labels):
    """Returns Matthews' coefficient, for two classes or more.

    It is the correlation of the two indicator matrices (Gorodkin 2004,
    "Comparing two K-category assignments", equation 8), which for two classes
    is (TP TN - FP FN) / sqrt((TP+FP)(TP+FN)(TN+FP)(TN+FN)).

    Args:
        predictions: int `[N]`.
        labels: int `[N]`.
    """
    predictions, labels = _pairs(predictions, labels)
    classes = np.union1d(predictions, labels)
    predicted = (predictions[:, None] == classes).astype(np.float64)
    true = (labels[:, None] == classes).astype(np.float64)
    predicted -= predicted.mean(axis=0)
    true -= true.mean(axis=0)
    covariance = np.sum(predicted * true)
    variances = np.sum(predicted**2) * np.sum(true**2)
    return float(covariance / np.sqrt(variances)) if variances > 0 else 0.0


def pearson(predictions, labels):
    """Returns Pearson's linear correlation.

    Args:
        predictions: float `[N]`.
        labels: float `[N]`.
    """
    predictions, labels = _pairs(predictions, labels)
    if np.ptp(predictions) == 0 or np.ptp(labels) == 0:
        return 0.0
    return float(np.corrcoef(predictions, labels)[0, 1])


def spearman(predictions, labels):
    """Returns Spearman's correlation: Pearson's of the ranks.

    Equal values share the mean of the ranks that they take up.

    Args:
        predictions: float `[N]`.
        labels: float `[N]`.
    """
    predictions, labels = _pairs(predictions, labels)
    return pearson(_ranks(predictions), _ranks(labels))


def _pairs(predictions, labels):
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.shape != labels.shape or predictions.ndim != 1:
        raise ValueError(
            "`predictions` and `labels` must be two vectors of one length. "
            f"Received: predictions of shape {predictions.shape}, labels of "
            f"shape {labels.shape}."
        )
    if not len(labels):
        raise ValueError("A score of no examples is not defined.")
    if np.issubdtype(predictions.dtype, np.floating):
        return predictions.astype(np.float64), labels.astype(np.float64)
    return predictions, labels


def _ranks(values):
    _, inverse, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last_ranks = np.cumsum(counts)
    return (last_ranks - (counts - 1) / 2)[inverse]
