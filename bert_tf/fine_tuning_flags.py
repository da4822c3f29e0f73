"""Flags and functions that the fine-tuning programs share.

Only programs import this module: importing it defines the flags. A program that
has another default in google-research/bert sets it before its flags are parsed:

    fine_tuning_flags.set_defaults(max_seq_length=384)
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Any

from absl import flags

from bert_tf import files
from bert_tf import program
from bert_tf import training_flags
from bert_tf.runs import output_folder
from bert_tf.runs import stopping
from bert_tf.tuning.config import FineTuningConfig

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_tf.tasks.task import Task
    from bert_tf.tuning.tuning_run import OnPredictions

_FLAGS = program.define_flags(FineTuningConfig)


def set_defaults(**values: Any) -> None:
    """Sets the defaults of a program; call it before flags are parsed."""
    for name, value in values.items():
        flags.set_default(_FLAGS[name], value)


def make_config() -> FineTuningConfig:
    """Returns the `FineTuningConfig` made from the flags.

    Raises:
        ValueError: If a value is out of its range, two flags do not fit
            together, the output folder cannot be written, or training would
            overwrite another model.
    """
    config = program.from_flags(FineTuningConfig)
    # Evaluations and predictions write only at their end.
    files.check_may_be_written_into(config.output_dir)
    if config.do_train:
        output_folder.check(config.output_dir)
    return config


def open_data_set(
    tfds_name: str | None, tfds_data_dir: str | None, **others: Any
) -> Any:
    """Returns the builder of --tfds_name, or None without it.

    Args:
        tfds_name, tfds_data_dir: Values of the flags.
        **others: Values of the flags that must not be given with it.

    Raises:
        ValueError: If two flags do not fit together, or there is no such data
            set.
    """
    if tfds_name is None:
        if tfds_data_dir is not None:
            raise ValueError("--tfds_data_dir must be given with --tfds_name.")
        return None
    for name, value in others.items():
        if value is not None:
            raise ValueError(f"--{name} must not be given with --tfds_name.")
    # It imports TensorFlow Datasets, which is rarely needed.
    from bert_tf.input import prepared_sets

    return prepared_sets.open_builder(tfds_name, tfds_data_dir)


def require_files(
    config: FineTuningConfig,
    train_file: flags.FlagHolder,
    eval_file: flags.FlagHolder,
    test_file: flags.FlagHolder,
) -> None:
    """Checks that the file of every wanted set is given.

    Args:
        config: The `FineTuningConfig`.
        train_file, eval_file, test_file: The flags.

    Raises:
        ValueError: If one is not given.
    """
    for flag, is_wanted in (
        (train_file, config.do_train),
        (eval_file, config.do_eval),
        (test_file, config.do_predict),
    ):
        if is_wanted:
            program.require(**{flag.name: flag.value})


def wanted_files(
    config: FineTuningConfig,
    train_file: flags.FlagHolder,
    eval_file: flags.FlagHolder,
    test_file: flags.FlagHolder,
) -> dict[str, str]:
    """Returns {split: path} of the wanted sets.

    Args:
        config, train_file, eval_file, test_file: As for `require_files`.
    """
    from bert_tf.tasks import source

    return {
        split: flag.value
        for split, flag, is_wanted in (
            (source.TRAIN, train_file, config.do_train),
            (source.DEV, eval_file, config.do_eval),
            (source.TEST, test_file, config.do_predict),
        )
        if is_wanted
    }


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
