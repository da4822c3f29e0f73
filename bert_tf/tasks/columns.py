"""Rows of a table: a file, a DataFrame, a tf.data set or a dictionary.

The name of a file tells its format: .csv or .tsv with a header (see
`tasks.tsv`), .jsonl with one object per line, or .parquet.
"""

import contextlib
import itertools
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import DTypeLike

from bert_tf import files
from bert_tf import messages
from bert_tf import streams
from bert_tf.tasks import tsv
from bert_tf.tasks.tsv import Examples
from bert_tf.tasks.tsv import TsvFile

# Files that may hold lists; .csv and .tsv hold only strings.
_WITH_LISTS = (".jsonl", ".parquet")
# Rows of a .parquet that are converted together.
_BATCH = 4096


def title(data: Any) -> str:
    """Returns the name of data in messages: their path, or "the data"."""
    return str(data) if is_path(data) else "the data"


def may_have_lists(data: Any) -> bool:
    """Returns whether data are a table whose values may be lists.

    That is anything but a path, and the path of a .jsonl or .parquet file.
    """
    return not is_path(data) or str(data).lower().endswith(_WITH_LISTS)


def names_in(table: Any) -> list[str]:
    """Returns the names of the columns of a table; `[]` if it has none.

    Args:
        table: See `read`. Of a .jsonl file, the names in all rows count.
    """
    if isinstance(table, tf.data.Dataset):
        table = table.element_spec
    elif is_path(table):
        if str(table).lower().endswith(".parquet"):
            with _open_parquet(table) as found:
                return found.schema_arrow.names
        if not may_have_lists(table):
            return tsv.header(table)
        table = dict.fromkeys(
            name for _, row in json_lines(table) for name in row
        )
    return list(table) if hasattr(table, "keys") else []


def read(table: Any, names: Sequence[str]) -> Iterator[tuple[str, tuple]]:
    """Yields (where, values) for every row.

    Args:
        table: The path of a file, a pandas DataFrame, a `tf.data.Dataset` of
            dictionaries, one per row, or {name: list}.
        names: Names of the columns.

    Yields:
        A string that names the row in messages, and a tuple of its values in
        the order of `names`: strings, numbers, or lists and dictionaries of
        them.

    Raises:
        ValueError: If a file is missing or of an unknown format, a column is
            missing or there twice, there are no rows or rows without end, or
            a string is not UTF-8.
    """
    if is_path(table):
        rows = _rows_of_file(os.fspath(table), names)
    elif isinstance(table, tf.data.Dataset):
        if table.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise ValueError(
                "The data set must have an end: it must not repeat for ever."
            )
        rows = (
            (where, _values(where, row, names))
            for where, row in _numbered("row", table.as_numpy_iterator())
        )
    elif not hasattr(table, "keys"):
        raise ValueError(
            "The data must be a path, a DataFrame, a tf.data.Dataset or a "
            f"dictionary of lists. Received: {type(table).__name__}."
        )
    else:
        # A DataFrame gives its columns by name, too.
        for name in names:
            tsv.column_index("The data", list(table), name)
        columns = {name: table[name] for name in names}
        for name, column in columns.items():
            # Sets have no order, and a dictionary's rows would be its keys.
            if isinstance(
                column, (str, bytes, set, frozenset, Mapping)
            ) or not hasattr(column, "__len__"):
                raise ValueError(
                    f"The data: the column {name!r} must be a list. "
                    f"Received: {messages.shortened(column)}."
                )
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"The data: columns must be of one length. Received: {lengths}."
            )
        rows = _numbered("row", zip(*columns.values()))
    has_rows = False
    for where, values in rows:
        has_rows = True
        try:
            values = tuple(map(_plain, values))
        except UnicodeError as error:
            raise ValueError(f"{where}: is not UTF-8: {error}.") from error
        yield where, values
    if not has_rows:
        raise ValueError(f"There are no examples in {title(table)}.")


def read_texts(
    table: Any,
    text_features: Sequence[str],
    label_column: str | None,
    parse_label: Callable[[str, Any], Any],
    dtype: DTypeLike,
) -> Examples:
    """Returns the `Examples` of a table.

    Args:
        table: See `read`.
        text_features: Names of the columns of texts.
        label_column: Name of the column of labels; None to read no labels.
        parse_label: `parse_label(where, value)`, which returns a label or
            raises `ValueError`.
        dtype: The dtype of the labels.

    Raises:
        ValueError: As in `read`, or if a text is not a string, or
            `label_column` is one of `text_features`.
    """
    tsv.check_is_no_text(label_column, text_features)
    num_texts, texts, labels = len(text_features), [], []
    names = [*text_features]
    if label_column is not None:
        names.append(label_column)
    for where, values in read(table, names):
        for name, text in zip(text_features, values):
            check_text(where, name, text)
        texts.append(values[:num_texts])
        labels += [parse_label(where, value) for value in values[num_texts:]]
    return Examples(
        texts=tuple(map(list, zip(*texts))),
        labels=None if label_column is None else np.array(labels, dtype),
    )


def check_text(where: str, name: str, value: Any) -> None:
    """Raises `ValueError` unless a row's value is a string, maybe empty."""
    if not isinstance(value, str):
        raise ValueError(
            f"{where}: `{name}` must be a string; an empty one is ''. "
            f"Received: {messages.shortened(value)}."
        )


def check_full_text(where: str, name: str, value: Any) -> None:
    """Raises `ValueError` unless a row's value is a string that says more."""
    check_text(where, name, value)
    if not value.strip():
        raise ValueError(
            f"{where}: `{name}` must not be empty. "
            f"Received: {messages.shortened(value)}."
        )


def check_texts(where: str, name: str, values: Any) -> None:
    """Raises `ValueError` unless a row's value is a list of strings."""
    if not isinstance(values, list) or not all(
        isinstance(value, str) for value in values
    ):
        raise ValueError(
            f"{where}: `{name}` must be a list of strings. "
            f"Received: {messages.shortened(values)}."
        )


def is_path(data: Any) -> bool:
    """Returns whether data are a path."""
    return isinstance(data, (str, os.PathLike))


def _rows_of_file(path, names):
    suffix = os.path.splitext(path)[1].lower()
    if suffix in (".csv", ".tsv"):
        tsv_file = TsvFile(name=path, text_columns=tuple(names))
        for line, values, _ in tsv.rows(path, tsv_file):
            yield f"{path}, line {line}", values
    elif suffix == ".jsonl":
        for number, row in json_lines(path):
            where = f"{path}, line {number}"
            yield where, _values(where, row, names)
    elif suffix == ".parquet":
        yield from _numbered(f"{path}, row", _parquet_rows(path, names))
    else:
        raise ValueError(
            f"{path}: the name must end with .csv, .tsv, .jsonl or .parquet."
        )


def json_lines(path: files.AnyPath) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) of a file of JSON lines, as it is read.

    Blank lines are skipped.

    Raises:
        ValueError: If the file is missing or damaged, or a line is no object
            in JSON. The message names the file and the line.
    """
    for number, line in streams.lines(path):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = files.parse_json(line, where)
        if not isinstance(row, dict):
            raise ValueError(
                f"{where}: must be an object. "
                f"Received: {messages.shortened(row)}."
            )
        yield number, row


@contextlib.contextmanager
def _open_parquet(path):
    """Yields a pyarrow `ParquetFile`, whose errors name the file."""
    import pyarrow
    from pyarrow import parquet

    with files.local_copy(path) as local:
        try:
            with parquet.ParquetFile(local) as table:
                yield table
        # Some of pyarrow's errors are an `OSError`.
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            text = " ".join(str(error).split())
            raise ValueError(
                f"{path}: damaged, or not Parquet: {text}"
            ) from error


def _parquet_rows(path, names):
    """Yields the values of every row, from one batch of rows after another."""
    with _open_parquet(path) as table:
        for name in names:
            tsv.column_index(path, table.schema_arrow.names, name)
        for batch in table.iter_batches(_BATCH, columns=names):
            values = batch.to_pydict()
            yield from zip(*(values[name] for name in names))


def _values(where, row, names):
    if not isinstance(row, dict) or set(names) - set(row):
        raise ValueError(
            f"{where}: must be an object with {', '.join(names)}. "
            f"Received: {messages.shortened(row)}."
        )
    return [row[name] for name in names]


def _numbered(title, rows):
    for number, row in zip(itertools.count(1), rows):
        yield f"{title} {number}", row


def _plain(value):
    """Converts a value, nested ones included, to Python's own types."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        # Raises for half a surrogate pair, which TensorFlow would refuse later.
        value.encode("utf-8")
    return value.decode("utf-8") if isinstance(value, bytes) else value
