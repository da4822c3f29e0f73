"""Reads tagged words from CoNLL's column files, and appends predictions.

A line is a row: a word with its columns, separated by tabs or by spaces. An
empty line ends a sentence, and so does one that begins with -DOCSTART-. A line
that begins with # and is not a valid row is a comment.
"""

import dataclasses
import operator
import os
import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf import streams
from bert_tf.tasks import class_names
from bert_tf.tasks import tsv
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import entity_tags

_DOCUMENT_START = "-DOCSTART-"
# What a file's name may end with: "train.conll", "train", ...
_SUFFIXES = (".conll", ".txt", ".tsv", "")
# The first name that exists is taken; the later ones are CoNLL-2003's.
_NAMES = {
    TRAIN: ("train", "eng.train"),
    DEV: ("dev", "valid", "testa", "eng.testa"),
    TEST: ("test", "testb", "eng.testb"),
}
# The beginning of a CoNLL-U Plus file; the names of its columns follow.
_COLUMN_NAMES = "# global.columns ="
# What test sets such as MultiCoNER's have in place of tags.
_UNKNOWN = "_"
# What a tag is, for messages.
_TAG = "O, or B-, I-, E-, S-, L- or U- with a type"
# The name of the appended column, in a file whose columns have names.
_PREDICTED = "predicted"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingExamples:
    """Sentences of words, with or without their tags.

    Args:
        path: Where they come from; messages name it.
        words: The words of all sentences, W strings.
        tags: Their tags, or None.
        row_lengths: int32 `[N]`: the number of words of every sentence.
        lines: The file's lines.
        line_indices: int32 `[W]`: in which line each word stands, from 0.
        separator: What columns are separated by: a tab or a space.
        has_header: Whether the first line names the columns.
    """

    path: str
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    row_lengths: np.ndarray
    lines: tuple[str, ...]
    line_indices: np.ndarray
    separator: str
    has_header: bool = False

    def __len__(self):
        return len(self.row_lengths)

    def by_sentence(self, values: Any) -> list[list]:
        """Splits W values, one per word, into one list per sentence."""
        limits = np.cumsum(self.row_lengths)
        return [
            list(values[limit - length : limit])
            for length, limit in zip(self.row_lengths, limits)
        ]

    def tag_ids(self, labels: Sequence[str]) -> np.ndarray:
        """Returns the indices of the tags in `labels`, int32 `[W]`.

        Raises:
            ValueError: If a tag is not in `labels`; the message names file
                and line.
        """
        assert self.tags is not None
        ids = {label: index for index, label in enumerate(labels)}
        for tag, index in zip(self.tags, self.line_indices):
            if tag not in ids:
                raise ValueError(
                    f"{self.path}, line {index + 1}: the tag must be one of "
                    f"those in training, {class_names.listed(labels)}. "
                    f"Received: {messages.shortened(tag)}."
                )
        return np.array([ids[tag] for tag in self.tags], np.int32)

    def warn_of_breaches(self, scheme: str) -> None:
        """Logs how many tags break the scheme, and the first of them."""
        assert self.tags is not None
        found = entity_tags.breaches(self.by_sentence(self.tags), scheme)
        if found:
            logging.warning(
                "%s: %s the %s scheme, first in line %d: %s. Such a tag "
                "begins or ends an entity all the same.",
                self.path,
                messages.counted(len(found), "tag breaks", "tags break"),
                scheme,
                self.line_indices[found[0]] + 1,
                self.tags[found[0]],
            )


def find_file(data_dir: str, split: str) -> str:
    """Returns the path of a split's file in a folder.

    Raises:
        ValueError: If there is none, or more than one.
    """
    found: list[str] = []
    for name in _NAMES[split]:
        found = found or [
            f"{name}{suffix}"
            for suffix in _SUFFIXES
            if files.exists(os.path.join(data_dir, f"{name}{suffix}"))
        ]
    if len(found) != 1:
        raise ValueError(
            f"{data_dir}: must hold one file named "
            f"{' or '.join(_NAMES[split])}, with .conll, .txt, .tsv or nothing "
            f"after it. Received: {', '.join(found) or 'none of them'}."
        )
    return os.path.join(data_dir, found[0])


def is_column_file(path: files.AnyPath) -> bool:
    """Returns whether a file has tagged words, rather than texts.

    It does if more than half of its rows have two or more columns, the last of
    which is a tag. So neither a damaged row nor a sentence that ends with
    "vitamin B-12" decides. The file need not be valid UTF-8.
    """
    text = files.read_bytes(path).decode(errors="replace")
    rows = [
        re.split(r"[ \t]+", line.strip(" \t\r"))
        for line in text.removeprefix("\ufeff").split("\n")
        if not line.startswith(("#", _DOCUMENT_START)) and line.strip(" \t\r")
    ]
    tagged = [row for row in rows if row[1:] and entity_tags.is_tag(row[-1])]
    return 2 * len(tagged) > len(rows)


def parse_column(text: str | None, default: int) -> int | str:
    """Returns the column that a flag gives: its number, otherwise its name."""
    if text is None:
        return default
    try:
        return int(text)
    except ValueError:
        return text


def read_columns(
    path: files.AnyPath,
    token_column: int | str = 0,
    tag_column: int | str = -1,
    has_tags: bool = True,
) -> TaggingExamples:
    """Reads a column file.

    Blanks around a tag, which are possible between tabs, are stripped; the log
    tells how many tags had some.

    Args:
        path: The file.
        token_column: The column of words: its number from 0, or from -1
            backwards; or its name, in which case the first line holds the
            names, alone or after "# global.columns =".
        tag_column: Likewise, the column of tags.
        has_tags: Whether to read the tags. If not, their column may be
            missing; a name still says that the first line holds names.

    Returns:
        `TaggingExamples`, with tags if they are read.

    Raises:
        ValueError: If the file is missing, not UTF-8 or without sentences, or
            a row has another number of columns than the first, no word, or an
            invalid tag. The message names file and line.
    """
    lines = [line for _, line in streams.lines(path)]
    has_header = isinstance(token_column, str) or isinstance(tag_column, str)
    layout = _Layout(
        path, lines, token_column, tag_column, has_tags, has_header
    )
    words, tags, line_indices, row_lengths = [], [], [], []
    begins_sentence = True
    for index in range(int(has_header), len(lines)):
        row = layout.row(index)
        if row is None:
            begins_sentence |= layout.ends_sentence(index)
            continue
        if begins_sentence:
            row_lengths.append(0)
            begins_sentence = False
        row_lengths[-1] += 1
        words.append(row[0])
        tags.append(row[1])
        line_indices.append(index)
    if not words:
        raise ValueError(f"{path}: there are no sentences in the file.")
    class_names.log_stripped(path, layout.num_stripped)
    return TaggingExamples(
        path=str(path),
        words=tuple(words),
        tags=tuple(tags) if has_tags else None,
        row_lengths=np.array(row_lengths, np.int32),
        lines=tuple(lines),
        line_indices=np.array(line_indices, np.int32),
        separator=layout.separator,
        has_header=has_header,
    )


def from_rows(
    name: str,
    rows: Iterable[tuple[str, list[str], list[str] | None]],
    has_tags: bool = True,
    labels: Sequence[str] = (),
) -> TaggingExamples:
    """Makes examples from sentences that are not lines of a file.

    Blanks around tags are stripped, and sentences without words are left out.
    The log tells how many of each there were.

    Args:
        name: Where the rows come from; messages name it.
        rows: Yields a string that names the row, the list of its words, and
            the list of its tags or None.
        has_tags: Whether the examples get the tags.
        labels: The tags that are allowed; empty for all valid ones.

    Returns:
        `TaggingExamples` with lines of words, and of their tags if there are
        any.

    Raises:
        ValueError: If there are no sentences, a word is empty, or the tags of
            a row are not one valid tag for each word.
    """
    words, tags, row_lengths = [], [], []
    lines: list[str] = []
    line_indices: list[int] = []
    num_stripped = 0
    without_words = []
    for where, words_of_row, tags_of_row in rows:
        if "" in words_of_row:
            number = words_of_row.index("") + 1
            raise ValueError(f"{where}: the word {number} is empty.")
        # A tab or a line end would split the line of a word and its tag.
        lines_of_row = [re.sub(r"[\t\n]", " ", word) for word in words_of_row]
        if tags_of_row is not None:
            stripped = [tag.strip() for tag in tags_of_row]
            num_stripped += sum(map(operator.ne, stripped, tags_of_row))
            _check_tags(where, words_of_row, stripped, labels)
            lines_of_row = list(map("\t".join, zip(lines_of_row, stripped)))
            tags += stripped
        if words_of_row:
            row_lengths.append(len(words_of_row))
            line_indices += range(len(lines), len(lines) + len(words_of_row))
            lines += [*lines_of_row, ""]
            words += words_of_row
        else:
            without_words.append(where)
    if not words:
        raise ValueError(f"{name}: there are no sentences in it.")
    class_names.log_stripped(name, num_stripped)
    if without_words:
        # There are then predictions for fewer sentences than rows.
        logging.warning(
            "%s: left out %s without words, the first %s.",
            name,
            messages.counted(len(without_words), "row", "rows"),
            without_words[0],
        )
    return TaggingExamples(
        path=name,
        words=tuple(words),
        tags=tuple(tags) if has_tags else None,
        row_lengths=np.array(row_lengths, np.int32),
        lines=tuple(lines),
        line_indices=np.array(line_indices, np.int32),
        separator="\t",
    )


def write_predictions(
    path: files.AnyPath, examples: TaggingExamples, tags: Sequence[str]
) -> None:
    """Writes the lines that were read, each row with its predicted tag.

    If the tags were in the last column, the last two columns are now what
    conlleval reads. -DOCSTART- lines get "O", unless they are words. The file
    is written whole or not at all.

    Args:
        path: The file.
        examples: The `TaggingExamples`.
        tags: The predicted tags of all words, W strings.
    """
    lines = list(examples.lines)
    # Words of a table may begin like this, too.
    word_lines = {*examples.line_indices.tolist()}
    for index, line in enumerate(lines):
        if line.startswith(_DOCUMENT_START) and index not in word_lines:
            lines[index] = _append(line, examples.separator, "O")
    if examples.has_header:
        is_comment = lines[0].startswith(_COLUMN_NAMES)
        lines[0] = _append(
            lines[0], " " if is_comment else examples.separator, _PREDICTED
        )
    for index, tag in zip(examples.line_indices, tags, strict=True):
        lines[index] = _append(lines[index], examples.separator, tag)
    atomic.write_text(path, "".join(f"{line}\n" for line in lines))


class _Layout:
    """How the lines of one file are divided into columns."""

    def __init__(
        self, path, lines, token_column, tag_column, has_tags, has_header
    ):
        self._path = path
        self._lines = lines
        first = next(
            (
                line
                for line in lines[has_header:]
                if not _is_blank(line)
                and not line.startswith(("#", _DOCUMENT_START))
            ),
            "",
        )
        self.separator = "\t" if "\t" in first.strip(" \t") else " "
        header = None
        if has_header:
            header = self._split_header(lines[0] if lines else "")
        self._num_columns = len(header or self._split(first))
        self._token_index = self._index(token_column, header)
        # Tags that had blanks around them.
        self.num_stripped = 0
        self._tag_index = None
        # Where tags stand that are not read, if there are any.
        self._unread_index = None
        if has_tags:
            self._tag_index = self._index(tag_column, header)
            if first and self._tag_index == self._token_index:
                raise ValueError(
                    f"{path}: the columns of tags and of words must be "
                    f"different. Received a row: {messages.shortened(first)}."
                )
        elif first:
            self._unread_index = self._find_unread(
                tag_column, header, self._split(first)
            )

    def row(self, index):
        """Returns (word, tag or None) of a line, or None if it is not a row."""
        line = self._lines[index]
        if _is_blank(line) or line.startswith(_DOCUMENT_START):
            return None
        fields = self._split(line)
        has_columns = len(fields) == self._num_columns
        tag = None
        if has_columns and self._tag_index is not None:
            field = fields[self._tag_index]
            tag = field.strip()
        is_row = has_columns and (tag is None or entity_tags.is_tag(tag))
        if is_row and line.startswith("#"):
            # Otherwise "# id 1 domain=en" would be a word where no tags are
            # read, and a comment where they are.
            is_row = self._may_be_unread_tag(fields)
        if is_row and fields[self._token_index]:
            self.num_stripped += tag is not None and tag != field
            return fields[self._token_index], tag
        if line.startswith("#"):
            return None
        where = f"{self._path}, line {index + 1}:"
        if not has_columns:
            raise ValueError(
                f"{where} a row must have {self._num_columns} columns. "
                f"Received: {len(fields)}."
            )
        if not is_row:
            raise ValueError(
                f"{where} the tag must be {_TAG}. "
                f"Received: {messages.shortened(tag)}."
            )
        raise ValueError(f"{where} the word is empty.")

    def ends_sentence(self, index):
        """Returns whether a line that is not a row ends a sentence."""
        line = self._lines[index]
        return _is_blank(line) or line.startswith(_DOCUMENT_START)

    def _split(self, line):
        if self.separator == "\t":
            return line.split("\t")
        # Not str.split(): a word may be or contain a no-break space.
        return re.split(r"[ \t]+", line.strip(" \t"))

    def _split_header(self, line):
        if line.startswith(_COLUMN_NAMES):
            return line.removeprefix(_COLUMN_NAMES).split()
        return self._split(line)

    def _find_unread(self, column, header, fields):
        """Returns the index of the unread tags' column, None if there is none.

        Args:
            column: Where the tags would be: a number or a name.
            header: The names of the columns, or None.
            fields: Those of the first row.
        """
        if isinstance(column, str):
            if header.count(column) != 1:
                return None
            column = header.index(column)
        if not -len(fields) <= column < len(fields):
            return None
        column %= len(fields)
        is_other = column != self._token_index
        return column if is_other and _is_unread_tag(fields[column]) else None

    def _may_be_unread_tag(self, fields):
        """Returns whether a row has a tag where the first row has one."""
        index = self._unread_index
        return index is None or _is_unread_tag(fields[index])

    def _index(self, column, header):
        if isinstance(column, str):
            where = f"{self._path}, line 1: the header"
            return tsv.column_index(where, header, column)
        if not -self._num_columns <= column < self._num_columns:
            raise ValueError(
                f"{self._path}: a row must have a column {column}. "
                "Received: "
                f"{messages.counted(self._num_columns, 'column', 'columns')}."
            )
        return column % self._num_columns


def _check_tags(where, words, tags, labels):
    if len(words) != len(tags):
        raise ValueError(
            f"{where}: must have as many tags as words. Received: "
            f"{messages.counted(len(words), 'word', 'words')}, "
            f"{messages.counted(len(tags), 'tag', 'tags')}."
        )
    for tag in tags:
        if tag not in labels if labels else not entity_tags.is_tag(tag):
            expected = _TAG
            if labels:
                expected = f"one of {class_names.listed(labels)}"
            raise ValueError(
                f"{where}: a tag must be {expected}. "
                f"Received: {messages.shortened(tag)}."
            )


def _is_unread_tag(field):
    """Returns whether a field is a tag, or what stands for an unknown one."""
    tag = field.strip()
    return tag == _UNKNOWN or entity_tags.is_tag(tag)


def _is_blank(line):
    return not line.strip(" \t")


def _append(line, separator, value):
    if separator == " ":
        line = line.rstrip(" \t")
    return f"{line}{separator}{value}"
