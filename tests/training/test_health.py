"""Spikes, skipped steps, floating-point operations."""

import json
import re
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.config import BertConfig
from bert_tf.input import array_source
from bert_tf.models.objectives import Objective
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.training import compiled_steps
from bert_tf.training import health
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy


def step(loss, gradient_norm=1.0):
    return {"values": {"loss": loss, "gradient_norm": gradient_norm}}


def test_a_spike_is_a_loss_far_above_those_before(caplog):
    losses = np.random.default_rng(5).normal(4.0, 0.1, 300)
    losses[[10, 120]] = 7.0
    watch = health.Health()
    assert len(watch.watch([step(loss) for loss in losses], 50)) == 300
    # The first came before there was enough to hold it against.
    assert watch.num_spikes == 1
    assert "Step 170: the loss of 7 is a spike" in caplog.text
    # Losses that are all but equal do not make the next one a spike.
    watch = health.Health()
    watch.watch([step(1.0)] * 60 + [step(1.05), step(1.2)], 0)
    assert watch.num_spikes == 1


def test_steps_are_passed_over_up_to_so_many_in_a_row(caplog):
    watch = health.Health(skip_nonfinite_steps=2)
    nan = float("nan")
    good, bad = step(1.0), step(nan, float("inf"))
    assert watch.watch([good, bad, bad, good, bad], 7) == [good, good]
    assert watch.num_skipped == 3
    assert "Step 8 is skipped, number 1 in a row of at most 2" in caplog.text
    # The row goes on into the next call.
    with pytest.raises(health.NotFiniteError, match="Step 13 .* loss=nan"):
        watch.watch([bad, bad, good], 12)


@pytest.mark.parametrize("allowed", [0, 5])
def test_a_loss_that_is_not_finite_by_itself_ends_the_run(allowed):
    # Its gradient was finite: the step was made.
    watch = health.Health(allowed)
    with pytest.raises(health.NotFiniteError, match="Step 3 .*: loss=inf"):
        watch.watch([step(1.0), step(float("inf"))], 2)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        # Guessing has ln(1000), 6.91.
        ([7.1, 6.0, 4.0], None),
        ([7.1, 8.2], None),
        (
            [7.1, 6.0, 396.0],
            "the loss of masked words is 396, and that of guessing 6.908",
        ),
        ([7.1, 2.0, 5.0], "the loss of masked words rose from 2 to 5"),
        ([7.1, 2.0, 3.0], None),
        # Late in a training, losses of a new kind of records are higher.
        ([1.2, 1.9], None),
        ([], None),
    ],
)
def test_a_loss_above_guessing_or_far_above_its_own_has_diverged(
    losses, expected
):
    reports = [{"loss": loss + 0.7, "masked_lm_loss": loss} for loss in losses]
    assert health.divergence(reports, 1000) == expected
    assert health.divergence([{"loss": 396.0}], 1000) is None


def test_flops_of_bert_base_are_six_a_weight_and_token():
    config = BertConfig(vocab_size=30522)
    got = health.flops_per_example(config, 128, 20)
    # 85 million weights of the blocks at 128 places; the attention beside
    # them, 12 layers x 2 products x 128 x 128 x 768; and the heads.
    blocks = 6 * 84_934_656 * 128
    attention = 6 * 12 * 2 * 128 * 128 * 768
    heads = 6 * 20 * (768 * 768 + 768 * 30522) + 6 * 768 * 768
    np.testing.assert_allclose(got, blocks + attention + heads)
    # Its blocks are shared, and its words 128 wide.
    config = BertConfig.named("albert-base", vocab_size=30522)
    got = health.flops_per_example(config, 128, 20)
    projection = 6 * 128 * 128 * 768
    heads = 6 * 20 * (768 * 128 + 128 * 30522) + 6 * 768 * 768
    np.testing.assert_allclose(got, projection + blocks + attention + heads)
    # No pooler, no pairs.
    config = BertConfig.named("electra-base")
    got = health.flops_per_example(config, 128, 20)
    heads = 6 * 20 * (768 * 768 + 768 * 30522)
    np.testing.assert_allclose(got, blocks + attention + heads)


def test_a_slow_input_is_named(caplog):
    health.warn_if_waiting(0.1)
    assert not caplog.text
    health.warn_if_waiting(0.35)
    assert "waited for it 35 % of the time" in caplog.text


def test_a_stalled_input_is_named_again_after_twice_as_long(
    caplog, monkeypatch
):
    monkeypatch.setattr(health, "_LOOK_SECONDS", 0.001)
    # Since when a batch is waited for, or 0, and the time: at each look.
    looks = [(0, 9), (10, 20), (10, 70), (10, 71), (10, 132), (10, 140)]
    looks += [(0, 300), (310, 370), (310, 371)]
    starts, times = (iter(values) for values in zip(*looks))
    is_over = threading.Event()

    def waiting_since():
        start = next(starts, None)
        if start is None:
            is_over.set()
        return start or 0

    with health.warn_of_stalls(waiting_since, lambda: next(times, 0)):
        assert is_over.wait(60)
    named = re.findall(r"no batch has come for (\d+) seconds", caplog.text)
    assert named == ["61", "130", "61"]


class Line(keras.Model):
    """y = w * x, of batches {"x": [B, 1]}."""

    def __init__(self):
        super().__init__()
        self.weight = keras.layers.Dense(1, use_bias=False)
        self.weight.build((None, 1))
        self.weight.kernel.assign([[2.0]])
        self.built = True

    def call(self, batch, training=None):
        return self.weight(batch["x"])


OBJECTIVE = Objective(
    weights=lambda batch: {"square": tf.cast(tf.size(batch["x"]), tf.float32)},
    losses=lambda outputs, batch: {"square": tf.reduce_sum(outputs**2)},
    metrics=lambda outputs, batch: {},
)


class InOrder(array_source.ArraySource):
    """Examples in their order, each batch after a call of `wait`."""

    wait = None

    def training_batches(self, batch_size, start_example=0, context=None):
        def wait(batch):
            tf.py_function(self.wait, [], [])
            return batch

        rows = tf.data.Dataset.from_tensor_slices(self.arrays)
        batches = rows.repeat().skip(start_example).batch(batch_size)
        return batches.map(wait) if self.wait else batches


def train(folder, x, num_steps, wait=None, flops=None, **options):
    model = Line()
    optimizer = BertOptimizer(
        0.1, skip_nonfinite="skip_nonfinite_steps" in options
    )
    state = TrainingState(model, optimizer, folder, {})
    x = np.array(x, "float32")[:, None]
    source = InOrder(
        arrays={"x": x, features.INPUT_MASK: np.ones_like(x, "int32")}
    )
    object.__setattr__(source, "wait", wait)
    config = loop.TrainingConfig(
        num_train_steps=num_steps,
        train_batch_size=1,
        options=LoopOptions(**{"iterations_per_loop": 1} | options),
        flops_per_example=flops,
    )
    history = loop.train(state, OBJECTIVE, source, config, make_strategy())
    return history, float(model.weight.kernel[0, 0])


def read_summary(folder):
    return json.loads((folder / loop.SUMMARY_FILE).read_text("utf-8"))


def test_a_run_passes_over_steps_and_counts_them(tmp_path):
    bad = [1.0, np.inf, 2.0, np.nan, np.nan, 3.0]
    history, weight = train(tmp_path / "a", bad, 6, skip_nonfinite_steps=2)
    assert [report["step"] for report in history] == [1, 3, 6]
    good, expected = train(tmp_path / "b", [1.0, 2.0, 3.0], 3)
    assert weight == expected
    assert read_summary(tmp_path / "a")["nonfinite_steps"] == 3
    assert read_summary(tmp_path / "b")["nonfinite_steps"] == 0
    for report, wanted in zip(history, good):
        assert report["loss"] == wanted["loss"]
    with pytest.raises(health.NotFiniteError, match="Step 4 "):
        train(tmp_path / "c", bad, 6, skip_nonfinite_steps=1)


@pytest.mark.parametrize(("num_steps", "skips"), [(2, False), (0, True)])
def test_loop_and_optimizer_must_agree_on_skipping(tmp_path, num_steps, skips):
    optimizer = BertOptimizer(0.1, skip_nonfinite=skips)
    state = TrainingState(Line(), optimizer, tmp_path, {})
    config = loop.TrainingConfig(
        num_train_steps=1,
        train_batch_size=1,
        options=LoopOptions(skip_nonfinite_steps=num_steps),
    )
    with pytest.raises(ValueError, match=f"steps={num_steps}, .*={skips}"):
        loop.train(state, OBJECTIVE, None, config, make_strategy())
    assert optimizer.skip_nonfinite == skips


def test_the_update_is_held_against_the_weights(tmp_path):
    (report,), weight = train(tmp_path, [1.0], 1)
    np.testing.assert_allclose(
        report["update_ratio"], abs(weight - 2) / abs(weight), rtol=1e-5
    )


def test_of_several_steps_the_last_is_held_against_the_weights(tmp_path):
    x = [1.0, 2.0, 3.0]
    _, before = train(tmp_path / "two", x, 2, iterations_per_loop=3)
    (report,), weight = train(tmp_path / "three", x, 3, iterations_per_loop=3)
    np.testing.assert_allclose(
        report["update_ratio"], abs(weight - before) / abs(weight), rtol=1e-5
    )


def test_the_time_waited_is_that_of_the_batches():
    model = Line()
    optimizer = BertOptimizer(0.1)
    optimizer.build(model.trainable_variables)
    steps = compiled_steps.CompiledSteps(model, OBJECTIVE, optimizer)

    def make_slowly(row):
        tf.py_function(lambda: time.sleep(0.02), [], [])
        return {"x": row, features.INPUT_MASK: tf.ones_like(row, tf.int32)}

    options = tf.data.Options()
    # Else a batch may be made before it is waited for.
    options.experimental_optimization.inject_prefetch = False
    batches = tf.data.Dataset.from_tensors(tf.ones([1, 1])).repeat()
    iterator = iter(batches.map(make_slowly).with_options(options))
    start = time.monotonic()
    results, waited = steps.run(make_strategy(), iterator, 0, 4)
    assert len(results) == 4
    assert 4 * 0.02 <= waited < time.monotonic() - start
    assert steps.waiting_since() == 0


def test_a_run_tells_how_it_is(tmp_path, caplog, monkeypatch):
    caplog.set_level("INFO", logger="bert_tf")
    # However short the wait.
    monkeypatch.setattr(health, "_WAITING_SHARE", 0.0)
    monkeypatch.setattr(health, "_STALL_SECONDS", 0.0)
    monkeypatch.setattr(health, "_LOOK_SECONDS", 0.001)
    end = time.monotonic() + 60

    def wait_until_named():
        while "The input is stalled" not in caplog.text:
            assert time.monotonic() < end
            time.sleep(0.001)

    history, _ = train(
        tmp_path,
        [1.0, 2.0],
        7,
        wait_until_named,
        iterations_per_loop=3,
        flops=3e9,
        profile_steps="4:5",
        peak_tflops=1.0,
    )
    # It stops where the profile begins and ends.
    assert [report["step"] for report in history] == [3, 4, 5, 7]
    last = history[-1]
    summary = read_summary(tmp_path)
    assert summary.items() >= last.items()
    assert summary["seconds_left"] == 0
    assert summary["num_train_steps"] == 7
    assert summary["loss_spikes"] == 0
    assert 0 < history[0]["input_share"] <= 1
    assert "The input is too slow" in caplog.text
    np.testing.assert_allclose(
        last["examples_per_second"], 1 / last["step_seconds"]
    )
    np.testing.assert_allclose(
        last["model_flops_utilization"],
        3e9 / last["step_seconds"] / 1e12,
        rtol=1e-6,
    )
    assert "waiting" in caplog.text
    profiles = list(tmp_path.glob("train/plugins/profile/*/*.xplane.pb"))
    assert len(profiles) == 1


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"skip_nonfinite_steps": -1}, "skip_nonfinite_steps"),
        ({"iterations_per_loop": 0}, "iterations_per_loop"),
        ({"save_checkpoints_steps": 0}, "save_checkpoints_steps"),
        ({"profile_steps": "5:5"}, "profile_steps"),
        ({"peak_tflops": 0.0}, "peak_tflops"),
    ],
)
def test_bad_settings_are_named(options, name):
    with pytest.raises(ValueError, match=f"--{name} must be"):
        LoopOptions(**options)
