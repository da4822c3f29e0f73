"""Reads texts and labels from TSV files.

Fields are separated by tabs and never quoted: a quotation mark is a character
like any other, as GLUE's files have them. A line ends at LF or CR LF.
"""

import dataclasses
import math

import numpy as np
from absl import logging

from bert_tf import files


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Labelled or unlabelled texts.

    Args:
        texts: For each of the task's text features a list of N strings.
        labels: int32 `[N]` class ids, float32 `[N]` scores, or None.
    """

    texts: tuple[list[str], ...]
    labels: np.ndarray | None

    def __len__(self):
        return len(self.texts[0])


@dataclasses.dataclass(frozen=True, kw_only=True)
class TsvFile:
    """Where a TSV file has its texts and labels.

    Args:
        name: The file's name within the data folder.
        text_columns: Of each text feature its column's number, from 0, or
            its name in the header.
        label_column: Likewise; None in a file without labels.
        num_columns: How many columns a file without a header has. None if the
            first line is a header.
        skip_bad_rows: Whether rows of another number of columns are left out,
            with a warning, instead of being an error.
    """

    name: str
    text_columns: tuple[int | str, ...]
    label_column: int | str | None = None
    num_columns: int | None = None
    skip_bad_rows: bool = False


def read_tsv(path, tsv_file, task):
    """Reads a file's texts and labels.

    Raises:
        ValueError: If the file is missing, not UTF-8 or without examples, or
            a line has another number of columns than the header, or a label
            that the task does not have. The message names file and line.
    """
    texts = tuple([] for _ in tsv_file.text_columns)
    labels = []
    for line, texts_of_row, label in _rows(path, tsv_file):
        for column, text in zip(texts, texts_of_row):
            column.append(text)
        if label is not None:
            labels.append(_parse_label(path, line, label, task))
    if tsv_file.label_column is None:
        return Examples(texts=texts, labels=None)
    dtype = np.int32 if task.labels else np.float32
    return Examples(texts=texts, labels=np.array(labels, dtype))


def find_labels(path, tsv_file):
    """Returns the distinct labels of a file, sorted.

    Raises:
        ValueError: As `read_tsv` does, and if there are fewer than two.
    """
    labels = set()
    for line, _, label in _rows(path, tsv_file):
        if not label:
            raise ValueError(f"{path}, line {line}: the label is empty.")
        labels.add(label)
    if len(labels) < 2:
        raise ValueError(
            f"{path}: a classification needs two labels or more. "
            f"Received: {', '.join(labels)}."
        )
    return tuple(sorted(labels))


def _rows(path, tsv_file):
    """Yields (line number, [text of each feature], label or None)."""
    lines = files.read_text(path).removeprefix("\ufeff").split("\n")
    # Not splitlines(): a sentence may hold U+2028 or a form feed.
    lines = [line.removesuffix("\r") for line in lines]
    if not lines[-1]:
        lines.pop()
    first = 0 if tsv_file.num_columns else 1
    if len(lines) <= first:
        raise ValueError(f"{path}: there are no examples in the file.")
    header = lines[0].split("\t")
    num_columns = tsv_file.num_columns or len(header)
    text_indices = [
        _column_index(path, column, header) for column in tsv_file.text_columns
    ]
    label_index = None
    if tsv_file.label_column is not None:
        label_index = _column_index(path, tsv_file.label_column, header)

    num_skipped = 0
    for number, line in enumerate(lines[first:], start=first + 1):
        fields = line.split("\t")
        if len(fields) != num_columns:
            if tsv_file.skip_bad_rows:
                num_skipped += 1
                continue
            raise ValueError(
                f"{path}, line {number}: a row must have {num_columns} "
                f"columns. Received: {len(fields)}."
            )
        yield (
            number,
            [fields[index] for index in text_indices],
            None if label_index is None else fields[label_index],
        )
    if num_skipped == len(lines) - first:
        raise ValueError(f"{path}: no row has {num_columns} columns.")
    if num_skipped:
        logging.warning(
            "%s: left out %d of %d rows, which do not have %d columns.",
            path,
            num_skipped,
            len(lines) - first,
            num_columns,
        )


def _column_index(path, column, header):
    if isinstance(column, str):
        if header.count(column) != 1:
            raise ValueError(
                f"{path}, line 1: the header must have a column {column!r}, "
                f"once. Received: {', '.join(header)}."
            )
        return header.index(column)
    if not -len(header) <= column < len(header):
        raise ValueError(
            f"{path}, line 1: there must be a column {column + 1}. "
            f"Received: {len(header)} columns."
        )
    return column


def _parse_label(path, line, label, task):
    if task.labels:
        if label not in task.labels:
            raise ValueError(
                f"{path}, line {line}: the label must be one of "
                f"{', '.join(task.labels)}. Received: {label!r}."
            )
        return task.labels.index(label)
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(
            f"{path}, line {line}: the score must be a number. "
            f"Received: {label!r}."
        )
    return score
