"""Flags that the fine-tuning programs share, and what they do alike.

Imported by programs alone: importing it defines the flags. A program whose
original has another default says so before its flags are parsed:

    fine_tuning_flags.set_defaults(max_seq_length=384)
"""

import dataclasses
import os
import sys
import typing

from absl import flags
from absl import logging

from bert_tf.tasks import starting_point
from bert_tf.training import checkpointing
from bert_tf.training import evaluation
from bert_tf.training import preemption
from bert_tf.tuning import report as run_report
from bert_tf.tuning import run as tuning
from bert_tf.tuning.config import FineTuningConfig

_DEFINE = {
    bool: flags.DEFINE_bool,
    float: flags.DEFINE_float,
    int: flags.DEFINE_integer,
    str: flags.DEFINE_string,
}


def _define(field):
    """Returns the holder of the flag of a field of `FineTuningConfig`."""
    # Of `int | None`, int.
    kind = (typing.get_args(field.type) or (field.type,))[0]
    has_default = field.default is not dataclasses.MISSING
    default = field.default if has_default else None
    return _DEFINE[kind](field.name, default, field.metadata["help"])


_FLAGS = tuple(map(_define, dataclasses.fields(FineTuningConfig)))


def set_defaults(**values):
    """Sets the defaults of a program; call it before flags are parsed."""
    holders = {holder.name: holder for holder in _FLAGS}
    for name, value in values.items():
        flags.set_default(holders[name], value)


def make_config():
    """Returns the `FineTuningConfig` that the flags make.

    Raises:
        ValueError: If a value is out of its range, two flags do not fit
            together, or training would write over another's model.
    """
    config = FineTuningConfig(
        **{holder.name: holder.value for holder in _FLAGS}
    )
    if config.do_train:
        starting_point.check_output_dir(config.output_dir)
    return config


def tuned_folder(config):
    """Returns the folder of the tuned model, None if one is to be trained."""
    if config.do_train:
        return None
    return starting_point.tuned_folder(
        config.output_dir, config.init_checkpoint
    )


def make_model(start, task, config, strategy, policy):
    """Returns the model that is to be tuned, or was."""
    with strategy.scope():
        if config.do_train:
            return start.new_model(task, policy)
        return start.tuned_model(task, policy)


def tune_or_evaluate(
    model,
    task,
    source,
    config,
    start,
    strategy,
    folder,
    evaluate,
    settings=None,
):
    """Does what --do_train and --do_eval ask for.

    Args:
        model: Of `make_model`.
        task: What it is tuned to.
        source: The source of the training set; None without --do_train.
        config: The `FineTuningConfig`.
        start: The `StartingPoint`.
        strategy: The `tf.distribute.Strategy`.
        folder: Of `tuned_folder`.
        evaluate: As of `tuning.tune`; called with --do_eval.
        settings: As of `tuning.tune`.

    Returns:
        The results, with their `global_step`; None without --do_eval.
    """
    if config.do_train:
        return tune(
            model,
            task,
            source,
            config,
            start,
            strategy,
            evaluate if config.do_eval else None,
            settings=settings,
        )
    if not config.do_eval:
        return None
    step = checkpointing.trained_steps(folder)
    return evaluate() | {"global_step": step}


def report_results(
    config, task, folder, results, sections, settings=None, scores=None
):
    """Writes and prints the results of an evaluation, and writes its report.

    Args:
        config: The `FineTuningConfig`.
        task: What the model is tuned to.
        folder: Of `tuned_folder`.
        results: {name: float}.
        sections, scores: As of `run_report.write`.
        settings: As of `tuning.tune`.
    """
    path = os.path.join(config.output_dir, "eval_results.txt")
    evaluation.write_results(path, results)
    for name in sorted(results):
        print(f"{name} = {results[name]}")
    run_report.write(
        config.output_dir,
        f"{getattr(task, 'name', task.family)}: {task.main_metric} "
        f"{results[task.main_metric]:.4g}",
        results,
        tuning.read_record(folder or config.output_dir, task),
        dataclasses.asdict(config) | task.to_dict() | (settings or {}),
        sections,
        scores,
    )


def tune(*arguments, **options):
    """Calls `tuning.tune`; told to stop, the program exits as the loop does."""
    try:
        return tuning.tune(*arguments, **options)
    except preemption.PreemptedError as stop:
        logging.info("%s", stop)
        sys.exit(preemption.PREEMPTED_EXIT_CODE)
