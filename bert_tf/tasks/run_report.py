"""report.md: what a training came to, for people who look before they read.

A program calls `write` with sections of its task's own, of Markdown; `table`
makes tables. The curves are in curves.png, drawn by matplotlib, which the
extra bert_tf[report] installs.
"""

import io
import shlex
import sys

from absl import logging

from bert_tf import files

REPORT_FILE = "report.md"
CURVES_FILE = "curves.png"
_MAX_CELL = 400


def write(folder, title, results, record, settings, sections):
    """Writes report.md, and curves.png where there was a training.

    Args:
        folder: The output folder.
        title: Its heading.
        results: {name: float} of the evaluation of the kept model.
        record: The `EpochRecord` of its training.
        settings: {name: value}, the hyper-parameters.
        sections: A list of (heading, Markdown).
    """
    parts = [f"# {title}", _results_table(results)]
    if record.training:
        parts += ["## Training", *_curves(folder, record)]
        if record.evaluations:
            parts.append(_epochs_table(record))
    for heading, text in sections:
        parts += [f"## {heading}", text]
    rows = [(name, settings[name]) for name in settings]
    parts += ["## Settings", table(("setting", "value"), rows)]
    # As Python was called, so that it may be called so again.
    command = shlex.join(["python", *sys.orig_argv[1:]])
    parts += ["## Command", f"```\n{command}\n```"]
    files.write_text(f"{folder}/{REPORT_FILE}", "\n\n".join(parts) + "\n")
    logging.info("A report is in %s/%s.", folder, REPORT_FILE)


def table(header, rows):
    """Returns a table in Markdown; long cells are cut, pipes escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines
    )


def _cell(value):
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    if len(text) > _MAX_CELL:
        text = text[: _MAX_CELL - 1] + "…"
    # Texts are quoted as they are: none of it is Markdown or HTML.
    for character in "\\`*_<>[]|":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())


def _results_table(results):
    return table(("result", "value"), sorted(results.items()))


def _epochs_table(record):
    names = sorted(set(record.evaluations[0]) - {"epoch", "global_step"})
    rows = [
        [results["epoch"], results["global_step"]]
        + [results.get(name, "") for name in names]
        for results in record.evaluations
    ]
    return table(("epoch", "step", *names), rows)


def _curves(folder, record):
    """Draws the curves; returns the lines that show or excuse them."""
    try:
        from matplotlib import figure
        from matplotlib import ticker
    except ImportError:
        text = "No curves without matplotlib: pip install 'bert_tf[report]'."
        logging.warning("%s", text)
        return [text]
    drawing = figure.Figure(figsize=(9, 3.5), layout="constrained")
    losses, scores = drawing.subplots(1, 2)
    losses.plot(*_curve(record.training, "step", "loss"), label="training")
    evaluations = record.evaluations
    if evaluations and "eval_loss" in evaluations[0]:
        losses.plot(
            *_curve(evaluations, "global_step", "eval_loss"),
            marker="o",
            label="development",
        )
    losses.set(xlabel="step", ylabel="loss")
    losses.legend()
    shown = set(evaluations[0]) if evaluations else set()
    for name in sorted(shown - {"epoch", "global_step", "loss", "eval_loss"}):
        # Scores between 0 and 1, or of 100: counts are no curves.
        values = [results[name] for results in evaluations]
        if max(map(abs, values)) <= 100:
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
    files.write_bytes(f"{folder}/{CURVES_FILE}", image.getvalue())
    return [f"![Loss and scores by step]({CURVES_FILE})"]


def _curve(points, x, y):
    return [point[x] for point in points], [point[y] for point in points]
