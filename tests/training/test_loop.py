"""The training loop: the same steps everywhere, resumed, stopped, golden."""

import dataclasses
import io
import logging
import os
import platform
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.input import array_source
from bert_tf.input import pretraining
from bert_tf.models.objectives import Objective
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.training import evaluation
from bert_tf.training import health
from bert_tf.training import loop
from bert_tf.training import preemption
from bert_tf.training import progress
from bert_tf.training import step as step_lib
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference
from support import paths
from support.summaries import read_summaries
from support.terminal import Terminal

GOLDEN = paths.GOLDEN / "losses_tiny.txt"
GOLDEN_NAMES = (
    "step",
    "loss",
    "masked_lm_loss",
    "next_sentence_loss",
    "learning_rate",
    "gradient_norm",
)
SPEEDS = {
    "examples_per_second",
    "tokens_per_second",
    "step_seconds",
    "input_share",
}
NUM_STEPS = 20


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """A source of 63 examples in two files."""
    folder = tmp_path_factory.mktemp("records")
    for name, size in (("a", 50), ("b", 13)):
        reference.write_records(
            folder / f"{name}.tfrecord",
            reference.pretraining_arrays(size, seed=size),
        )
    return pretraining.pretraining_records(
        f"{folder}/*.tfrecord",
        reference.tiny_config(),
        WordpieceSpec(reference.vocabulary()),
        max_seq_length=reference.LENGTH,
        max_predictions_per_seq=reference.PREDICTIONS,
    )


def make_state(folder, strategy, dropout=0.0, policy="float32", num_layers=2):
    config = dataclasses.replace(
        reference.tiny_config(dropout), num_hidden_layers=num_layers
    )
    with strategy.scope():
        model = BertPretrainer(config, dtype=policy)
        reference.set_weights(model)
        optimizer = BertOptimizer(WarmupDecay(0.01, NUM_STEPS, 4))
        if policy == "mixed_float16":
            optimizer = LossScaleOptimizer(optimizer)
        return TrainingState(model, optimizer, folder, config.to_dict())


def make_config(num_train_steps=NUM_STEPS, **options):
    return loop.TrainingConfig(
        num_train_steps=num_train_steps,
        train_batch_size=8,
        options=LoopOptions(**{"iterations_per_loop": 1} | options),
    )


def train(state, records, strategy, config=None, **options):
    return loop.train(
        state,
        reference.pretraining_objective(),
        records,
        config or make_config(),
        strategy,
        **options,
    )


def evaluate(state, source, strategy, batch_size=16, max_batches=None):
    return evaluation.make_evaluation(
        state.model,
        reference.pretraining_objective(),
        source,
        batch_size,
        strategy,
        max_batches,
    )()


def column(history, name):
    return np.array([report[name] for report in history])


def weights_of(state):
    return [
        keras.ops.convert_to_numpy(value)
        for value in state.model.weights + state.optimizer.variables
    ]


@pytest.fixture(scope="module")
def one_device_folder(tmp_path_factory):
    return tmp_path_factory.mktemp("one_device")


@pytest.fixture(scope="module")
def one_device(one_device_folder, records):
    """The run that others are held against: history, weights, evaluation."""
    strategy = make_strategy()
    state = make_state(one_device_folder, strategy)
    history = train(state, records, strategy)
    return history, weights_of(state), evaluate(state, records, strategy)


def test_two_devices_make_the_steps_of_one(tmp_path, records, one_device):
    strategy = make_strategy("mirrored", num_cpu_devices=2)
    state = make_state(tmp_path, strategy)
    history = train(state, records, strategy)
    expected, weights, evaluation = one_device
    # The gradient was clipped.
    assert column(expected, "gradient_norm").max() > 1
    for name in expected[0].keys() - SPEEDS:
        np.testing.assert_allclose(
            column(history, name), column(expected, name), rtol=0, atol=1e-5
        )
    for got, wanted in zip(weights_of(state), weights):
        np.testing.assert_allclose(got, wanted, atol=2e-5)
    for name, value in evaluate(state, records, strategy).items():
        np.testing.assert_allclose(value, evaluation[name], rtol=1e-5)


def test_padding_and_tokens_are_those_of_the_batches(records, one_device):
    history = one_device[0]
    batches = records.training_batches(8).take(NUM_STEPS).as_numpy_iterator()
    for report, batch in zip(history, batches, strict=True):
        mask = batch[features.INPUT_MASK]
        assert report["padding"] == pytest.approx(1 - mask.mean(), rel=1e-6)
        tokens_per_example = (
            report["tokens_per_second"] / report["examples_per_second"]
        )
        assert tokens_per_example == pytest.approx(mask.sum() / 8)
        assert "tokens" not in report


def test_a_stopped_run_goes_on_as_if_unbroken(tmp_path, records):
    strategy = make_strategy()
    unbroken = make_state(
        tmp_path / "unbroken", strategy, dropout=0.1, num_layers=1
    )
    whole = train(unbroken, records, strategy)

    first = make_state(
        tmp_path / "stopped", strategy, dropout=0.1, num_layers=1
    )
    before = signal.getsignal(signal.SIGTERM)

    def kill_after_first_save():
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(
        preemption.PreemptedError, match="step 7 of 20 is saved"
    ):
        train(
            first,
            records,
            strategy,
            make_config(save_checkpoints_steps=7),
            on_save=kill_after_first_save,
        )
    assert signal.getsignal(signal.SIGTERM) == before
    second = make_state(
        tmp_path / "stopped", strategy, dropout=0.1, num_layers=1
    )
    assert second.restore()
    assert (second.step, second.example) == (7, 7 * 8)
    history = train(second, records, strategy)

    assert column(whole, "step").tolist() == list(range(1, NUM_STEPS + 1))
    for name in (
        "step",
        "loss",
        "masked_lm_loss",
        "gradient_norm",
        "learning_rate",
    ):
        np.testing.assert_array_equal(
            column(history, name), column(whole[7:], name)
        )
    for resumed, wanted in zip(weights_of(second), weights_of(unbroken)):
        np.testing.assert_array_equal(resumed, wanted)


def write_golden(history):
    """Writes what BERT_TF_WRITE_GOLDEN=1 asks the test below to write."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=GOLDEN.parent,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lines = [
        "# The 20 steps of test_loop.py's fixture `one_device`. Written by",
        "# BERT_TF_WRITE_GOLDEN=1 pytest tests/training/test_loop.py -k golden",
        f"# on commit {commit} and its successor, tensorflow {tf.__version__},",
        f"# keras {keras.__version__}, numpy {np.__version__}, CPU "
        f"({platform.machine()}).",
        " ".join(GOLDEN_NAMES),
    ]
    for report in history:
        lines.append(" ".join(f"{report[name]:.7g}" for name in GOLDEN_NAMES))
    GOLDEN.write_text("\n".join(lines) + "\n", "utf-8")


def test_losses_are_the_golden_ones(one_device):
    history = one_device[0]
    if os.environ.get("BERT_TF_WRITE_GOLDEN"):
        write_golden(history)
    lines = GOLDEN.read_text("utf-8").splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert tuple(rows[0]) == GOLDEN_NAMES
    golden = np.array(rows[1:], dtype="float64")
    for index, name in enumerate(GOLDEN_NAMES):
        np.testing.assert_allclose(
            column(history, name), golden[:, index], rtol=2e-4, err_msg=name
        )


def test_a_step_is_the_formula(records):
    config = reference.tiny_config()
    model = BertPretrainer(config)
    batch = reference.as_batch(reference.pretraining_arrays(5))
    outputs = model(batch)
    expected = reference.pretraining_loss(
        outputs["masked_lm_logits"].numpy(),
        outputs["next_sentence_logits"].numpy(),
        batch,
    )
    optimizer = BertOptimizer(0.25)
    optimizer.build(model.trainable_variables)
    before = model.get_weights()
    results = step_lib.train_step(
        model, reference.pretraining_objective(), optimizer, batch
    )
    values = results["values"]
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-5)
    assert float(values["learning_rate"]) == 0.25
    hits, weight = results["metrics"]["masked_lm_accuracy"]
    assert float(weight) == np.sum(batch[features.MASKED_LM_WEIGHTS])
    told = batch[features.MASKED_LM_IDS] == np.argmax(
        outputs["masked_lm_logits"], axis=-1
    )
    assert float(hits) == np.sum(told * batch[features.MASKED_LM_WEIGHTS])
    # The weights that a NumPy optimizer gets from TensorFlow's gradients.
    after = model.get_weights()
    model.set_weights(before)
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True)
        loss = reference.pretraining_loss_tf(outputs, batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    # Neither biases nor the scales of layer normalisation are decayed.
    is_decayed = [
        not variable.path.endswith(("bias", "gamma", "beta"))
        for variable in model.trainable_variables
    ]
    assert 0 < sum(is_decayed) < len(is_decayed)
    oracle = reference.ReferenceOptimizer(before, is_decayed)
    norm = oracle.apply(
        [tf.convert_to_tensor(g).numpy() for g in gradients], 0.25
    )
    np.testing.assert_allclose(values["gradient_norm"], norm, rtol=1e-5)
    for got, wanted in zip(after, oracle.weights):
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-5)


def test_evaluation_is_over_all_examples_whatever_the_batch(tmp_path, records):
    strategy = make_strategy()
    state = make_state(tmp_path, strategy, num_layers=1)
    batch = next(records.evaluation_batches(63).as_numpy_iterator())
    outputs = state.model(batch)

    def expect(count):
        return reference.pretraining_loss(
            outputs["masked_lm_logits"].numpy()[:count],
            outputs["next_sentence_logits"].numpy()[:count],
            {name: value[:count] for name, value in batch.items()},
            epsilon=0.0,
        )

    for batch_size, max_batches, count in ((8, None, 63), (4, 4, 16)):
        results = evaluate(state, records, strategy, batch_size, max_batches)
        assert set(results) == {
            "loss",
            "masked_lm_loss",
            "next_sentence_loss",
            "masked_lm_accuracy",
            "next_sentence_accuracy",
        }
        for name, value in expect(count).items():
            np.testing.assert_allclose(results[name], value, rtol=1e-5)
    # Of other batches they would be others.
    assert expect(16)["loss"] != pytest.approx(expect(63)["loss"], rel=1e-3)
    with pytest.raises(ValueError, match="Received: max_batches=0"):
        evaluate(state, records, strategy, max_batches=0)


def test_loops_of_many_steps_report_means(
    tmp_path, records, one_device, monkeypatch
):
    strategy = make_strategy()
    single = one_device[0]
    saved = []
    # No more than some steps a call, whatever the machine's speed.
    monkeypatch.setattr(progress, "_SECONDS_PER_CALL", 0.05)
    many = train(
        make_state(tmp_path / "7", strategy),
        records,
        strategy,
        make_config(iterations_per_loop=7, save_checkpoints_steps=10),
        on_save=lambda: saved.append(len(os.listdir(tmp_path / "7" / "train"))),
    )
    assert column(many, "step").tolist() == [7, 10, 17, 20]
    assert len(saved) == 2
    for name in ("loss", "next_sentence_loss", "gradient_norm"):
        values = column(single, name)
        np.testing.assert_allclose(
            column(many, name),
            [
                values[i:j].mean()
                for i, j in ((0, 7), (7, 10), (10, 17), (17, 20))
            ],
            rtol=1e-5,
        )
    np.testing.assert_allclose(
        column(many, "next_sentence_accuracy")[0],
        column(single, "next_sentence_accuracy")[:7].mean(),
        rtol=1e-6,
    )


def test_summaries_are_what_tensorboard_reads(
    records, one_device_folder, one_device
):
    history = one_device[0]
    found = read_summaries(one_device_folder / "train")
    assert found.keys() == {
        (name, report["step"])
        for report in history
        for name in report
        if name != "step"
    }
    for report in history:
        np.testing.assert_allclose(
            found["loss", report["step"]], report["loss"], rtol=1e-6
        )

    # Started once more, the finished run has nothing left to do.
    strategy = make_strategy()
    state = make_state(one_device_folder, strategy)
    state.restore()
    assert train(state, records, strategy) == []


def test_records_that_turn_bad_are_a_clear_error(tmp_path, records):
    arrays = reference.pretraining_arrays(8)
    arrays[features.INPUT_IDS][5, 1] = reference.VOCAB_SIZE + 4
    reference.write_records(tmp_path / "bad.tfrecord", arrays)
    source = pretraining.pretraining_records(
        str(tmp_path / "bad.tfrecord"),
        reference.tiny_config(),
        WordpieceSpec(reference.vocabulary()),
        max_seq_length=reference.LENGTH,
        max_predictions_per_seq=reference.PREDICTIONS,
    )
    strategy = make_strategy()
    state = make_state(tmp_path, strategy, num_layers=1)
    message = r"Bad records: `input_ids` must be in \[0, 37\).* to 41"
    with pytest.raises(ValueError, match=message):
        evaluate(state, source, strategy, 4)
    path = tmp_path / "bad.tfrecord"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    message = f"^Bad records: {path}: record 8 is damaged"
    with pytest.raises(ValueError, match=message) as raised:
        train(state, source, strategy)
    assert "\n" not in str(raised.value)


# Three times what was measured: 6e-3 and 1.5e-2, 5e-4 and 1e-3.
@pytest.mark.parametrize(
    ("policy", "of_loss", "of_norm"),
    [("mixed_bfloat16", 0.02, 0.05), ("mixed_float16", 0.002, 0.003)],
)
def test_mixed_precision_trains(
    tmp_path, records, one_device, policy, of_loss, of_norm
):
    strategy = make_strategy()
    exact = one_device[0]
    state = make_state(tmp_path, strategy, policy=policy)
    mixed = train(state, records, strategy)
    np.testing.assert_allclose(
        column(mixed, "loss"), column(exact, "loss"), atol=of_loss
    )
    np.testing.assert_allclose(
        column(mixed, "gradient_norm"),
        column(exact, "gradient_norm"),
        rtol=of_norm,
    )
    for variable in state.model.weights:
        assert variable.dtype == "float32"


class Classifier(keras.Model):
    """Two layers: what steps the loop makes is the same with any model."""

    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(5, activation="tanh")
        self.head = keras.layers.Dense(3)
        self.hidden.build((None, 6))
        self.head.build((None, 5))
        self.built = True

    def call(self, batch, training=None):
        return self.head(self.hidden(batch["x"]))


def make_classifier():
    keras.utils.set_random_seed(8)
    return Classifier(), BertOptimizer(WarmupDecay(0.1, NUM_STEPS, 3))


def cross_entropy(labels, logits):
    return keras.losses.sparse_categorical_crossentropy(
        labels, logits, from_logits=True
    )


CLASSES = Objective(
    weights=lambda batch: {
        "loss_of_classes": tf.cast(tf.size(batch["y"]), tf.float32)
    },
    losses=lambda outputs, batch: {
        "loss_of_classes": tf.reduce_sum(cross_entropy(batch["y"], outputs))
    },
    metrics=lambda outputs, batch: {},
)


@pytest.fixture
def points():
    return make_points()


def make_points():
    """Returns a source of 40 examples for the `Classifier`."""
    random = np.random.default_rng(4)
    return array_source.ArraySource(
        arrays={
            "x": random.normal(size=(40, 6)).astype("float32"),
            "y": random.integers(0, 3, 40).astype("int32"),
            features.INPUT_MASK: np.ones((40, 6), "int32"),
        }
    )


@pytest.fixture(scope="module")
def fitted():
    """The weights that `keras.Model.fit` alone ends with."""
    model, optimizer = make_classifier()
    model.compile(optimizer, loss=cross_entropy)
    batches = make_points().training_batches(8)
    batches = batches.map(lambda batch: (batch, batch["y"]))
    model.fit(batches, steps_per_epoch=NUM_STEPS, verbose=0, shuffle=False)
    return model.get_weights()


def test_fit_and_the_loop_end_with_the_same_weights(tmp_path, points, fitted):
    model, optimizer = make_classifier()
    state = TrainingState(model, optimizer, tmp_path, {})
    loop.train(state, CLASSES, points, make_config(), make_strategy())
    for got, wanted in zip(model.get_weights(), fitted):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_by_the_clock_there_are_lines_and_a_first_checkpoint(
    tmp_path, points, fitted, monkeypatch, caplog, is_terminal
):
    # A step a call, and a line due after each whose time can be told.
    monkeypatch.setattr(progress, "_SECONDS_PER_CALL", 0.0)
    monkeypatch.setattr(progress, "SECONDS_PER_REPORT", 0.0)
    stream = Terminal() if is_terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    handler = logging.StreamHandler(stream)
    logger = logging.getLogger("bert_tf")
    model, optimizer = make_classifier()
    state = TrainingState(model, optimizer, tmp_path, {})
    saved = []
    evaluated = []
    history = []
    config = make_config(iterations_per_loop=10, save_checkpoints_steps=1000)
    caplog.set_level("INFO", logger="bert_tf")
    logger.addHandler(handler)
    try:
        loop.train(
            state,
            CLASSES,
            points,
            config,
            make_strategy(),
            lambda: saved.append(state.step),
            lambda: evaluated.append(state.step),
            history=history,
        )
    finally:
        logger.removeHandler(handler)
    # The first step is the one that is traced.
    assert column(history, "step").tolist() == list(range(2, NUM_STEPS + 1))
    # Only those that the steps ask for are evaluated before.
    assert (saved, evaluated) == ([2, NUM_STEPS], [NUM_STEPS])
    assert state.saved_steps() == [2, NUM_STEPS]
    for got, wanted in zip(model.get_weights(), fitted):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    if not is_terminal:
        text = stream.getvalue()
        assert text.count("  loss_of_classes ") == NUM_STEPS - 1
        assert "train:" not in text
        return
    lines = stream.lines()
    starts = [line.split("  ")[0] for line in lines if line]
    assert [start for start in starts if start.startswith("step ")] == [
        f"step {step}/{NUM_STEPS}" for step in (10, NUM_STEPS)
    ]
    # Logged in its place, and then written again below.
    *_, line = [line for line in lines if line.startswith("train:")]
    assert line.startswith(f"train: 100% {NUM_STEPS}/{NUM_STEPS} [")
    last = history[-1]["loss"]
    assert line.endswith(f", loss {last:.4g}]")


def test_a_loss_that_is_not_finite_stops_and_names_the_step(tmp_path, points):
    bad = 4
    batches = points.training_batches(8).take(bad + 1).as_numpy_iterator()
    firsts = [float(batch["x"][0, 0]) for batch in batches]
    assert firsts[bad] not in firsts[:bad]

    def losses(outputs, batch):
        is_good = batch["x"][0, 0] != firsts[bad]
        totals = CLASSES.losses(outputs, batch)
        totals["loss_of_classes"] /= tf.cast(is_good, tf.float32)
        return totals

    strategy = make_strategy()
    state = TrainingState(*make_classifier(), tmp_path, {})
    with pytest.raises(
        health.NotFiniteError, match=f"Step {bad} .*loss_of_classes=inf"
    ):
        loop.train(
            state,
            dataclasses.replace(CLASSES, losses=losses),
            points,
            make_config(save_checkpoints_steps=2),
            strategy,
        )
    again = TrainingState(*make_classifier(), tmp_path, {})
    assert again.restore()
    assert again.step == 4


@pytest.mark.parametrize("name", ["num_train_steps", "train_batch_size"])
def test_config_must_be_positive(name):
    with pytest.raises(ValueError, match=f"`{name}` must be positive"):
        loop.TrainingConfig(**({"num_train_steps": 5} | {name: 0}))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0m00s"), (59.6, "1m00s"), (754, "12m34s"), (36305, "10h05m")],
)
def test_durations_are_readable(seconds, text):
    assert progress.duration(seconds) == text
