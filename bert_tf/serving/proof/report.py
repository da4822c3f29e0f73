"""Printable tables of answers and comparisons."""

from collections.abc import Sequence

import numpy as np

from bert_tf.serving.kinds.output import show_text
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.proof import check
from bert_tf.serving.proof.accuracy import Accuracy


def comparisons_table(
    version: str,
    comparisons: Sequence[check.Comparison],
    runtime: str = "TensorFlow",
) -> str:
    """Returns the table of `check.compare`'s results.

    Args:
        version: The release of the runtime.
        comparisons: The results, all with one tolerance.
        runtime: The name of the runtime.
    """
    tolerance = comparisons[0].tolerance
    is_exact = tolerance == check.TOLERANCE
    rows = [("signature", "texts", "max difference", "", "at")]
    for comparison in comparisons:
        share = comparison.num_changed / max(comparison.num_texts, 1)
        verdict = (
            "equal"
            if is_exact
            else f"{comparison.num_changed} changed ({share:.1%})"
        )
        if not comparison.is_equal:
            verdict = "DIFFERENT"
        # The cost of bfloat16 is worth knowing even if it is within bounds.
        is_shown = not (is_exact and comparison.is_equal)
        rows.append(
            (
                comparison.signature,
                str(comparison.num_texts),
                f"{comparison.max_difference:.2e}",
                verdict,
                comparison.worst if is_shown else "",
            )
        )
    return (
        f"Loaded by {runtime} {version}; tolerance {tolerance:g}.\n"
        + _table(rows)
    )


def answers_table(
    texts: Sequence[Row],
    answers: dict[str, np.ndarray],
    kind: type[Servable],
) -> str:
    """Returns a table of texts with the SavedModel's answers.

    Args:
        texts: Rows of one or two strings, bytes.
        answers: {output: array}, as `check.answer_texts` returns them.
        kind: What the SavedModel serves.
    """
    header, *rows = [["text"], *([show_text(*row)] for row in texts)]
    for output in kind.outputs_of_strings:
        # A column of flags is left out if none is set.
        if (
            output.name not in answers
            or not output.heading
            or (output.dtype == "bool" and not any(answers[output.name]))
        ):
            continue
        header.append(output.heading)
        for row, cells in enumerate(rows):
            values = {name: array[row] for name, array in answers.items()}
            cells.append(output.cell(values))
    return _table([header, *rows])


def check_is_good(
    what: str,
    comparisons: Sequence[check.Comparison],
    found: Accuracy | None,
    max_accuracy_loss: float | None,
    table: str,
) -> None:
    """Raises `ValueError` if an export is not as good as the trained model.

    Args:
        what: What was compared, for the message.
        comparisons: The results of the comparison.
        found: Its `Accuracy`, or None.
        max_accuracy_loss: As in `ExportOptions`.
        table: The printed comparison, for the message.
    """
    problem = ""
    if not all(comparison.is_equal for comparison in comparisons):
        problem = "does not answer as the trained model does"
    elif found is not None and found.exceeds(max_accuracy_loss):
        problem = "scores too much less than the trained model does"
    if problem:
        raise ValueError(f"{what} {problem}; nothing was exported.\n{table}")


def _table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(
            f"{cell:{width}}" for cell, width in zip(row, widths)
        ).rstrip()
        for row in rows
    )
