"""report.md: the results of a training at a glance.

`Reporter` calls `write` with the task's own Markdown sections; see
`tasks.tables`. The curves are in curves.png, drawn by matplotlib, which the
extra bert_tf[report] installs.
"""

import io
import os
import shlex
import sys
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert_tf import atomic
from bert_tf.tasks.tables import table
from bert_tf.tuning.record import EpochRecord

REPORT_FILE = "report.md"
CURVES_FILE = "curves.png"
# Results that are no scores.
_STEPS_AND_LOSSES = {"epoch", "global_step", "loss", "eval_loss"}


def write(
    folder: str,
    title: str,
    results: Mapping[str, float],
    record: EpochRecord,
    settings: Mapping[str, Any],
    sections: Iterable[tuple[str, str]],
    scores: Collection[str] | None = None,
) -> None:
    """Writes report.md, and curves.png if there was a training.

    Args:
        folder: The output folder.
        title: Its heading.
        results: {name: float} of the kept model's evaluation.
        record: The `EpochRecord` of its training.
        settings: {name: value}, the hyper-parameters.
        sections: A list of (heading, Markdown).
        scores: Names of the results to show beside steps and losses, if the
            sections show the others; None for all.
    """
    results, *evaluations = (
        shown_results(values, scores)
        for values in (results, *record.evaluations)
    )
    shown = table(("result", "value"), sorted(results.items()))
    parts = [f"# {title}", shown]
    if record.training:
        curves = _curves(folder, record.training, evaluations)
        parts += ["## Training", *curves]
        if evaluations:
            parts.append(_epochs_table(evaluations))
    for heading, text in sections:
        parts += [f"## {heading}", text]
    rows = [(name, _exact(settings[name])) for name in settings]
    parts += ["## Settings", table(("setting", "value"), rows)]
    # The command as it was given, so that it can be repeated.
    command = shlex.join(["python", *sys.orig_argv[1:]])
    parts += ["## Command", f"```\n{command}\n```"]
    path = os.path.join(folder, REPORT_FILE)
    atomic.write_text(path, "\n\n".join(parts) + "\n")
    logging.info("A report is in %s.", path)


def _exact(value):
    """Returns a setting in all its digits, so that a run can be repeated."""
    if isinstance(value, float) and float(f"{value:.4g}") == value:
        return f"{value:.4g}"
    return str(value)


def shown_results(
    results: Mapping[str, float], scores: Collection[str] | None
) -> dict[str, float]:
    """Returns the results that a report shows; see `write`."""
    return {
        name: results[name]
        for name in results
        if scores is None or name in {*scores, *_STEPS_AND_LOSSES}
    }


def _epochs_table(evaluations):
    names = sorted(set(evaluations[0]) - {"epoch", "global_step"})
    rows = [
        [results["epoch"], results["global_step"]]
        + [results.get(name, "") for name in names]
        for results in evaluations
    ]
    return table(("epoch", "step", *names), rows)


def _curves(folder, training, evaluations):
    """Draws the curves; returns Markdown that shows them or says why not."""
    try:
        from matplotlib import figure
        from matplotlib import ticker
    except ImportError:
        text = "No curves without matplotlib: pip install 'bert_tf[report]'."
        logging.warning("%s", text)
        return [text]
    drawing = figure.Figure(figsize=(9, 3.5), layout="constrained")
    losses = drawing.add_subplot(1, 2, 1)
    scores = drawing.add_subplot(1, 2, 2)
    losses.plot(
        *_curve(training, "step", "loss"),
        # A single point makes no line.
        marker="o" if len(training) == 1 else None,
        label="training",
    )
    if evaluations and "eval_loss" in evaluations[0]:
        losses.plot(
            *_curve(evaluations, "global_step", "eval_loss"),
            marker="o",
            label="development",
        )
    losses.set(xlabel="step", ylabel="loss")
    losses.legend()
    shown = set(evaluations[0]) if evaluations else set()
    for name in sorted(shown - _STEPS_AND_LOSSES):
        # Only scores up to 1 or up to 100: counts make no useful curve.
        values = [results[name] for results in evaluations]
        # NaN leaves a gap.
        if not any(abs(value) > 100 for value in values):
            steps, _ = _curve(evaluations, "global_step", name)
            scores.plot(steps, values, marker="o", label=name)
    scores.set(xlabel="step", ylabel="score")
    if scores.lines:
        scores.legend()
    for axes in (losses, scores):
        axes.grid(alpha=0.3)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    image = io.BytesIO()
    drawing.savefig(image, format="png", dpi=110)
    atomic.write_bytes(f"{folder}/{CURVES_FILE}", image.getvalue())
    return [f"![Loss and scores by step]({CURVES_FILE})"]


def _curve(points, x, y):
    return [point[x] for point in points], [point[y] for point in points]
