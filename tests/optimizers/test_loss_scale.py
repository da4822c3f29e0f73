"""Loss scaling: by hand, and on replicas that see different gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.input import array_source
from bert_tf.models.objectives import Objective
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy

OBJECTIVE = Objective(
    weights=lambda batch: {"sum": tf.cast(tf.size(batch["x"]), tf.float32)},
    losses=lambda outputs, batch: {
        "sum": tf.reduce_sum(tf.cast(outputs, tf.float32))
    },
    metrics=lambda outputs, batch: {},
)


class Line(keras.Model):
    """y = w * x, in float16."""

    def __init__(self):
        super().__init__(dtype="mixed_float16")
        self.weight = keras.layers.Dense(
            1, use_bias=False, dtype=self.dtype_policy
        )
        self.weight.build((None, 1))
        self.weight.kernel.assign([[2.0]])
        self.built = True

    def call(self, batch, training=None):
        return self.weight(batch["x"])


def train(folder, x, strategy, **options):
    """Trains on pairs of examples in their order."""
    with strategy.scope():
        model = Line()
        optimizer = LossScaleOptimizer(
            BertOptimizer(0.125, weight_decay=0.0), **options
        )
        state = TrainingState(model, optimizer, folder, {})
    x = np.array(x, "float32").reshape(-1, 1)

    class InOrder(array_source.ArraySource):
        def training_batches(self, batch_size, start_example=0, context=None):
            rows = tf.data.Dataset.from_tensor_slices(self.arrays).repeat()
            num_replicas = context.num_replicas_in_sync if context else 1
            return rows.batch(2 // num_replicas, drop_remainder=True)

    history = loop.train(
        state,
        OBJECTIVE,
        InOrder(arrays={"x": x, features.INPUT_MASK: np.ones_like(x, "int32")}),
        loop.TrainingConfig(
            num_train_steps=len(x) // 2,
            train_batch_size=2,
            options=LoopOptions(iterations_per_loop=1),
        ),
        strategy,
    )
    kernel = keras.ops.convert_to_numpy(model.weight.kernel)[0, 0]
    scale = keras.ops.convert_to_numpy(optimizer.dynamic_scale)
    return [report["step"] for report in history], float(kernel), float(scale)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_what_is_not_finite_anywhere_is_passed_over_everywhere(
    tmp_path, num_devices
):
    strategy = make_strategy()
    if num_devices > 1:
        strategy = make_strategy("mirrored", num_cpu_devices=num_devices)
    # The gradient of x is x * scale / 2, of float16: 65504 at most. The
    # second step's is finite on the first device, not on the second.
    x = [[1.0, 1.0], [1.0, 300.0], [1.0, 1.0], [1.0, 1.0], [0.5, 1.0]]
    steps, kernel, scale = train(
        tmp_path,
        x,
        strategy,
        initial_scale=2.0**10,
        dynamic_growth_steps=3,
    )
    assert steps == [1, 3, 4, 5]
    # Halved once, then doubled after three steps.
    assert scale == 2.0**10
    # Adam without bias correction, on the gradients' means.
    weight, m, v = 2.0, 0.0, 0.0
    for gradient in (1.0, 1.0, 1.0, 0.75):
        m += 0.1 * (gradient - m)
        v += 0.001 * (gradient**2 - v)
        weight -= 0.125 * m / (v**0.5 + 1e-6)
    np.testing.assert_allclose(kernel, weight, atol=1e-4)


@pytest.mark.parametrize(
    ("scale", "gradient"), [(1.0, 0.0), (2.0**10, 2.0**-25)]
)
def test_small_gradients_do_not_vanish(tmp_path, scale, gradient):
    # The smallest number of float16: half of it is 0.
    x = [[2.0**-24, 0.0]]
    _, kernel, _ = train(tmp_path, x, make_strategy(), initial_scale=scale)
    update = 0.1 * gradient / (0.001**0.5 * gradient + 1e-6)
    np.testing.assert_allclose(2.0 - kernel, 0.125 * update, rtol=1e-3)


def test_it_is_made_again_from_its_configuration():
    optimizer = LossScaleOptimizer(BertOptimizer(0.5), initial_scale=8.0)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(again) is LossScaleOptimizer
    assert again.initial_scale == 8.0
    assert type(again.inner_optimizer) is BertOptimizer
    assert again.inner_optimizer.skip_nonfinite


def test_an_optimizer_that_accumulates_is_refused():
    """The parts of a batch that overflowed would each halve the scale."""
    inner = BertOptimizer(0.5, gradient_accumulation_steps=2)
    with pytest.raises(ValueError, match="must be None if the loss is scaled"):
        LossScaleOptimizer(inner)
