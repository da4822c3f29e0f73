"""Dropout masks as a function of (seed, layer, replica, step).

Keras keeps the state of its random layers in `SeedGenerator`s, which count
calls, are not saved in checkpoints and are equal on all replicas. Setting
every state at the start of a step instead makes a resumed run equal to an
uninterrupted one, and gives replicas different masks.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf


def set_seeds(
    states: Sequence[keras.Variable], seed: int, step: tf.Tensor
) -> None:
    """Sets every state for this step; called in replica context.

    Args:
        states: Variables from `backend.seed_states`.
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
