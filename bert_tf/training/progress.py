"""How a run is doing: means over steps, speed, log lines, summaries."""

import time

import tensorflow as tf

# A call into TensorFlow cannot be interrupted; it is kept about this short.
_SECONDS_PER_CALL = 5.0


def ratios(sums):
    """Returns {name: sum / weight}, or 0, of {name: (sum, weight)}."""
    return {
        name: total / weight if weight else 0.0
        for name, (total, weight) in sums.items()
    }


def summarize(steps):
    """Puts together what `loop.train_step` returned, as floats.

    Returns:
        {name: float}: the means of the `values` over the steps, and of the
        `metrics` the sums divided by the summed weights.
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


def write_summaries(report):
    """Writes {name: float}, with its `step`, to the default summary writer."""
    # What tensorboard's `tf.summary.scalar` writes: TensorFlow 2.21 has it no
    # longer, unless tensorboard is installed.
    metadata = tf.compat.v1.SummaryMetadata(
        plugin_data={"plugin_name": "scalars"}, data_class="DATA_CLASS_SCALAR"
    )
    for name, value in report.items():
        if name != "step":
            tf.summary.write(name, tf.constant(value), report["step"], metadata)


def log_line(report, num_train_steps, batch_size):
    """Returns a line for people.

    Args:
        report: {name: float}, with `step`, `examples_per_second`,
            `tokens_per_second` and `padding`.
        num_train_steps: Number of the last step.
        batch_size: Examples a step.
    """
    values = dict(report)
    step = values.pop("step")
    speed = values.pop("examples_per_second")
    tokens = values.pop("tokens_per_second")
    padding = values.pop("padding")
    seconds = (num_train_steps - step) * batch_size / speed
    text = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
    return (
        f"step {step}/{num_train_steps}  {text}  {speed:.1f} examples/s  "
        f"{tokens:,.0f} tokens/s  {padding:.1%} padding  "
        f"{duration(seconds)} left"
    )


def duration(seconds):
    """Returns e.g. "0m05s" or "12h34m"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{seconds:02d}s"


class Timer:
    """Measures the calls since the last report, without the first call.

    The first call traces and compiles the step, and is of one step alone.
    """

    def __init__(self):
        self._first_seconds = None
        self._seconds_per_step = None
        self.restart()

    def restart(self):
        """Leaves out of the next measure what came before."""
        self._start = time.monotonic()
        self._num_steps = 0

    def steps_of_next_call(self, num_left):
        """Returns how many of the steps left the next call should make."""
        if self._seconds_per_step is None:
            return 1
        count = int(_SECONDS_PER_CALL / max(self._seconds_per_step, 1e-6))
        return max(1, min(num_left, count))

    def called(self, num_steps):
        """Notes that a call of so many steps is over."""
        self._num_steps += num_steps
        seconds = time.monotonic() - self._start
        if self._first_seconds is None:
            self._first_seconds = seconds
            self.restart()
        else:
            self._seconds_per_step = seconds / self._num_steps

    def steps_per_second(self):
        """Returns the speed since the last report, and starts anew."""
        seconds = self._seconds_per_step or self._first_seconds
        self.restart()
        return 1 / max(seconds, 1e-6)
