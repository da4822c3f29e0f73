"""The files of tasks: GLUE's nine and AX, or any TSV or CSV with a header."""

import dataclasses
import os

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.tasks import tsv
from bert_tf.tasks.classification.task import GlueTask
from bert_tf.tasks.tsv import TsvFile

TRAIN = "train"
DEV = "dev"
TEST = "test"
# MNLI's sets of other genres than the training's, and the diagnostic set.
DEV_MISMATCHED = "dev_mismatched"
TEST_MISMATCHED = "test_mismatched"
AX = "ax"
DEVELOPMENT = (DEV, DEV_MISMATCHED)
TESTS = (TEST, TEST_MISMATCHED, AX)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFiles:
    """A task and its files.

    Args:
        task: The `GlueTask`.
        splits: {split: `TsvFile`}; `TRAIN`, `DEV` and `TEST`, of MNLI also
            `DEV_MISMATCHED` and `TEST_MISMATCHED`, of the diagnostic set
            nothing but `AX`.
        submissions: {test split: name of its file for GLUE's leaderboard}.
    """

    task: GlueTask
    splits: dict[str, TsvFile]
    submissions: dict[str, str] = dataclasses.field(default_factory=dict)

    def path(self, data_dir, split):
        """Returns the path of a split's file; see `find_path`."""
        return find_path(data_dir, self.splits[split])

    def check(self, data_dir, splits):
        """Raises `ValueError` if a file of these splits, if any, is missing."""
        for split in splits:
            if split in self.splits:
                path = self.path(data_dir, split)
                if not files.exists(path):
                    raise ValueError(f"There is no file {path}.")

    def read(self, data_dir, split):
        """Returns the `Examples` of a split; see `tsv.read_tsv`."""
        return tsv.read_tsv(
            self.path(data_dir, split), self.splits[split], self.task
        )


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


def find_path(data_dir, tsv_file):
    """Returns the path of a `TsvFile`, or of the .csv that is there instead.

    That is for columns with names only: GLUE's have numbers, in files of a
    fixed form. Of both files the .tsv is taken, and the log says so.
    """
    path = os.path.join(data_dir, tsv_file.name)
    csv_path = f"{path.removesuffix('.tsv')}.csv"
    if isinstance(tsv_file.text_columns[0], int) or not files.exists(csv_path):
        return path
    if files.exists(path):
        logging.info("%s is read, and not %s.", path, csv_path)
        return path
    return csv_path


def write_submission(path, task, logits):
    """Writes a test set's answers as GLUE's leaderboard takes them.

    A header and a line for every example: its number from 0, and the name of
    its class or, of a regression, its score within [0, 5].

    Args:
        path: The file, written whole or not at all.
        task: A `GlueTask`.
        logits: float32 `[N, num_outputs]`.
    """
    if task.labels:
        answers = [task.labels[i] for i in np.argmax(logits, axis=-1)]
    else:
        scores = np.clip(logits[:, 0], 0.0, 5.0)
        answers = [f"{score:.3f}" for score in scores]
    lines = ["index\tprediction"]
    lines += [f"{index}\t{answer}" for index, answer in enumerate(answers)]
    files.write_text(path, "\n".join(lines) + "\n")


def tsv_task(text_columns, label_column, labels=(), regression=False):
    """Makes a task of TSV or CSV files with named columns.

    The data folder has train.tsv, dev.tsv and test.tsv, or any of them as
    .csv, each with a header; the test file needs no column of labels.

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
    submission=None,
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
        submissions={TEST: submission},
    )


def _with_mismatched(mnli):
    """Returns MNLI with its sets of other genres."""
    return dataclasses.replace(
        mnli,
        splits=mnli.splits
        | {
            DEV_MISMATCHED: dataclasses.replace(
                mnli.splits[DEV], name="dev_mismatched.tsv"
            ),
            TEST_MISMATCHED: dataclasses.replace(
                mnli.splits[TEST], name="test_mismatched.tsv"
            ),
        },
        submissions=mnli.submissions | {TEST_MISMATCHED: "MNLI-mm.tsv"},
    )


_SENTENCES = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")

# The tasks of GLUE under the names of --task_name. MNLI's `DEV` and `TEST` are
# the matched ones. All classes are in the order of google-research/bert; what
# GLUE's files number has names in TensorFlow's and Hugging Face's data sets.
GLUE_TASKS = {
    "cola": _glue(
        GlueTask(
            name="cola",
            text_features=("sentence",),
            labels=("0", "1"),
            label_synonyms=("unacceptable", "acceptable"),
            metrics=("matthews_correlation",),
        ),
        text_columns=(3,),
        label_column=1,
        test_columns=(1,),
        num_columns=4,
        submission="CoLA.tsv",
    ),
    "sst-2": _glue(
        GlueTask(
            name="sst-2",
            text_features=("sentence",),
            labels=("0", "1"),
            label_synonyms=("negative", "positive"),
            metrics=("accuracy",),
        ),
        text_columns=(0,),
        label_column=1,
        test_columns=(1,),
        submission="SST-2.tsv",
    ),
    "mrpc": _glue(
        GlueTask(
            name="mrpc",
            text_features=_SENTENCES,
            labels=("0", "1"),
            label_synonyms=("not_equivalent", "equivalent"),
            metrics=("accuracy", "f1"),
        ),
        text_columns=(3, 4),
        label_column=0,
        submission="MRPC.tsv",
    ),
    "sts-b": _glue(
        GlueTask(
            name="sts-b",
            text_features=_SENTENCES,
            metrics=("pearson", "spearman"),
        ),
        text_columns=(7, 8),
        label_column=9,
        submission="STS-B.tsv",
    ),
    # Some rows of GLUE's own QQP files are broken; everybody leaves them out.
    "qqp": _glue(
        GlueTask(
            name="qqp",
            text_features=("question1", "question2"),
            labels=("0", "1"),
            label_synonyms=("not_duplicate", "duplicate"),
            metrics=("accuracy", "f1"),
        ),
        text_columns=(3, 4),
        label_column=5,
        test_columns=(1, 2),
        skip_bad_rows=True,
        submission="QQP.tsv",
    ),
    "mnli": _with_mismatched(
        _glue(
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
            submission="MNLI-m.tsv",
        )
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
        submission="QNLI.tsv",
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
        submission="RTE.tsv",
    ),
    "wnli": _glue(
        GlueTask(
            name="wnli",
            text_features=_SENTENCES,
            labels=("0", "1"),
            label_synonyms=("not_entailment", "entailment"),
            metrics=("accuracy",),
        ),
        text_columns=(1, 2),
        label_column=3,
        submission="WNLI.tsv",
    ),
}
# The diagnostic set is answered by a model that was tuned to MNLI.
GLUE_TASKS["ax"] = TaskFiles(
    task=GLUE_TASKS["mnli"].task,
    splits={AX: TsvFile(name="AX.tsv", text_columns=(1, 2))},
    submissions={AX: "AX.tsv"},
)
