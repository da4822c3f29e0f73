"""The learning-rate schedule against the original's formula."""

import keras
import numpy as np
import pytest
import reference_training as reference

from bert_tf.training.schedule import WarmupLinearDecay


@pytest.mark.parametrize("num_warmup_steps", [0, 1, 7, 20, 30])
def test_rate_equals_the_originals_at_every_step(num_warmup_steps):
    schedule = WarmupLinearDecay(3e-4, 20, num_warmup_steps)
    for step in range(25):
        expected = reference.warmup_linear_decay(
            step, 3e-4, 20, num_warmup_steps
        )
        np.testing.assert_allclose(schedule(step), expected, rtol=1e-6)


def test_rate_drops_where_the_warmup_ends():
    schedule = WarmupLinearDecay(1.0, 10, 4)
    np.testing.assert_allclose(
        [schedule(step) for step in (0, 3, 4, 5, 9, 10, 11)],
        [0.0, 0.75, 0.6, 0.5, 0.1, 0.0, 0.0],
        atol=1e-7,
    )


def test_rate_without_the_drop_reaches_its_peak():
    schedule = WarmupLinearDecay(1.0, 10, 4, drop=False)
    np.testing.assert_allclose(
        [schedule(step) for step in (0, 3, 4, 7, 10, 11)],
        [0.0, 0.75, 1.0, 0.5, 0.0, 0.0],
        atol=1e-7,
    )


def test_schedule_survives_serialization():
    schedule = WarmupLinearDecay(3e-4, 20, 7, drop=False)
    values = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(values)
    assert again.get_config() == schedule.get_config()
    assert float(again(11)) == float(schedule(11))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1.0, 10, 1), "peak_learning_rate"),
        ((1.0, 0, 0), "num_train_steps"),
        ((1.0, 10, -1), "num_warmup_steps"),
    ],
)
def test_bad_values_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"`{name}` must"):
        WarmupLinearDecay(*arguments)
