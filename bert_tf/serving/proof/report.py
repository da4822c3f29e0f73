"""Tables for people to read: answers and comparisons."""

import numpy as np

from bert_tf.serving.proof import check

_TEXT_WIDTH = 60


def comparisons_table(version, comparisons):
    """Returns the table of `check.compare`'s results."""
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
        # What bfloat16 costs is worth knowing where it is in bounds too.
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
        f"Loaded by TensorFlow {version}; tolerance {tolerance:g}.\n"
        + _table(rows)
    )


def answers_table(texts, answers):
    """Returns a table of texts with what the SavedModel answers.

    Args:
        texts: Rows of one or two strings, bytes.
        answers: {output: array}, of `check.answer_texts`.
    """
    names, columns = ["text"], [[_show(row) for row in texts]]
    if "classes" in answers:
        names += ["label", "probabilities"]
        columns.append([label.decode("utf-8") for label in answers["labels"]])
        columns.append(
            [
                ", ".join(
                    f"{probability:.3f} {name.decode('utf-8')}"
                    for probability, name in sorted(
                        zip(probabilities, classes), reverse=True
                    )
                )
                for probabilities, classes in zip(
                    answers["probabilities"], answers["classes"]
                )
            ]
        )
    elif "tokens" in answers:
        names.append("masks")
        columns.append(
            [
                "; ".join(
                    ", ".join(
                        f"{token.decode('utf-8')} {score:.3f}"
                        for token, score in zip(tokens, scores)
                    )
                    for tokens, scores in zip(
                        answers["tokens"][row][:count],
                        answers["scores"][row],
                    )
                )
                for row, count in enumerate(answers["num_masks"])
            ]
        )
    elif "nbest_answers" in answers:
        names += ["answer", "characters", "score"]
        columns.append([_show([answer]) for answer in answers["answers"]])
        columns.append(
            list(map(_show_span, answers["starts"], answers["limits"]))
        )
        columns.append([f"{score:.3f}" for score in answers["scores"]])
        if "null_odds" in answers:
            names.append("null odds")
            columns.append([f"{odds:.3f}" for odds in answers["null_odds"]])
    elif "num_entities" in answers:
        names.append("entities")
        columns.append(
            [
                ", ".join(
                    f"{label.decode('utf-8')} {_show_span(*span)} {score:.3f}"
                    for label, *span, score in zip(
                        answers["labels"][row][:count],
                        answers["starts"][row],
                        answers["limits"][row],
                        answers["scores"][row],
                    )
                )
                for row, count in enumerate(answers["num_entities"])
            ]
        )
    else:
        for name, values in answers.items():
            if values.ndim == 1:
                names.append(name)
                columns.append([f"{value:.4f}" for value in values])
            elif name in ("pooled_output", "embeddings"):
                names.append(name)
                columns.append([_show_vector(vector) for vector in values])
            elif name == "input_word_ids":
                names.append(name)
                columns.append(
                    [
                        " ".join(map(str, ids[mask == 1]))
                        for ids, mask in zip(values, answers["input_mask"])
                    ]
                )
    # Where a text was cut: what is not there may be missing for that alone.
    if any(answers.get("is_cut", ())):
        names.append("cut")
        columns.append(
            ["cut" if is_cut else "" for is_cut in answers["is_cut"]]
        )
    return _table([names, *zip(*columns)])


def _show(row):
    text = " | ".join(string.decode("utf-8", "replace") for string in row)
    text = " ".join(text.split())
    if len(text) > _TEXT_WIDTH:
        text = text[: _TEXT_WIDTH - 3] + "..."
    return text


def _show_span(start, limit):
    return f"{start}-{limit}" if start >= 0 else ""


def _show_vector(vector):
    first = ", ".join(f"{value:.3f}" for value in vector[:3])
    norm = np.linalg.norm(vector)
    return f"[{first}, ...] of {len(vector)}, norm {norm:.3f}"


def _table(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(
            f"{cell:{width}}" for cell, width in zip(row, widths)
        ).rstrip()
        for row in rows
    )
