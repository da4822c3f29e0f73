"""The health of a run: loss spikes, skipped steps, slow or stalled input."""

import collections
import contextlib
import logging
import math
import statistics
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import TYPE_CHECKING

_logger = logging.getLogger(__name__)


if TYPE_CHECKING:
    from bert_tf.config import BertConfig

    # It imports TensorFlow.
    from bert_tf.training.step import StepResults

# A loss is compared with the finite losses of this many steps before it, once
# there are a few. Spikes hardly move the median and the median deviation.
_WINDOW = 200
_FEWEST = 30
# A spike exceeds both limits: in standard deviations (1.4826 median deviations
# for normal values), and as a share of the median, since the losses may hardly
# vary.
_SPIKE_DEVIATIONS = 8.0
_SPIKE_SHARE = 0.1
# A run has diverged if its loss of masked words is so many times that of
# guessing, or so many times its own lowest and has lost so much of what it had
# learned. (Who knows how frequent words are, and no more, has about 7 nats.)
_ABOVE_GUESSING = 1.2
_ABOVE_LOWEST = 1.3
_LOST_SHARE = 0.25
# If waiting for the input takes more than this share of the time, warn.
_WAITING_SHARE = 0.2
# Warn after this many seconds without input, again after twice as many, and so
# on.
_STALL_SECONDS = 60.0
_LOOK_SECONDS = 15.0


class NotFiniteError(ValueError):
    """A loss or a gradient became infinite or not a number."""


class Health:
    """Watches the steps of a run and counts skipped steps and loss spikes.

    Args:
        skip_nonfinite_steps: Most steps in a row whose gradient may be
            non-finite; the optimizer skips them. 0 allows none.

    Attributes:
        num_skipped: Steps skipped since this program began.
        num_spikes: Steps whose loss was a spike: above the median of the 200
            steps before by more than 8 standard deviations and by more than a
            tenth.
    """

    def __init__(self, skip_nonfinite_steps: int = 0) -> None:
        self.num_skipped = 0
        self.num_spikes = 0
        self._allowed = skip_nonfinite_steps
        self._in_a_row = 0
        self._losses: collections.deque[float] = collections.deque(
            maxlen=_WINDOW
        )

    def watch(
        self, steps: Sequence["StepResults"], first_step: int
    ) -> list["StepResults"]:
        """Checks what `step.train_step` returned for the steps of one call.

        Args:
            steps: A list of its results, as floats.
            first_step: Number of the first step.

        Returns:
            The results of the steps that were not skipped.

        Raises:
            NotFiniteError: If a value is not finite and the step cannot be
                skipped.
        """
        made = []
        for number, step in enumerate(steps, first_step):
            values = step["values"]
            bad = [name for name in values if not math.isfinite(values[name])]
            if not bad:
                self._in_a_row = 0
                self._watch_loss(values["loss"], number)
                made.append(step)
                continue
            message = ", ".join(f"{name}={values[name]}" for name in bad)
            self._in_a_row += 1
            # The optimizer only skips steps whose gradient is not finite.
            if self._in_a_row > self._allowed or "gradient_norm" not in bad:
                raise NotFiniteError(
                    f"Step {number} (of steps {first_step} to "
                    f"{first_step + len(steps) - 1} of one call) is not "
                    f"finite: {message}. Training stopped; none of these steps "
                    "is saved."
                )
            self.num_skipped += 1
            _logger.warning(
                "Step %d is skipped, number %d in a row of at most %d: it is "
                "not finite: %s.",
                number,
                self._in_a_row,
                self._allowed,
                message,
            )
        return made

    def _watch_loss(self, loss, number):
        if len(self._losses) >= _FEWEST:
            median = statistics.median(self._losses)
            deviation = 1.4826 * statistics.median(
                abs(other - median) for other in self._losses
            )
            limit = median + max(
                _SPIKE_DEVIATIONS * deviation, _SPIKE_SHARE * abs(median)
            )
            if loss > limit:
                self.num_spikes += 1
                _logger.warning(
                    "Step %d: the loss of %.4g is a spike; the median of the "
                    "%d steps before is %.4g.",
                    number,
                    loss,
                    len(self._losses),
                    median,
                )
        self._losses.append(loss)


def divergence(
    reports: Sequence[Mapping[str, float]], num_words: int
) -> str | None:
    """Returns what shows that a pre-training has diverged; None if nothing.

    Args:
        reports: Those of `loop.train` so far. Without `masked_lm_loss` there is
            nothing to compare.
        num_words: Of the vocabulary. Guessing has a loss of its logarithm.
    """
    losses = [
        report["masked_lm_loss"]
        for report in reports
        if "masked_lm_loss" in report
    ]
    if not losses:
        return None
    last, lowest, guessing = losses[-1], min(losses), math.log(num_words)
    if last > _ABOVE_GUESSING * guessing:
        return (
            f"the loss of masked words is {last:.4g}, and that of guessing "
            f"{guessing:.4g}"
        )
    lost = lowest + _LOST_SHARE * (guessing - lowest)
    if last > max(_ABOVE_LOWEST * lowest, lost):
        return f"the loss of masked words rose from {lowest:.4g} to {last:.4g}"
    return None


def warn_if_waiting(input_share: float) -> None:
    """Warns if the devices wait for the input too much of the time."""
    if input_share > _WAITING_SHARE:
        _logger.warning(
            "The input is too slow: the devices waited for it %.0f %% of the "
            "time. Records on a nearer disk or in more files, more CPUs or a "
            "larger batch help.",
            100 * input_share,
        )


@contextlib.contextmanager
def warn_of_stalls(
    waiting_since: Callable[[], float], now: Callable[[], float] = time.time
) -> Iterator[None]:
    """Warns, while the block runs, if the input sends no batch.

    The step itself cannot warn: it waits inside TensorFlow.

    Args:
        waiting_since: A function that returns the time, by the clock `now`, at
            which the wait for a batch began, or 0 if there is no wait.
        now: The clock.
    """
    ends = threading.Event()

    def watch():
        named, limit = 0.0, _STALL_SECONDS
        while not ends.wait(_LOOK_SECONDS):
            start = waiting_since()
            if start != named:
                named, limit = start, _STALL_SECONDS
            seconds = now() - start
            if start and seconds > limit:
                _logger.warning(
                    "The input is stalled: no batch has come for %.0f seconds. "
                    "The devices wait for it; look at the files' disk or "
                    "store, the network and the tf.data services.",
                    seconds,
                )
                limit = 2 * seconds

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def flops_per_example(
    config: "BertConfig", length: int, num_predictions: int
) -> float:
    """Returns the floating-point operations of an example's training step.

    These are the matrix products of pre-training over all positions, including
    padding. A multiplication with its addition counts as two operations, and
    the gradients count twice as much as the outputs. What `--rematerialize`
    computes again is not counted, as is usual in model FLOPs utilisation
    (arXiv 2204.02311, appendix B).

    Args:
        config: A `BertConfig`.
        length: Positions of an example.
        num_predictions: Predicted positions of an example.
    """
    hidden = config.hidden_size
    # Query, key, value and output; feed-forward, maybe with a gate.
    inner = config.intermediate_size * (6 if config.norm_first else 4)
    blocks = config.num_hidden_layers * length * hidden * (8 * hidden + inner)
    # Scores and context, of windows those that are computed.
    for layer in range(config.num_hidden_layers):
        seen = length
        if config.is_local(layer):
            seen = min(length, 3 * (config.attention_window or 0))
        blocks += 4 * length * seen * hidden
    width = config.embedding_width
    head = num_predictions * 2 * width * (hidden + config.vocab_size)
    pooler = 2 * hidden * hidden if config.is_trained_on_pairs else 0
    projection = 0
    if config.embedding_size is not None:
        projection = length * 2 * width * hidden
    return 3.0 * (projection + blocks + head + pooler)
