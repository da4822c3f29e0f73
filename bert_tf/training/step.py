"""A step of training and one of evaluation, on a device.

`compiled_steps` makes many of them in one call. `loop` calls that until the
last step, and between two calls it reports, saves and looks for SIGTERM: then
it saves a checkpoint and ends the program with exit code 75. Run again, the
program goes on from there. Before each step `compiled_steps` sets the seeds of
all dropouts from the run's seed, the layer, the replica and the step, so the
masks are those that an uninterrupted run would have. A step whose gradient is
not finite ends the run unsaved, unless the optimizer has `skip_nonfinite`.
"""

import functools
from typing import TYPE_CHECKING
from typing import Any
from typing import TypedDict

import keras
import tensorflow as tf

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.models.objectives import Objective
from bert_tf.optimizers import accumulation
from bert_tf.optimizers import clipping

if TYPE_CHECKING:
    from bert_tf.optimizers.bert import BertOptimizer
    from bert_tf.optimizers.loss_scale import LossScaleOptimizer


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
    optimizer: "BertOptimizer | LossScaleOptimizer",
    batch: Batch,
    accumulation_steps: int = 1,
    jit_compile: bool = False,
) -> StepResults:
    """Makes one step, in replica context.

    Args:
        model: A `keras.Model`, called with the batch.
        objective: An `Objective`.
        optimizer: A `BertOptimizer`; in float16 a `LossScaleOptimizer` of one,
            whose `sum_and_clip` divides by the scale first.
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

    def differentiate_all(whole, weights):
        run = functools.partial(differentiate, weights=weights)
        if accumulation_steps > 1:
            return accumulation.sum_over_parts(run, whole, accumulation_steps)
        return run(whole)

    compute = differentiate_all
    if jit_compile:
        compute = tf.function(compute, autograph=False, jit_compile=True)
    gradients, totals, metrics = compute(batch, weights)

    # Before the update: that counts the step, and the rate depends on it.
    learning_rate = tf.identity(optimizer.learning_rate)
    summed = optimizer.sum_and_clip(list(gradients.values()))
    optimizer.apply_summed(summed, [variables[number] for number in gradients])

    totals, metrics = _sum_over_replicas((totals, metrics))
    num_padding, num_places = metrics["padding"]
    terms = objective.loss_terms(totals, weights)
    values = {
        "loss": objective.loss(terms),
        **terms,
        "learning_rate": learning_rate,
        "gradient_norm": tf.identity(optimizer.gradient_norm),
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
