"""StableAdamW against the paper's algorithm in NumPy, mirrored, saved."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.optimizers.stable_adamw import StableAdamW
from bert_tf.training.strategy import make_strategy

SHAPES = {"kernel": (5, 3), "bias": (3,), "zeros": (2, 4)}
BETA_2, EPSILON, DECAY = 0.98, 1e-6, 0.03


class ReferenceStableAdamW:
    """Algorithm 2 of arXiv 2304.13013 on NumPy arrays, in float64."""

    def __init__(self, weights):
        self.weights = {n: w.astype("float64") for n, w in weights.items()}
        self.m = dict.fromkeys(weights, 0.0)
        self.v = dict.fromkeys(weights, 0.0)
        self.step = 0
        self.ratios = []

    def apply(self, gradients, learning_rate):
        self.step += 1
        for name, g in gradients.items():
            # The paper's beta-hat: the correction is in the moments' update.
            beta_1, beta_2 = (
                beta * (1 - beta ** (self.step - 1)) / (1 - beta**self.step)
                for beta in (0.9, BETA_2)
            )
            self.m[name] = beta_1 * self.m[name] + (1 - beta_1) * g
            self.v[name] = beta_2 * self.v[name] + (1 - beta_2) * g * g
            m, v, w = self.m[name], self.v[name], self.weights[name]
            ratio = np.sqrt(np.mean(g * g / np.maximum(v, EPSILON**2)))
            self.ratios.append(ratio)
            rate = learning_rate / max(1, ratio)
            decay = 0 if name == "bias" else DECAY
            update = m / (np.sqrt(v) + EPSILON) + decay * w
            self.weights[name] = w - rate * update


def make_variables():
    random = np.random.default_rng(3)
    return {
        name: keras.Variable(random.normal(0, 0.3, shape), name=name)
        for name, shape in SHAPES.items()
    }


def make_gradients(step):
    """Gradients, a hundred times larger at step 4; `zeros` has none."""
    random = np.random.default_rng(step)
    size = 1.0 if step == 4 else 0.01
    return {
        name: random.normal(0, size, shape).astype("float32")
        * (name != "zeros")
        for name, shape in SHAPES.items()
    }


def make_optimizer(rate):
    return StableAdamW(
        rate,
        weight_decay=DECAY,
        beta_2=BETA_2,
        epsilon=EPSILON,
        global_clipnorm=None,
    )


@pytest.mark.parametrize("num_devices", [1, 2])
def test_steps_equal_numpy(num_devices):
    strategy = make_strategy("mirrored", num_cpu_devices=num_devices)
    with strategy.scope():
        variables = make_variables()
        optimizer = make_optimizer(WarmupDecay(0.05, 9, 2, drop=False))
        optimizer.build([*variables.values()])

    @tf.function
    def step(gradients):
        def replica_step():
            share = 1 / num_devices
            optimizer.apply(
                [share * gradients[name] for name in variables],
                [*variables.values()],
            )

        strategy.run(replica_step)

    oracle = ReferenceStableAdamW(
        {n: keras.ops.convert_to_numpy(v) for n, v in variables.items()}
    )
    schedule = WarmupDecay(0.05, 9, 2, drop=False)
    for number in range(8):
        gradients = make_gradients(number)
        before = dict(oracle.weights)
        step({name: tf.constant(g) for name, g in gradients.items()})
        rate = float(schedule(number))
        oracle.apply(gradients, rate)
        for name, variable in variables.items():
            np.testing.assert_allclose(
                keras.ops.convert_to_numpy(variable),
                oracle.weights[name],
                rtol=1e-5,
                atol=1e-6,
            )
        change = sum(
            np.sum(np.square(oracle.weights[name] - before[name]))
            for name in ("kernel", "bias")
        )
        np.testing.assert_allclose(
            optimizer.update_norm(rate), change**0.5, rtol=3e-3, atol=1e-6
        )
    # The sudden gradient makes its step smaller.
    assert max(oracle.ratios) > 2


def test_config_round_trip():
    optimizer = StableAdamW(WarmupDecay(1e-3, 10, 3), beta_2=0.99)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert isinstance(again, StableAdamW)
    assert again.get_config() == optimizer.get_config()
    assert again.bias_correction
