"""Printable tables of answers and comparisons."""

from collections.abc import Sequence

import numpy as np

from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.output import show_text
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.proof import check


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


def answers_table(texts: Sequence[Row], answers: dict[str, np.ndarray]) -> str:
    """Returns a table of texts with the SavedModel's answers.

    Args:
        texts: Rows of one or two strings, bytes.
        answers: {output: array}, as `check.answer_texts` returns them.
    """
    header, *rows = [["text"], *([show_text(*row)] for row in texts)]
    for output in opening.kind_of_outputs(answers).outputs_of_strings:
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


def _table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(
            f"{cell:{width}}" for cell, width in zip(row, widths)
        ).rstrip()
        for row in rows
    )
