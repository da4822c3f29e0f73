"""How a model is tuned: settings, epochs, evaluations, what is kept.

All fine-tuning programs go through `tune`. A task is a frozen dataclass with

    family                 a string, the same for all tasks of its class
    to_dict, from_dict     what task.json holds
    labels                 names of the classes, () where there are none
    main_metric            the name, in the results of an evaluation, of the
                           score that tells the better of two models
    make_model             make_model(config, dtype) -> a `keras.Model`
    takes_head_of          whether the head of a model whose task.json holds
                           these values is one for this task
    loss, objective        of `keras.Model.fit` and of `training.loop`
"""

import dataclasses

import keras
from absl import logging

from bert_tf import checkpoints
from bert_tf.tasks import fine_tuning
from bert_tf.tasks import starting_point
from bert_tf.training import checkpointing
from bert_tf.training import loop
from bert_tf.training import strategy as strategies
from bert_tf.training.optimizer import BertOptimizer
from bert_tf.training.schedule import WarmupLinearDecay


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningConfig:
    """What all fine-tuning programs are told, by the names of their flags.

    Args:
        output_dir: Folder of the tuned model and of the results.
        init_checkpoint: A model folder, a release of Google's, or None.
        bert_config_file: The architecture; None for the checkpoint's.
        vocab_file: The vocabulary; None for the checkpoint's.
        do_lower_case: Whether texts are lower-cased; None for what the
            checkpoint's folder says, or else True.
        allow_partial: Whether the checkpoint may lack weights, or have some
            too many or of another shape.
        max_position_embeddings: None, or with `do_train` the positions of the
            tuned model, where more than the checkpoint's.
        max_seq_length: Longest sequence, in word pieces.
        do_train: Whether to train.
        do_eval: Whether to evaluate: with `do_train` after every epoch.
        do_predict: Whether to predict.
        train_batch_size: Examples a step, over all replicas.
        eval_batch_size: The same in evaluations.
        predict_batch_size: The same in predictions.
        learning_rate: At the end of the warmup.
        num_train_epochs: Times that the examples are gone through.
        warmup_proportion: Share of the steps in which the rate rises.
        bias_correction: Of Adam's moments; see `BertOptimizer`.
        save_checkpoints_steps: Steps from one checkpoint to the next.
        iterations_per_loop: Steps from one line of the log to the next.
        random_seed: Of new weights, order of the examples and dropout.

    Raises:
        ValueError: If a value is out of its range, or two do not fit
            together; it names the flags.
    """

    output_dir: str
    init_checkpoint: str | None = None
    bert_config_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None
    allow_partial: bool = False
    max_position_embeddings: int | None = None
    max_seq_length: int = 128
    do_train: bool = False
    do_eval: bool = False
    do_predict: bool = False
    train_batch_size: int = 32
    eval_batch_size: int = 8
    predict_batch_size: int = 8
    learning_rate: float = 5e-5
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    bias_correction: bool = False
    save_checkpoints_steps: int = 1000
    iterations_per_loop: int = 1000
    random_seed: int = 12345

    def __post_init__(self):
        if not self.output_dir:
            raise ValueError("--output_dir must be given.")
        if not (self.do_train or self.do_eval or self.do_predict):
            raise ValueError(
                "At least one of --do_train, --do_eval and --do_predict must "
                "be given."
            )
        if self.max_position_embeddings is not None and not self.do_train:
            raise ValueError(
                "--max_position_embeddings must be given with --do_train."
            )
        for name, is_good, range_of_it in (
            ("max_seq_length", self.max_seq_length >= 3, "3 or more"),
            ("train_batch_size", self.train_batch_size >= 1, "positive"),
            ("eval_batch_size", self.eval_batch_size >= 1, "positive"),
            ("predict_batch_size", self.predict_batch_size >= 1, "positive"),
            ("learning_rate", self.learning_rate >= 0, "0 or more"),
            ("num_train_epochs", self.num_train_epochs > 0, "positive"),
            (
                "warmup_proportion",
                0 <= self.warmup_proportion <= 1,
                "from 0 to 1",
            ),
            (
                "save_checkpoints_steps",
                self.save_checkpoints_steps >= 1,
                "positive",
            ),
            ("iterations_per_loop", self.iterations_per_loop >= 1, "positive"),
        ):
            if not is_good:
                raise ValueError(
                    f"--{name} must be {range_of_it}. "
                    f"Received: --{name}={getattr(self, name)}."
                )


# What a training is a function of, beside the model, the task and the data: a
# run that goes on must have the same.
_OF_THE_TRAINING = (
    "max_seq_length",
    "num_train_epochs",
    "train_batch_size",
    "learning_rate",
    "warmup_proportion",
    "bias_correction",
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
    """Tunes a model, or goes on doing so, and saves it in the output folder.

    It runs through `fine_tuning.fit`, and through `training.loop` where `fit`
    cannot go: both make the same steps and keep the same state.

    Args:
        model: A new model, of `StartingPoint.new_model`, made in the
            strategy's scope.
        task: What it is tuned to.
        source: A source of labelled examples; see `training.input_pipeline`.
        config: A `FineTuningConfig`.
        start: The `StartingPoint` that the model was made from.
        strategy: The `tf.distribute.Strategy`.
        evaluate: If given, called without arguments after every epoch, on
            every host; returns {name: float}.
        epoch_examples: Examples that count as an epoch, if not all of them.
        settings: {name: JSON-able value} of what else the training is a
            function of: a run that goes on must have the same.

    Returns:
        The results of the evaluation of the weights that the model now has,
        with their `global_step`; None where it was not evaluated.

    Raises:
        training.loop.PreemptedError: After SIGTERM, when the state has been
            saved.
        ValueError: If the output folder holds another training, or the
            examples make no batch.
    """
    epoch_examples = epoch_examples or source.num_examples
    ends = fine_tuning.epoch_ends(
        epoch_examples,
        config.train_batch_size,
        config.num_train_epochs,
    )
    description = {
        "config": start.config.to_dict(),
        "task": task.to_dict(),
        "init_checkpoint": start.init_checkpoint,
        "do_lower_case": start.do_lower_case,
        "num_train_examples": source.num_examples,
        "num_epoch_examples": epoch_examples,
        **{name: getattr(config, name) for name in _OF_THE_TRAINING},
        **(settings or {}),
    }
    with strategy.scope():
        state = checkpointing.TrainingState(
            model,
            _make_optimizer(config, ends[-1], model.compute_dtype),
            config.output_dir,
            description,
        )
    if state.restore():
        logging.info("Going on from step %d of %d.", state.step, ends[-1])
    logging.info(
        "%s: %d examples, %d an epoch, %d steps of %d, %s",
        getattr(task, "name", task.family),
        source.num_examples,
        epoch_examples,
        ends[-1],
        config.train_batch_size,
        start.init_checkpoint or "from random weights",
    )

    results = None
    for epoch, end in enumerate(ends, start=1):
        is_over = state.step > end or (state.step == end and end != ends[-1])
        if is_over or (evaluate is None and end != ends[-1]):
            continue
        _train_to(end, state, task, source, config, strategy)
        if evaluate is not None:
            results = evaluate() | {"global_step": state.step}
            _log_results(f"epoch {epoch}/{len(ends)}", results)
    if strategies.is_chief(strategy):
        save_model(model, task, config, start)
    return results


def find_start(config, folder=None):
    """Returns the `StartingPoint` of these settings.

    Args:
        config: A `FineTuningConfig`.
        folder: The tuned model's folder, instead of the checkpoint.
    """
    return starting_point.find(
        folder or config.init_checkpoint,
        config.bert_config_file,
        config.vocab_file,
        config.do_lower_case,
        allow_partial=config.allow_partial,
        max_position_embeddings=config.max_position_embeddings,
    )


def save_model(model, task, config, start):
    """Writes the model folder, whole or not at all."""
    checkpoints.save(
        config.output_dir,
        model,
        start.vocabulary,
        start.do_lower_case,
        config.max_seq_length,
        task=task.to_dict(),
        label_names=task.labels or None,
    )
    logging.info("The model is in %s.", config.output_dir)


def _make_optimizer(config, num_train_steps, compute_dtype):
    optimizer = BertOptimizer(
        WarmupLinearDecay(
            config.learning_rate,
            num_train_steps,
            int(num_train_steps * config.warmup_proportion),
        ),
        bias_correction=config.bias_correction,
    )
    if compute_dtype == "float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer


def _train_to(end, state, task, source, config, strategy):
    loop_config = loop.TrainingConfig(
        num_train_steps=end,
        train_batch_size=config.train_batch_size,
        save_checkpoints_steps=config.save_checkpoints_steps,
        iterations_per_loop=config.iterations_per_loop,
        seed=config.random_seed,
    )
    # Where `fit` cannot go, the same task runs through the loop.
    if strategy.cluster_resolver is None:
        fine_tuning.fit(state, task, source, loop_config, strategy)
    else:
        loop.train(state, task.objective(), source, loop_config, strategy)


def _log_results(title, results):
    logging.info(
        "%s  %s",
        title,
        "  ".join(f"{name} {results[name]:.4g}" for name in sorted(results)),
    )
