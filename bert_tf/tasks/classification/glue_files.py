"""Files of classification tasks: GLUE's, XNLI's, or any with a header."""

import dataclasses
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.tasks import class_names
from bert_tf.tasks import columns as columns_lib
from bert_tf.tasks import tsv
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tsv import TsvFile

# MNLI's sets of genres that are not in training, and the diagnostic set.
DEV_MISMATCHED = "dev_mismatched"
TEST_MISMATCHED = "test_mismatched"
AX = "ax"
DEVELOPMENT = (DEV, DEV_MISMATCHED)
TESTS = (TEST, TEST_MISMATCHED, AX)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskFiles:
    """A task and its files.

    Args:
        task: The `ClassificationTask`.
        splits: {split: `TsvFile`}; `TRAIN`, `DEV` and `TEST`, for MNLI also
            `DEV_MISMATCHED` and `TEST_MISMATCHED`, for the diagnostic set
            only `AX`.
        submissions: {test split: name of its file for GLUE's leaderboard}.
    """

    task: ClassificationTask
    splits: dict[str, TsvFile]
    submissions: dict[str, str] = dataclasses.field(default_factory=dict)

    def path(self, data_dir: str, split: str) -> str:
        """Returns the path of a split's file; see `find_path`."""
        return find_path(data_dir, self.splits[split])

    def check(self, data_dir: str, splits: Iterable[str]) -> None:
        """Raises `ValueError` if a file of these splits is missing."""
        for split in splits:
            if split in self.splits:
                existing_path(data_dir, self.splits[split])

    def read(self, data_dir: str, split: str) -> tsv.Examples:
        """Returns the `Examples` of a split; see `tsv.read_tsv`."""
        return tsv.read_tsv(
            existing_path(data_dir, self.splits[split]),
            self.splits[split],
            self.task.labels,
            self.task.label_synonyms,
        )

    def submission_writer(
        self, task: ClassificationTask, output_dir: str
    ) -> Callable[[str, np.ndarray], None]:
        """Returns `write(split, logits)`: see `write_submission`.

        It writes nothing for a split without a file for GLUE's leaderboard.

        Args:
            task: The task that the model is tuned to.
            output_dir: The folder to write into.
        """

        def write(split, logits):
            if split in self.submissions:
                path = os.path.join(output_dir, self.submissions[split])
                write_submission(path, task, logits)
                print(f"For GLUE's leaderboard: {path}")

        return write


def glue_task(name: str) -> TaskFiles:
    """Returns the `TaskFiles` of one of GLUE's tasks; see `glue_key`."""
    return GLUE_TASKS[glue_key(name)]


def glue_key(name: str) -> str:
    """Returns the key in `GLUE_TASKS` of one of GLUE's tasks.

    Args:
        name: The key; case and hyphens do not matter.

    Raises:
        ValueError: If there is no such task.
    """
    wanted = name.lower().replace("-", "")
    for key in GLUE_TASKS:
        if key.replace("-", "") == wanted:
            return key
    raise ValueError(
        f"`task_name` must be one of {', '.join(GLUE_TASKS)}, or tsv. "
        f"Received: task_name={name!r}."
    )


def find_path(data_dir: str, tsv_file: TsvFile) -> str:
    """Returns the path of a `TsvFile`, or of the file that is there instead.

    That is the file of its other name or, only for columns with names, the
    .csv; the columns of GLUE's files have numbers. If there are both a .tsv and
    a .csv, the .tsv is taken and the log says so.
    """
    path = os.path.join(data_dir, tsv_file.name)
    if tsv_file.other_name is not None and not files.exists(path):
        other = os.path.join(data_dir, tsv_file.other_name)
        return other if files.exists(other) else path
    csv_path = f"{path.removesuffix('.tsv')}.csv"
    if isinstance(tsv_file.text_columns[0], int) or not files.exists(csv_path):
        return path
    if files.exists(path):
        logging.info("Reading %s, not %s.", path, csv_path)
        return path
    return csv_path


def existing_path(data_dir: str, tsv_file: TsvFile) -> str:
    """Returns the path of a `TsvFile`; see `find_path`.

    Raises:
        ValueError: If there is no such file. If there is one of another kind
            in its place, such as train.jsonl, the message names it.
    """
    path = find_path(data_dir, tsv_file)
    if files.exists(path):
        return path
    folder, name = os.path.split(path)
    stem = name.removesuffix(".tsv")
    # Also the train-00000-of-00001.parquet of Hugging Face's sets.
    others = [
        other
        for other in files.list_folder(folder)
        if other.startswith((f"{stem}.", f"{stem}-"))
    ]
    message = f"There is no file {path}."
    if others:
        is_named = isinstance(tsv_file.text_columns[0], str)
        kind = ".tsv or .csv" if is_named else ".tsv"
        message += (
            f" It must be a {kind}. Received: {class_names.listed(others)}."
        )
        if any(map(columns_lib.may_have_lists, others)):
            message += (
                " In Python, bert_tf.tuning.run reads .jsonl and .parquet."
            )
    raise ValueError(message)


def write_submission(
    path: files.AnyPath, task: ClassificationTask, logits: np.ndarray
) -> None:
    """Writes a test set's answers as GLUE's leaderboard takes them.

    That is a header and a line for every example: its number from 0, and the
    name of its class or, for a regression, its score within [0, 5].

    Args:
        path: The file, written whole or not at all.
        task: A `ClassificationTask`.
        logits: float32 `[N, num_outputs]`.
    """
    if task.labels:
        answers = [task.labels[i] for i in np.argmax(logits, axis=-1)]
    else:
        scores = np.clip(logits[:, 0], 0.0, 5.0)
        answers = [f"{score:.3f}" for score in scores]
    tsv.write(path, [("index", "prediction"), *enumerate(answers)])


def tsv_task(
    text_columns: Sequence[str],
    label_column: str,
    labels: Sequence[str] = (),
) -> TaskFiles:
    """Makes a task from TSV or CSV files with named columns.

    The data folder has train.tsv, dev.tsv and test.tsv, or any of them as
    .csv, each with a header; the test file needs no column of labels.

    Args:
        text_columns: Names of the one or two columns of text.
        label_column: Name of the column of labels or scores.
        labels: Names of the classes; empty for a regression.

    Returns:
        A `TaskFiles` with a task named "tsv". Its scores are the accuracy,
        or Pearson's and Spearman's correlation.
    """
    return TaskFiles(
        task=ClassificationTask(
            name="tsv",
            text_features=tuple(text_columns),
            labels=tuple(labels),
            metrics=("accuracy",) if labels else ("pearson", "spearman"),
        ),
        splits=named_columns(text_columns, label_column),
    )


def named_columns(
    text_columns: Sequence[str], label_column: str
) -> dict[str, TsvFile]:
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
    name,
    text_features,
    labels,
    metrics,
    *,
    columns,
    label_column,
    test_columns=None,
    num_columns=None,
    skip_bad_rows=False,
    label_synonyms=(),
):
    """Returns the `TaskFiles` of a task, named as the leaderboard has it."""
    labelled = TsvFile(
        name="train.tsv",
        text_columns=columns,
        label_column=label_column,
        num_columns=num_columns,
        skip_bad_rows=skip_bad_rows,
    )
    return TaskFiles(
        task=ClassificationTask(
            name=name.lower(),
            text_features=text_features,
            labels=labels,
            label_synonyms=label_synonyms,
            metrics=metrics,
        ),
        splits={
            TRAIN: labelled,
            DEV: dataclasses.replace(labelled, name="dev.tsv"),
            # Test files always have a header, and neither labels nor bad
            # rows.
            TEST: TsvFile(
                name="test.tsv", text_columns=test_columns or columns
            ),
        },
        submissions={TEST: f"{name}.tsv"},
    )


def _with_mismatched(mnli):
    """Returns MNLI with its sets of other genres beside the matched ones."""
    names = {
        DEV: "dev_matched.tsv",
        TEST: "test_matched.tsv",
        DEV_MISMATCHED: "dev_mismatched.tsv",
        TEST_MISMATCHED: "test_mismatched.tsv",
    }
    splits = mnli.splits | {
        split: dataclasses.replace(
            mnli.splits[split.removesuffix("_mismatched")], name=names[split]
        )
        for split in names
    }
    return dataclasses.replace(
        mnli,
        splits=splits,
        submissions={TEST: "MNLI-m.tsv", TEST_MISMATCHED: "MNLI-mm.tsv"},
    )


_SENTENCE = ("sentence",)
_SENTENCES = ("sentence1", "sentence2")
_NUMBERS = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_ACCURACY = ("accuracy",)

# The tasks of GLUE. MNLI's `DEV` and `TEST` are the matched ones. All classes
# are in the order of google-research/bert. The synonyms of numbered classes are
# their names in TensorFlow's and Hugging Face's data sets.
_GLUE = (
    _glue(
        "CoLA",
        _SENTENCE,
        _NUMBERS,
        ("matthews_correlation",),
        columns=(3,),
        label_column=1,
        test_columns=(1,),
        num_columns=4,
        label_synonyms=("unacceptable", "acceptable"),
    ),
    _glue(
        "SST-2",
        _SENTENCE,
        _NUMBERS,
        _ACCURACY,
        columns=(0,),
        label_column=1,
        test_columns=(1,),
        label_synonyms=("negative", "positive"),
    ),
    _glue(
        "MRPC",
        _SENTENCES,
        _NUMBERS,
        ("accuracy", "f1"),
        columns=(3, 4),
        label_column=0,
        label_synonyms=("not_equivalent", "equivalent"),
    ),
    _glue(
        "STS-B",
        _SENTENCES,
        (),
        ("pearson", "spearman"),
        columns=(7, 8),
        label_column=9,
    ),
    # Some rows of GLUE's own QQP files are broken; everybody skips them.
    _glue(
        "QQP",
        ("question1", "question2"),
        _NUMBERS,
        ("accuracy", "f1"),
        columns=(3, 4),
        label_column=5,
        test_columns=(1, 2),
        skip_bad_rows=True,
        label_synonyms=("not_duplicate", "duplicate"),
    ),
    _with_mismatched(
        _glue(
            "MNLI",
            ("premise", "hypothesis"),
            ("contradiction", "entailment", "neutral"),
            _ACCURACY,
            columns=(8, 9),
            label_column=-1,
        )
    ),
    _glue(
        "QNLI",
        ("question", "sentence"),
        _ENTAILMENT,
        _ACCURACY,
        columns=(1, 2),
        label_column=3,
    ),
    _glue(
        "RTE",
        _SENTENCES,
        _ENTAILMENT,
        _ACCURACY,
        columns=(1, 2),
        label_column=3,
    ),
    _glue(
        "WNLI",
        _SENTENCES,
        _NUMBERS,
        _ACCURACY,
        columns=(1, 2),
        label_column=3,
        label_synonyms=("not_entailment", "entailment"),
    ),
)
# By the values of --task_name.
GLUE_TASKS = {task_files.task.name: task_files for task_files in _GLUE}
# The diagnostic set is answered by a model that was tuned to MNLI.
GLUE_TASKS["ax"] = TaskFiles(
    task=GLUE_TASKS["mnli"].task,
    splits={
        AX: TsvFile(
            name="AX.tsv",
            # Its name in the usual download, in the folder diagnostic/.
            other_name="diagnostic.tsv",
            text_columns=(1, 2),
        )
    },
    submissions={AX: "AX.tsv"},
)


def _xnli(language):
    """Returns XNLI in a language, as google-research/bert reads it."""
    dev = TsvFile(
        name="xnli.dev.tsv",
        text_columns=(6, 7),
        label_column=1,
        only=(0, language),
    )
    return TaskFiles(
        task=ClassificationTask(
            name="xnli",
            text_features=_SENTENCES,
            labels=("contradiction", "entailment", "neutral"),
            # The names in the training files.
            label_synonyms=("contradictory", "entailment", "neutral"),
            metrics=_ACCURACY,
        ),
        splits={
            TRAIN: TsvFile(
                name=f"multinli/multinli.train.{language}.tsv",
                text_columns=(0, 1),
                label_column=2,
            ),
            DEV: dev,
            TEST: dataclasses.replace(
                dev, name="xnli.test.tsv", label_column=None
            ),
        },
    )


# XNLI (Conneau et al. 2018, arXiv 1809.05053) is one task in 15 languages. Its
# bare name means Chinese, as in google-research/bert.
_LANGUAGES = (
    *("ar", "bg", "de", "el", "en", "es", "fr", "hi"),
    *("ru", "sw", "th", "tr", "ur", "vi", "zh"),
)
_XNLI = {f"xnli-{language}": _xnli(language) for language in _LANGUAGES}
GLUE_TASKS |= {"xnli": _XNLI["xnli-zh"]} | _XNLI
