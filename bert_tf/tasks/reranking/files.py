r"""Queries with texts that answer them or do not: files and tables.

A table (see `tasks.columns`: .tsv and .csv with a header, .jsonl, .parquet, a
DataFrame, ...) has one of two forms:

    query, text, label                a text a row; the label is 1 if the text
                                      answers the query, otherwise 0
    query, positive, negative, ...    a text that answers it, and texts that do
                                      not: any number of columns `negative`,
                                      `negative_1`, `negative_2`, ..., and in
                                      .jsonl and .parquet a list `negatives`

The second form may have `anchor` instead of `query`, as `run_search` writes it.
All rows of a query form its group, wherever they are. Files of triplets repeat
texts, so in the second form a repeated text of a group is read once. Without
labels all texts are kept in place, because each gets a prediction.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf import messages
from bert_tf.tasks import columns
from bert_tf.tasks.retrieval import negatives
from bert_tf.tasks.retrieval.negatives import NEGATIVES

QUERY, TEXT, LABEL = "query", "text", "label"
ANCHOR, POSITIVE = "anchor", "positive"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Groups:
    """Queries, each with the texts that are ranked for it.

    Args:
        queries: G different strings.
        texts: N strings, of all groups.
        group_ids: int32 `[N]`, the index of each text's query.
        labels: int32 `[N]`, 1 for texts that answer their query, 0 for others;
            or None.
    """

    queries: tuple[str, ...]
    texts: tuple[str, ...]
    group_ids: np.ndarray
    labels: np.ndarray | None

    def __len__(self):
        return len(self.texts)

    @property
    def rows(self) -> list[np.ndarray]:
        """The indices of every query's texts, each int `[...]`."""
        order = np.argsort(self.group_ids, kind="stable")
        counts = np.bincount(self.group_ids, minlength=len(self.queries))
        return np.split(order, np.cumsum(counts)[:-1])


def read_groups(
    data: Any,
    has_labels: bool = True,
    label_column: str = LABEL,
    *,
    needs_positives: bool = False,
    needs_negatives: bool = False,
) -> Groups:
    """Reads queries with their texts.

    Args:
        data: The path of a file, or a table.
        has_labels: Whether to read the labels. If not, they may be missing.
        label_column: Name of the labels' column in the first form.
        needs_positives: Whether each query must have a text that answers it.
        needs_negatives: Whether each query must have a text that does not.

    Raises:
        ValueError: If a file is missing, has no examples or an unknown form, a
            query or a text is empty, a label is neither 0 nor 1, or a text of
            a query has both labels. If a table of the second form has no
            negatives although labels are read, or has a column that might be
            meant as negatives. If a group lacks a text that it needs. The
            message names the file and the line, or the query.
    """
    names = columns.names_in(data)
    if POSITIVE in names:
        rows = _rows_of_negatives(data, names)
    else:
        rows = _rows_of_labels(data, label_column if has_labels else None)
    queries: dict[str, int] = {}
    texts: list[str] = []
    group_ids, labels = [], []
    known: dict[tuple[int, str], int] = {}
    for where, query, text, label in rows:
        group = queries.setdefault(query, len(queries))
        old = known.setdefault((group, text), label)
        if has_labels and old != label:
            raise ValueError(
                f"{where}: a text of a query must have one label. Received: "
                f"0 and 1 for {messages.shortened(text)}."
            )
        if has_labels and POSITIVE in names and len(known) == len(texts):
            continue
        texts.append(text)
        group_ids.append(group)
        labels.append(label)
    if has_labels and POSITIVE in names and 0 not in labels:
        raise ValueError(
            f"{columns.title(data)}: there must be a negative, a text that "
            "does not answer its query, in a column `negative`, `negative_1` "
            f"and so on, or a list `{NEGATIVES}`. "
            f"Received: none in the columns {', '.join(names)}."
        )
    groups = Groups(
        queries=tuple(queries),
        texts=tuple(texts),
        group_ids=np.array(group_ids, np.int32),
        labels=np.array(labels, np.int32) if has_labels else None,
    )
    for label, is_needed in ((1, needs_positives), (0, needs_negatives)):
        if is_needed:
            _check_has(columns.title(data), groups, label)
    return groups


def _check_has(title, groups, label):
    """Raises `ValueError` unless every query has a text with this label."""
    found = {*groups.group_ids[groups.labels == label].tolist()}
    for group, query in enumerate(groups.queries):
        if group not in found:
            raise ValueError(
                f"{title}: every query must have a text with label {label}. "
                f"Received: none for {messages.shortened(query)}."
            )


def _rows_of_labels(data, label_column) -> Iterator[tuple[str, str, str, int]]:
    """Yields (name of the row, query, text, label) for each row."""
    names = [QUERY, TEXT, *([label_column] if label_column else [])]
    for where, (query, text, *label) in columns.read(data, names):
        columns.check_full_text(where, QUERY, query)
        columns.check_full_text(where, TEXT, text)
        yield where, query, text, _parse_label(where, *label) if label else 0


def _rows_of_negatives(data, names) -> Iterator[tuple[str, str, str, int]]:
    found = negatives.find(columns.title(data), names, may_be_list=True)
    query_name = ANCHOR if QUERY not in names and ANCHOR in names else QUERY
    names = [query_name, POSITIVE, *found]
    for where, values in columns.read(data, names):
        query, positive, *others = values
        columns.check_full_text(where, query_name, query)
        columns.check_full_text(where, POSITIVE, positive)
        yield where, query, positive, 1
        for name, value in zip(found, others):
            if name == NEGATIVES:
                columns.check_texts(where, name, value)
            for text in value if name == NEGATIVES else [value]:
                columns.check_full_text(where, name, text)
                yield where, query, text, 0


def _parse_label(where, label):
    try:
        number = float(label)
    except (OverflowError, TypeError, ValueError):
        number = -1.0
    if number not in (0, 1):
        raise ValueError(
            f"{where}: the label must be 1 for a text that answers the query, "
            f"otherwise 0. Received: {messages.shortened(label)}."
        )
    return int(number)
