"""What a report tells of a reranking."""

import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.reranking.files import Groups

# Ranks that are counted together: from the first to the last.
_BANDS = ((1, 1), (2, 3), (4, 10), (11, None))


def ranks_of(groups: Groups, scores: np.ndarray) -> list[np.ndarray]:
    """Returns the ranks of every query's texts that answer it.

    Of equal scores those that do not answer come first: files have the text
    that does before the others, and a model that scores all alike would be
    always right.

    Args:
        groups: Labelled `Groups`.
        scores: float `[N]`.

    Returns:
        int64 `[R]` of each query, rising.
    """
    assert groups.labels is not None
    return [
        1 + np.flatnonzero(groups.labels[rows])
        for rows in _ordered(groups, scores)
    ]


def _ordered(groups, scores):
    """Returns `rows` of groups, each by falling scores; see `ranks_of`."""
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
        A list of (heading, Markdown): at which ranks the first text that
        answers stands, and the queries where it stands lowest.
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
