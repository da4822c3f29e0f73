"""A pre-training step under KERAS_BACKEND=jax, for benchmarks' processes."""

import jax

from bert_tf.models import objectives


def make_step(model, optimizer, **options):
    """Returns `step(state, batch) -> (loss, state)`, without side effects.

    Args:
        model: A `BertPretrainer`.
        optimizer: Keras's, built.
        **options: More arguments of the model's call.
    """

    def compute_loss(trainable, rest, batch):
        outputs, rest = model.stateless_call(
            trainable, rest, batch, training=True, **options
        )
        totals = objectives.PRETRAINING.losses(outputs, batch)
        weights = objectives.PRETRAINING.weights(batch)
        # Sums over all chips: they share one batch.
        return sum(totals[n] / (weights[n] + 1e-5) for n in totals), rest

    def step(state, batch):
        trainable, rest, slots = state
        differentiate = jax.value_and_grad(compute_loss, has_aux=True)
        (loss, rest), gradients = differentiate(trainable, rest, batch)
        trainable, slots = optimizer.stateless_apply(
            slots, gradients, trainable
        )
        return loss, (trainable, rest, slots)

    return step


def first_state(model, optimizer):
    """Returns the state before the first step."""
    return tuple(
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
        )
    )
