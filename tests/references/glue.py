"""NumPy-free oracles of the scores, in loops that can be checked by eye."""

import math


def counts(predictions, labels):
    """Returns (TP, FP, FN, TN) of class 1."""
    pairs = list(zip(predictions, labels, strict=True))
    return (
        sum(p == 1 and t == 1 for p, t in pairs),
        sum(p == 1 and t != 1 for p, t in pairs),
        sum(p != 1 and t == 1 for p, t in pairs),
        sum(p != 1 and t != 1 for p, t in pairs),
    )


def f1(predictions, labels):
    tp, fp, fn, _ = counts(predictions, labels)
    precision, recall = tp / (tp + fp), tp / (tp + fn)
    return 2 * precision * recall / (precision + recall)


def binary_matthews(predictions, labels):
    tp, fp, fn, tn = counts(predictions, labels)
    return (tp * tn - fp * fn) / math.sqrt(
        (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    )


def multiclass_matthews(predictions, labels):
    """Gorodkin's R_K as sums over the confusion matrix (his equation 8)."""
    classes = sorted({*predictions, *labels})
    matrix = [
        [
            sum(
                t == row and p == column
                for p, t in zip(predictions, labels, strict=True)
            )
            for column in classes
        ]
        for row in classes
    ]
    size = range(len(classes))
    numerator = sum(
        matrix[k][k] * matrix[m][n] - matrix[n][k] * matrix[k][m]
        for k in size
        for m in size
        for n in size
    )
    total = len(labels)
    row_sums = [sum(matrix[k]) for k in size]
    column_sums = [sum(matrix[k][j] for k in size) for j in size]
    rows = sum(r * (total - r) for r in row_sums)
    columns = sum(c * (total - c) for c in column_sums)
    return numerator / math.sqrt(rows * columns)


def pearson(predictions, labels):
    count = len(labels)
    mean_p, mean_t = sum(predictions) / count, sum(labels) / count
    pairs = list(zip(predictions, labels, strict=True))
    covariance = sum((p - mean_p) * (t - mean_t) for p, t in pairs)
    variance_p = sum((p - mean_p) ** 2 for p in predictions)
    variance_t = sum((t - mean_t) ** 2 for t in labels)
    return covariance / math.sqrt(variance_p * variance_t)


def ranks(values):
    """Mean rank from 1: the values below, and half of the other equals."""
    return [
        1 + sum(v < value for v in values) + (values.count(value) - 1) / 2
        for value in values
    ]
