"""LAMB against the paper's algorithm in NumPy, mirrored, saved."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.lamb import LambOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.strategy import make_strategy
from references import training as reference

# Of five variables, what is decayed and scaled by its norm.
NAMES = ("words", "dense/kernel", "dense/bias", "layer_norm/gamma", "zeros")
IS_ADAPTED = (True, True, False, False, True)
SHAPES = ((7, 5), (5, 3), (3,), (5,), (2, 4))


class ReferenceLamb:
    """Algorithm 2 of arXiv 1904.00962 on NumPy arrays, after clipping to 1."""

    def __init__(self, weights, is_adapted):
        self.weights = [weight.astype("float64") for weight in weights]
        self.is_adapted = is_adapted
        self.m = [0.0] * len(weights)
        self.v = [0.0] * len(weights)
        self.step = 0

    def apply(self, gradients, learning_rate):
        self.step += 1
        norm = np.sqrt(sum(np.sum(np.square(g)) for g in gradients))
        for i, gradient in enumerate(gradients):
            g = gradient / max(norm, 1.0)
            w = self.weights[i]
            self.m[i] = 0.9 * self.m[i] + 0.1 * g
            self.v[i] = 0.999 * self.v[i] + 0.001 * g * g
            m = self.m[i] / (1 - 0.9**self.step)
            v = self.v[i] / (1 - 0.999**self.step)
            update = m / (np.sqrt(v) + 1e-6)
            if self.is_adapted[i]:
                update = update + 0.01 * w
                size, length = np.linalg.norm(w), np.linalg.norm(update)
                if size > 0 and length > 0:
                    update = update * size / length
            self.weights[i] = w - learning_rate * update
        return norm


def make_variables():
    random = np.random.default_rng(3)
    variables = []
    for name, shape in zip(NAMES, SHAPES):
        values = random.normal(0, 0.3, shape) * (name != "zeros")
        folder, _, leaf = name.rpartition("/")
        with keras.name_scope(folder or "model"):
            variables.append(keras.Variable(values, name=leaf))
    return variables


def make_gradients(step):
    """Gradients that are clipped at some steps; those of `zeros` begin at 2."""
    random = np.random.default_rng(step)
    return [
        random.normal(0, 0.02 * (step + 1), shape).astype("float32")
        * (name != "zeros" or step > 1)
        for name, shape in zip(NAMES, SHAPES)
    ]


def test_steps_equal_numpy():
    variables = make_variables()
    optimizer = LambOptimizer(WarmupDecay(0.05, 9, 2))
    oracle = ReferenceLamb(
        [variable.numpy() for variable in variables], IS_ADAPTED
    )
    norms = []
    for step in range(8):
        gradients = make_gradients(step)
        optimizer.apply([tf.constant(g) for g in gradients], variables)
        rate = reference.warmup_linear_decay(step, 0.05, 9, 2)
        norms.append(oracle.apply(gradients, rate))
        for variable, expected in zip(variables, oracle.weights):
            np.testing.assert_allclose(variable, expected, rtol=1e-5, atol=1e-6)
    assert min(norms) < 1 < max(norms)


def test_without_decay_the_same_variables_are_scaled():
    variables = make_variables()
    before = [variable.numpy() for variable in variables]
    optimizer = LambOptimizer(0.5, weight_decay=0.0)
    optimizer.apply([tf.constant(g) for g in make_gradients(2)], variables)
    steps = [
        np.linalg.norm(variable.numpy() - old) / max(np.linalg.norm(old), 1e-9)
        for variable, old in zip(variables, before)
    ]
    np.testing.assert_allclose(steps[:2], 0.5, rtol=1e-5)
    assert not np.isclose(steps[2:4], 0.5, rtol=1e-2).any()


def test_replicas_make_the_step_of_one_device():
    strategy = make_strategy("mirrored", num_cpu_devices=2)
    with strategy.scope():
        variables = make_variables()
        optimizer = LambOptimizer(0.1)
        optimizer.build(variables)
    expected = make_variables()
    oracle = ReferenceLamb(
        [variable.numpy() for variable in expected], IS_ADAPTED
    )

    @tf.function
    def step(gradients):
        def replica_step():
            replica = tf.distribute.get_replica_context()
            # Shares of 1/4 and 3/4.
            share = 0.25 + 0.5 * tf.cast(
                replica.replica_id_in_sync_group, tf.float32
            )
            optimizer.apply([share * g for g in gradients], variables)

        strategy.run(replica_step)

    for number in range(4):
        gradients = make_gradients(number + 2)
        step([tf.constant(g) for g in gradients])
        oracle.apply(gradients, 0.1)
    for variable, wanted in zip(variables, oracle.weights):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(variable), wanted, rtol=1e-5, atol=1e-6
        )


def test_config_round_trip():
    optimizer = LambOptimizer(WarmupDecay(1e-3, 10, 3), beta_2=0.99)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, LambOptimizer)
    assert again.get_config() == optimizer.get_config()
    assert again.bias_correction


def test_its_state_comes_back(tmp_path):
    def make_state():
        model = BertPretrainer(reference.tiny_config())
        return TrainingState(model, LambOptimizer(0.1), tmp_path, {})

    state = make_state()
    variables = state.model.trainable_variables
    for number in range(2):
        random = np.random.default_rng(number)
        gradients = [random.normal(size=v.shape) for v in variables]
        state.optimizer.apply(
            [tf.constant(g, tf.float32) for g in gradients], variables
        )
    state.save()
    again = make_state()
    assert again.restore()
    assert int(again.optimizer.iterations) == 2
    for got, wanted in zip(
        again.optimizer.variables, state.optimizer.variables
    ):
        np.testing.assert_array_equal(got, wanted)
