"""Texts to try a SavedModel on: hard ones, and those that users give."""

import codecs
import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf import messages
from bert_tf.tasks import tsv

DEFAULT_FEATURES = ("text",)
_LABEL = "label"
# The strings of one input to a model, bytes.
Row = tuple[bytes, ...]

# Texts that would expose another tokenizer, or another way of cutting.
HARD_STRINGS = (
    b"The quick brown fox jumps over the lazy dog.",
    b"",
    b"   \t\r\n ",
    "Crème brûlée, NAÏVE coöperation, e\u0301 = é".encode(),
    "我喜欢 TensorFlow，真的！ 日本語テキスト 한국어".encode(),
    "Emoji \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467".encode(),
    "zero\u200bwidth, no\u00a0break, \u2028line\u2029paragraph".encode(),
    "Ｆｕｌｌ ｗｉｄｔｈ ﬁ ß ² … İstanbul ŒUVRE".encode(),
    b"a[MASK]b [CLS] [SEP] ##ing #hash @user http://x.y/?a=b&c=d",
    b"NUL\x00inside, bell\x07, delete\x7f, U+FFFD \xef\xbf\xbd",
    b"\xff\xfe invalid \xc3\x28 UTF-8 \xed\xa0\x80 \xe2\x82",
    "many: a\u0300\u0301\u0302\u0303\u0304 n\u0303 \u0301".encode(),
    b"x" * 200 + b" " + b"y" * 201,
    b"lorem ipsum " * 834,
    "字".encode() * 10_000,
    "العربية עברית हिन्दी ไทย Ελληνικά".encode(),
)


# Kinds that cut nothing off compute each window of a text. To save time, their
# longest strings have this many bytes, which are still several windows.
MAX_UNCUT_BYTES = 1500


def hard_uncut_texts() -> list[bytes]:
    """Returns the hard strings for a model that answers texts of any length."""
    return [text[:MAX_UNCUT_BYTES] for text in HARD_STRINGS]


def hard_texts(num_strings: int) -> list[Row]:
    """Returns the table of hard strings: rows of one or two, bytes."""
    if num_strings == 1:
        return [(text,) for text in HARD_STRINGS]
    # Each on either side of a pair, beside a short and beside a long one.
    long = HARD_STRINGS[-3]
    return [
        *zip(HARD_STRINGS, HARD_STRINGS[1:] + HARD_STRINGS[:1]),
        *((long, text) for text in HARD_STRINGS),
    ]


def parse_texts(
    lines: Iterable[str | bytes], num_strings: int, source: files.AnyPath
) -> list[Row]:
    """Returns rows of `num_strings` strings, bytes.

    Args:
        lines: Strings or bytes; a tab separates the strings of a line.
        num_strings: How many strings a model takes.
        source: Where the lines come from; errors name it.

    Raises:
        ValueError: If a line does not have that many strings, or there is no
            line.
    """
    rows = []
    for number, line in enumerate(lines, start=1):
        if isinstance(line, str):
            # Command-line bytes that are not UTF-8 come as surrogates.
            line = line.encode("utf-8", "surrogateescape")
        row = tuple(line.split(b"\t")) if num_strings > 1 else (line,)
        if len(row) != num_strings:
            raise ValueError(
                f"{source}, line {number}: must be {num_strings} strings, "
                f"separated by tabs. Received: "
                f"{messages.counted(len(row), 'string', 'strings')}."
            )
        rows.append(row)
    if not rows:
        raise ValueError(f"{source} must hold at least one text.")
    return rows


def read_lines(path: files.AnyPath, num_strings: int) -> list[Row]:
    """Reads a file of one text per line; it need not be valid UTF-8.

    A byte order mark at its beginning is dropped.

    Raises:
        ValueError: As in `parse_texts`; or if there is no such file.
    """
    data = files.read_bytes(path).removeprefix(codecs.BOM_UTF8)
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    lines = [line.removesuffix(b"\r") for line in lines]
    return parse_texts(lines, num_strings, path)


def read_texts(
    path: files.AnyPath,
    text_features: Sequence[str],
    dev: tsv.TsvFile | None = None,
    may_be_unnamed: bool = False,
) -> list[Row]:
    """Reads the texts of a file: columns of a table, or one text per line.

    A table is a .tsv or .csv with a header, a .jsonl or a .parquet.

    Args:
        path: The file; lines need not be valid UTF-8.
        text_features: Names of the strings that a model takes.
        dev: The `tsv.TsvFile` of the development set of the model's task, if
            the task has files of its own form; or None.
        may_be_unnamed: Whether the header of such files has other names for
            the texts.

    Returns:
        Rows of strings, bytes.

    Raises:
        ValueError: If a line does not have that many strings, there is no
            line, the columns of texts are not found in a table, or there is no
            such file.
    """
    # Programs check their flags before TensorFlow is imported.
    from bert_tf.tasks import columns

    if columns.may_have_lists(path):
        found = columns.read_texts(
            path, text_features, None, lambda where, value: value, np.int32
        )
    else:
        tsv_file = find_table(path, text_features, dev, may_be_unnamed)
        if tsv_file is None:
            return read_lines(path, len(text_features))
        tsv_file = dataclasses.replace(tsv_file, label_column=None)
        found = tsv.read_tsv(path, tsv_file)
    return [tuple(text.encode() for text in row) for row in zip(*found.texts)]


def find_table(
    path: files.AnyPath,
    text_features: Sequence[str],
    dev: tsv.TsvFile | None = None,
    may_be_unnamed: bool = False,
    label_column: str | None = None,
) -> tsv.TsvFile | None:
    """Returns where a file has its texts, None if it has one text per line.

    Args:
        path, text_features, dev, may_be_unnamed: As in `read_texts`.
        label_column: Name of the label column; if None, that of `dev`, or
            "label".

    Returns:
        A `TsvFile`, without a label column if the file has no labels.

    Raises:
        ValueError: As in `read_texts` for a table.
    """
    path = str(path)
    is_table = path.lower().endswith((".tsv", ".csv"))
    if not is_table and dev is None:
        return None
    names = _first_row(path)
    if {*text_features} <= {*names} and (is_table or len(names) > 1):
        return tsv.TsvFile(
            name=path,
            text_columns=tuple(text_features),
            label_column=label_column
            or _label_column(names, text_features, dev),
            skip_bad_rows=dev is not None and dev.skip_bad_rows,
        )
    if dev is not None and (
        len(names) == dev.num_columns
        if dev.num_columns
        else may_be_unnamed and len(names) > _last_column(dev)
    ):
        if label_column is None:
            return dev
        return dataclasses.replace(dev, label_column=label_column)
    if is_table:
        wanted = ", ".join(dict.fromkeys(text_features))
        raise ValueError(
            f"{path}, line 1: the header must have the columns {wanted}, as "
            "the model calls its strings. (If its task does not name them, the "
            "export's --text_features does. A file with one text per line must "
            "not be called .tsv or .csv.) "
            f"Received: {', '.join(names)[:100]}."
        )
    return None


def _label_column(names, text_features, dev):
    """Returns the name of the label column, None if there is none."""
    found = {*text_features}
    if dev is not None and len(names) > _last_column(dev):
        found = {names[column] for column in dev.text_columns}
        column = dev.label_column
        if found == {*text_features} and column is not None:
            # The file of a test set may not have this column.
            return names[column] if column < len(names) else None
    return _LABEL if _LABEL in names else None


def _last_column(dev):
    """Returns the last column of texts; columns of GLUE's files are numbers."""
    return max(dev.text_columns)


def _first_row(path):
    if tsv.is_csv(path):
        _, fields = next(tsv.csv_rows(path), (1, []))
        return fields
    # Texts need not be valid UTF-8.
    line = files.read_bytes(path).split(b"\n", 1)[0].decode(errors="replace")
    return line.removeprefix("\ufeff").removesuffix("\r").split("\t")
