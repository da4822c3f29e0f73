"""Makes what trains a task: the optimizer, and the loop's steps."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_tf.models.objectives import Objective
from bert_tf.optimizers import loss_scale
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.tasks.source import Source
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.options import StepOptions
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.record import EpochRecord


def make_optimizer(
    config: FineTuningConfig, num_train_steps: int, compute_dtype: str
) -> keras.optimizers.Optimizer:
    """Returns the optimizer of a fine-tuning.

    Args:
        config: The `FineTuningConfig`.
        num_train_steps: Number of the last step.
        compute_dtype: The dtype that the model computes in. With "float16" the
            optimizer scales the loss.
    """
    optimizer = BertOptimizer(
        WarmupDecay(
            config.learning_rate,
            num_train_steps,
            int(num_train_steps * config.warmup_proportion),
            drop=config.learning_rate_drop,
        ),
        bias_correction=bool(config.bias_correction),
        layerwise_decay=config.layerwise_learning_rate_decay,
    )
    return loss_scale.scaled_for(compute_dtype, optimizer)


def make_trainer(
    config: FineTuningConfig,
    objective: Objective,
    source: Source,
    state: TrainingState,
    record: EpochRecord,
    num_train_steps: int,
    strategy: tf.distribute.Strategy,
) -> Callable[..., Any]:
    """Returns a function that trains to a step, `train_to(end=...)`.

    The steps are traced once for all epochs.

    Args:
        config: The `FineTuningConfig`.
        objective: The `Objective`.
        source: The source of its labelled examples.
        state: The `TrainingState`, restored or new.
        record: The `EpochRecord`. It gets the reports, and is written with
            every checkpoint.
        num_train_steps: Number of the last step.
        strategy: The `tf.distribute.Strategy`.
    """
    options = LoopOptions(
        **{
            field.name: getattr(config, field.name)
            for field in dataclasses.fields(StepOptions)
        }
    )
    return functools.partial(
        loop.train,
        state,
        objective,
        source,
        loop.TrainingConfig(
            num_train_steps=num_train_steps,
            train_batch_size=config.train_batch_size,
            options=options,
        ),
        strategy,
        record.write,
        history=record.training,
        compiled=loop.make_steps(state, objective, options, strategy),
    )
