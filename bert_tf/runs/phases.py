"""Phases of a pre-training: lengths and batch sizes change between them.

BERT's paper (arXiv 1810.04805, appendix A.2) trains nine tenths of the steps
at 128 tokens and the rest at 512.
"""

import itertools
import logging
from collections.abc import Callable
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.input.batch_source import BatchSource
from bert_tf.input.record_source import RecordSource
from bert_tf.models.objectives import Objective
from bert_tf.runs.options import Phase
from bert_tf.training import loop
from bert_tf.training import preemption
from bert_tf.training import strategy as strategies
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions

_logger = logging.getLogger(__name__)


def train(
    state: TrainingState,
    objective: Objective,
    phases: Sequence[Phase],
    options: LoopOptions,
    sources: Sequence[BatchSource],
    strategy: tf.distribute.Strategy,
    on_save: Callable[[], object] | None = None,
    before_save: Callable[[], object] | None = None,
    history: list[dict[str, float]] | None = None,
    flops_of: Callable[[BatchSource], float | None] = lambda source: None,
) -> list[dict[str, float]]:
    """Trains through all phases, from the state's step on.

    A phase begins with the first example of its source. If it has the same
    source (the same object) as the phase before, it begins with the next
    example instead, so as not to repeat the rows and masks of that phase.
    Either way, a run that is resumed across the boundary equals an
    uninterrupted one.

    Args:
        phases: The `Phase`s; the other arguments are as for `loop.train`.
        options: The `LoopOptions` of all phases.
        sources: A source of batches for each phase.
        flops_of: Returns the operations of a source's example, if known.

    Returns, raises:
        As `loop.train`.
    """
    if history is None:
        history = []
    last = len(phases) - 1
    ends = itertools.accumulate(phase.num_steps for phase in phases)
    configs = [
        loop.TrainingConfig(
            num_train_steps=end,
            train_batch_size=phase.train_batch_size,
            options=options,
            flops_per_example=flops_of(source),
        )
        for phase, end, source in zip(phases, ends, sources, strict=True)
    ]
    # Check every phase now: its turn may come only after weeks.
    for number, (config, source) in enumerate(
        zip(configs, sources, strict=True), 1
    ):
        if state.step < config.num_train_steps:
            place = f"Phase {number} of {len(phases)}: " if last else ""
            _check(config, source, strategy, place)
    # The step is traced once for all phases whose batches have the same form.
    compiled = loop.make_steps(state, objective, options, strategy)
    # Around all phases: the signal may come between two of them.
    with preemption.stop_noted():
        for number, (phase, config, source) in enumerate(
            zip(phases, configs, sources, strict=True)
        ):
            end = config.num_train_steps
            if state.step >= end and number < last:
                continue
            is_new = number == 0 or source is not sources[number - 1]
            if is_new and state.step == end - phase.num_steps:
                state.example = 0
            if last:
                _logger.info(
                    "Phase %d of %d: %s, to step %d.",
                    number + 1,
                    last + 1,
                    phase,
                    end,
                )
            loop.train(
                state,
                objective,
                source,
                config,
                strategy,
                on_save,
                before_save,
                history=history,
                compiled=compiled,
            )
    return history


def _check(config, source, strategy, place):
    """Raises `ValueError` if a phase's batches cannot be made."""
    try:
        loop.check_batch_size(config, strategy)
        if isinstance(source, RecordSource):
            source.check_shares(
                config.train_batch_size, strategies.num_hosts(strategy)
            )
    except ValueError as error:
        raise ValueError(f"{place}{error}") from error
