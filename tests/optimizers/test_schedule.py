"""The learning-rate schedule against the original's formula."""

import math

import keras
import numpy as np
import pytest

from bert_tf.optimizers.schedule import WarmupDecay
from references import training as reference


def warmup_decay(
    step, peak, total, warmup, *, drop, decay, num_decay_steps=None
):
    """The rate of every schedule, in plain numbers."""
    if step < warmup:
        return peak * step / warmup
    if step >= total:
        return 0.0
    start = 0 if drop else warmup
    done = (step - start) / (total - start)
    if num_decay_steps is not None:
        done = max(0.0, 1 - (total - step) / num_decay_steps)
    if decay == "root":
        return peak * (1 - np.sqrt(done))
    if decay == "cosine":
        return peak * 0.5 * (1 + np.cos(np.pi * done))
    return peak * (1 - done)


@pytest.mark.parametrize("num_warmup_steps", [0, 1, 7, 20, 30])
def test_rate_equals_the_originals_at_every_step(num_warmup_steps):
    schedule = WarmupDecay(3e-4, 20, num_warmup_steps)
    for step in range(25):
        expected = reference.warmup_linear_decay(
            step, 3e-4, 20, num_warmup_steps
        )
        np.testing.assert_allclose(schedule(step), expected, rtol=1e-6)


def test_rate_drops_where_the_warmup_ends():
    schedule = WarmupDecay(1.0, 10, 4)
    np.testing.assert_allclose(
        [schedule(step) for step in (0, 3, 4, 5, 9, 10, 11)],
        [0.0, 0.75, 0.6, 0.5, 0.1, 0.0, 0.0],
        atol=1e-7,
    )


def test_rate_without_the_drop_reaches_its_peak():
    schedule = WarmupDecay(1.0, 10, 4, drop=False)
    np.testing.assert_allclose(
        [schedule(step) for step in (0, 3, 4, 7, 10, 11)],
        [0.0, 0.75, 1.0, 0.5, 0.0, 0.0],
        atol=1e-7,
    )


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("num_warmup_steps", [0, 7, 20, 30])
@pytest.mark.parametrize("decay", ["linear", "cosine", "root"])
@pytest.mark.parametrize("num_decay_steps", [None, 1, 5, 20])
def test_every_decay_equals_its_formula(
    num_decay_steps, decay, num_warmup_steps, drop
):
    form = {"decay": decay, "drop": drop, "num_decay_steps": num_decay_steps}
    schedule = WarmupDecay(3e-4, 20, num_warmup_steps, **form)
    for step in range(25):
        expected = warmup_decay(
            step,
            3e-4,
            20,
            num_warmup_steps,
            **form,
        )
        np.testing.assert_allclose(
            schedule(step), expected, rtol=1e-5, atol=1e-10
        )


def test_rate_is_constant_until_it_decays():
    schedule = WarmupDecay(1.0, 10, 2, decay="root", num_decay_steps=4)
    np.testing.assert_allclose(
        [schedule(step) for step in (0, 1, 2, 5, 6, 7, 8, 10, 11)],
        [0, 0.5, 1, 1, 1, 0.5, 1 - 0.5**0.5, 0, 0],
        atol=1e-7,
    )


def test_what_makes_no_schedule_is_named():
    with pytest.raises(ValueError, match="`num_decay_steps` must be positive"):
        WarmupDecay(1.0, 9, num_decay_steps=0)
    with pytest.raises(ValueError, match="`decay` must be one of linear, cos"):
        WarmupDecay(1.0, 9, decay="polynomial")


@pytest.mark.parametrize(
    "schedule",
    [
        WarmupDecay(3e-4, 20, 7, drop=False),
        WarmupDecay(3e-4, 20, 7, decay="cosine"),
        WarmupDecay(3e-4, 20, 7, decay="root", num_decay_steps=4),
    ],
    ids=lambda schedule: schedule.decay,
)
def test_schedule_survives_serialization(schedule):
    values = keras.optimizers.schedules.serialize(schedule)
    again = keras.optimizers.schedules.deserialize(values)
    assert again.get_config() == schedule.get_config()
    # As 0.2.0 wrote it.
    values["config"]["power"] = None
    again = keras.optimizers.schedules.deserialize(values)
    assert again.get_config() == schedule.get_config()
    assert float(again(11)) == float(schedule(11))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1.0, 10, 1), "peak_learning_rate"),
        ((math.inf, 10, 1), "peak_learning_rate"),
        ((1.0, 0, 0), "num_train_steps"),
        ((1.0, 10, -1), "num_warmup_steps"),
        ((1.0, 10, "1"), "num_warmup_steps"),
        ((1.0, None, 1), "num_train_steps"),
    ],
)
def test_bad_values_are_named(arguments, name):
    with pytest.raises(ValueError, match=f"`{name}` must"):
        WarmupDecay(*arguments)


def test_the_linear_schedule_of_older_files_loads():
    # As c4809dc wrote it into a .keras file.
    again = keras.optimizers.schedules.deserialize(
        {
            "module": "bert_tf.training.schedule",
            "class_name": "WarmupLinearDecay",
            "registered_name": "bert_tf>WarmupLinearDecay",
            "config": {
                "peak_learning_rate": 1e-3,
                "num_train_steps": 10,
                "num_warmup_steps": 2,
                "drop": False,
                "name": "WarmupLinearDecay",
            },
        }
    )
    rates = [float(again(step)) for step in (1, 2, 6)]
    np.testing.assert_allclose(rates, [5e-4, 1e-3, 5e-4], rtol=1e-6)
