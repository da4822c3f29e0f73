"""Temperatures: probabilities that are right as often as they say.

A tuned model is usually surer of its answers than it should be. Its logits are
divided by one number, the temperature, which is chosen to make the labels of a
development set as likely as possible; the order of the classes does not change.
The method and the expected calibration error are those of Guo et al. 2017
(arXiv 1706.04599), sections 2 and 4.2.

Labels `[N]` are class ids, and the probabilities a softmax. Labels `[N, K]` are
yes or no for each of K labels, and the probabilities sigmoids.
"""

import dataclasses
import math
from typing import Any
from typing import Self
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from bert_tf import messages
from bert_tf.features import Tensor
from bert_tf.formats import STORED_IF_SET
from bert_tf.tasks import tables
from bert_tf.tasks.task import Task

AnyTask = TypeVar("AnyTask")

# A temperature beyond these limits is no calibration: the logits explain the
# development set completely, or not at all.
LEAST, MOST = 0.05, 20.0
# With fewer examples the temperature would be a matter of chance.
LEAST_EXAMPLES = 50
NUM_BINS = 15
_MOST_STEPS = 200
_PRECISION = 1e-10


class CalibrationError(ValueError):
    """Says why a development set gives no temperature."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reliability:
    """How often answers of similar probability are right.

    With labels `[N]`, the answer to an example is its likeliest class. With
    labels `[N, K]`, each label is an answer, which is right if the example has
    the label. The answers' probabilities are sorted into `NUM_BINS` bins of
    equal width, each without its lower end.

    Args:
        counts: int `[NUM_BINS]`: how many probabilities each bin has.
        confidences: float64 `[NUM_BINS]`: their mean, 0 in an empty bin.
        shares: float64 `[NUM_BINS]`: the share that is right, 0 likewise.
        loss: The mean cross-entropy, in nats.
    """

    counts: np.ndarray
    confidences: np.ndarray
    shares: np.ndarray
    loss: float

    @property
    def error(self) -> float:
        """The expected calibration error, from 0 to 1."""
        gaps = np.abs(self.confidences - self.shares)
        return float(np.average(gaps, weights=self.counts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated(Task):
    """A task whose probabilities may have a temperature.

    Args:
        temperature: Divisor of the logits before they become probabilities.

    Attributes:
        has_temperature: Whether it may differ from 1.
    """

    temperature: float = dataclasses.field(default=1.0, metadata=STORED_IF_SET)

    @property
    def has_temperature(self) -> bool:
        return True

    def with_temperature(self, temperature: float) -> Self:
        """Returns the task with that temperature."""
        if temperature == self.temperature:
            return self
        return dataclasses.replace(self, temperature=temperature)

    def at_temperature(self, logits: Tensor) -> Tensor:
        """Returns the logits of the calibrated probabilities."""
        # At 1 the graph gets no extra operation.
        return logits if self.temperature == 1 else logits / self.temperature


def has_temperature(task: Any) -> bool:
    """Returns whether a task's temperature may differ from 1."""
    return isinstance(task, Calibrated) and task.has_temperature


def temperature_of(task: Any) -> float:
    """Returns a task's temperature, 1 if it has none."""
    return task.temperature if isinstance(task, Calibrated) else 1.0


def uncalibrated(task: AnyTask) -> AnyTask:
    """Returns a task without the temperature of a model's weights."""
    return task.with_temperature(1) if isinstance(task, Calibrated) else task


def check_temperature(temperature: Any) -> None:
    """Raises `ValueError` unless it is a positive, finite number."""
    if type(temperature) not in (int, float) or not 0 < temperature < math.inf:
        raise ValueError(
            "`temperature` must be a positive number. "
            f"Received: temperature={messages.shortened(temperature)}."
        )


def fit_temperature(logits: ArrayLike, labels: ArrayLike) -> float:
    """Returns the temperature with the least mean cross-entropy.

    The cross-entropy is convex in the temperature's inverse. Its slope's zero
    is found by Newton's method, within an interval that contains it.

    Args:
        logits: float `[N, K]`.
        labels: int `[N]`, or `[N, K]` of 0 and 1.

    Raises:
        CalibrationError: If there are too few examples, a logit is not
            finite, the labels are all the same, or there is no such
            temperature from `LEAST` to `MOST`.
    """
    logits, labels = np.asarray(logits, np.float64), np.asarray(labels)
    if len(labels) < LEAST_EXAMPLES:
        raise CalibrationError(
            f"it has {messages.counted(len(labels), 'example', 'examples')}, "
            f"and at least {LEAST_EXAMPLES} are needed"
        )
    if not np.isfinite(logits).all():
        raise CalibrationError("some of its logits are not finite")
    if (labels == labels.flat[0]).all():
        raise CalibrationError("all of its labels are the same")
    slope = _binary_slope if labels.ndim == 2 else _slope
    low, high = 1 / MOST, 1 / LEAST
    if slope(logits, labels, low)[0] >= 0:
        raise CalibrationError(
            "its answers are no better than chance: the likeliest temperature "
            f"is above {MOST:g}"
        )
    if slope(logits, labels, high)[0] <= 0:
        raise CalibrationError(
            "its answers are right, or right far more often than their "
            f"probabilities say: the likeliest temperature is below {LEAST:g}"
        )
    inverse = 1.0
    for _ in range(_MOST_STEPS):
        first, second = slope(logits, labels, inverse)
        low, high = (low, inverse) if first > 0 else (inverse, high)
        following = inverse - first / second if second > 0 else 0.0
        if not low < following < high:
            following = math.sqrt(low * high)
        if abs(following - inverse) <= _PRECISION * inverse:
            break
        inverse = following
    return float(1 / following)


def measure(
    logits: ArrayLike, labels: ArrayLike, temperature: float = 1.0
) -> Reliability:
    """Returns the `Reliability` of the probabilities at a temperature.

    Args:
        logits, labels: See `fit_temperature`; N is at least 1.
        temperature: The temperature.
    """
    logits = np.asarray(logits, np.float64) / temperature
    labels = np.asarray(labels)
    if labels.ndim == 2:
        # log(1 + exp(x)) - y x, without overflow for large x.
        losses = np.logaddexp(0.0, logits) - labels * logits
        confidences, is_right = _sigmoid(logits).ravel(), labels.ravel() == 1
    else:
        log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
        losses = -np.take_along_axis(log_probs, labels[:, None], 1)
        confidences = np.exp(log_probs.max(axis=1))
        is_right = logits.argmax(axis=1) == labels
    bins = np.ceil(confidences * NUM_BINS).astype(int) - 1
    bins = bins.clip(0, NUM_BINS - 1)
    counts = np.bincount(bins, minlength=NUM_BINS)
    totals = (
        np.bincount(bins, values, NUM_BINS)
        for values in (confidences, is_right)
    )
    confidences, shares = (total / np.maximum(counts, 1) for total in totals)
    return Reliability(
        counts=counts,
        confidences=confidences,
        shares=shares,
        loss=float(losses.mean()),
    )


def results(
    before: Reliability, after: Reliability, temperature: float
) -> dict[str, float]:
    """Returns a calibration's part of eval_results.txt, {name: float}."""
    return {
        "temperature": temperature,
        "eval_calibration_error": after.error,
        "eval_calibration_error_uncalibrated": before.error,
        "eval_loss_calibrated": after.loss,
    }


def section(
    before: Reliability,
    after: Reliability,
    temperature: float,
    origin: str,
    has_sigmoids: bool,
) -> tuple[str, str]:
    """Returns a report's section on calibration, (heading, Markdown).

    Args:
        before: The `Reliability` at temperature 1.
        after: The `Reliability` at the model's temperature.
        temperature: The model's temperature.
        origin: A sentence on where it comes from, or why it could not be
            fitted.
        has_sigmoids: Whether the labels are `[N, K]`.
    """
    numbers = tables.table(
        ("", "before", "after"),
        [
            ("temperature", 1.0, temperature),
            ("expected calibration error", before.error, after.error),
            ("loss", before.loss, after.loss),
        ],
    )
    rows = []
    for index in range(NUM_BINS):
        cells = [
            cell
            for each in (before, after)
            for cell in (
                (
                    int(each.counts[index]),
                    float(each.confidences[index]),
                    float(each.shares[index]),
                )
                if each.counts[index]
                else (0, "-", "-")
            )
        ]
        if before.counts[index] or after.counts[index]:
            low, high = index / NUM_BINS, (index + 1) / NUM_BINS
            rows.append((f"{low:.2f} to {high:.2f}", *cells))
    share = "has the label" if has_sigmoids else "is right"
    header = (
        "probability",
        *("answers before", "their mean", share),
        *("answers after", "their mean", share),
    )
    of_what = (
        "Each label of each text is an answer."
        if has_sigmoids
        else "The probability is that of the likeliest class."
    )
    text = (
        f"{origin} Probabilities are calibrated where their mean is the share "
        f"that {share}. {of_what}"
    )
    return "Calibration", "\n\n".join(
        [text, numbers, tables.table(header, rows)]
    )


def _slope(logits, labels, inverse):
    """Returns the loss's first two derivatives by the inverse temperature."""
    # Only a row's differences matter; this way no exponential overflows.
    logits = logits - logits.max(axis=1, keepdims=True)
    weights = np.exp(inverse * logits)
    weights /= weights.sum(axis=1, keepdims=True)
    means = (weights * logits).sum(axis=1)
    squares = (weights * logits**2).sum(axis=1)
    wanted = np.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return (means - wanted).mean(), (squares - means**2).mean()


def _binary_slope(logits, labels, inverse):
    shares = _sigmoid(inverse * logits)
    first = (logits * (shares - labels)).mean()
    return first, (logits**2 * shares * (1 - shares)).mean()


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))
