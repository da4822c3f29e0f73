"""Oracles of calibration, in loops that can be checked by eye."""

import math


def probabilities(logits, temperature):
    """Softmax of a row of logits."""
    powers = [math.exp(logit / temperature) for logit in logits]
    return [power / sum(powers) for power in powers]


def loss(rows, labels, temperature):
    """Mean cross-entropy of classes."""
    losses = [
        -math.log(probabilities(row, temperature)[label])
        for row, label in zip(rows, labels, strict=True)
    ]
    return sum(losses) / len(losses)


def binary_loss(rows, labels, temperature):
    """Mean cross-entropy of yes or no: sigmoid(x) is softmax([0, x])."""
    logits = [[0.0, logit] for row in rows for logit in row]
    return loss(logits, [label for row in labels for label in row], temperature)


def best_temperature(function, low=0.01, high=100.0):
    """The least of a function of the temperature: golden sections of its log.

    It falls, and then rises.
    """
    share = (math.sqrt(5) - 1) / 2
    low, high = math.log(low), math.log(high)
    while high - low > 1e-9:
        left, right = high - share * (high - low), low + share * (high - low)
        if function(math.exp(left)) < function(math.exp(right)):
            high = right
        else:
            low = left
    return math.exp((low + high) / 2)


def calibration_error(answers, num_bins=15):
    """Guo et al. 2017, equation 3, of (probability, whether it is right)."""
    error = 0.0
    for m in range(1, num_bins + 1):
        of_bin = [
            (probability, is_right)
            for probability, is_right in answers
            if (m - 1) / num_bins < probability <= m / num_bins
        ]
        if of_bin:
            confidence = sum(p for p, _ in of_bin) / len(of_bin)
            accuracy = sum(is_right for _, is_right in of_bin) / len(of_bin)
            weight = len(of_bin) / len(answers)
            error += weight * abs(accuracy - confidence)
    return error
