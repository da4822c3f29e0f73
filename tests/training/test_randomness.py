"""Dropout masks as a function of (seed, layer, replica, step)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import backend
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training import randomness
from bert_tf.training.strategy import make_strategy
from references import training as reference


class TwoDropouts(keras.Model):
    """Returns which of its inputs each of two layers of dropout kept."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dropout(0.5)
        self.second = keras.layers.Dropout(0.5)

    def call(self, inputs, training=None):
        return tf.stack(
            [
                self.first(inputs, training=training),
                self.second(inputs, training=training),
            ]
        )


def masks_of_steps(strategy, seed, steps):
    """Returns bool [steps, replicas, 2 layers, 64]."""
    with strategy.scope():
        model = TwoDropouts()
    states = backend.seed_states(model)

    @tf.function
    def run(step):
        def replica_step():
            randomness.set_seeds(states, seed, step)
            return model(tf.ones(64), training=True)

        results = strategy.run(replica_step)
        return tf.stack(strategy.experimental_local_results(results))

    return np.array(
        [run(tf.constant(step, tf.int64)).numpy() > 0 for step in steps]
    )


def test_masks_differ_by_layer_replica_and_step_and_repeat():
    strategy = make_strategy("mirrored", num_cpu_devices=2)
    masks = masks_of_steps(strategy, 3, [0, 1, 2**31 + 7])
    flat = masks.reshape(-1, 64)
    assert len(np.unique(flat, axis=0)) == len(flat) == 3 * 2 * 2
    assert 0.35 < masks.mean() < 0.65
    again = masks_of_steps(strategy, 3, [2**31 + 7, 1])
    np.testing.assert_array_equal(again, masks[[2, 1]])
    assert (masks_of_steps(strategy, 4, [1]) != masks[[1]]).any()


def test_the_first_replicas_masks_are_those_of_one_device():
    one = masks_of_steps(make_strategy(), 3, [5])
    two = masks_of_steps(make_strategy("mirrored", num_cpu_devices=2), 3, [5])
    np.testing.assert_array_equal(one[:, 0], two[:, 0])


@pytest.mark.parametrize(("dropout", "count"), [(0.1, 1 + 2 * 3), (0.0, 0)])
def test_every_dropout_of_a_model_is_found(dropout, count):
    model = BertPretrainer(reference.tiny_config(dropout))
    assert len(backend.seed_states(model)) == count


def test_models_without_dropout_need_no_seeds():
    with tf.Graph().as_default() as graph:
        step = tf.constant(0, tf.int64)
        randomness.set_seeds([], 3, step)
    assert graph.get_operations() == [step.op]
