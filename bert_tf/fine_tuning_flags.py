"""Flags that the fine-tuning programs share, and what they do alike.

Imported by programs alone: importing it defines the flags. A program whose
original has another default says so before its flags are parsed:

    fine_tuning_flags.set_defaults(max_seq_length=384)
"""

import dataclasses
import os
import sys

from absl import flags
from absl import logging

from bert_tf.tasks import task_folder
from bert_tf.training import checkpointing
from bert_tf.training import evaluation
from bert_tf.training import preemption
from bert_tf.tuning import report as run_report
from bert_tf.tuning import run as tuning
from bert_tf.tuning.config import FineTuningConfig

_FLAGS = (
    flags.DEFINE_string(
        "output_dir", None, "Folder of the tuned model and of the results."
    ),
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "A model folder (of bert_tf or Hugging Face) or a release of Google's. "
        "Default: training starts from random weights.",
    ),
    flags.DEFINE_string(
        "bert_config_file",
        None,
        "JSON of the architecture. Default: the checkpoint's own.",
    ),
    flags.DEFINE_string(
        "vocab_file", None, "Vocabulary. Default: the checkpoint's own."
    ),
    flags.DEFINE_bool(
        "do_lower_case",
        None,
        "Whether to lower-case the text. Default: as the model folder says, "
        "or else true.",
    ),
    flags.DEFINE_bool(
        "allow_partial",
        False,
        "Take a checkpoint that lacks weights, or has some too many or of "
        "another shape; the report in the log tells which are new.",
    ),
    flags.DEFINE_integer(
        "max_position_embeddings",
        None,
        "With --do_train: positions of the tuned model, if more than the "
        "checkpoint's; their embeddings are repeated from the first on.",
    ),
    flags.DEFINE_integer(
        "max_seq_length", 128, "Longest sequence, in word pieces."
    ),
    flags.DEFINE_bool("do_train", False, "Whether to train."),
    flags.DEFINE_bool(
        "do_eval",
        False,
        "Whether to evaluate on the development set: with --do_train after "
        "every epoch.",
    ),
    flags.DEFINE_bool("do_predict", False, "Whether to write predictions."),
    flags.DEFINE_integer(
        "train_batch_size", 32, "Examples a step, over all devices."
    ),
    flags.DEFINE_integer("eval_batch_size", 8, "The same for --do_eval."),
    flags.DEFINE_integer("predict_batch_size", 8, "The same for --do_predict."),
    flags.DEFINE_integer(
        "gradient_accumulation_steps",
        1,
        "Parts in which a device goes through its share of a batch, one after "
        "the other, where the memory does not hold it at once. The step is "
        "that of the whole batch.",
    ),
    flags.DEFINE_float(
        "learning_rate", 5e-5, "Learning rate at the end of the warmup."
    ),
    flags.DEFINE_integer(
        "bucket_window_batches",
        0,
        "Sort so many shuffled batches by length, e.g. 64, and shuffle the "
        "batches again: each then holds examples of about one length, and "
        "little padding. Default: none are sorted, as in the original.",
    ),
    flags.DEFINE_float(
        "num_train_epochs",
        3.0,
        "Times that the training set is gone through. It alone may be raised "
        "when a training is resumed: the learning rate then follows the "
        "schedule of all steps, from there on.",
    ),
    flags.DEFINE_float(
        "warmup_proportion",
        0.1,
        "Share of the steps in which the learning rate rises.",
    ),
    flags.DEFINE_bool(
        "learning_rate_drop",
        True,
        "Count the decay from step 0, as the original does: the rate drops "
        "where the warmup ends. --nolearning_rate_drop counts it from there.",
    ),
    flags.DEFINE_bool(
        "bias_correction",
        False,
        "Correct the bias of Adam's moments, which the original does not: the "
        "first hundreds of steps are then several times smaller, and training "
        "on few examples is steadier.",
    ),
    flags.DEFINE_float(
        "layerwise_learning_rate_decay",
        1.0,
        "Share of its learning rate that a layer hands down to the one below "
        "(Howard & Ruder 2018): of K blocks number k, from 0, has it to the "
        "power of K - k, the embeddings to the power of K + 1. E.g. 0.9; 1 "
        "gives all layers one rate.",
    ),
    flags.DEFINE_integer(
        "reinit_top_layers",
        0,
        "Begin with so many of the checkpoint's last blocks, and the pooler, "
        "newly made (Zhang et al. 2020). Not with blocks that "
        "--freeze_lower_layers names.",
    ),
    flags.DEFINE_integer(
        "freeze_lower_layers",
        None,
        "Leave the embeddings and so many of the first blocks as the "
        "checkpoint has them. Default: all are trained.",
    ),
    flags.DEFINE_bool(
        "keep_best",
        False,
        "With --do_train --do_eval: keep the model of the epoch that scored "
        "highest in the task's first score. Default: the last epoch's, as the "
        "original.",
    ),
    flags.DEFINE_integer(
        "early_stopping_epochs",
        None,
        "With --do_train --do_eval: stop after so many epochs without a "
        "better score. The learning rate falls as if there were no such stop.",
    ),
    flags.DEFINE_integer(
        "save_checkpoints_steps",
        1000,
        "Steps between two checkpoints of the training state.",
    ),
    flags.DEFINE_integer(
        "iterations_per_loop", 1000, "Steps between two lines of the log."
    ),
    flags.DEFINE_integer(
        "random_seed",
        12345,
        "Seed of the new weights, the order of the examples and the dropout.",
    ),
)


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
        checkpointing.check_output_dir(config.output_dir)
    return config


def tuned_folder(config):
    """Returns the folder of the tuned model, None if one is to be trained."""
    if config.do_train:
        return None
    return checkpointing.trained_model(
        config.output_dir, config.init_checkpoint
    )


def make_model(start, task, config, strategy, policy):
    """Returns the model that is to be tuned, or was."""
    with strategy.scope():
        if config.do_train:
            return task_folder.new_model(start, task, policy)
        return task_folder.tuned_model(start, task, policy)


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
