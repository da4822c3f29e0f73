"""Reads texts and labels from TSV files, and from CSV files.

The name of a file tells its format. In a .csv file commas separate the fields;
fields in quotation marks may hold commas, line ends and doubled quotation marks
(RFC 4180). In any other file tabs separate the fields, which are never quoted:
a quotation mark is a character like any other, as in GLUE's files. Lines end at
LF or CR LF.
"""

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf import streams
from bert_tf.tasks import class_names

# A line of a CSV, which may end at a lone CR, too.
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
# A field of a CSV in quotation marks, up to the closing one; and one without.
_QUOTED = r'"[^"]*+(?:""[^"]*+)*+'
_PLAIN = r'[^",][^,]*+'
# All fields of a line. The group is a last one that the next line goes on with.
_ROW = re.compile(
    rf'(?:(?:{_QUOTED}"|{_PLAIN})?(?:,|\Z))*+({_QUOTED})?', re.DOTALL
)
_FIELD = re.compile(rf'(?:\A|,)({_QUOTED}"|{_PLAIN})?')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examples:
    """Labelled or unlabelled texts.

    Args:
        texts: For each of the task's text features a list of N strings.
        labels: int32 `[N]` class ids, float32 `[N]` scores, int32
            `[N, classes]` of 0 and 1, or None.
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
        other_name: Another name of the file, if any; read if there is no file
            called `name`.
        text_columns: For each text feature, its column's number, from 0, or
            its column's name in the header.
        label_column: Likewise, for the labels; None in a file without labels.
        num_columns: How many columns a file without a header has. None if the
            first line is a header.
        skip_bad_rows: Whether rows with another number of columns are left
            out, with a warning, instead of being an error.
        only: A column and a value: only rows with that value are read. None
            for all rows.

    Raises:
        ValueError: If `label_column` is one of `text_columns`.
    """

    name: str
    text_columns: tuple[int | str, ...]
    label_column: int | str | None = None
    num_columns: int | None = None
    skip_bad_rows: bool = False
    only: tuple[int | str, str] | None = None
    other_name: str | None = None

    def __post_init__(self) -> None:
        check_is_no_text(self.label_column, self.text_columns)


def check_is_no_text(
    label_column: int | str | None, text_columns: Sequence[int | str]
) -> None:
    """Raises `ValueError` if a model would read the labels as text."""
    if label_column in text_columns:
        raise ValueError(
            "The column of labels must be none of the texts'. Received: "
            f"{messages.shortened(label_column)} for both."
        )


def read_tsv(
    path: files.AnyPath,
    tsv_file: TsvFile,
    names: Sequence[str] = (),
    synonyms: Sequence[str] = (),
    *,
    logs_rows: bool = True,
) -> Examples:
    """Reads a file's texts and, if it has a column of labels, its labels.

    Blanks around the name of a class are stripped, with a warning, unless the
    task's own name has these blanks. A synonym may stand for a class.

    Args:
        path: The file.
        tsv_file: Where the file has its texts and labels.
        names: Names of the classes by class id; empty for scores.
        synonyms: Other names that the file may use, by class id.
        logs_rows: As `logs` in `rows`.

    Raises:
        ValueError: If the file is missing, not UTF-8 or without examples, or
            a line has another number of columns than the header, or a label
            that the task does not have. The message names file and line.
    """
    texts: tuple[list[str], ...] = tuple([] for _ in tsv_file.text_columns)
    labels = []
    label_ids = {name: index for index, name in enumerate(names)}
    num_stripped = 0
    for line, texts_of_row, label in rows(path, tsv_file, logs=logs_rows):
        for column, text in zip(texts, texts_of_row):
            column.append(text)
        if label is not None:
            if label_ids and label not in label_ids:
                num_stripped += label != label.strip()
                label = label.strip()
            where = f"{path}, line {line}"
            labels.append(parse_label(where, label, label_ids, synonyms))
    class_names.log_stripped(path, num_stripped)
    if tsv_file.label_column is None:
        return Examples(texts=texts, labels=None)
    dtype = np.int32 if names else np.float32
    return Examples(texts=texts, labels=np.array(labels, dtype))


def is_csv(path: files.AnyPath) -> bool:
    """Returns whether a file's name says that it is a CSV."""
    return str(path).lower().endswith(".csv")


def csv_rows(path: files.AnyPath) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of its first line, fields) of every row of a CSV.

    Blank lines at the file's end are ignored; elsewhere they are rows without
    fields.

    Raises:
        ValueError: If the file is missing, not UTF-8 or not a CSV; the message
            names file and line.
    """
    return _without_blank_end(_csv_lines(path), [])


def _csv_lines(path):
    """Yields (number of its first line, fields) of every row and blank line.

    Not by the module csv, whose longest field is a setting of the whole
    process. Nor by pyarrow, which takes a field that is never closed, and
    knows rows, but not lines.
    """
    lines = (
        line
        for _, text in streams.lines(path, keep_ends=True)
        for line in (
            # Nearly always just the line itself.
            _LINE.findall(text)
            if text.count("\r") > text.endswith("\r\n")
            else [text]
        )
    )
    start, parts = 1, []
    is_whole = True
    for number, line in enumerate(lines, start=1):
        text = line.rstrip("\r\n")
        if is_whole and '"' not in text:
            yield number, text.split(",") if text else []
            start = number + 1
            continue
        parts.append(line)
        # What is open is read on as if it began here.
        match = _ROW.fullmatch(text if is_whole else f'"{text}')
        if match is None:
            break
        is_whole = match[1] is None
        if is_whole:
            row = "".join(parts).rstrip("\r\n")
            fields = _FIELD.findall(row) if row else []
            yield start, list(map(_unquoted, fields))
            start, parts = number + 1, []
    if parts:
        raise ValueError(
            f"{path}, line {start}: a field that begins with a quotation "
            "mark must end with one, before a comma or the line's end."
        )


def _unquoted(field):
    return field[1:-1].replace('""', '"') if field[:1] == '"' else field


def _rows_of_file(path):
    """Yields (number of its first line, fields) of a CSV's or a TSV's rows."""
    if is_csv(path):
        return csv_rows(path)
    return _without_blank_end(
        ((line, text.split("\t")) for line, text in streams.lines(path)), [""]
    )


def _without_blank_end(rows, blank):
    """Leaves out the rows at a file's end whose fields are those of `blank`."""
    held = []
    for row in rows:
        held.append(row)
        if row[1] != blank:
            yield from held
            held = []


def header(path: files.AnyPath) -> list[str]:
    """Returns the fields of a file's first line.

    Raises:
        ValueError: If the file is missing, not UTF-8 or empty.
    """
    first = next(_rows_of_file(path), None)
    if first is None:
        raise ValueError(f"{path}: there are no examples in the file.")
    return first[1]


def full_lines(path: files.AnyPath) -> Iterator[tuple[int, str]]:
    """Yields (number, line) of every line of a file that is not empty."""
    return ((number, line) for number, line in streams.lines(path) if line)


def rows(
    path: files.AnyPath, tsv_file: TsvFile, *, logs: bool = True
) -> Iterator[tuple[int, list[str], str | None]]:
    """Yields (line number, [text of each feature], label or None).

    Args:
        path: The file.
        tsv_file: Where the file has its texts and labels.
        logs: Whether to log what is odd about the rows. False if a file is
            read again.
    """
    has_quoting = is_csv(path)
    lines = _rows_of_file(path)
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path}: there are no examples in the file.")
    _, header = first
    if tsv_file.num_columns:
        lines = itertools.chain([first], lines)
    num_columns = tsv_file.num_columns or len(header)
    text_indices = [
        _column_index(path, column, header) for column in tsv_file.text_columns
    ]
    label_index = None
    if tsv_file.label_column is not None:
        label_index = _column_index(path, tsv_file.label_column, header)
    only, value = tsv_file.only or (0, None)
    only_index = _column_index(path, only, header)

    indices = text_indices + ([] if label_index is None else [label_index])
    num_rows = num_skipped = num_others = num_quoted = 0
    for number, fields in lines:
        num_rows += 1
        if len(fields) != num_columns:
            if tsv_file.skip_bad_rows:
                num_skipped += 1
                continue
            raise ValueError(
                f"{path}, line {number}: a row must have {num_columns} "
                f"columns. Received: {len(fields)}."
            )
        if value not in (None, fields[only_index]):
            num_others += 1
            continue
        if not has_quoting:
            num_quoted += any(_is_quoted(fields[index]) for index in indices)
        yield (
            number,
            [fields[index] for index in text_indices],
            None if label_index is None else fields[label_index],
        )
    if not num_rows:
        raise ValueError(f"{path}: there are no examples in the file.")
    if num_skipped == num_rows:
        raise ValueError(f"{path}: no row has {num_columns} columns.")
    if num_skipped + num_others == num_rows:
        raise ValueError(
            f"{path}: no row has {value!r} in its column "
            f"{header[only_index]!r}."
        )
    if num_skipped and logs:
        logging.warning(
            "%s: left out %d of %d rows, which do not have %d columns.",
            path,
            num_skipped,
            num_rows,
            num_columns,
        )
    if num_quoted and logs:
        logging.info(
            "%s: %d of the rows %s fields in quotation marks, which are part "
            "of the text: only .csv files have quoting.",
            path,
            num_quoted,
            "has" if num_quoted == 1 else "have",
        )


def _is_quoted(field):
    """Returns whether a field is quoted as in a CSV."""
    return (
        len(field) > 1
        and field[0] == field[-1] == '"'
        and '"' not in field[1:-1].replace('""', "")
    )


def write(path: files.AnyPath, rows: Iterable[Sequence[Any]]) -> None:
    """Writes rows as a TSV, whole or not at all."""
    lines = ("\t".join(map(str, row)) + "\n" for row in rows)
    atomic.write_text(path, "".join(lines))


def write_results(
    output_dir: str,
    split: str,
    rows: Collection[Sequence[Any]],
    header: Sequence[str] = (),
    noun: str = "prediction",
) -> str:
    """Writes the rows of a set's examples; returns a line for the user.

    Args:
        output_dir: The folder to write into.
        split: The set's name, with which the file's begins.
        rows: A row for every example.
        header: Names of the columns, if the file has them.
        noun: What a row is.
    """
    path = os.path.join(output_dir, f"{split}_results.tsv")
    write(path, [*([header] if header else []), *rows])
    return f"{messages.counted(len(rows), noun, f'{noun}s')} in {path}"


def column_index(where: str, names: Sequence[str], name: str) -> int:
    """Returns the position of a column among the names of all columns.

    Args:
        where: The beginning of the message: what must have the column.
        names: The list of all names.
        name: The column's name.

    Raises:
        ValueError: If there is no such column, or more than one.
    """
    if names.count(name) != 1:
        raise ValueError(
            f"{where} must have a column {name!r}, once. "
            f"Received: {messages.shortened(names)}."
        )
    return names.index(name)


def _column_index(path, column, header):
    if isinstance(column, str):
        return column_index(f"{path}, line 1: the header", header, column)
    if not -len(header) <= column < len(header):
        raise ValueError(
            f"{path}, line 1: there must be a column {column + 1}. "
            f"Received: {messages.counted(len(header), 'column', 'columns')}."
        )
    return column


def parse_label(
    where: str,
    label: str,
    label_ids: Mapping[str, int],
    synonyms: Sequence[str] = (),
) -> float:
    """Returns the id of a class or, without `label_ids`, the label's score.

    Args:
        where: The beginning of messages.
        label: The label's text.
        label_ids: {name of a class: its id}, by id; empty for scores.
        synonyms: Other names of the classes, by id.

    Raises:
        ValueError: If the label is not a class, or not a number that float32
            holds.
    """
    if label_ids:
        if label not in label_ids:
            label = dict(zip(synonyms, label_ids)).get(label, label)
        if label not in label_ids:
            raise ValueError(
                f"{where}: the label must be one of "
                f"{class_names.listed(label_ids)}. "
                f"Received: {messages.shortened(label)}."
            )
        return label_ids[label]
    return parse_score(where, label)


def parse_score(where: str, value: Any) -> float:
    """Returns the number of a regression's label.

    Args:
        where: The beginning of messages.
        value: A number or its text, with or without blanks around it.

    Raises:
        ValueError: If it is not a number that float32 holds.
    """
    try:
        # float() would accept True and underscores.
        text = str(value)
        score = math.nan if "_" in text else float(text)
    except ValueError:
        score = math.nan
    # Labels are float32: a larger number would be infinite.
    with np.errstate(over="ignore"):
        is_finite = np.isfinite(np.float32(score))
    if not is_finite:
        limit = " that float32 holds" if math.isfinite(score) else ""
        raise ValueError(
            f"{where}: the score must be a number{limit}. "
            f"Received: {messages.shortened(value)}."
        )
    return score
