"""Reads tasks' examples from TSV files: GLUE's nine, or any with a header.

Fields are separated by tabs and never quoted: a quotation mark is a character
like any other, as GLUE's files have them. A line ends at LF or CR LF.
"""

import dataclasses
import math
import os

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.tasks.glue import GlueTask

TRAIN = "train"
DEV = "dev"
TEST = "test"


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFiles:
    """A task and its files by split: `TRAIN`, `DEV` and `TEST`."""

    task: GlueTask
    splits: dict[str, TsvFile]

    def path(self, data_dir, split):
        return os.path.join(data_dir, self.splits[split].name)

    def read(self, data_dir, split):
        """Returns the `Examples` of a split; see `read_tsv`."""
        return read_tsv(
            self.path(data_dir, split), self.splits[split], self.task
        )


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


def glue_task(name):
    """Returns the `TaskFiles` of one of GLUE's tasks.

    Args:
        name: A key of `GLUE_TASKS`; case and hyphens do not matter.

    Raises:
        ValueError: If there is no such task.
    """
    wanted = name.lower().replace("-", "")
    for key, task_files in GLUE_TASKS.items():
        if key.replace("-", "") == wanted:
            return task_files
    raise ValueError(
        f"`task_name` must be one of {', '.join(GLUE_TASKS)}, or tsv. "
        f"Received: task_name={name!r}."
    )


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


def tsv_task(text_columns, label_column, labels=(), regression=False):
    """Makes a task of TSV files with named columns.

    The data folder has train.tsv, dev.tsv and test.tsv, each with a header;
    test.tsv needs no column of labels.

    Args:
        text_columns: Names of the one or two columns of text.
        label_column: Name of the column of labels or scores.
        labels: Names of the classes; none for a regression.
        regression: Whether the label column holds numbers to predict.

    Returns:
        A `TaskFiles` with a task named "tsv". Its scores are the accuracy,
        or Pearson's and Spearman's correlation.
    """
    if bool(labels) == regression:
        raise ValueError(
            "`labels` must be given for a classification, and for no "
            f"regression. Received: labels={list(labels)}, "
            f"regression={regression}."
        )
    return TaskFiles(
        task=GlueTask(
            name="tsv",
            text_features=tuple(text_columns),
            labels=tuple(labels),
            metrics=("pearson", "spearman") if regression else ("accuracy",),
        ),
        splits=named_columns(text_columns, label_column),
    )


def named_columns(text_columns, label_column):
    """Returns the splits of `tsv_task`: {split: `TsvFile`}."""
    labelled = TsvFile(
        name="train.tsv",
        text_columns=tuple(text_columns),
        label_column=label_column,
    )
    return {
        TRAIN: labelled,
        DEV: dataclasses.replace(labelled, name="dev.tsv"),
        TEST: TsvFile(name="test.tsv", text_columns=tuple(text_columns)),
    }


def _glue(
    task,
    text_columns,
    label_column,
    test_columns=None,
    dev="dev.tsv",
    test="test.tsv",
    num_columns=None,
    skip_bad_rows=False,
):
    labelled = TsvFile(
        name="train.tsv",
        text_columns=text_columns,
        label_column=label_column,
        num_columns=num_columns,
        skip_bad_rows=skip_bad_rows,
    )
    return TaskFiles(
        task=task,
        splits={
            TRAIN: labelled,
            DEV: dataclasses.replace(labelled, name=dev),
            # Test files have a header, whatever the others have, no label,
            # and no bad rows.
            TEST: TsvFile(name=test, text_columns=test_columns or text_columns),
        },
    )


_SENTENCES = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")

# The tasks of GLUE under the names of --task_name. Of MNLI's two development
# and test sets these are the matched ones. Its classes, and those of the
# others, are in the order of google-research/bert.
GLUE_TASKS = {
    "cola": _glue(
        GlueTask(
            name="cola",
            text_features=("sentence",),
            labels=("0", "1"),
            metrics=("matthews_correlation",),
        ),
        text_columns=(3,),
        label_column=1,
        test_columns=(1,),
        num_columns=4,
    ),
    "sst-2": _glue(
        GlueTask(
            name="sst-2",
            text_features=("sentence",),
            labels=("0", "1"),
            metrics=("accuracy",),
        ),
        text_columns=(0,),
        label_column=1,
        test_columns=(1,),
    ),
    "mrpc": _glue(
        GlueTask(
            name="mrpc",
            text_features=_SENTENCES,
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
        ),
        text_columns=(3, 4),
        label_column=0,
    ),
    "sts-b": _glue(
        GlueTask(
            name="sts-b",
            text_features=_SENTENCES,
            metrics=("pearson", "spearman"),
        ),
        text_columns=(7, 8),
        label_column=9,
    ),
    # Some rows of GLUE's own QQP files are broken; everybody leaves them out.
    "qqp": _glue(
        GlueTask(
            name="qqp",
            text_features=("question1", "question2"),
            labels=("0", "1"),
            metrics=("accuracy", "f1"),
        ),
        text_columns=(3, 4),
        label_column=5,
        test_columns=(1, 2),
        skip_bad_rows=True,
    ),
    "mnli": _glue(
        GlueTask(
            name="mnli",
            text_features=("premise", "hypothesis"),
            labels=("contradiction", "entailment", "neutral"),
            metrics=("accuracy",),
        ),
        text_columns=(8, 9),
        label_column=-1,
        dev="dev_matched.tsv",
        test="test_matched.tsv",
    ),
    "qnli": _glue(
        GlueTask(
            name="qnli",
            text_features=("question", "sentence"),
            labels=_ENTAILMENT,
            metrics=("accuracy",),
        ),
        text_columns=(1, 2),
        label_column=3,
    ),
    "rte": _glue(
        GlueTask(
            name="rte",
            text_features=_SENTENCES,
            labels=_ENTAILMENT,
            metrics=("accuracy",),
        ),
        text_columns=(1, 2),
        label_column=3,
    ),
    "wnli": _glue(
        GlueTask(
            name="wnli",
            text_features=_SENTENCES,
            labels=("0", "1"),
            metrics=("accuracy",),
        ),
        text_columns=(1, 2),
        label_column=3,
    ),
}
