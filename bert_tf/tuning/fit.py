"""Tunes a model to a task by `keras.Model.fit`.

`fit` takes the same arguments as `training.loop.train`, keeps the same state
and makes the same steps from the same batches, so a run may be resumed with the
other. It works on one device and on mirrored ones, but without gradient
accumulation, and without steps that XLA compiles whole; see `trainer`.
"""

import math
from collections.abc import Callable

import keras
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import messages
from bert_tf import progress_bar
from bert_tf.input.batch_source import BatchSource
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.tasks.task import Task
from bert_tf.training import health
from bert_tf.training import preemption
from bert_tf.training import progress
from bert_tf.training import randomness
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.loop import TrainingConfig


def epoch_ends(
    num_examples: int,
    batch_size: int,
    num_epochs: float,
    unit: str = "examples",
) -> list[int]:
    """Returns the steps at which an epoch is over, and the last step.

    They are counted as in google-research/bert. Batches run on from one epoch
    into the next, so the whole run leaves out less than one batch.

    Args:
        num_examples: Number of rows of an epoch.
        batch_size: Number of rows of a step.
        num_epochs: Number of epochs; it need not be whole.
        unit: What errors call the rows.

    Raises:
        ValueError: If there is less than one step.
    """

    def num_steps(num_epochs):
        return int(num_examples / batch_size * num_epochs)

    last = num_steps(num_epochs)
    if last < 1:
        count = messages.counted(num_examples, unit.removesuffix("s"), unit)
        raise ValueError(
            f"The training {unit} must make one batch or more. Received: "
            f"{count}, train_batch_size={batch_size}, "
            f"num_train_epochs={num_epochs}."
        )
    ends = {num_steps(epoch) for epoch in range(1, math.ceil(num_epochs))}
    return sorted({step for step in ends if 0 < step < last} | {last})


def fit(
    state: TrainingState,
    task: Task,
    source: BatchSource,
    config: TrainingConfig,
    strategy: tf.distribute.Strategy,
    on_save: Callable[[], object] | None = None,
    *,
    end: int | None = None,
    history: list[dict[str, float]] | None = None,
    set_seeds: Callable[[int], None] | None = None,
) -> list[dict[str, float]]:
    """Trains from the state's step to `config.num_train_steps`.

    It logs, writes TensorBoard summaries, shows a bar and saves when
    `training.loop.train` does. The model is compiled with the state's
    optimizer and the task's loss.

    Args:
        state: A `TrainingState`, restored or new, made in the strategy's
            scope.
        task: A `Task`.
        source: A source of labelled examples; see `input.batch_source`.
        config: A `training.loop.TrainingConfig`.
        strategy: A `tf.distribute.Strategy` of one device or mirrored ones.
        on_save: If given, called after each checkpoint, without arguments.
        end: The step to stop at; None for the last.
        history: A list to append the reports to, so that they are not lost if
            training stops with an error; None for a new list.
        set_seeds: What `randomness.compile_set_seeds` returned for the model,
            the config's seed and the strategy. It avoids tracing again. None
            to compile it here.

    Returns:
        The reports that were logged: a list of {name: float}, with `step` in
        each. Loss and accuracy are means over the steps since the report
        before; `learning_rate` is that of the next step. TensorBoard also has
        the speed.

    Raises:
        training.health.NotFiniteError: If the loss, or the gradient of a
            step that is reported, is not finite; the message names the steps.
            They are not saved.
        training.preemption.PreemptedError: After SIGTERM or Ctrl-C, when the
            state has been saved.
        ValueError: If the batch size is no multiple of the number of replicas.
    """
    if history is None:
        history = []
    if end is None:
        end = config.num_train_steps
    if state.step >= end:
        return history
    model = state.model
    batches = source.training_batches(
        config.train_batch_size, state.example
    ).map(_as_inputs_and_labels)
    if not (model.compiled and model.optimizer is state.optimizer):
        with strategy.scope():
            model.compile(
                state.optimizer,
                task.loss(),
                metrics=task.fit_metrics,
            )
    if set_seeds is None:
        set_seeds = randomness.compile_set_seeds(
            model, config.options.random_seed, strategy
        )
    with (
        state.hold(),
        progress.summary_writer(state.folder) as flush,
        preemption.stop_noted() as told_to_stop,
        progress_bar.ProgressBar(
            "train", config.num_train_steps, first=state.step
        ) as bar,
    ):

        def save():
            logging.info("Saved %s.", state.save())
            flush()
            if on_save is not None:
                on_save()

        model.fit(
            batches,
            steps_per_epoch=end - state.step,
            shuffle=False,
            verbose=0,
            callbacks=[
                _KeepState(
                    state,
                    source.unit,
                    config,
                    end,
                    set_seeds,
                    save,
                    history,
                    told_to_stop,
                    bar,
                )
            ],
        )
        # The signal came in the last of these steps, or while it was saved.
        if told_to_stop.is_set() and state.step < config.num_train_steps:
            raise preemption.stopped(
                told_to_stop, state.step, config.num_train_steps
            )
    return history


def _as_inputs_and_labels(batch):
    """Splits a batch into the inputs and labels for `keras.Model.fit`."""
    names = (*features.MODEL_INPUTS, *features.PASSAGE_INPUTS)
    inputs = {name: batch[name] for name in names if name in batch}
    return inputs, batch[features.LABELS]


class _KeepState(keras.callbacks.Callback):
    """Does in `fit` what `training.loop.train` does around its steps."""

    def __init__(
        self,
        state,
        unit,
        config,
        end,
        set_seeds,
        save,
        history,
        told_to_stop,
        bar,
    ):
        super().__init__()
        self._state = state
        self._unit = unit
        self._config = config
        self._end = end
        self._set_seeds = set_seeds
        self._save = save
        self._history = history
        self._told_to_stop = told_to_stop
        self._bar = bar
        self._first_step = state.step
        # Keras's values at the last report, and the step of that.
        self._reported: tuple[dict[str, float], int] = ({}, state.step)
        self._timer = progress.Timer()
        self._line = progress_bar.Interval(progress.SECONDS_PER_REPORT)
        # A new run saves early, to show that it can.
        self._is_unsaved = state.step == 0
        self._first_save = progress_bar.Interval(progress.SECONDS_PER_REPORT)

    def on_train_batch_begin(self, batch, logs=None):
        self._set_seeds(self._state.step)

    def on_train_batch_end(self, batch, logs=None):
        state, config = self._state, self._config
        state.step += 1
        state.example += config.train_batch_size
        self._timer.called(1, 0.0)
        is_last = state.step == self._end
        # Read once: the signal may come between the two uses.
        stops = self._told_to_stop.is_set() and not is_last
        saves = (
            is_last
            or stops
            or state.step % config.options.save_checkpoints_steps == 0
            or (self._is_unsaved and self._first_save.is_over)
        )
        is_due = saves or state.step % config.options.iterations_per_loop == 0
        if is_due or (self._timer.knows and self._line.is_over):
            self._report(logs, is_due)
        elif self._bar.is_due:
            self._show(logs["loss"])
        if saves:
            self._save()
            self._is_unsaved = False
            self._timer.restart()
        if stops:
            raise preemption.stopped(
                self._told_to_stop, state.step, config.num_train_steps
            )

    def _show(self, loss):
        self._bar.update(self._state.step, f"loss {float(loss):.4g}")

    def _report(self, logs, is_due):
        """Reports the steps since the last report.

        Args:
            logs: Keras's {name: scalar}, means since `fit` began.
            is_due: Whether the report is due by its step, not by the clock.
        """
        state, config = self._state, self._config
        logs = {name: float(value) for name, value in logs.items()}
        # Once a mean is not finite, it stays so.
        if not math.isfinite(logs["loss"]):
            raise health.NotFiniteError(
                f"The loss is not finite in steps {self._reported[1]} to "
                f"{state.step - 1}: loss={logs['loss']}. Training stopped; "
                "none of these steps is saved."
            )
        norm = self._gradient_norm()
        if not math.isfinite(norm):
            raise health.NotFiniteError(
                f"The gradient is not finite in step {state.step - 1}: "
                f"gradient_norm={norm}. Training stopped; this step is not "
                "saved."
            )
        means = self._since_last_report(logs)
        seconds = self._timer.report()["step_seconds"]
        report = {
            "step": state.step,
            **means,
            # On several devices it is a distributed variable.
            "learning_rate": float(tf.identity(state.optimizer.learning_rate)),
        }
        self._history.append(report)
        speeds = {
            "step_seconds": seconds,
            "examples_per_second": config.train_batch_size / seconds,
        }
        progress.write_summaries(report | speeds)
        self._show(logs["loss"])
        if is_due or not self._bar.is_shown:
            values = (f"{name} {value:.4g}" for name, value in means.items())
            left = (config.num_train_steps - state.step) * seconds
            logging.info(
                "step %d/%d  %s  %.1f %s/s  %s left",
                state.step,
                config.num_train_steps,
                "  ".join(values),
                speeds["examples_per_second"],
                self._unit,
                progress.duration(left),
            )
        self._line.restart()

    def _gradient_norm(self):
        """Returns that of the last step, whose loss was before its update.

        A bad gradient of an earlier step shows in the losses after it.
        """
        optimizer = self._state.optimizer
        # With loss scaling, steps that are not finite are skipped.
        if not isinstance(optimizer, BertOptimizer) or optimizer.skip_nonfinite:
            return 0.0
        return float(tf.identity(optimizer.gradient_norm))

    def _since_last_report(self, logs):
        """Returns means since the last report, from means since the start."""
        before, step = self._reported
        self._reported = (logs, self._state.step)
        num_before = step - self._first_step
        num_now = self._state.step - self._first_step
        return {
            name: (value * num_now - before.get(name, 0.0) * num_before)
            / (num_now - num_before)
            for name, value in logs.items()
        }
