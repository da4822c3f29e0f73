"""Flags and functions that the fine-tuning programs share.

Only programs import this module: importing it defines the flags. A program that
has another default in google-research/bert sets it before its flags are parsed:

    fine_tuning_flags.set_defaults(max_seq_length=384)
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any
from typing import TypeVar

from absl import flags
from absl import logging

from bert_tf import described
from bert_tf import files
from bert_tf import program
from bert_tf import training_flags
from bert_tf.runs import output_folder
from bert_tf.runs import stopping
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.data_files import DataFiles

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.tasks.task import Task
    from bert_tf.tuning.tuning_run import OnPredictions

AnyTask = TypeVar("AnyTask", bound="Task")
_FLAGS = program.define_flags(FineTuningConfig)


def set_defaults(**values: Any) -> None:
    """Sets the defaults of a program; call it before flags are parsed."""
    for name, value in values.items():
        flags.set_default(_FLAGS[name], value)


def define_files(*names: str) -> None:
    """Defines the flags of the files of examples; without names, all."""
    program.define_flags(DataFiles, names or None)


def make_config(task_options: Any = None) -> FineTuningConfig:
    """Returns the `FineTuningConfig` made from the flags.

    Args:
        task_options: The dataclass of the task's options, or None.

    Raises:
        ValueError: If a value is out of its range, two flags do not fit
            together, the output folder cannot be written, or training would
            overwrite another model.
    """
    logging.set_verbosity(logging.INFO)
    config = program.from_flags(FineTuningConfig)
    # Evaluations and predictions write only at their end.
    files.check_may_be_written_into(config.output_dir)
    if config.do_train:
        output_folder.check(config.output_dir)
    if task_options is not None:
        described.check(program.from_flags(task_options))
        # A tuned model keeps what is not given, e.g. its loss.
        program.check_used(task_options, None if config.do_train else _FLAGS)
    return config


def open_data_set(tfds_name: str | None, **others: Any) -> Any:
    """Returns the builder of --tfds_name, or None without it.

    Args:
        tfds_name: Value of the flag.
        **others: Values of the flags that must not be given with it.

    Raises:
        ValueError: If two flags do not fit together, or there is no such data
            set.
    """
    if tfds_name is None:
        return None
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"--{name} must not be given with --tfds_name.")
    # It imports TensorFlow Datasets, which is rarely needed.
    from bert_tf.input import prepared_sets

    return prepared_sets.open_builder(tfds_name)


def wanted_files(config: FineTuningConfig) -> dict[str, str]:
    """Returns {split: path} of the sets that `config` wants.

    Raises:
        ValueError: If one is not given.
    """
    paths = {}
    # The splits of `tasks.source`, which imports TensorFlow.
    for split, name, is_wanted in (
        ("train", "train_file", config.do_train),
        ("dev", "eval_file", config.do_eval),
        ("test", "predict_file", config.do_predict),
    ):
        if is_wanted:
            # google-research/bert's run_squad scores the file that it answers.
            name = name if name in flags.FLAGS else "predict_file"
            program.require(**{name: flags.FLAGS[name].value})
            paths[split] = str(flags.FLAGS[name].value)
    return paths


def make_task(
    task_class: type[AnyTask], config: FineTuningConfig, **given: Any
) -> AnyTask:
    """Returns the task that the flags ask for.

    Args:
        task_class: Its class, whose options have flags of their names.
        config: The `FineTuningConfig`.
        **given: Fields that the flags do not say.

    Returns:
        The task. What no flag says is as in the checkpoint. The task of a tuned
        model is changed only by flags of options with `may_differ`.

    Raises:
        ValueError: If a flag contradicts the tuned model's task.
    """
    from bert_tf.tasks import task_folder
    from bert_tf.tasks.foreign import Foreign
    from bert_tf.tuning import tuning_run

    fields = {
        field.name: field
        for field in dataclasses.fields(task_class)
        if "help" in field.metadata and field.name in flags.FLAGS
    }
    folder = tuning_run.tuned_folder(config)
    stored = folder and task_folder.stored_task(folder, task_class)
    if not stored:
        values = {name: program.value_of(fields[name]) for name in fields}
        given |= {
            name: values[name] for name in values if values[name] is not None
        }
        folder = tuning_run.checkpoint(config)
        if folder and issubclass(task_class, Foreign):
            given |= task_class.checkpoint_fields(folder, given)
        return task_class(**given)
    changes = {}
    for name, field in fields.items():
        flag, value = flags.FLAGS[name], program.value_of(field)
        if field.metadata.get("may_differ"):
            if flag.present:
                changes[name] = value
            continue
        wanted = getattr(stored, name)
        # 0 stands for none, and a tuned model has none.
        is_right = value == wanted or not (value or wanted)
        program.check_as_tuned(flag, is_right, repr(wanted), str(value))
    return dataclasses.replace(stored, **changes | given)


def tune(
    config: FineTuningConfig,
    task_class: type["Task"],
    paths: Mapping[str, str],
    label_column: str | None = None,
    **given: Any,
) -> None:
    """Makes the task, reads its files, and executes.

    Args:
        config: The `FineTuningConfig`.
        task_class, **given: As for `make_task`.
        paths: {split: path}; see `wanted_files`.
        label_column: As for `Task.read`; None for its default.
    """
    from bert_tf.tasks.foreign import Foreign
    from bert_tf.tuning import tuning_run

    strategy = training_flags.make_strategy()
    task = make_task(task_class, config, **given)
    if isinstance(task, Foreign) and (folder := tuning_run.checkpoint(config)):
        task = task.with_checkpoint_fields(folder)
    options = {} if label_column is None else {"label_column": label_column}
    examples = {
        split: task.read(path, split, **options)
        for split, path in paths.items()
    }
    execute(config, task, examples, strategy)


def execute(
    config: FineTuningConfig,
    task: "Task",
    examples: Mapping[str, Any],
    strategy: "tf.distribute.Strategy",
    on_predictions: "OnPredictions | None" = None,
    dataset: str | None = None,
) -> None:
    """Trains, evaluates and predicts, as the flags say.

    If told to stop, it saves the state and exits with code 75.

    Args:
        config, task, examples, strategy: As for `Run`.
        on_predictions: As for `Run.predict`.
        dataset: As for `Run`.
    """
    from bert_tf.tuning.tuning_run import Run

    with stopping.exits_when_told():
        run = Run(
            config,
            task,
            examples,
            strategy,
            training_flags.dtype_policy(strategy),
            dataset,
        )
        run.execute(on_predictions)
