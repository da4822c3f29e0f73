"""The progress of a run: means over steps, speed, log lines, summaries."""

import contextlib
import importlib.util
import logging
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import tensorflow as tf

# Public only in `tf.compat.v1`, which takes a second to load.
from tensorflow.core.framework import summary_pb2

from bert_tf import atomic
from bert_tf import progress_bar
from bert_tf.training.step import StepResults

_logger = logging.getLogger(__name__)

# A call into TensorFlow cannot be interrupted, so it should take this long.
_SECONDS_PER_CALL = 5.0
# A line is due after this many seconds: after one more call it might be late.
SECONDS_PER_REPORT = progress_bar.SECONDS_PER_LINE - _SECONDS_PER_CALL

# What error messages call the summaries. TensorFlow's reason names the file.
_CURVES = "The curves"


def ratios(sums: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns {name: sum / weight} of {name: (sum, weight)}; 0 of weight 0."""
    return {
        name: total / weight if weight else 0.0
        for name, (total, weight) in sums.items()
    }


def summarize(steps: Sequence[StepResults]) -> dict[str, float]:
    """Combines what `step.train_step` returned for several steps, as floats.

    Returns:
        {name: float}: for `values` the means over the steps, for `metrics` the
        sums divided by the summed weights.
    """
    values = {
        name: sum(step["values"][name] for step in steps) / len(steps)
        for name in steps[0]["values"]
    }
    metrics = {
        name: [sum(step["metrics"][name][i] for step in steps) for i in (0, 1)]
        for name in steps[0]["metrics"]
    }
    return values | ratios(metrics)


@contextlib.contextmanager
def summary_writer(
    folder: str, is_chief: bool = True
) -> Iterator[Callable[[], None]]:
    """Opens a context in which summaries are written, on the chief only.

    Yields:
        A function that flushes the summaries to the file.

    Raises:
        OSError: If they cannot be written, e.g. because the disk is full. An
            error raised in the block takes precedence.
    """
    if not is_chief:
        with tf.summary.create_noop_writer().as_default():
            yield lambda: None
        return
    default = contextlib.ExitStack()
    with atomic.clear_write_errors(_CURVES):
        writer = tf.summary.create_file_writer(folder)
        default.enter_context(writer.as_default())

    def flush():
        with atomic.clear_write_errors(_CURVES):
            writer.flush()

    try:
        yield flush
    except BaseException:
        # Closing flushes. On a full disk that fails, and its error would hide
        # the one from the block.
        with contextlib.suppress(Exception):
            default.close()
        raise
    with atomic.clear_write_errors(_CURVES):
        default.close()


def write_summaries(report: Mapping[str, float]) -> None:
    """Writes {name: float}, with its `step`, to the default summary writer.

    Raises:
        OSError: If they cannot be written, e.g. because the disk is full.
    """
    # The same as `tf.summary.scalar`, which TensorFlow 2.21 only has if
    # tensorboard is installed.
    metadata = summary_pb2.SummaryMetadata(
        plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
    )
    values = dict(report)
    step = values.pop("step")
    with atomic.clear_write_errors(_CURVES):
        for name, value in values.items():
            tf.summary.write(name, tf.constant(value), step, metadata)


def log_curves(folder: str) -> None:
    """Logs the command that shows the summaries in a folder."""
    is_there = importlib.util.find_spec("tensorboard") is not None
    _logger.info(
        "Curves: tensorboard --logdir=%s%s",
        folder,
        "" if is_there else " (pip install 'bert_tf[tensorboard]')",
    )


def log_line(
    report: Mapping[str, float],
    num_train_steps: int,
    unit: str = "examples",
) -> str:
    """Returns a line of the log.

    Args:
        report: {name: float}, with `step`, `step_seconds`, `input_share`,
            `examples_per_second`, `tokens_per_second` and `padding`.
        num_train_steps: Number of the last step.
        unit: What the line calls the rows of a batch.
    """
    values = dict(report)
    step = values.pop("step")
    seconds = values.pop("step_seconds")
    speeds = (
        f"{values.pop('examples_per_second'):.1f} {unit}/s",
        f"{values.pop('tokens_per_second'):,.0f} tokens/s",
        f"{values.pop('padding'):.1%} padding",
        f"{values.pop('input_share'):.1%} waiting",
        f"{seconds:.3g} s/step",
        f"{duration((num_train_steps - step) * seconds)} left",
    )
    text = (f"{name} {value:.4g}" for name, value in values.items())
    return "  ".join((f"step {step}/{num_train_steps}", *text, *speeds))


def duration(seconds: float) -> str:
    """Returns e.g. "0m05s" or "12h34m"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s"


class Timer:
    """Measures the calls since the last report, except for the first call.

    The first call traces and compiles the step, and makes only one step.
    """

    def __init__(self) -> None:
        self._first_seconds: float | None = None
        self._seconds_per_step: float | None = None
        self.restart()

    def restart(self) -> None:
        """Starts a new measurement, without what came before."""
        self._start = time.monotonic()
        self._num_steps = 0
        self._waited = 0.0

    @property
    def knows(self) -> bool:
        """Whether a call after the first has shown how long a step takes."""
        return self._seconds_per_step is not None

    def steps_of_next_call(self, num_left: int) -> int:
        """Returns how many of the remaining steps the next call should make."""
        if self._seconds_per_step is None:
            return 1
        count = int(_SECONDS_PER_CALL / max(self._seconds_per_step, 1e-6))
        return max(1, min(num_left, count))

    def called(self, num_steps: int, waited: float | None) -> None:
        """Notes that a call is over.

        Args:
            num_steps: Number of steps that it made.
            waited: Seconds that it waited for batches; None to leave the call
                out of the measurement.
        """
        if waited is None and self._first_seconds is not None:
            self.restart()
            return
        waited = waited or 0.0
        self._num_steps += num_steps
        self._waited += waited
        seconds = time.monotonic() - self._start
        if self._first_seconds is None:
            self._first_seconds = seconds
            self.restart()
        else:
            self._seconds_per_step = seconds / self._num_steps

    def report(self) -> dict[str, float]:
        """Returns the means since the last report, and starts anew.

        Returns:
            {"step_seconds", "input_share"}: floats. The second is the share of
            the time spent waiting; 0 if there was only the first call.
        """
        seconds = self._seconds_per_step or self._first_seconds or 0.0
        share = 0.0
        if self._num_steps:
            share = min(1.0, self._waited / (seconds * self._num_steps))
        self.restart()
        return {"step_seconds": max(seconds, 1e-6), "input_share": share}
