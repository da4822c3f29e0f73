"""Steps of training and evaluation on a device, and many steps in a call."""

import functools
import time
from collections.abc import Iterator
from typing import Any
from typing import TypedDict

import keras
import tensorflow as tf
from tensorflow.python.framework import config

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.models.objectives import Objective
from bert_tf.optimizers import accumulation
from bert_tf.optimizers import clipping
from bert_tf.training import compilation as compilation_lib
from bert_tf.training import randomness


class StepResults(TypedDict):
    """What a step returns: tensors on the device, floats elsewhere.

    Attributes:
        values: {name: value}.
        metrics: {name: (sum, weight)}.
    """

    values: dict[str, Any]
    metrics: dict[str, tuple[Any, Any]]


class EvaluationSums(TypedDict):
    """What the evaluation of a batch returns, summed over all replicas.

    Attributes:
        losses: {name: (sum, weight)} of the loss terms.
        metrics: {name: (sum, weight)}.
    """

    losses: dict[str, tuple[Any, Any]]
    metrics: dict[str, tuple[Any, Any]]


def train_step(
    model: keras.Model,
    objective: Objective,
    optimizer: keras.optimizers.Optimizer,
    batch: Batch,
    accumulation_steps: int = 1,
    jit_compile: bool = False,
) -> StepResults:
    """Makes one step, in replica context.

    Args:
        model: A `keras.Model`, called with the batch.
        objective: An `Objective`.
        optimizer: A `BertOptimizer`, or a `LossScaleOptimizer` of one.
        batch: This replica's share of the batch, a dictionary of tensors;
            `input_mask` is among them.
        accumulation_steps: Parts of the batch, computed one after the other.
        jit_compile: Whether XLA compiles the forward and backward pass. It
            cannot compile the communication between replicas: their sums and
            the update.

    Returns:
        A dictionary of float32 scalars, the same on all replicas. `values` is
        {name: value} of the loss, its terms, the learning rate, the norm of the
        gradient and the number of tokens. `metrics` is {name: (sum, weight)}
        and includes the share of padding.
    """
    # The weights are summed first. Every replica divides by the weight of the
    # whole batch, so the replicas' gradients add up to the batch's gradient,
    # and so do the gradients of the parts of a batch.
    weights = _sum_over_replicas(objective.weights(batch))
    # Read once: Keras goes through all layers to find them.
    variables = model.trainable_variables

    def differentiate(part, weights):
        with tf.GradientTape() as tape:
            outputs = model(part, training=True)
            totals = objective.losses(outputs, part)
            loss = objective.loss(objective.loss_terms(totals, weights))
            loss = optimizer.scale_loss(loss)
        gradients = _gradients(tape, loss, variables)
        metrics = objective.metrics(outputs, part) | {"padding": _padding(part)}
        return gradients, totals, metrics

    def differentiate_all(batch, weights):
        run = functools.partial(differentiate, weights=weights)
        if accumulation_steps > 1:
            return accumulation.sum_over_parts(run, batch, accumulation_steps)
        return run(batch)

    if jit_compile:
        differentiate_all = compilation_lib.jit(differentiate_all)
    gradients, totals, metrics = differentiate_all(batch, weights)

    learning_rate = tf.identity(optimizer.learning_rate)
    summed = optimizer.sum_and_clip(list(gradients.values()))
    optimizer.apply_summed(summed, [variables[number] for number in gradients])

    totals, metrics = _sum_over_replicas((totals, metrics))
    num_padding, num_places = metrics["padding"]
    terms = objective.loss_terms(totals, weights)
    inner_optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    values = {
        "loss": objective.loss(terms),
        **terms,
        "learning_rate": learning_rate,
        "gradient_norm": tf.identity(inner_optimizer.gradient_norm),
        "tokens": num_places - num_padding,
    }
    return {"values": values, "metrics": metrics}


def _gradients(tape, loss, variables):
    """Returns {number of a variable: its gradient}, dense.

    Variables that do not affect this loss have no gradient, e.g. the pooler if
    there are no next-sentence labels. They stay as they are, without weight
    decay. Keras does the same, but warns.
    """
    gradients = clipping.dense(tape.gradient(loss, variables), variables)
    return {n: g for n, g in enumerate(gradients) if g is not None}


def eval_step(
    model: keras.Model, objective: Objective, batch: Batch
) -> EvaluationSums:
    """Evaluates one batch, in replica context.

    Returns:
        The sums and weights of the loss terms and of the metrics, over all
        replicas.
    """
    outputs = model(batch, training=False)
    weights = objective.weights(batch)
    totals = objective.losses(outputs, batch)
    return _sum_over_replicas(
        {
            "losses": {name: (totals[name], weights[name]) for name in totals},
            "metrics": objective.metrics(outputs, batch),
        }
    )


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
        self._seed_states = randomness.seed_states(model)
        self._jit_compile = jit_compile
        self._waiting_since = tf.Variable(
            0.0, trainable=False, dtype=tf.float64
        )
        # {names in a batch: the nest of a step's results, without values}.
        self._structures: dict[tuple[str, ...], StepResults] = {}
        self._log = compilation_lib.Log()

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
        row = self._as_row(on_first_replica(strategy, results), iterator)
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
            tf.nest.flatten(on_first_replica(strategy, batch))
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
            train = compilation_lib.jit(train)

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


def on_first_replica(strategy: tf.distribute.Strategy, results: Any) -> Any:
    """Returns a nest of values as the first replica of this host has it."""
    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], results
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


def _padding(batch):
    """Returns the number of padded positions, and of all positions."""
    masks = [
        batch[name]
        for name in (features.INPUT_MASK, features.PASSAGE_MASK)
        if name in batch
    ]
    num_places = sum(tf.cast(tf.size(mask), tf.float32) for mask in masks)
    num_tokens = sum(tf.cast(tf.reduce_sum(mask), tf.float32) for mask in masks)
    return num_places - num_tokens, num_places


def _sum_over_replicas(values):
    """Sums float32 scalars, in any nest, over the replicas."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    total = context.all_reduce(
        tf.distribute.ReduceOp.SUM, tf.stack(tf.nest.flatten(values))
    )
    return tf.nest.pack_sequence_as(values, tf.unstack(total))
