"""The training loop: drives the steps of `training.step`, on any strategy.

It logs, saves and stops; what happens on a device is in `training.step`.
"""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from bert_tf import atomic
from bert_tf import progress_bar
from bert_tf.input import errors
from bert_tf.models.objectives import Objective
from bert_tf.training import compiled_steps
from bert_tf.training import health
from bert_tf.training import preemption
from bert_tf.training import progress
from bert_tf.training import step as step_lib
from bert_tf.training import strategy as strategies
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions

if TYPE_CHECKING:
    from bert_tf.input.batch_source import BatchSource

_logger = logging.getLogger(__name__)

# Most steps in a row that are skipped to find a loss scale for float16, from
# the initial 2**15 down to 2**-15.
_LOSS_SCALE_STEPS = 30
SUMMARY_FILE = "summary.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How far to train, in which batches, and how.

    Args:
        num_train_steps: Number of the last step.
        train_batch_size: Examples a step, over all replicas.
        options: The `LoopOptions`. Their `skip_nonfinite_steps` must be
            positive if the optimizer has `skip_nonfinite`, and 0 otherwise. If
            the loss is scaled, more steps may be skipped.
        flops_per_example: Floating-point operations of a training step per
            example, if known; see `health.flops_per_example`.

    Raises:
        ValueError: If a number is not positive.
    """

    num_train_steps: int
    train_batch_size: int = 32
    options: LoopOptions = LoopOptions()
    flops_per_example: float | None = None

    def __post_init__(self):
        for name in ("num_train_steps", "train_batch_size"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(
                    f"`{name}` must be positive. Received: {name}={value}."
                )


def train(
    state: TrainingState,
    objective: Objective,
    source: "BatchSource",
    config: TrainingConfig,
    strategy: tf.distribute.Strategy,
    on_save: Callable[[], object] | None = None,
    before_save: Callable[[], object] | None = None,
    *,
    end: int | None = None,
    history: list[dict[str, float]] | None = None,
    compiled: compiled_steps.CompiledSteps | None = None,
) -> list[dict[str, float]]:
    """Trains from the state's step to `config.num_train_steps`.

    Every `iterations_per_loop` steps, and every 30 seconds, it logs a line and
    writes TensorBoard summaries into the state's folder. It saves a checkpoint
    every `save_checkpoints_steps` steps, at the end, and in a new run after
    half a minute. On a terminal and in a notebook, a progress line replaces the
    lines of every 30 seconds.

    Args:
        state: A `TrainingState`, restored or new, made in the strategy's
            scope.
        objective: An `Objective`.
        source: A source of batches.
        config: A `TrainingConfig`.
        strategy: The `tf.distribute.Strategy`.
        on_save: If given, called without arguments after each checkpoint, on
            the one host that writes.
        before_save: If given, called without arguments on all hosts before
            each checkpoint that is due by its step, e.g. for an evaluation. It
            is not called before those that the clock or a signal asks for.
        end: The step to stop at; None for the last.
        history: A list to append the reports to, so that they are not lost if
            training stops with an error; None for a new list.
        compiled: What `make_steps` returned for the state, the objective and
            the options. It avoids tracing the step again. None to make it here.

    Returns:
        The reports that were logged: a list of {name: float}, with `step` in
        each. Loss terms, learning rate and gradient norm are means over the
        steps; metrics are means over their examples. `padding` is the share of
        positions that hold no token; `tokens_per_second` counts the others.
        `update_ratio` is the norm of the last step's update divided by the
        norm of the weights. `input_share` is the share of the time spent
        waiting for batches. The reports also go to the log, to TensorBoard
        and, with more, into summary.json in the output folder.

    Raises:
        health.NotFiniteError: If a loss or a gradient is not finite and the
            step may not be skipped; the message names it. The state of that
            step is not saved.
        preemption.PreemptedError: After SIGTERM or Ctrl-C, when the state has
            been saved.
        ValueError: If the input is damaged or does not suit the model, if
            the workers have restored different states, or if only one of
            config and optimizer skips steps.
    """
    if history is None:
        history = []
    if end is None:
        end = config.num_train_steps
    # First of all: workers at different steps would take different branches.
    state.check_workers(strategy)
    if state.step >= end:
        _logger.info("Step %d of %d: nothing left to train.", state.step, end)
        # The run may have been killed before `on_save`.
        if strategies.is_chief(strategy) and on_save is not None:
            with state.hold():
                on_save()
        return history
    is_chief = strategies.is_chief(strategy)
    check_batch_size(config, strategy)
    num_skipped = _most_skipped(config.options, state.optimizer)
    if compiled is None:
        compiled = make_steps(state, objective, config.options, strategy)
    watch = health.Health(num_skipped)
    # Unreadable input is reported before anything is written.
    paths = getattr(source, "paths", ())
    with errors.clear_errors(paths):
        batches = strategy.distribute_datasets_from_function(
            lambda context: source.training_batches(
                config.train_batch_size, state.example, context
            )
        )
    with (
        state.hold(is_chief),
        errors.clear_errors(paths),
        progress.summary_writer(state.folder, is_chief) as flush,
        preemption.stop_noted() as stop_signal,
        health.warn_of_stalls(compiled.waiting_since),
        progress_bar.ProgressBar(
            "train", config.num_train_steps, first=state.step
        ) as bar,
    ):
        run = _Run(state, config, strategy, end, watch, stop_signal, flush, bar)
        iterator = iter(batches)
        while state.step < end:
            steps = run.make_steps(compiled, iterator)
            if steps:
                run.report(steps, history, source.unit)
            run.save_if_due(on_save, before_save)
            run.stop_if_due()
    return history


class _Run:
    """The loop of one call of `train`: it makes steps, reports and saves.

    All hosts do the same, because they agree on what clocks and signals say.
    """

    def __init__(
        self, state, config, strategy, end, watch, stop_signal, flush, bar
    ):
        self._state, self._config, self._strategy = state, config, strategy
        self._end, self._watch, self._stop_signal = end, watch, stop_signal
        self._flush, self._bar = flush, bar
        self._is_chief = strategies.is_chief(strategy)
        # Hosts may get the signal at different times, but must stop at the
        # same step.
        self._agree = strategies.make_agreement(strategy)
        self._timer = progress.Timer()
        self._line = progress_bar.Interval(progress.SECONDS_PER_REPORT)
        # A new run saves early, to show that it can.
        self._is_new = state.step == 0
        self._first_save = progress_bar.Interval(progress.SECONDS_PER_REPORT)
        self._saved_step = None
        # The step of the next report or checkpoint.
        self._next_boundary = state.step
        # Whether to save and end, and whether the last line was due by the
        # clock.
        self._must_stop = self._is_by_clock = False

    def make_steps(self, compiled, iterator):
        """Makes the steps to the next line or checkpoint; returns results."""
        state, config = self._state, self._config
        steps: list[step_lib.StepResults] = []
        if state.step == self._next_boundary:
            self._next_boundary += _steps_to_boundary(
                state.step, config.options, self._end
            )
        # A profile must cover all its steps.
        may_break = not _is_profiled(state.step, config.options)
        self._is_by_clock = False
        with _profiler(state, config.options, self._is_chief):
            while state.step < self._next_boundary:
                # 0 steps mean that a line is due by the first host's clock.
                count = self._timer.steps_of_next_call(
                    self._next_boundary - state.step
                )
                if (
                    may_break
                    and steps
                    and self._timer.knows
                    and self._line.is_over
                ):
                    count = 0
                self._must_stop, count = self._agree(
                    self._stop_signal.is_set(), count
                )
                if self._must_stop:
                    break
                if not count:
                    self._is_by_clock = True
                    break
                new, waited = compiled.run(
                    self._strategy, iterator, state.step, count
                )
                self._timer.called(count, waited)
                new = self._watch.watch(new, state.step)
                steps += new
                state.step += count
                state.example += count * config.train_batch_size
                if new:
                    loss = new[-1]["values"]["loss"]
                    self._bar.update(state.step, f"loss {loss:.4g}")
        return steps

    def report(self, steps, history, unit):
        """Reports on the steps, and adds the report to the history."""
        config = self._config
        report = _report(
            self._state, steps, self._timer, config, self._strategy
        )
        history.append(report)
        if not (self._is_by_clock and self._bar.is_shown):
            text = progress.log_line(report, config.num_train_steps, unit)
            _logger.info("%s", text)
        if not self._is_by_clock:
            health.warn_if_waiting(report["input_share"])
        progress.write_summaries(report)
        if self._is_chief:
            _write_summary(self._state, report, self._watch, config)
        self._line.restart()

    def save_if_due(self, on_save, before_save):
        """Saves a checkpoint if one is due or the run is to stop."""
        state = self._state
        is_due = (
            state.step >= self._end
            or state.step % self._config.options.save_checkpoints_steps == 0
        )
        is_first = False
        if self._is_new and self._saved_step is None:
            is_first, _ = self._agree(self._first_save.is_over, 0)
        is_wanted = is_due or is_first or self._must_stop
        if not is_wanted or state.step == self._saved_step:
            return
        # If the run is to stop, there may not be enough time.
        if before_save is not None and is_due and not self._must_stop:
            before_save()
        if self._is_chief:
            path = state.save()
            _logger.info("Saved %s.", path)
            self._flush()
            if on_save is not None:
                on_save()
        # If a host left now, the others would be killed while they write.
        self._agree(False, 0)
        self._saved_step = state.step
        self._timer.restart()

    def stop_if_due(self):
        """Raises `preemption.PreemptedError` if the run is to stop."""
        num_steps = self._config.num_train_steps
        # The signal may have come in the last of these steps, or while it was
        # being saved.
        if not self._must_stop and self._end <= self._state.step < num_steps:
            self._must_stop, _ = self._agree(self._stop_signal.is_set(), 0)
        if self._must_stop:
            raise preemption.stopped(
                self._stop_signal, self._state.step, num_steps
            )


def make_steps(
    state: TrainingState,
    objective: Objective,
    options: LoopOptions,
    strategy: tf.distribute.Strategy,
) -> compiled_steps.CompiledSteps:
    """Returns the steps that `train` makes with these arguments."""
    return compiled_steps.CompiledSteps(
        state.model,
        objective,
        state.optimizer,
        options.gradient_accumulation_steps,
        options.random_seed,
        strategies.compiles_step(options.jit_compile, strategy),
    )


def check_batch_size(
    config: TrainingConfig, strategy: tf.distribute.Strategy
) -> None:
    """Raises `ValueError` if a batch cannot be split into equal parts."""
    num_replicas = strategy.num_replicas_in_sync
    parts = config.options.gradient_accumulation_steps
    if config.train_batch_size % (num_replicas * parts):
        raise ValueError(
            f"`train_batch_size` must be a multiple of {num_replicas * parts}: "
            f"{num_replicas} replicas times "
            f"gradient_accumulation_steps={parts}. "
            f"Received: train_batch_size={config.train_batch_size}."
        )


def _most_skipped(options, optimizer):
    """Returns the most steps in a row to skip.

    Raises:
        ValueError: If only one of options and optimizer skips steps.
    """
    num_skipped = options.skip_nonfinite_steps
    inner_optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if inner_optimizer is not optimizer:  # The loss is scaled.
        num_skipped = max(num_skipped, _LOSS_SCALE_STEPS)
    if inner_optimizer.skip_nonfinite != (num_skipped > 0):
        raise ValueError(
            "`skip_nonfinite_steps` must be positive if the optimizer skips "
            "steps, and 0 otherwise. Received: skip_nonfinite_steps="
            f"{options.skip_nonfinite_steps}, and an optimizer with "
            f"skip_nonfinite={inner_optimizer.skip_nonfinite}."
        )
    return num_skipped


def _steps_to_boundary(step, options, end):
    """Returns the number of steps to the next report or checkpoint."""
    every = options.save_checkpoints_steps
    return min(
        options.iterations_per_loop,
        every - step % every,
        end - step,
        *(bound - step for bound in options.profiled_steps if bound > step),
    )


def _is_profiled(step, options):
    first, end = options.profiled_steps
    return first <= step < end


def _profiler(state, options, is_chief):
    """Returns the context of the next steps, with a profile if one is due."""
    if is_chief and _is_profiled(state.step, options):
        _logger.info("Profiling from step %d on.", state.step)
        return tf.profiler.experimental.Profile(state.folder)
    return contextlib.nullcontext()


def _report(state, steps, timer, config, strategy):
    """Returns the report on the steps since the last one."""
    report = {"step": state.step, **progress.summarize(steps)}
    weights = [
        tf.cast(tf.convert_to_tensor(variable), tf.float32)
        for variable in state.model.trainable_variables
    ]
    optimizer = getattr(state.optimizer, "inner_optimizer", state.optimizer)
    update = optimizer.update_norm(steps[-1]["values"]["learning_rate"])
    report["update_ratio"] = float(update) / max(
        float(tf.linalg.global_norm(weights)), 1e-30
    )
    report |= timer.report()
    examples = config.train_batch_size / report["step_seconds"]
    report["examples_per_second"] = examples
    report["tokens_per_second"] = report.pop("tokens") / report["step_seconds"]
    if config.flops_per_example is not None:
        flops = examples * config.flops_per_example
        report["model_tflops_per_second"] = flops / 1e12
        if config.options.peak_tflops is not None:
            peak = config.options.peak_tflops * 1e12
            report["model_flops_utilization"] = flops / (
                peak * strategy.num_replicas_in_sync
            )
    return report


def _write_summary(state, report, watch, config):
    """Writes summary.json, which tells other programs where the run stands."""
    left = config.num_train_steps - state.step
    summary = report | {
        "num_train_steps": config.num_train_steps,
        "seconds_left": left * report["step_seconds"],
        "nonfinite_steps": watch.num_skipped,
        "loss_spikes": watch.num_spikes,
    }
    text = json.dumps(summary, indent=2) + "\n"
    atomic.write_text(f"{state.output_dir}/{SUMMARY_FILE}", text)
