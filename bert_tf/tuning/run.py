"""How a model is tuned: epochs, evaluations, and what is kept of them.

All fine-tuning programs go through `tune`. A task is a frozen dataclass with

    family                 a string, the same for all tasks of its class
    to_dict, from_dict     what task.json holds
    labels                 names of the classes, () where there are none
    main_metric            the name, in the results of an evaluation, of the
                           score that tells the better of two models
    make_model             make_model(config, dtype) -> a `keras.Model`
    takes_head_of          whether the head of a model whose task.json holds
                           these values is one for this task
    loss, fit_metrics      what `keras.Model.fit` minimises, and logs beside it
    objective              the same for `training.loop`
"""

import dataclasses
import json
import math

from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training import checkpointing
from bert_tf.training import loop
from bert_tf.training import strategy as strategies
from bert_tf.tuning import encoder_layers
from bert_tf.tuning import fit as fine_tuning
from bert_tf.tuning.record import EpochRecord

# A resumed run may have more of them than it began with.
_EPOCHS = "num_train_epochs"
# What a training is a function of, beside the model, the task and the data: a
# resumed run must have the same.
_OF_THE_TRAINING = (
    "max_seq_length",
    _EPOCHS,
    "train_batch_size",
    "bucket_window_batches",
    "learning_rate",
    "warmup_proportion",
    "learning_rate_drop",
    "bias_correction",
    "layerwise_learning_rate_decay",
    "reinit_top_layers",
    "freeze_lower_layers",
    "keep_best",
    "early_stopping_epochs",
    "random_seed",
)


def tune(
    model,
    task,
    source,
    config,
    start,
    strategy,
    evaluate=None,
    epoch_examples=None,
    settings=None,
):
    """Tunes a model, or resumes that, and saves it in the output folder.

    It runs through `fine_tuning.fit`, and through `training.loop` where `fit`
    cannot go: both make the same steps and keep the same state. The folder
    has, as google-research/bert's, the weights of the last step; with
    `keep_best` those of the epoch of the highest `main_metric`, of equal ones
    the first, and so has the model in the end.

    A training is resumed with the settings that it was begun with, but for
    `num_train_epochs`, which may be raised. The learning rate then follows
    the schedule of all steps that there are now, from the step on that the
    training is resumed at; the weights are not those of a training that was
    begun with so many epochs, and a warning says so.

    Args:
        model: A new model, of `task_folder.new_model`, made in the
            strategy's scope.
        task: What it is tuned to.
        source: A `BatchSource` of labelled examples.
        config: A `FineTuningConfig`.
        start: The `StartingPoint` that the model was made from.
        strategy: The `tf.distribute.Strategy`.
        evaluate: If given, called without arguments after every epoch, on
            every host; returns {name: float}. Where the model is given the
            weights of another epoch than the last, it is called again, so
            that what it keeps beside is of the weights that the model has.
        epoch_examples: Examples that count as an epoch, if not all of them.
        settings: {name: JSON-able value} of other flags that the training is
            a function of: a resumed run must have the same.

    Returns:
        The results of the evaluation of the weights that the model now has,
        with their `global_step`; None where it was not evaluated.

    Raises:
        training.preemption.PreemptedError: After SIGTERM, when the state has
            been saved.
        ValueError: If the output folder holds a training with other settings
            (the message names them), or the examples make no batch.
    """
    if config.bucket_window_batches:
        source = _by_length(source, config.bucket_window_batches)
    epoch_examples = epoch_examples or source.num_examples
    ends = fine_tuning.epoch_ends(
        epoch_examples,
        config.train_batch_size,
        config.num_train_epochs,
    )
    flags = {
        "init_checkpoint": start.init_checkpoint,
        "do_lower_case": start.tokenizer.do_lower_case,
        **{name: getattr(config, name) for name in _OF_THE_TRAINING},
        **(settings or {}),
    }
    others = {
        "config": start.config.to_dict(),
        "task": task.to_dict(),
        "num_train_examples": source.num_examples,
        "num_epoch_examples": epoch_examples,
    }
    begun_with = _check_same_training(config.output_dir, flags, others)
    encoder_layers.freeze_lower_layers(
        model.encoder, config.freeze_lower_layers
    )
    with strategy.scope():
        state = checkpointing.TrainingState(
            model,
            _make_optimizer(config, ends[-1], model.compute_dtype),
            config.output_dir,
            flags | others,
            may_differ=(_EPOCHS,),
        )
    is_chief = strategies.is_chief(strategy)
    if state.restore():
        logging.info("Resumed at step %d of %d.", state.step, ends[-1])
        if begun_with and begun_with[_EPOCHS] != config.num_train_epochs:
            logging.warning(
                "--num_train_epochs was %g before and is %g now: from step %d "
                "on, the learning rate follows the schedule of %d steps. The "
                "weights will not be those of a training begun with %g epochs.",
                begun_with[_EPOCHS],
                config.num_train_epochs,
                state.step,
                ends[-1],
                config.num_train_epochs,
            )
    else:
        with strategy.scope():
            encoder_layers.reinit_top_layers(
                model.encoder, config.reinit_top_layers
            )
    logging.info(
        "%s: %d examples, %d an epoch, %d steps of %d, %s",
        getattr(task, "name", task.family),
        source.num_examples,
        epoch_examples,
        ends[-1],
        config.train_batch_size,
        start.init_checkpoint or "from random weights",
    )

    def save():
        if is_chief:
            save_model(model, task, config, start)

    with state.hold(is_chief):
        record = EpochRecord(state.folder, task.main_metric, state.step)
        for epoch, end in enumerate(ends, start=1):
            is_last = end == ends[-1]
            if state.step > end or (evaluate is None and not is_last):
                continue
            record.training += _train_to(
                end, state, task, source, config, strategy
            )
            if evaluate is not None:
                results = evaluate() | {"global_step": state.step}
                record.add(epoch, results)
                log_results(f"epoch {epoch}/{len(ends)}", results)
                # Before the record says so: a run that is killed in between
                # does both again.
                if config.keep_best and record.is_best:
                    save()
            if is_chief:
                record.write()
            if record.num_without_gain >= (
                config.early_stopping_epochs or math.inf
            ):
                logging.info(
                    "Stopped early: %s has not risen in %d epochs.",
                    task.main_metric,
                    record.num_without_gain,
                )
                break
        if not config.keep_best:
            save()
            return record.results_at(state.step)
    best = record.best
    if best["global_step"] != state.step:
        checkpoints.load_weights(config.output_dir, model)
        evaluate()
    log_results(f"best by {task.main_metric}", best)
    return best


def read_record(folder, task):
    """Returns the `EpochRecord` of the model in a folder, maybe empty."""
    return EpochRecord(
        f"{folder}/{checkpointing.FOLDER}", task.main_metric, math.inf
    )


def find_start(config, folder=None):
    """Returns the `StartingPoint` of these settings.

    Args:
        config: A `FineTuningConfig`.
        folder: The tuned model's folder, instead of the checkpoint.

    Raises:
        ValueError: As of `starting_point.find`, and if layers are to be
            trained or to begin anew that there are not, or one is to begin
            anew and not to be trained.
    """
    start = starting_point.find(
        folder or config.init_checkpoint,
        config.bert_config_file,
        config.vocab_file,
        config.do_lower_case,
        allow_partial=config.allow_partial,
        max_position_embeddings=config.max_position_embeddings,
    )
    if config.do_train:
        encoder_layers.check(
            start.config.num_hidden_layers,
            config.freeze_lower_layers,
            config.reinit_top_layers,
        )
    return start


def save_model(model, task, config, start):
    """Writes the model folder, whole or not at all."""
    checkpoints.save(
        config.output_dir,
        model,
        start.tokenizer,
        config.max_seq_length,
        task=task.to_dict(),
        label_names=task.labels or None,
    )
    logging.info("The model is in %s.", config.output_dir)


def _check_same_training(output_dir, flags, others):
    """Checks that a training in the output folder, if any, is this one.

    Args:
        output_dir: The folder.
        flags: {name of a flag: JSON-able value}.
        others: {name: JSON-able value} of what no one flag tells.

    Returns:
        What it was begun with, {name: value}; None where there is none.

    Raises:
        ValueError: If it was begun with anything else, other than fewer
            epochs.
    """
    found = checkpointing.read_description(output_dir)
    if found is None:
        return None
    # As JSON has it: lists for tuples.
    wanted = json.loads(json.dumps(flags | others))
    differences = []
    for name in sorted(found.keys() | wanted.keys()):
        old, new = found.get(name), wanted.get(name)
        is_raised = name == _EPOCHS and new > (old or math.inf)
        if old == new or is_raised:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            differences += [
                f"{name}: {key} was {old.get(key)!r} and is {new.get(key)!r}"
                for key in sorted(old.keys() | new.keys())
                if old.get(key) != new.get(key)
            ]
        else:
            flag = name if name in others else f"--{name}"
            differences.append(f"{flag} was {old!r} and is {new!r}")
    if differences:
        raise ValueError(
            f"{output_dir} holds a training that was begun with other "
            f"settings: {'; '.join(differences)}. Give the same as then to "
            "resume it, or another --output_dir to begin anew. "
            f"--{_EPOCHS} alone may be raised."
        )
    return found


def _by_length(source, window_batches):
    if not getattr(source, "is_trimmed", False):
        raise ValueError(
            "--bucket_window_batches must not be given on a TPU, where all "
            "batches have one length."
        )
    if not hasattr(source, "window_batches"):
        raise ValueError(
            "--bucket_window_batches must not be given with this task. "
            f"Received: --bucket_window_batches={window_batches}."
        )
    return dataclasses.replace(source, window_batches=window_batches)


def _make_optimizer(config, num_train_steps, compute_dtype):
    optimizer = BertOptimizer(
        WarmupDecay(
            config.learning_rate,
            num_train_steps,
            int(num_train_steps * config.warmup_proportion),
            drop=config.learning_rate_drop,
        ),
        bias_correction=config.bias_correction,
        layerwise_decay=config.layerwise_learning_rate_decay,
    )
    if compute_dtype == "float16":
        optimizer = LossScaleOptimizer(optimizer)
    return optimizer


def _train_to(end, state, task, source, config, strategy):
    loop_config = loop.TrainingConfig(
        num_train_steps=end,
        train_batch_size=config.train_batch_size,
        save_checkpoints_steps=config.save_checkpoints_steps,
        iterations_per_loop=config.iterations_per_loop,
        seed=config.random_seed,
        gradient_accumulation_steps=config.gradient_accumulation_steps,
    )
    # Where `fit` cannot go, the same task runs through the loop.
    accumulates = config.gradient_accumulation_steps > 1
    if strategy.cluster_resolver is None and not accumulates:
        return fine_tuning.fit(state, task, source, loop_config, strategy)
    return loop.train(state, task.objective(), source, loop_config, strategy)


def log_results(title, results):
    """Logs {name: float} in one line."""
    logging.info(
        "%s  %s",
        title,
        "  ".join(f"{name} {results[name]:.4g}" for name in sorted(results)),
    )
