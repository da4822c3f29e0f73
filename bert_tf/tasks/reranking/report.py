"""The report of a reranking."""

import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.reranking.files import Groups

# Ranks that are counted together: (first, last).
_BANDS = ((1, 1), (2, 3), (4, 10), (11, None))


def ranks_of(groups: Groups, scores: np.ndarray) -> list[np.ndarray]:
    """Returns the ranks of every query's texts that answer it.

    Among equal scores, texts that do not answer come first. Files list the
    answer first, so a model that gives all texts the same score would always
    be right otherwise.

    Args:
        groups: Labelled `Groups`.
        scores: float `[N]`.

    Returns:
        int64 `[R]` for each query, ascending.
    """
    assert groups.labels is not None
    return [
        1 + np.flatnonzero(groups.labels[rows])
        for rows in _ordered(groups, scores)
    ]


def _ordered(groups, scores):
    """Returns the `rows` of groups by descending score; see `ranks_of`."""
    return [
        rows[np.lexsort((groups.labels[rows], -scores[rows]))]
        for rows in groups.rows
    ]


def sections(groups: Groups, scores: np.ndarray) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`.

    Args:
        groups: Labelled `Groups`.
        scores: float32 `[N]`.

    Returns:
        A list of (heading, Markdown): the ranks of the first text that
        answers, and the queries where it ranks lowest.
    """
    first = np.array([ranks.min() for ranks in ranks_of(groups, scores)])
    return [
        ("First right text", _counts(first)),
        ("Worst queries", _worst(groups, scores, first)),
    ]


def _counts(first):
    rows = []
    for low, high in _BANDS:
        is_in = (first >= low) & (first <= (high or first.max()))
        name = f"{low}" if low == high else f"{low} to {high}"
        name = name if high else f"from {low}"
        rows.append((name, is_in.sum(), float(is_in.mean())))
    return tables.table(("rank", "queries", "share"), rows)


def _worst(groups, scores, first):
    rows = []
    texts_of = _ordered(groups, scores)
    for group in tables.worst(first, first > 1):
        texts = texts_of[group]
        best, right = texts[0], texts[groups.labels[texts] == 1][0]
        rows.append(
            (
                groups.queries[group],
                len(texts),
                first[group],
                groups.texts[right],
                float(scores[right]),
                groups.texts[best],
                float(scores[best]),
            )
        )
    header = (
        *("query", "texts", "rank", "its right text", "score"),
        *("the text of rank 1", "score"),
    )
    return tables.errors_table(header, rows)
