"""Many steps of training in one call."""

import functools
import logging
import time
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework import config

from bert_tf import backend
from bert_tf import features
from bert_tf.models.objectives import Objective
from bert_tf.training import randomness
from bert_tf.training import strategy as strategies
from bert_tf.training.step import StepResults
from bert_tf.training.step import train_step

_logger = logging.getLogger(__name__)


class CompiledSteps:
    """Makes many steps in one call.

    The step is traced at the first call, and again for batches of another
    form.

    Args:
        model, objective, optimizer, accumulation_steps: As for `train_step`.
        seed: Seed of the dropout masks.
        jit_compile: Whether XLA compiles the step: the whole of it if there is
            a single replica and no mirrored strategy; otherwise the part that
            `train_step` compiles. Batches of a new shape are compiled again,
            and the log says so.
    """

    def __init__(
        self,
        model: keras.Model,
        objective: Objective,
        optimizer: keras.optimizers.Optimizer,
        accumulation_steps: int = 1,
        seed: int = 12345,
        jit_compile: bool = False,
    ) -> None:
        self._train_step = functools.partial(
            train_step,
            model,
            objective,
            optimizer,
            accumulation_steps=accumulation_steps,
        )
        self._seed = seed
        self._seed_states = backend.seed_states(model)
        self._jit_compile = jit_compile
        self._waiting_since = tf.Variable(
            0.0, trainable=False, dtype=tf.float64
        )
        # {names in a batch: the nest of a step's results, without values}.
        self._structures: dict[tuple[str, ...], StepResults] = {}
        self._log = _CompileLog()

    def run(
        self,
        strategy: tf.distribute.Strategy,
        iterator: Iterator[Any],
        step: int,
        count: int,
    ) -> tuple[list[StepResults], float | None]:
        """Makes steps.

        Args:
            strategy: The `tf.distribute.Strategy` that the model was made in.
            iterator: An iterator of its batches.
            step: Number of the first step.
            count: Number of steps.

        Returns:
            A list of what `train_step` returned for each step, as floats, and
            the seconds that the steps waited for their batches. The seconds
            are None if the call compiled, as its time then says nothing about
            the steps.
        """
        num_compiled = self._log.num_compiled
        rows, waited = self._run_in_graph(
            strategy,
            iterator,
            tf.constant(step, tf.int64),
            tf.constant(count, tf.int32),
        )
        structure = self._structures[_names(iterator)]
        results = [
            tf.nest.pack_sequence_as(structure, row)
            for row in rows.numpy().tolist()
        ]
        has_compiled = self._log.num_compiled != num_compiled
        return results, None if has_compiled else float(waited)

    def waiting_since(self) -> float:
        """Returns when the wait for a batch began; 0 if there is no wait.

        Another thread may call it while `run` waits.
        """
        return float(self._waiting_since.numpy())

    # AutoGraph would take longer to read the model's code than tracing takes.
    @tf.function(autograph=False)
    def _run_in_graph(self, strategy, iterator, step, count):
        """Returns a row of results for each step, and the seconds waited."""
        replica_step = self._replica_step(strategy)

        def make_step(index, rows, waited):
            row, seconds = self._make_step(
                strategy,
                iterator,
                replica_step,
                step + tf.cast(index, tf.int64),
            )
            return index + 1, rows.write(index, row), waited + seconds

        # One step after the other: otherwise the wait for the next batch would
        # overlap with the step before it and could not be measured. The
        # batches themselves are still made ahead.
        _, rows, waited = tf.while_loop(
            lambda index, *_: index < count,
            make_step,
            (
                tf.constant(0),
                tf.TensorArray(tf.float32, count, infer_shape=False),
                tf.constant(0.0, tf.float64),
            ),
            parallel_iterations=1,
        )
        return rows.stack(), waited

    def _make_step(self, strategy, iterator, replica_step, step):
        """Makes one step; returns the row of its results, and the seconds."""
        batch, seconds, arrived = self._next_batch(strategy, iterator)
        # Otherwise, with a single thread, TensorFlow may read the clock only
        # after the step.
        before = [seconds, arrived]
        if self._jit_compile:
            with tf.control_dependencies(before):
                before.append(self._log.begins(strategy, batch))
        with tf.control_dependencies(before):
            results = strategy.run(replica_step, args=(batch, step))
        row = self._as_row(
            strategies.on_first_replica(strategy, results), iterator
        )
        if self._jit_compile:
            with tf.control_dependencies([row]):
                self._log.ends()
        return row, seconds

    def _next_batch(self, strategy, iterator):
        """Returns a batch, the seconds waited for it, and that wait's end."""
        start = _now()
        with tf.control_dependencies([self._waiting_since.assign(start)]):
            batch = next(iterator)
        with tf.control_dependencies(
            tf.nest.flatten(strategies.on_first_replica(strategy, batch))
        ):
            seconds = _now() - start
            return batch, seconds, self._waiting_since.assign(0.0)

    def _replica_step(self, strategy):
        """Returns a function of a batch and its step.

        If the step is compiled as a whole, nothing inside it is compiled
        separately.
        """
        is_whole = self._jit_compile and _is_alone(strategy)
        train = functools.partial(
            self._train_step, jit_compile=self._jit_compile and not is_whole
        )
        if is_whole:
            train = tf.function(train, autograph=False, jit_compile=True)

        def replica_step(batch, step):
            # Not compiled: XLA uses 32 of a seed's 64 bits, which would give
            # other masks.
            randomness.set_seeds(self._seed_states, self._seed, step)
            return train(batch)

        return replica_step

    def _as_row(self, results, iterator):
        # Runs while the step is traced, which is when the names are known.
        self._structures[_names(iterator)] = tf.nest.map_structure(
            lambda _: None, results
        )
        return tf.stack(tf.nest.flatten(results))


def _is_alone(strategy):
    """Returns whether nothing is summed over replicas.

    A mirrored strategy adds up gradients even with a single replica, which XLA
    cannot compile.
    """
    return strategy.num_replicas_in_sync == 1 and not isinstance(
        strategy,
        tf.distribute.MirroredStrategy
        | tf.distribute.MultiWorkerMirroredStrategy,
    )


def _names(iterator):
    """Returns the names in its batches, on which a step's results depend."""
    return tuple(sorted(iterator.element_spec))


def _now():
    """Returns the time in seconds, a float64 scalar."""
    if not config.is_op_determinism_enabled():
        return tf.timestamp()
    # With deterministic operations, `tf.timestamp` raises an error.
    now = tf.numpy_function(time.time, [], tf.float64)
    return tf.ensure_shape(now, [])


class _CompileLog:
    """Logs that a step is being compiled, and how long that took.

    XLA compiles inside TensorFlow when the first batch of a shape arrives,
    which takes seconds to minutes.

    Attributes:
        num_compiled: How often a step was compiled.
    """

    def __init__(self) -> None:
        self.num_compiled = 0
        self._known: set[tuple[int, ...]] = set()
        self._start: float | None = None

    def begins(
        self, strategy: tf.distribute.Strategy, batch: Any
    ) -> tf.Operation:
        """Returns an operation that notes that a step is about to begin.

        Args:
            strategy: The `tf.distribute.Strategy`.
            batch: The step's batch, as the strategy distributes it.
        """
        # The trimmed batches of replicas may have different lengths.
        ids = strategy.experimental_local_results(batch[features.INPUT_IDS])
        shapes = tf.stack([tf.shape(each) for each in ids])
        return tf.numpy_function(self._begins, [shapes], [])

    def ends(self) -> tf.Operation:
        """Returns an operation that notes that the step has ended."""
        return tf.numpy_function(self._ends, [], [])

    def _begins(self, shapes):
        new = set(map(tuple, shapes.tolist())) - self._known
        if new:
            self._known |= new
            self._start = time.monotonic()
            shapes = (" x ".join(map(str, shape)) for shape in sorted(new))
            _logger.info(
                "Compiling the step with XLA for batches of %s.",
                " and ".join(shapes),
            )

    def _ends(self):
        if self._start is not None:
            seconds = time.monotonic() - self._start
            _logger.info("Compiled in %.1f s, with the first step.", seconds)
            self._start = None
            self.num_compiled += 1
