"""The training loop: many steps a call, on any strategy.

`train_step` and `eval_step` are what happens on a device; `train` and
`evaluate` drive them, log, save and stop.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import signal
import threading

import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf.training import accumulation
from bert_tf.training import health
from bert_tf.training import input_errors
from bert_tf.training import progress
from bert_tf.training import randomness
from bert_tf.training import strategy as strategies

_logger = logging.getLogger(__name__)
# A program that was told to stop (SIGTERM) and has saved its state exits with
# this code: sysexits.h's EX_TEMPFAIL, "try again". Run again, it goes on.
PREEMPTED_EXIT_CODE = 75
# Most steps in a row that are passed over to find a scale of the loss for
# float16: from 2**15 on, the first, down to 2**-15.
_LOSS_SCALE_STEPS = 30
SUMMARY_FILE = "summary.json"


# `keras.Model.fit` of the tasks raises it too.
NotFiniteError = health.NotFiniteError


class PreemptedError(Exception):
    """The run was told to stop, and has saved its state."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a run goes.

    Args:
        num_train_steps: Number of the last step.
        train_batch_size: Examples a step, over all replicas.
        save_checkpoints_steps: Steps from one checkpoint to the next.
        iterations_per_loop: Steps from one line of the log to the next.
        gradient_accumulation_steps: Parts in which a replica goes through its
            share of the batch: the memory of one part's activations, and one
            step of the optimizer.
        skip_nonfinite_steps: Most steps in a row to pass over because their
            gradient is not finite; 0 for none, then the first one ends the
            run.
        profile_steps: None, or (first, last): steps first to last - 1 are
            profiled, for TensorBoard.
        flops_per_example: Floating-point operations of an example's step, if
            known; see `health.flops_per_example`.
        peak_flops: The most that a device can do in a second, if known.
        seed: Of the dropout masks.
    """

    num_train_steps: int
    train_batch_size: int = 32
    save_checkpoints_steps: int = 1000
    iterations_per_loop: int = 1000
    gradient_accumulation_steps: int = 1
    skip_nonfinite_steps: int = 0
    profile_steps: tuple[int, int] | None = None
    flops_per_example: float | None = None
    peak_flops: float | None = None
    seed: int = 12345

    def __post_init__(self):
        for name in (
            "num_train_steps",
            "train_batch_size",
            "save_checkpoints_steps",
            "iterations_per_loop",
            "gradient_accumulation_steps",
            "flops_per_example",
            "peak_flops",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(
                    f"`{name}` must be positive. Received: {name}={value}."
                )
        if self.skip_nonfinite_steps < 0:
            raise ValueError(
                "`skip_nonfinite_steps` must be 0 or more. Received: "
                f"skip_nonfinite_steps={self.skip_nonfinite_steps}."
            )
        if self.profile_steps is not None:
            first, last = self.profile_steps
            if not 0 <= first < last:
                raise ValueError(
                    "`profile_steps` must be a first step and a later one. "
                    f"Received: profile_steps={self.profile_steps}."
                )


def train_step(model, objective, optimizer, batch, accumulation_steps=1):
    """Makes one step, in replica context.

    Args:
        model: A `keras.Model`, called with the batch.
        objective: An `Objective`.
        optimizer: A `BertOptimizer`, or a `LossScaleOptimizer` of one.
        batch: This replica's share of the batch, a dictionary of tensors;
            `input_mask` is among them.

    Returns:
        A dictionary of float32 scalars, the same on all replicas: `values`,
        {name: value} of the loss, its terms, the learning rate, the norms of
        the gradient and of the update and the number of tokens, and `metrics`,
        {name: (sum, weight)}, the share of padding among them.
    """
    # Summed first: every replica divides by the weight of the whole batch,
    # so that the sum of the replicas' gradients is the batch's gradient, and
    # so is the sum over the parts of the batch.
    weights = _sum_over_replicas(objective.weights(batch))

    def run_part(part):
        with tf.GradientTape() as tape:
            outputs = model(part, training=True)
            totals = objective.losses(outputs, part)
            loss = sum(objective.loss_terms(totals, weights).values())
            scaled_loss = optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled_loss, model.trainable_variables)
        metrics = objective.metrics(outputs, part) | {"padding": _padding(part)}
        return gradients, totals, metrics

    if accumulation_steps > 1:
        run_part = functools.partial(
            accumulation.sum_over_parts, run_part, num_parts=accumulation_steps
        )
    gradients, totals, metrics = run_part(batch)
    # What this loss does not depend on has no gradient, e.g. the pooler where
    # there are no next-sentence labels. It stays as it is, and is not decayed;
    # Keras does so too, but warns.
    gradients, variables = zip(
        *(
            (gradient, variable)
            for gradient, variable in zip(gradients, model.trainable_variables)
            if gradient is not None
        )
    )
    learning_rate = tf.identity(optimizer.learning_rate)
    optimizer.apply(gradients, variables)

    totals, metrics = _sum_over_replicas((totals, metrics))
    num_padding, num_places = metrics["padding"]
    terms = objective.loss_terms(totals, weights)
    inner_optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    values = {
        "loss": sum(terms.values()),
        **terms,
        "learning_rate": learning_rate,
        "gradient_norm": tf.identity(inner_optimizer.gradient_norm),
        "update_norm": tf.identity(inner_optimizer.update_norm),
        "tokens": num_places - num_padding,
    }
    return {"values": values, "metrics": metrics}


def eval_step(model, objective, batch):
    """Evaluates one batch, in replica context.

    Returns:
        The loss terms and the metrics, float32 scalars summed over all
        replicas: {"losses": {name: (sum, weight)}, "metrics": the same}.
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


def train(
    state,
    objective,
    source,
    config,
    strategy,
    on_save=None,
    before_save=None,
):
    """Trains from the state's step to `config.num_train_steps`.

    Every `iterations_per_loop` steps a line is logged and TensorBoard
    summaries are written into the state's folder; a checkpoint is saved every
    `save_checkpoints_steps` and at the end.

    Args:
        state: A `TrainingState`, restored or new, made in the strategy's
            scope.
        objective: An `Objective`.
        source: A source of batches; see `input_pipeline`.
        config: A `TrainingConfig`.
        strategy: The `tf.distribute.Strategy`.
        on_save: If given, called after each checkpoint, without arguments, on
            the one host that writes.
        before_save: If given, called before each checkpoint, without
            arguments, on all hosts: there is time for an evaluation.

    Returns:
        What was logged: a list of {name: float}, with `step` in each. Loss
        terms, learning rate and gradient norm are means over the steps,
        metrics are over their examples. `padding` is the share of places that
        hold no token; `tokens_per_second` counts those that do;
        `update_ratio` is the norm of a step's change over that of the
        weights; `input_share` is the part of the time that went by waiting
        for batches. The same goes to the log, to TensorBoard, and with more
        into summary.json of the output directory.

    Raises:
        NotFiniteError: If a loss or a gradient is not finite, and the step is
            not one to be passed over; the message names it. The state of that
            step is not saved.
        PreemptedError: After SIGTERM, when the state has been saved.
        ValueError: If the input is damaged or does not suit the model.
    """
    if state.step >= config.num_train_steps:
        _logger.info(
            "Step %d of %d: nothing left to train.",
            state.step,
            config.num_train_steps,
        )
        # The run may have ended between its last checkpoint and this call.
        if on_save is not None and strategies.is_chief(strategy):
            with state.hold():
                on_save()
        return []
    uses_loss_scale = hasattr(state.optimizer, "inner_optimizer")
    is_chief = strategies.is_chief(strategy)
    num_parts = (
        strategy.num_replicas_in_sync * config.gradient_accumulation_steps
    )
    if config.train_batch_size % num_parts:
        raise ValueError(
            f"`train_batch_size` must be a multiple of {num_parts}: "
            f"{strategy.num_replicas_in_sync} replicas times "
            f"gradient_accumulation_steps={config.gradient_accumulation_steps}."
            f" Received: train_batch_size={config.train_batch_size}."
        )
    inner_optimizer = getattr(
        state.optimizer, "inner_optimizer", state.optimizer
    )
    num_skipped = config.skip_nonfinite_steps
    if uses_loss_scale:
        num_skipped = max(num_skipped, _LOSS_SCALE_STEPS)
    inner_optimizer.skip_nonfinite = num_skipped > 0
    run_steps = _compile(state.model, objective, state.optimizer, config)
    watch = health.Health(num_skipped)
    # What cannot be read is told before anything is written.
    with input_errors.clear_errors():
        batches = strategy.distribute_datasets_from_function(
            lambda context: source.training_batches(
                config.train_batch_size, state.example, context
            )
        )
    # Hosts that are told to stop at different times must stop at one step.
    agree = strategies.make_agreement(strategy)
    with (
        state.hold(is_chief),
        input_errors.clear_errors(),
        _summary_writer(state, is_chief) as writer,
        sigterm_noted() as told_to_stop,
        health.stalls_named(run_steps.waiting_since),
    ):
        timer = progress.Timer()
        iterator = iter(batches)
        history = []
        saved_step = None
        stops = False
        while state.step < config.num_train_steps:
            steps = []
            stop = state.step + _steps_to_next_stop(state.step, config)
            profiler = _profiler(state, config, is_chief)
            with profiler:
                while state.step < stop:
                    stops, count = agree(
                        told_to_stop.is_set(),
                        timer.steps_of_next_call(stop - state.step),
                    )
                    if stops:
                        break
                    new, waited = run_steps(
                        strategy, iterator, state.step, count
                    )
                    timer.called(count, waited)
                    steps += watch.watch(new, state.step)
                    state.step += count
                    state.example += count * config.train_batch_size
            if steps:
                report = _report(state, steps, timer, config, strategy)
                history.append(report)
                line = progress.log_line(report, config.num_train_steps)
                _logger.info("%s", line)
                health.warn_if_waiting(report["input_share"])
                progress.write_summaries(report)
                if is_chief:
                    _write_summary(state, report, watch, config)
            is_last = state.step >= config.num_train_steps
            is_due = state.step % config.save_checkpoints_steps == 0
            if (is_last or is_due or stops) and state.step != saved_step:
                # Told to stop, there may not be time.
                if before_save is not None and not stops:
                    before_save()
                if is_chief:
                    path = state.save()
                    _logger.info("Saved %s.", path)
                    writer.flush()
                    if on_save is not None:
                        on_save()
                # A host that left would end the others in their writing.
                agree(False, 0)
                saved_step = state.step
                timer.restart()
            if stops:
                raise PreemptedError(
                    f"Stopped by SIGTERM; step {state.step} of "
                    f"{config.num_train_steps} is saved."
                )
    return history


def evaluate(*args, **kwargs):
    """Evaluates once; arguments and result are as of `make_evaluation`."""
    return make_evaluation(*args, **kwargs)()


def make_evaluation(
    model, objective, source, batch_size, strategy, max_batches=None
):
    """Returns a function that evaluates the model as it is at the time.

    It goes over every example once, or over the first `max_batches` batches.

    Args:
        model: A `keras.Model`.
        objective: An `Objective`.
        source: A source of batches; see `input_pipeline`.
        batch_size: Examples a step, over all replicas.
        strategy: The `tf.distribute.Strategy` that the model was made in.
        max_batches: If given, the largest number of batches.

    Returns:
        A function without arguments, which returns
        {name: float} of `loss`, its terms and the metrics, each the sum over
        the examples divided by their weight; `loss` is the sum of its terms.

        It raises `ValueError` if the input is damaged or does not suit the
        model.
    """

    @tf.function
    def run_step(batch):
        results = strategy.run(eval_step, args=(model, objective, batch))
        return _on_first_replica(strategy, results)

    def run():
        sums = None
        with input_errors.clear_errors():
            batches = strategy.distribute_datasets_from_function(
                lambda context: source.evaluation_batches(
                    batch_size, max_batches, context
                )
            )
            for batch in batches:
                results = tf.nest.map_structure(float, run_step(batch))
                if sums is None:
                    sums = results
                else:
                    sums = tf.nest.map_structure(
                        lambda total, new: total + new, sums, results
                    )
        terms = progress.ratios(sums["losses"])
        return {
            "loss": sum(terms.values()),
            **terms,
            **progress.ratios(sums["metrics"]),
        }

    return run


def _compile(model, objective, optimizer, config):
    """Returns a function that makes many steps in one call.

    `run_steps(strategy, iterator, step, count)` makes `count` steps, from
    number `step` on, and returns what `train_step` did in each, as floats,
    and the seconds that it waited for their batches. Its attribute
    `waiting_since` is for `health.stalls_named`.
    """
    seed_states = randomness.seed_states(model)
    waiting_since = tf.Variable(0.0, trainable=False, dtype=tf.float64)
    structure = None

    def replica_step(batch, step):
        randomness.set_seeds(seed_states, config.seed, step)
        return train_step(
            model,
            objective,
            optimizer,
            batch,
            config.gradient_accumulation_steps,
        )

    def as_row(results):
        # Runs while the step is traced: the names are known only then.
        nonlocal structure
        structure = tf.nest.map_structure(lambda _: None, results)
        return tf.stack(tf.nest.flatten(results))

    @tf.function
    def run_in_graph(strategy, iterator, step, count):
        rows = tf.TensorArray(tf.float32, count, infer_shape=False)
        waited = tf.constant(0.0, tf.float64)
        for index in tf.range(count):
            # One step after the other: else waiting for the next batch could
            # not be told from the step that goes on meanwhile. The batches
            # themselves are made ahead.
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            start = tf.timestamp()
            with tf.control_dependencies([waiting_since.assign(start)]):
                batch = next(iterator)
            with tf.control_dependencies(
                tf.nest.flatten(_on_first_replica(strategy, batch))
            ):
                waited += tf.timestamp() - start
                waiting_since.assign(0.0)
            results = strategy.run(
                replica_step, args=(batch, step + tf.cast(index, tf.int64))
            )
            rows = rows.write(
                index, as_row(_on_first_replica(strategy, results))
            )
        return rows.stack(), waited

    def run_steps(strategy, iterator, step, count):
        rows, waited = run_in_graph(
            strategy,
            iterator,
            tf.constant(step, tf.int64),
            tf.constant(count, tf.int32),
        )
        return [
            tf.nest.pack_sequence_as(structure, row)
            for row in rows.numpy().tolist()
        ], float(waited)

    run_steps.waiting_since = lambda: float(waiting_since.numpy())
    return run_steps


def _padding(batch):
    """Returns the numbers of places without a token, and of all places."""
    input_mask = batch[features.INPUT_MASK]
    num_places = tf.cast(tf.size(input_mask), tf.float32)
    num_tokens = tf.cast(tf.reduce_sum(input_mask), tf.float32)
    return num_places - num_tokens, num_places


def _summary_writer(state, is_chief):
    """Returns the context in which summaries are written, on the chief."""
    if is_chief:
        return tf.summary.create_file_writer(state.folder).as_default()
    return tf.summary.create_noop_writer().as_default()


def _sum_over_replicas(values):
    """Sums float32 scalars, in any nest, over the replicas."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return values
    total = context.all_reduce(
        tf.distribute.ReduceOp.SUM, tf.stack(tf.nest.flatten(values))
    )
    return tf.nest.pack_sequence_as(values, tf.unstack(total))


def _on_first_replica(strategy, results):
    return tf.nest.map_structure(
        lambda value: strategy.experimental_local_results(value)[0], results
    )


def _steps_to_next_stop(step, config):
    """Returns how many steps there are to the next report or checkpoint."""
    every = config.save_checkpoints_steps
    return min(
        config.iterations_per_loop,
        every - step % every,
        config.num_train_steps - step,
        *(bound - step for bound in config.profile_steps or () if bound > step),
    )


def _profiler(state, config, is_chief):
    """Returns the context of the next steps: a profile is taken, or not."""
    first, last = config.profile_steps or (0, 0)
    if is_chief and first <= state.step < last:
        _logger.info("Profiling from step %d on.", state.step)
        return tf.profiler.experimental.Profile(state.folder)
    return contextlib.nullcontext()


def _report(state, steps, timer, config, strategy):
    """Returns what is logged of the steps since the last report."""
    report = {"step": state.step, **progress.summarize(steps)}
    weights = [
        tf.cast(tf.convert_to_tensor(variable), tf.float32)
        for variable in state.model.trainable_variables
    ]
    report["update_ratio"] = report.pop("update_norm") / max(
        float(tf.linalg.global_norm(weights)), 1e-30
    )
    report |= timer.report()
    examples = config.train_batch_size / report["step_seconds"]
    report["examples_per_second"] = examples
    report["tokens_per_second"] = report.pop("tokens") / report["step_seconds"]
    if config.flops_per_example is not None:
        flops = examples * config.flops_per_example
        report["model_tflops_per_second"] = flops / 1e12
        if config.peak_flops is not None:
            report["model_flops_utilization"] = flops / (
                config.peak_flops * strategy.num_replicas_in_sync
            )
    return report


def _write_summary(state, report, watch, config):
    """Writes where the run stands for other programs: summary.json."""
    left = config.num_train_steps - state.step
    summary = report | {
        "num_train_steps": config.num_train_steps,
        "seconds_left": left * report["step_seconds"],
        "nonfinite_steps": watch.num_skipped,
        "loss_spikes": watch.num_spikes,
    }
    text = json.dumps(summary, indent=2) + "\n"
    files.write_text(f"{state.output_dir}/{SUMMARY_FILE}", text)


@contextlib.contextmanager
def sigterm_noted():
    """Yields an event that is set when the process gets SIGTERM.

    Inside another such block it is that block's event.
    """
    # Python allows signal handlers in the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    before = signal.getsignal(signal.SIGTERM)
    if isinstance(before, _SetEvent):
        yield before.event
        return
    handler = _SetEvent()
    signal.signal(signal.SIGTERM, handler)
    try:
        yield handler.event
    finally:
        signal.signal(signal.SIGTERM, before)


class _SetEvent:
    """A signal handler."""

    def __init__(self):
        self.event = threading.Event()

    def __call__(self, number, frame):
        self.event.set()
