"""Fine-tuning from Python, as the programs do it."""

import contextlib
import dataclasses
import difflib
import logging
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf
from absl import flags
from absl import logging as absl_logging

from bert_tf import files
from bert_tf import messages
from bert_tf import quiet
from bert_tf.checkpoints import model_folder
from bert_tf.runs import output_folder
from bert_tf.tasks import task_folder
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.task import Task
from bert_tf.tasks.task import stored_name
from bert_tf.training import strategy as strategies
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import FineTuningConfig

# Fields that may differ from the tuned folder's: the columns of the caller's
# table, the classes, whose order may differ, and the scores.
_CALLER_FIELDS = ("text_features", "labels", "metrics")
# What others call our hyper-parameters.
_NAMES_ELSEWHERE = {
    "epochs": "num_train_epochs",
    "num_epochs": "num_train_epochs",
    "batch_size": "train_batch_size",
    "lr": "learning_rate",
}


def run(
    task: Task,
    *,
    output_dir: files.AnyPath,
    train: Any = None,
    dev: Any = None,
    test: Any = None,
    start: files.AnyPath | None = None,
    metrics: Sequence[str] | None = None,
    label_column: str | int | None = None,
    strategy: tf.distribute.Strategy | None = None,
    mixed_precision: str = "auto",
    callbacks: Sequence[keras.callbacks.Callback] = (),
    **hyper_parameters: Any,
) -> tuning_run.Run:
    """Tunes a model, evaluates it and predicts, as the programs do.

    It writes into the output folder what a program writes there: the model with
    its task.json, the state of the training, eval_results.txt, report.md and
    the predictions. If a training was stopped, the same call resumes it. It
    logs its progress as the programs do, from INFO on, unless absl's verbosity
    was set (`absl.logging.set_verbosity`) or a level of the logger "bert_tf".

    An epoch trains every example once, and for questions every window of their
    texts. Its last batch may be smaller; it is filled up with examples that do
    not count. (The programs count steps as google-research/bert does.) Only
    with a loss that compares the texts of a batch, such as a `RetrievalTask`'s
    multiple_negatives, do batches run on from one epoch into the next.

    Data are a table: a pandas DataFrame, a dictionary of lists, a
    `tf.data.Dataset` of dictionaries (one per example), or the path of a .jsonl
    or .parquet file. These are its columns; a set to predict needs no labels:

        ClassificationTask  its `text_features`, and `label`
        MultiLabelTask      its `text_features`, and `labels`, a list of names
        TaggingTask         `words` and `tags`, lists of strings
        MultipleChoiceTask  `context`, `choices`, a list of strings, and
                            `label`, the number of a choice; if there is a
                            `question`, it is put before each choice
        RerankingTask       `query`, `text` and `label`, 1 or 0; or `query`,
                            `positive` and `negatives`, a list of strings
        RetrievalTask       `query`, `positive` and any `negative...`; or
                            `sentence1`, `sentence2` and `score`; or `text`:
                            see `tasks.retrieval.files`
        SquadTask           `id`, `context`, `question`, and `answers`, each
                            {"text": [...], "answer_start": [...]}

    Texts with labels may also be in .csv and .tsv files with a header. The
    other tasks also take the path of what their programs read: a file of tagged
    words, SWAG's or CODAH's file, RACE's folder, SQuAD's JSON.

    Args:
        task: A `Task`. If its labels or tags are not given, those of `train`
            are taken, in their order, and logged.
        output_dir: The folder.
        train: Examples to train on, a table or the path of a file as described
            above. To resume, give the same examples in the same order. Without
            `train`, the tuned model of the output folder or, if there is none,
            of `start` is used. It must be tuned to this task. Fields of the
            task that are left at their defaults, e.g. the
            `null_score_diff_threshold` of a `SquadTask`, are then as the
            folder has them.
        dev: Examples to evaluate on, with `train` after every epoch.
        test: Examples to predict; they need no labels.
        start: A model folder (of bert_tf or Hugging Face) or a release of
            Google's; None for random weights.
        metrics: Names of scores to use instead of the task's own, for a
            `ClassificationTask` or a `MultiLabelTask`. Epochs are compared by
            the first one.
        label_column: Name of the labels' column or, in a file of tagged words,
            its number, if it is not the task's.
        strategy: A `tf.distribute.Strategy`; None for one device.
        mixed_precision: See `training.strategy.dtype_policy`.
        callbacks: Keras callbacks. Of them `on_train_begin`, `on_epoch_begin`,
            `on_epoch_end` and `on_train_end` are called, and a callback with
            another hook is refused. The logs of an epoch's end have `loss` and,
            for classes, `accuracy`, and with `dev` its results, such as
            `val_loss`, `val_accuracy` and `val_f1`. If one sets
            `model.stop_training`, training ends with the epoch. A callback's
            state is not saved: a resumed training begins with the callbacks
            that are given then.
        **hyper_parameters: Fields of `tuning.config.FineTuningConfig`, i.e. the
            programs' flags: `learning_rate`, `num_train_epochs`, `keep_best`,
            `max_seq_length` and so on, with the programs' defaults.

    Returns:
        The `Run`: its `model`, its `results` ({name: float}, None without
        `dev`), and its `answers`.

    Raises:
        ValueError: If a value is out of its range, files or data are invalid,
            or the folder cannot be written, holds another training or is tuned
            to another task.
        training.preemption.PreemptedError: After SIGTERM or Ctrl-C, when the
            state has been saved.

    Example:

        >>> from bert_tf import ClassificationTask, tuning
        >>> task = ClassificationTask(
        ...     name="tickets",
        ...     text_features=("subject", "body"),
        ...     metrics=("macro_f1",),
        ... )  # The labels are found in the training data.
        >>> tuned = tuning.run(
        ...     task,
        ...     train="train.csv",
        ...     dev="dev.csv",
        ...     start="pretrained",
        ...     output_dir="tuned",
        ...     num_train_epochs=1,
        ...     train_batch_size=4,
        ...     max_seq_length=16,
        ... )  # doctest: +ELLIPSIS
        eval_accuracy = ...
        >>> 0 <= tuned.results["eval_macro_f1"] <= 1
        True
    """
    # `None` would become a folder called "None".
    files.check_path("output_dir", output_dir)
    if start is not None:
        files.check_path("start", start)
    _check_names(hyper_parameters)
    if metrics is not None:
        fields: dict[str, Any] = {"metrics": tuple(metrics)}
        task = dataclasses.replace(task, **fields)
    config = FineTuningConfig(
        output_dir=str(output_dir),
        init_checkpoint=None if start is None else str(start),
        do_train=train is not None,
        do_eval=dev is not None,
        do_predict=test is not None,
        **hyper_parameters,
    )
    # Evaluations and predictions write only at their end.
    files.check_may_be_written_into(config.output_dir)
    options: dict[str, Any] = {}
    if label_column is not None:
        options["label_column"] = label_column
    with _progress_logged():
        if config.do_train:
            output_folder.check(config.output_dir)
        else:
            task = _as_tuned(task, tuning_run.tuned_folder(config))
        if isinstance(task, Foreign) and (
            folder := tuning_run.checkpoint(config)
        ):
            task = task.with_checkpoint_fields(folder)
        if strategy is None:
            strategy = strategies.make_strategy()
        examples = {}
        if train is not None:
            task, examples[TRAIN] = task.read_training(train, **options)
        for split, data in ((DEV, dev), (TEST, test)):
            if data is not None:
                examples[split] = task.read(data, split, **options)
        tuned = tuning_run.Run(
            config,
            task,
            examples,
            strategy,
            strategies.dtype_policy(mixed_precision, strategy),
            whole_epochs=True,
            callbacks=callbacks,
        )
        tuned.execute()
        if dev is None:
            absl_logging.info("`results` is None: no `dev` set was given.")
    return tuned


def _check_names(hyper_parameters):
    """Raises `ValueError` if a name is no hyper-parameter's."""
    known = [field.name for field in dataclasses.fields(FineTuningConfig)]
    for name, value in hyper_parameters.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            meant = _NAMES_ELSEWHERE.get(name) or "".join(near)
            raise ValueError(
                f"`{name}` must be a field of FineTuningConfig"
                f"{f', here {meant}' if meant else ''}. "
                f"Received: {name}={messages.shortened(value)}."
            )


@contextlib.contextmanager
def _progress_logged():
    """Shows our lines from INFO on in the block, or from absl's verbosity on.

    The verbosity holds if it was set; a level of the logger "bert_tf" holds
    for its lines. Those of other libraries are shown as before: TensorFlow
    logs one for each checkpoint.
    """
    with contextlib.ExitStack() as stack:
        flag = flags.FLAGS["verbosity"]
        if flag.using_default_value:
            absl_logging.set_verbosity(absl_logging.INFO)
            stack.callback(flag.unparse)
            stack.enter_context(quiet.others_hidden())
        ours = logging.getLogger("bert_tf")
        if ours.level == logging.NOTSET:
            shown = absl_logging.get_absl_logger().getEffectiveLevel()
            ours.setLevel(shown)
            stack.callback(ours.setLevel, logging.NOTSET)
        # As absl does: without it nobody writes what is below a warning.
        logging.basicConfig()
        yield


def _as_tuned(task, folder):
    """Returns the task, completed from the folder of its model.

    Args:
        task: The caller's task. Its fields that are at their defaults become
            the folder's. A folder that transformers wrote changes nothing.
        folder: A model folder.

    Raises:
        ValueError: If the folder was tuned to a task of another family, name,
            scheme and so on; the message names both.
    """
    values = model_folder.read_task(folder)
    if values is None:
        if task.lacks_labels:
            names = model_folder.read_label_names(folder) or ()
            task = dataclasses.replace(task, labels=names)
        return task
    if values.get("family") != task.family:
        _refuse(folder, "family", values.get("family"), task.family)
    stored = task_folder.stored_task(folder, type(task))
    task_folder.output_order(folder, task)
    unset = task.unset_fields()
    completed = {}
    for field in dataclasses.fields(task):
        is_callers = field.name in _CALLER_FIELDS and not (
            field.name == "labels" and task.lacks_labels
        )
        if stored_name(field) not in values or is_callers:
            continue
        old, new = getattr(stored, field.name), getattr(task, field.name)
        if field.name in unset:
            completed[field.name] = old
        elif old != new and (
            field.default is dataclasses.MISSING or field.name == "scheme"
        ):
            _refuse(folder, field.name, old, new)
    return dataclasses.replace(task, **completed)


def _refuse(folder, name, stored, given):
    raise ValueError(
        f"{folder}/{model_folder.TASK_FILE}: the model is tuned to a task of "
        f"{name}={stored!r}. Received: a task of {name}={given!r}."
    )
