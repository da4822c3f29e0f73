r"""Reads multiple-choice questions from files, by their names, and tables.

    .csv      SWAG's: a header with sent1, sent2, ending0, ending1, ... and
              label; the context is sent1, a choice is sent2 with an ending
    .tsv      CODAH's: category, beginning, its choices, and the number of the
              right one, without header and without quoting
    a folder  RACE's, e.g. RACE/train: in it and in the folders there, files
              *.txt of {"article": "...", "questions": ["...", ...],
              "options": [["...", ...], ...], "answers": ["A", ...]}; a choice
              is the question with an option in its blank or, if it has no
              blank, after it

Anything else is a table (see `tasks.columns`), e.g. a .jsonl file, with the
columns `context`, `choices` (a list of strings) and `label`. If there is also a
column `question`, each choice begins with the question. A table with `question`
but no `context` takes the question as the context.

Labels count from 0, RACE's answers from A. A file to predict needs no labels:
SWAG's then has no column `label`, and CODAH's an empty last field.
"""

import dataclasses
import os
import re
import string
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf import messages
from bert_tf.tasks import class_names
from bert_tf.tasks import columns
from bert_tf.tasks import tsv

# SWAG's columns of endings have this name and a number, from 0.
_ENDING = re.compile("ending[0-9]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceExamples:
    """Contexts with choices.

    Args:
        contexts: N strings.
        choices: N rows of C strings.
        labels: int32 `[N]`, numbers of the right choices, or None.
    """

    contexts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    labels: np.ndarray | None

    def __len__(self):
        return len(self.contexts)

    @property
    def num_choices(self) -> int:
        """C, the number of choices of every row."""
        return len(self.choices[0])


def read_choices(
    data: Any,
    has_labels: bool = True,
    num_choices: int | None = None,
    label_column: str = "label",
) -> ChoiceExamples:
    """Reads questions in one of the forms of this module.

    Args:
        data: The path of a file or folder, or a table.
        has_labels: Whether to read the labels; if not, they may be missing.
        num_choices: How many choices each row must have; if None, as many as
            the first row has.
        label_column: Name of the labels' column in a table, or in SWAG's
            form.

    Returns:
        `ChoiceExamples`.

    Raises:
        ValueError: If a file is missing, of no known form or without
            examples, or a row has another number of choices, or a label that
            is none of them. The message names file and line, or the row.
    """
    contexts, choices, labels = [], [], []
    num_stripped = 0
    rows = _rows(data, label_column if has_labels else None)
    for where, context, choices_of_row, label in rows:
        num_choices = num_choices or len(choices_of_row)
        if len(choices_of_row) != num_choices or num_choices < 2:
            wanted = num_choices if num_choices > 1 else "two or more"
            raise ValueError(
                f"{where}: a row must have {wanted} choices. "
                f"Received: {len(choices_of_row)}."
            )
        contexts.append(context)
        choices.append(tuple(choices_of_row))
        if has_labels:
            if isinstance(label, str):
                num_stripped += label != label.strip()
                label = label.strip()
            labels.append(_parse_label(where, label, num_choices))
    if not contexts:
        raise ValueError(f"{data}: there are no examples in it.")
    class_names.log_stripped(columns.title(data), num_stripped)
    return ChoiceExamples(
        contexts=tuple(contexts),
        choices=tuple(choices),
        labels=np.array(labels, np.int32) if has_labels else None,
    )


def has_named_labels(path: files.AnyPath) -> bool:
    """Returns whether such a file has a named column of labels."""
    return columns.may_have_lists(path) or tsv.is_csv(path)


def is_file_of_choices(path: files.AnyPath) -> bool:
    """Returns whether `read_choices` reads such a path, by its name."""
    suffixes = (".csv", ".tsv", ".jsonl", ".parquet")
    return files.is_folder(path) or str(path).lower().endswith(suffixes)


def _rows(data, label_column):
    """Yields (string that names the row, context, choices, label or None).

    Args:
        data: See `read_choices`.
        label_column: Name of the labels' column; None if none are wanted.
    """
    if columns.may_have_lists(data):
        return _table_rows(data, label_column)
    if files.is_folder(data):
        return _race_rows(data, has_answers=label_column is not None)
    if tsv.is_csv(data):
        return _swag_rows(data, label_column)
    if str(data).lower().endswith(".tsv"):
        return _codah_rows(data)
    raise ValueError(
        f"{data}: must be a folder, or the name must end with .csv, .tsv, "
        ".jsonl or .parquet."
    )


def _swag_rows(path, label_column):
    rows = tsv.csv_rows(path)
    _, header = next(rows, (1, []))
    where = f"{path}, line 1: the header"
    first, second = (
        tsv.column_index(where, header, name) for name in ("sent1", "sent2")
    )
    # A gap among the endings, or one of them twice, would lose a choice.
    num_endings = sum(bool(_ENDING.fullmatch(name)) for name in header)
    endings = [
        tsv.column_index(where, header, f"ending{number}")
        for number in range(num_endings or 1)
    ]
    label = None
    if label_column is not None:
        label = tsv.column_index(where, header, label_column)
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: a row must have "
                f"{len(header)} columns. Received: {len(row)}."
            )
        yield (
            f"{path}, line {line}",
            row[first],
            [f"{row[second]} {row[ending]}".strip() for ending in endings],
            None if label is None else row[label],
        )


def _codah_rows(path):
    for line, text in tsv.full_lines(path):
        where, fields = f"{path}, line {line}", text.split("\t")
        if len(fields) < 3:
            raise ValueError(
                f"{where}: a row must have a category, a beginning, its "
                "choices and a label. Received: "
                f"{messages.counted(len(fields), 'column', 'columns')}."
            )
        yield where, fields[1], fields[2:-1], fields[-1]


def _race_rows(folder, has_answers):
    for path in _passages(folder):
        passage = files.read_json(path)
        names = ["questions", "options", *(["answers"] if has_answers else [])]
        if (
            not isinstance(passage, dict)
            or not isinstance(passage.get("article"), str)
            or not all(isinstance(passage.get(name), list) for name in names)
            or len({len(passage[name]) for name in names}) > 1
        ):
            raise ValueError(
                f"{path}: must be an object with a string `article`, and "
                f"lists of one length: {', '.join(names)}. "
                f"Received: {messages.shortened(passage)}."
            )
        rows = zip(*(passage[name] for name in names))
        for number, (question, options, *answer) in enumerate(rows, start=1):
            where = f"{path}, question {number}"
            columns.check_text(where, "questions", question)
            columns.check_texts(where, "options", options)
            letters = [*string.ascii_uppercase[: len(options)]]
            if answer and answer[0] not in letters:
                raise ValueError(
                    f"{where}: the answer must be one of "
                    f"{', '.join(letters)}. "
                    f"Received: {messages.shortened(answer[0])}."
                )
            # As in the readers of ALBERT and transformers.
            blank = question if "_" in question else f"{question} _"
            choices = [blank.replace("_", option) for option in options]
            label = letters.index(answer[0]) if has_answers else None
            yield where, passage["article"], choices, label


def _passages(folder, levels=2):
    """Yields the .txt files of a folder and of its middle/ and high/."""
    names = files.list_folder(folder)
    if len({"train", "dev", "test"} & {*names}) > 1:
        raise ValueError(
            f"{folder} must be one of RACE's sets, e.g. {folder}/train. "
            f"Received: {', '.join(names)}."
        )
    for name in names:
        path = os.path.join(folder, name)
        if name.endswith(".txt"):
            yield path
        elif levels > 1 and files.is_folder(path):
            yield from _passages(path, levels - 1)


def _table_rows(table, label_column):
    """Yields what `_rows` does, from a table."""
    found = columns.names_in(table)
    texts = [name for name in ("context", "question") if name in found]
    texts = texts or ["context"]
    names = [*texts, "choices"]
    if label_column is not None:
        names.append(label_column)
    for where, values in columns.read(table, names):
        for name, text in zip(texts, values):
            columns.check_text(where, name, text)
        context, *question = values[: len(texts)]
        choices, *label = values[len(texts) :]
        columns.check_texts(where, "choices", choices)
        choices = [" ".join([*question, choice]) for choice in choices]
        yield where, context, choices, label[0] if label else None


def _parse_label(where, label, num_choices):
    try:
        number = int(label)
    except (OverflowError, TypeError, ValueError):
        number = -1
    # int() accepts JSON's true and 1.5, which are not numbers of choices.
    if not 0 <= number < num_choices or str(label) != str(number):
        raise ValueError(
            f"{where}: the label must be a choice's number, from 0 to "
            f"{num_choices - 1}. Received: {messages.shortened(label)}."
        )
    return number
