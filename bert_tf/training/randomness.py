"""Dropout masks as a function of (seed, layer, replica, step).

Keras keeps the state of its random layers in `SeedGenerator`s, which count
calls, are not saved in checkpoints and are equal on all replicas. Setting
every state at the start of a step instead makes a resumed run equal to an
uninterrupted one, and gives replicas different masks.
"""

from collections.abc import Callable
from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.backend import seed_states


def set_seeds(
    states: Sequence[keras.Variable], seed: int, step: tf.Tensor
) -> None:
    """Sets every state for this step; called in replica context.

    Args:
        states: Variables from `seed_states`.
        seed: Int, the run's seed.
        step: int64 scalar, the number of the step.
    """
    if not states:
        return
    replica = tf.distribute.get_replica_context().replica_id_in_sync_group
    key = tf.constant([seed, 0], tf.int64)
    for number in (replica, step):
        key = tf.random.experimental.stateless_fold_in(
            key, tf.cast(number, tf.int64)
        )
    # One operation for all layers: row i depends on key and i alone.
    values = tf.random.stateless_uniform(
        (len(states), 2), key, minval=None, maxval=None, dtype=tf.int64
    )
    for state, value in zip(states, tf.unstack(values)):
        state.assign(value)


def compile_set_seeds(
    model: keras.Model, seed: int, strategy: tf.distribute.Strategy
) -> Callable[[int], None]:
    """Returns a function that sets the model's states for a step number.

    It is traced once.

    Args:
        model: Made in the strategy's scope.
        seed: The run's seed.
        strategy: The `tf.distribute.Strategy`.
    """
    states = seed_states(model)

    @tf.function(autograph=False)
    def set_in_graph(step):
        strategy.run(set_seeds, args=(states, seed, step))

    return lambda step: set_in_graph(tf.constant(step, tf.int64))
