"""Tunes a model to a task by `keras.Model.fit`.

`fit` takes what `training.loop.train` takes, keeps the same state and makes
the same steps from the same batches: a run may go on under the other. It goes
where `keras.Model.fit` goes, on one device and on mirrored ones.
"""

import math
import time

import keras
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf.input.batch_source import BatchSource
from bert_tf.tasks.task import Task
from bert_tf.training import health
from bert_tf.training import preemption
from bert_tf.training import randomness
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.loop import TrainingConfig


def epoch_ends(
    num_examples: int, batch_size: int, num_epochs: float
) -> list[int]:
    """Returns the steps at which an epoch is over, and the last step.

    They are counted as in google-research/bert: the batches run on from one
    epoch into the next, so that the last step of the run leaves out less than
    a batch.

    Raises:
        ValueError: If there is less than one step.
    """

    def num_steps(num_epochs):
        return int(num_examples / batch_size * num_epochs)

    last = num_steps(num_epochs)
    if last < 1:
        raise ValueError(
            "The training examples must make one batch or more. Received: "
            f"{num_examples} examples, train_batch_size={batch_size}, "
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
) -> list[dict[str, float]]:
    """Trains from the state's step to `config.num_train_steps`.

    Every `iterations_per_loop` steps a line is logged, a checkpoint is saved
    every `save_checkpoints_steps` and at the end. The model is compiled with
    the state's optimizer and the task's loss.

    Args:
        state: A `TrainingState`, restored or new, made in the strategy's
            scope.
        task: A `Task`.
        source: A source of labelled examples; see `input.batch_source`.
        config: A `training.loop.TrainingConfig`.
        strategy: A `tf.distribute.Strategy` of one device or mirrored ones.

    Returns:
        What was logged: a list of {name: float}, with `step` in each; loss
        and accuracy are means over the steps since the line before.

    Raises:
        training.health.NotFiniteError: If the loss is not finite; the message
            names the steps. They are not saved.
        training.preemption.PreemptedError: After SIGTERM, when the state has
            been saved.
        ValueError: If the batch size is no multiple of the replicas.
    """
    num_steps = config.num_train_steps - state.step
    if num_steps <= 0:
        return []
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
    with state.hold(), preemption.sigterm_noted() as told_to_stop:
        keep_state = _KeepState(state, config, strategy, told_to_stop)
        model.fit(
            batches,
            steps_per_epoch=num_steps,
            shuffle=False,
            verbose=0,
            callbacks=[keep_state],
        )
    return keep_state.history


def _as_inputs_and_labels(batch):
    """Splits a batch of a source to what `keras.Model.fit` takes."""
    inputs = {name: batch[name] for name in features.MODEL_INPUTS}
    return inputs, batch[features.LABELS]


class _KeepState(keras.callbacks.Callback):
    """Does in `fit` what `training.loop.train` does round its steps."""

    def __init__(self, state, config, strategy, told_to_stop):
        super().__init__()
        self._state = state
        self._config = config
        self._told_to_stop = told_to_stop
        self._first_step = state.step
        # Keras's values at the last line of the log, and their step.
        self._reported: tuple[dict[str, float], int] = ({}, state.step)
        self.history = []
        states = randomness.seed_states(state.model)

        @tf.function(autograph=False)
        def set_seeds(step):
            strategy.run(randomness.set_seeds, args=(states, config.seed, step))

        self._set_seeds = set_seeds
        self._restart_timer()

    def on_train_batch_begin(self, batch, logs=None):
        self._set_seeds(tf.constant(self._state.step, tf.int64))

    def on_train_batch_end(self, batch, logs=None):
        state, config = self._state, self._config
        state.step += 1
        state.example += config.train_batch_size
        is_last = state.step == config.num_train_steps
        # Asked once: the signal may come between the two uses.
        stops = self._told_to_stop.is_set() and not is_last
        saves = (
            is_last or stops or state.step % config.save_checkpoints_steps == 0
        )
        reports = is_last or state.step % config.iterations_per_loop == 0
        if not (saves or reports):
            return
        logs = {name: float(value) for name, value in logs.items()}
        # Keras's values are means since `fit` began: once not finite, they
        # stay so.
        if not math.isfinite(logs["loss"]):
            raise health.NotFiniteError(
                f"The loss is not finite in steps {self._first_step} to "
                f"{state.step - 1}: loss={logs['loss']}. Training stopped; "
                "the last checkpoint is of a step before."
            )
        if reports:
            self._report(logs)
        if saves:
            logging.info("Saved %s.", state.save())
        if stops:
            raise preemption.PreemptedError(
                f"Stopped by SIGTERM; step {state.step} is saved."
            )
        self._restart_timer()

    def _report(self, logs):
        seconds = max(time.monotonic() - self._start, 1e-6)
        num_steps = self._state.step - self._timed_from
        report = self._since_last_report(logs)
        self.history.append({"step": self._state.step, **report})
        values = "  ".join(
            f"{name} {value:.4g}" for name, value in report.items()
        )
        logging.info(
            "step %d/%d  %s  %.1f examples/s",
            self._state.step,
            self._config.num_train_steps,
            values,
            num_steps * self._config.train_batch_size / seconds,
        )

    def _since_last_report(self, logs):
        """Returns means since the last report, from those since the start."""
        before, step = self._reported
        self._reported = (logs, self._state.step)
        num_before = step - self._first_step
        num_now = self._state.step - self._first_step
        return {
            name: (value * num_now - before.get(name, 0.0) * num_before)
            / (num_now - num_before)
            for name, value in logs.items()
        }

    def _restart_timer(self):
        self._start = time.monotonic()
        self._timed_from = self._state.step
