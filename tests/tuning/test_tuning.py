"""Epochs and what is kept of them; settings; layers; weights of classes."""

import dataclasses
import json
import math
import os
import pathlib
import shutil
import signal
import unittest
from typing import NamedTuple

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks import task_folder
from bert_tf.tasks.classification import class_weights
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.tsv import Examples
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import checkpointing
from bert_tf.training import compiled_steps
from bert_tf.training import preemption
from bert_tf.training import randomness
from bert_tf.tuning import encoder_layers
from bert_tf.tuning import trainer
from bert_tf.tuning import tuning_run
from bert_tf.tuning.config import FineTuningConfig
from bert_tf.tuning.record import EpochRecord
from support import block_calls

WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
VOCABULARY = Vocabulary(tokens=(*SPECIAL_TOKENS, *WORDS))
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=7,
    max_position_embeddings=9,
)
TASK = ClassificationTask(
    name="colour",
    text_features=("text",),
    labels=("no", "yes", "perhaps"),
    metrics=("accuracy",),
)
# What the programs run under on one device.
STRATEGY = tf.distribute.get_strategy()


def save_encoder(folder, config):
    checkpoints.save(folder, BertEncoder(config), WordpieceSpec(VOCABULARY), 9)
    return folder


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("two_blocks") / "a", CONFIG)


@pytest.fixture(scope="module")
def shallow(tmp_path_factory):
    """A checkpoint of one block, for what is not of blocks."""
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)
    return save_encoder(tmp_path_factory.mktemp("one_block") / "a", config)


def make_config(folder, **options):
    options = {"do_train": True, "do_eval": True} | options
    return FineTuningConfig(
        output_dir=str(folder),
        train_batch_size=4,
        learning_rate=1e-2,
        max_seq_length=9,
        **options,
    )


def make_examples():
    generator = np.random.default_rng(7)
    texts = [" ".join(generator.choice(WORDS, size=4)) for _ in range(8)]
    labels = np.int32([0, 1, 2, 0, 1, 2, 0, 0])
    return Examples(texts=(texts,), labels=labels)


class ScoredRun(tuning_run.Run):
    """A run with made-up scores, beyond them the last one of them."""

    def __init__(self, scores, *arguments):
        super().__init__(*arguments)
        self.scores, self.weights = scores, []

    def evaluate(self):
        self.weights.append(self.model.get_weights())
        number = min(len(self.weights), len(self.scores))
        results = {"eval_accuracy": self.scores[number - 1]}
        return tuning_run.Evaluation(results, answers={})


def run(checkpoint, config, scores=(), task=TASK, dtype_policy="float32"):
    """Tunes with made-up scores.

    Returns:
        The model, the results, and its weights when they were evaluated.
    """
    config = dataclasses.replace(config, init_checkpoint=str(checkpoint))
    examples = {TRAIN: make_examples()}
    run = ScoredRun(scores, config, task, examples, STRATEGY, dtype_policy)
    results = run.tune()
    return run.model, results, run.weights


def assert_equal(ours, theirs):
    for a, b in zip(ours, theirs):
        np.testing.assert_array_equal(a, b)


class ThreeEpochs(NamedTuple):
    """What a run to the end left."""

    folder: pathlib.Path
    model: keras.Model
    results: dict[str, float]
    # When they were evaluated.
    weights: list[list[np.ndarray]]
    # Of blocks computed again.
    num_block_calls: int


@pytest.fixture(scope="module")
def three_epochs(tmp_path_factory, shallow):
    folder = tmp_path_factory.mktemp("three_epochs")
    config = make_config(folder, iterations_per_loop=1)
    with pytest.MonkeyPatch.context() as patch:
        calls = block_calls.note(patch)
        done = run(shallow, config, [0.5, 0.9, 0.7])
    return ThreeEpochs(folder, *done, len(calls))


def test_last_epoch_is_kept(three_epochs):
    folder, model, results, weights, _ = three_epochs
    assert results == {"eval_accuracy": 0.7, "global_step": 6}
    assert len(weights) == 3
    kept = checkpoints.load(folder, BertClassifier)
    assert_equal(kept.get_weights(), weights[2])
    assert_equal(model.get_weights(), weights[2])


def test_a_training_is_not_resumed_with_other_settings(
    shallow, three_epochs, tmp_path
):
    shutil.copytree(three_epochs.folder, tmp_path, dirs_exist_ok=True)
    before = sorted(tmp_path.rglob("*"))
    other = dataclasses.replace(
        make_config(tmp_path, iterations_per_loop=1, num_train_epochs=4.0),
        learning_rate=1.0,
        train_batch_size=2,
    )
    task = dataclasses.replace(TASK, labels=("no", "yes", "never"))
    with pytest.raises(ValueError) as error:
        run(shallow, other, [0.5], task)
    assert str(error.value) == (
        f"{tmp_path} holds a training that was begun with other settings: "
        "--learning_rate was 0.01 and is 1.0; "
        "task: labels was ['no', 'yes', 'perhaps'] and is "
        "['no', 'yes', 'never']; --train_batch_size was 4 and is 2. Give the "
        "same settings to resume it, or another --output_dir to begin anew. "
        "Only --num_train_epochs may be raised."
    )
    assert sorted(tmp_path.rglob("*")) == before


class Resumed(NamedTuple):
    """What a resumed run left."""

    folder: pathlib.Path
    model: keras.Model
    results: dict[str, float]
    # When they were evaluated.
    weights: list[list[np.ndarray]]


@pytest.fixture(scope="module")
def more_epochs(tmp_path_factory, shallow, three_epochs):
    """The training of `three_epochs`, resumed for one and a half more.

    Returns:
        What it left, and its warnings.
    """
    folder = tmp_path_factory.mktemp("more_epochs")
    shutil.copytree(three_epochs.folder, folder, dirs_exist_ok=True)
    config = make_config(folder, iterations_per_loop=1, num_train_epochs=4.5)
    with unittest.TestCase().assertLogs("absl", "WARNING") as logs:
        done = run(shallow, config, [0.7, 0.6, 0.8])
    return Resumed(folder, *done), "\n".join(logs.output)


def test_more_epochs_may_follow(more_epochs):
    (folder, model, results, weights), _ = more_epochs
    assert results == {"eval_accuracy": 0.8, "global_step": 9}
    schedule = model.optimizer.get_config()["learning_rate"]["config"]
    assert schedule["num_train_steps"] == int(model.optimizer.iterations) == 9
    # Evaluated after the third epoch again, and after each that is new.
    assert len(weights) == 3
    assert np.abs(weights[1][0] - weights[0][0]).max() > 1e-4
    kept = checkpoints.load(folder, BertClassifier)
    assert_equal(kept.get_weights(), weights[2])


def test_more_epochs_are_told(more_epochs):
    resumed, warnings = more_epochs
    assert "--num_train_epochs was 3 before and is 4.5 now: from step 6" in (
        warnings
    )
    card = (resumed.folder / "README.md").read_text()
    assert "- `resumed_at_step`: 6\n" in card


def test_more_epochs_are_then_those_of_the_training(
    shallow, more_epochs, tmp_path, caplog
):
    shutil.copytree(more_epochs[0].folder, tmp_path, dirs_exist_ok=True)
    more = make_config(tmp_path, iterations_per_loop=1, num_train_epochs=4.5)
    with caplog.at_level("WARNING", logger="absl"):
        _, results, _ = run(shallow, more, [0.6])
    assert results["global_step"] == 9
    assert "num_train_epochs" not in caplog.text
    fewer = dataclasses.replace(more, num_train_epochs=3.0)
    with pytest.raises(ValueError, match="--num_train_epochs was 4.5 and is 3"):
        run(shallow, fewer, [0.6])


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, shallow):
    """A training that was stopped in its third epoch, after a step of it."""
    folder = tmp_path_factory.mktemp("stopped")
    make_steps = compiled_steps.CompiledSteps.run

    def make_and_stop(self, strategy, iterator, step, count):
        done = make_steps(self, strategy, iterator, step, count)
        if step == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_steps.CompiledSteps, "run", make_and_stop)
        with pytest.raises(
            preemption.PreemptedError,
            match="Stopped by Ctrl-C; step 5 of 6 is saved",
        ):
            run(shallow, make_config(folder, keep_best=True), [0.5, 0.9])
    return folder


@pytest.fixture(scope="module")
def best_epoch(tmp_path_factory, shallow, stopped):
    """The training of `stopped`, resumed to its end."""
    folder = tmp_path_factory.mktemp("best_epoch")
    shutil.copytree(stopped, folder, dirs_exist_ok=True)
    # Of the two best the first counts.
    done = run(shallow, make_config(folder, keep_best=True), [0.9])
    return Resumed(folder, *done)


def test_a_stopped_run_has_the_curve_of_its_last_epoch(stopped):
    assert checkpointing.trained_steps(stopped) == 5
    record = EpochRecord(stopped / "train", "eval_accuracy", 9)
    assert [report["step"] for report in record.training] == [2, 4, 5]


def test_best_epoch_is_kept_also_by_a_resumed_run(three_epochs, best_epoch):
    folder, model, results, resumed = best_epoch
    weights = three_epochs.weights
    assert_equal(resumed[0], weights[2])
    assert results == {"eval_accuracy": 0.9, "global_step": 4}
    assert_equal(model.get_weights(), weights[1])
    # What was evaluated last is what the model has: reports are of that.
    assert len(resumed) == 2
    assert_equal(resumed[1], weights[1])
    kept = checkpoints.load(folder, BertClassifier)
    assert_equal(kept.get_weights(), weights[1])


def test_best_epoch_stays_when_a_finished_run_is_run_again(
    shallow, three_epochs, best_epoch, tmp_path
):
    shutil.copytree(best_epoch.folder, tmp_path, dirs_exist_ok=True)
    config = make_config(tmp_path, keep_best=True)
    # It is evaluated once more.
    model, results, _ = run(shallow, config, [0.8])
    assert results["global_step"] == 4
    assert_equal(model.get_weights(), three_epochs.weights[1])


def test_a_run_that_keeps_the_best_epoch_goes_on_to_do_so(
    shallow, best_epoch, tmp_path
):
    shutil.copytree(best_epoch.folder, tmp_path, dirs_exist_ok=True)
    with pytest.raises(ValueError, match="--keep_best was True and is False"):
        run(shallow, make_config(tmp_path), [0.8])


def test_without_scores_the_last_epoch_does_not_replace_the_best(
    shallow, three_epochs, best_epoch, tmp_path
):
    shutil.copytree(best_epoch.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "train/epochs.json").unlink()
    with pytest.raises(ValueError, match="epochs.json: must hold .*step 2"):
        run(shallow, make_config(tmp_path, keep_best=True), [0.8])
    kept = checkpoints.load(tmp_path, BertClassifier)
    assert_equal(kept.get_weights(), three_epochs.weights[1])


def evaluated_step(folder, monkeypatch):
    """Evaluates the model of a folder; returns the step that it names."""
    config = make_config(folder, do_train=False)
    evaluated = ScoredRun([0.9], config, TASK, {DEV: make_examples()}, STRATEGY)
    monkeypatch.setattr(evaluated, "report", lambda: None)
    evaluated.execute()
    return evaluated.results["global_step"]


def test_an_evaluation_alone_is_of_the_best_epoch(
    best_epoch, tmp_path, monkeypatch
):
    # A copy elsewhere will do.
    shutil.copytree(best_epoch.folder, tmp_path, dirs_exist_ok=True)
    assert evaluated_step(tmp_path, monkeypatch) == 4


def test_an_evaluation_alone_is_of_the_model_and_not_of_the_state(
    three_epochs, tmp_path, monkeypatch
):
    shutil.copytree(three_epochs.folder, tmp_path, dirs_exist_ok=True)
    # As of a training that went on and was stopped.
    (tmp_path / "train/state-9.index").write_text("")
    assert evaluated_step(tmp_path, monkeypatch) == 6


def note_traces(monkeypatch):
    """Returns a list that gets the name of each function that is traced."""
    traces = []

    def noted(owner, name):
        function = getattr(owner, name)

        def note(*args, **kwargs):
            traces.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, note)

    noted(randomness, "set_seeds")
    noted(compiled_steps, "train_step")
    return traces


def test_a_signal_at_the_end_of_an_epoch_stops_the_run(
    shallow, tmp_path, monkeypatch
):
    save = checkpointing.TrainingState.save

    def save_and_be_told(self):
        path = save(self)
        if self.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return path

    config = make_config(tmp_path)
    with monkeypatch.context() as patch:
        traces = note_traces(patch)
        patch.setattr(checkpointing.TrainingState, "save", save_and_be_told)
        with pytest.raises(
            preemption.PreemptedError,
            match="Stopped by SIGTERM; step 4 of 6 is saved",
        ):
            run(shallow, config, [0.5])
    # Steps are traced once for both epochs.
    assert sorted(traces) == ["set_seeds", "train_step"]
    # The epoch is evaluated when the run is resumed.
    _, results, _ = run(shallow, config, [0.6, 0.7])
    assert results == {"eval_accuracy": 0.7, "global_step": 6}
    record = EpochRecord(tmp_path / "train", "eval_accuracy", 6)
    scores = [results["eval_accuracy"] for results in record.evaluations]
    assert scores == [0.5, 0.6, 0.7]


def test_a_run_that_was_killed_after_its_last_checkpoint_is_completed(
    shallow, three_epochs, tmp_path
):
    shutil.copytree(three_epochs.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").unlink()
    path = tmp_path / "train/epochs.json"
    record = json.loads(path.read_text())
    del record["training"][-1], record["evaluations"][-1]
    del record["model_step"]
    path.write_text(json.dumps(record))
    config = make_config(tmp_path, iterations_per_loop=1)
    _, results, evaluated = run(shallow, config, [0.9])
    assert results == {"eval_accuracy": 0.9, "global_step": 6}
    assert len(evaluated) == 1
    kept = checkpoints.load(tmp_path, BertClassifier)
    assert_equal(kept.get_weights(), three_epochs.weights[2])
    record = EpochRecord(tmp_path / "train", "eval_accuracy", 6)
    steps = [results["global_step"] for results in record.evaluations]
    assert (steps, record.model_step) == ([2, 4, 6], 6)


def test_another_precision_is_refused_or_told(
    shallow, three_epochs, tmp_path, caplog
):
    shutil.copytree(three_epochs.folder, tmp_path, dirs_exist_ok=True)
    config = make_config(tmp_path, iterations_per_loop=1, num_train_epochs=4)
    with pytest.raises(
        ValueError, match="--mixed_precision must stay as it was, float32"
    ):
        run(shallow, config, [0.5], dtype_policy="mixed_float16")
    _, results, _ = run(shallow, config, [0.6], dtype_policy="mixed_bfloat16")
    assert results["global_step"] == 8
    told = "other settings: mixed_precision float32 -> mixed_bfloat16."
    assert told in caplog.text
    caplog.clear()
    run(shallow, config, [0.6])
    assert "mixed_precision" not in caplog.text


def test_blocks_computed_again_train_the_same(
    shallow, three_epochs, tmp_path, monkeypatch
):
    calls = block_calls.note(monkeypatch)
    config = make_config(tmp_path, rematerialize=True, attention_chunk=0)
    _, _, weights = run(shallow, config, [0.5, 0.9, 0.7])
    assert (three_epochs.num_block_calls, len(calls)) == (0, 1)
    assert calls[0].attention.attention_chunk == 0
    for again, kept in zip(weights, three_epochs.weights, strict=True):
        for got, wanted in zip(again, kept, strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-5)


def test_a_run_may_go_on_or_be_evaluated_with_other_chunks(
    shallow, three_epochs, tmp_path
):
    shutil.copytree(three_epochs.folder, tmp_path, dirs_exist_ok=True)
    for is_trained in (True, False):
        config = dataclasses.replace(
            make_config(tmp_path, do_train=is_trained, attention_chunk=128),
            init_checkpoint=str(shallow) if is_trained else None,
        )
        its_run = tuning_run.Run(
            config, TASK, {TRAIN: make_examples()}, STRATEGY, "float32"
        )
        (block,) = its_run.model.encoder.blocks
        assert block.attention.attention_chunk == 128
        if is_trained:
            its_run.tune()
            assert_equal(its_run.model.get_weights(), three_epochs.weights[2])


def test_training_stops_early_and_stays_stopped(shallow, tmp_path):
    config = make_config(
        tmp_path, early_stopping_epochs=2, num_train_epochs=9.0
    )
    scores = [0.5, 0.6, 0.6, 0.1, 0.9]
    _, results, weights = run(shallow, config, scores)
    assert len(weights) == 4
    assert results == {"eval_accuracy": 0.1, "global_step": 8}
    _, results, again = run(shallow, config, [0.1])
    assert results["global_step"] == 8
    assert_equal(again[0], weights[3])
    record = EpochRecord(f"{tmp_path}/train", "eval_accuracy", 8)
    assert [results["epoch"] for results in record.evaluations] == [1, 2, 3, 4]
    assert [report["step"] for report in record.training] == [2, 4, 6, 8]
    # What comes after the step that a run goes on from is made again.
    record = EpochRecord(f"{tmp_path}/train", "eval_accuracy", 5)
    assert len(record.evaluations) == len(record.training) == 2


def test_damaged_record_is_told(tmp_path):
    (tmp_path / "epochs.json").write_text("{}")
    with pytest.raises(ValueError, match="epochs.json: not the record"):
        EpochRecord(tmp_path, "f1", 3)


def test_a_record_without_the_score_that_is_compared_is_told(tmp_path):
    evaluations = [{"epoch": 1, "global_step": 3, "f1": None}]
    (tmp_path / "epochs.json").write_text(
        json.dumps({"training": [], "evaluations": evaluations})
    )
    for name in ("f1", "accuracy"):
        # Before an epoch is trained for nothing.
        with pytest.raises(ValueError, match="epochs.json: not the record"):
            EpochRecord(tmp_path, name, 3).check_evaluated([3], 3)


def test_scores_of_numpy_are_compared(tmp_path):
    record = EpochRecord(tmp_path, "f1", 0)
    for epoch, score in enumerate(np.float64([0.5, 0.9, 0.7]), start=1):
        record.add(epoch, {"global_step": 3 * epoch, "f1": score})
    assert (record.best["f1"], record.num_without_gain) == (0.9, 1)


@pytest.mark.parametrize(
    "scores, best, num_without_gain",
    [
        # Without an order, `max` would keep a NaN that comes first.
        ([math.nan, -0.5, 0.5, math.nan], 3, 1),
        ([-0.5, math.nan], 1, 1),
        ([math.nan, math.nan], 1, 1),
    ],
)
def test_a_score_that_is_not_defined_is_the_worst(
    tmp_path, scores, best, num_without_gain
):
    record = EpochRecord(tmp_path, "eval_pearson", 0)
    for epoch, score in enumerate(scores, start=1):
        record.add(epoch, {"global_step": epoch, "eval_pearson": score})
    record.write()
    record = EpochRecord(tmp_path, "eval_pearson", len(scores))
    assert record.best["global_step"] == best
    assert record.num_without_gain == num_without_gain


@pytest.mark.parametrize(
    "drop, rates", [(True, (0.01 / 3, 5e-3)), (False, (0.01 / 3, 1e-2))]
)
def test_learning_rate_drops_or_not(tmp_path, drop, rates):
    # Of 6 steps 3 are the warmup.
    config = make_config(
        tmp_path, warmup_proportion=0.5, learning_rate_drop=drop
    )
    optimizer = trainer.make_optimizer(config, 6, "float32")
    values = optimizer.get_config()["learning_rate"]
    schedule = keras.optimizers.schedules.deserialize(values)
    np.testing.assert_allclose(schedule(np.array([1, 3])), rates, rtol=1e-6)


def test_frozen_layers_stay_and_have_no_moments(checkpoint, tmp_path):
    config = make_config(tmp_path, do_eval=False, freeze_lower_layers=1)
    before = checkpoints.load(checkpoint, BertEncoder)
    model, _, _ = run(checkpoint, config)
    for layer, old in (
        (model.encoder.embeddings, before.embeddings),
        (model.encoder.blocks[0], before.blocks[0]),
    ):
        assert_equal(layer.get_weights(), old.get_weights())
    moved = model.encoder.blocks[1].get_weights()[0]
    assert np.abs(moved - before.blocks[1].get_weights()[0]).max() > 1e-4
    moments = [
        variable.path
        for variable in model.optimizer.variables
        if variable.path.endswith("momentum")
    ]
    # Block 1, pooler and head.
    assert len(moments) == 16 + 2 + 2


def test_top_layers_begin_anew():
    encoder = BertEncoder(CONFIG)
    for variable in encoder.trainable_variables:
        variable.assign(tf.fill(variable.shape, 5.0))
    encoder_layers.reinit_top_layers(encoder, 1)
    for layer in (encoder.embeddings, encoder.blocks[0]):
        assert all(np.all(v == 5) for v in layer.trainable_variables)
    for layer in (encoder.blocks[1], encoder.pooler):
        for variable in layer.trainable_variables:
            values = variable.numpy()
            if variable.path.endswith("kernel"):
                assert 0.01 < values.std() < 0.03
            else:
                wanted = 1 if variable.path.endswith("gamma") else 0
                assert np.all(values == wanted), variable.path
    attention = encoder.blocks[1].attention
    assert np.abs(attention.query.kernel - attention.key.kernel).max() > 1e-3
    with pytest.raises(ValueError, match="reinit_top_layers must be at most 2"):
        encoder_layers.reinit_top_layers(encoder, 3)
    with pytest.raises(ValueError, match="freeze_lower_layers must be at most"):
        encoder_layers.freeze_lower_layers(encoder, 3)


def test_layers_that_begin_anew_must_be_trained(checkpoint, tmp_path):
    config = make_config(tmp_path, freeze_lower_layers=1, reinit_top_layers=2)
    message = (
        "--freeze_lower_layers and --reinit_top_layers must together be at "
        "most 2, .* --freeze_lower_layers=1, --reinit_top_layers=2"
    )
    config = dataclasses.replace(config, init_checkpoint=str(checkpoint))
    with pytest.raises(ValueError, match=message):
        tuning_run.find_start(config, None)
    with pytest.raises(ValueError, match=message):
        run(checkpoint, config)
    encoder = BertEncoder(CONFIG)
    encoder_layers.freeze_lower_layers(encoder, 1)
    with pytest.raises(ValueError, match=message):
        encoder_layers.reinit_top_layers(encoder, 2)
    # Those that do not overlap.
    before = encoder.blocks[1].get_weights()[0]
    encoder_layers.reinit_top_layers(encoder, 1)
    assert np.abs(encoder.blocks[1].get_weights()[0] - before).max() > 1e-3
    config = dataclasses.replace(config, reinit_top_layers=1)
    tuning_run.find_start(config, None)


def test_weighted_classes_in_fit_and_loop(checkpoint, tmp_path):
    weighted = dataclasses.replace(TASK, class_weights=(0.5, 2.0, 0.0))
    assert weighted.to_dict() == TASK.to_dict()
    logits = np.float32([[1, 2, 3], [0, 1, 0], [2, 2, 0], [0, 1, 5]])
    labels = np.int32([0, 1, 1, 2])
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    picked = -log_probs[np.arange(4), labels]
    expected = (0.5 * picked[0] + 2 * picked[1] + 2 * picked[2]) / 4
    loss = weighted.loss()
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-5)
    again = type(loss).from_config(loss.get_config())
    assert float(again(labels, logits)) == pytest.approx(expected, rel=1e-5)
    batch = {"labels": tf.constant(labels)}
    objective = weighted.objective()
    total = objective.losses(tf.constant(logits), batch)["loss"]
    assert float(total) / 4 == pytest.approx(expected, rel=1e-5)
    assert float(objective.weights(batch)["loss"]) == 4
    # An evaluation's loss is everybody's.
    np.testing.assert_allclose(
        weighted.example_losses(logits, labels), picked, rtol=1e-5
    )
    with pytest.raises(ValueError, match="`class_weights` must be 3 numbers"):
        dataclasses.replace(TASK, class_weights=(1.0,))


def test_class_weights_may_be_an_array():
    """As scikit-learn makes them: there was a trace."""
    weights = np.array([0.5, 2.0, 0.0], "float32")
    task = dataclasses.replace(TASK, class_weights=weights)
    assert json.loads(json.dumps(task.class_weights)) == [0.5, 2.0, 0.0]


@pytest.mark.parametrize(
    "weights",
    [(1, -1, 1), (0, 0, 0), (1, 2, float("nan")), {0: 1, 1: 2, 2: 1}, "123", 3],
)
def test_class_weights_that_are_none_are_refused(weights):
    """With a negative one training made that class's answers worse."""
    message = "must be 3 numbers of 0 or more.*Received: class_weights="
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TASK, class_weights=weights)


def test_class_weights_are_read():
    ids = np.int32([0, 0, 0, 1])
    assert class_weights.parse("auto", ("a", "b"), ids) == (4 / 6, 2.0)
    assert class_weights.parse("b:c:2,a:0.5", ("a", "b:c"), ids) == (0.5, 2.0)
    labels = ("a, b", 'c "d"')
    for text in ('"a, b":2,c "d":3', '"c ""d"":3","a, b:2"'):
        assert class_weights.parse(text, labels, ids) == (2.0, 3.0)
    with pytest.raises(ValueError, match='as in "a, b:1","c ""d"":2"[.] Rec'):
        class_weights.parse("x:2", labels, ids)
    with pytest.raises(ValueError, match="separated by commas. Received: "):
        class_weights.parse("a\nb:2", labels, ids)
    for text, message in (
        ("a:1", "must name each of a, b once"),
        ("a:1,a:2,b:1", "must name each of a, b once"),
        ("a:1,b:-1", "must be numbers of 0 or more. Received: '-1'"),
        ("a:1,b:x", "must be numbers"),
        ("a:0,b:0", "must not all be 0"),
    ):
        with pytest.raises(ValueError, match=message):
            class_weights.parse(text, ("a", "b"), ids)
    with pytest.raises(ValueError, match="not be given for a regression"):
        class_weights.parse("auto", (), ids)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output_dir": ""}, "--output_dir must be given"),
        ({"do_train": False}, "At least one of --do_train, --do_eval"),
        ({"num_train_epochs": 0.0}, "--num_train_epochs must be positive"),
        ({"num_train_epochs": math.inf}, "--num_train_epochs must be a finit"),
        ({"learning_rate": math.inf}, "--learning_rate must be a finite numb"),
        ({"warmup_proportion": 1.5}, "--warmup_proportion must be from 0 to 1"),
        ({"calibrate": True}, "--calibrate must be given with --do_eval"),
        ({"keep_best": True}, "--keep_best must be given with --do_train and"),
        ({"early_stopping_epochs": 2}, "--early_stopping_epochs must be given"),
        (
            {"layerwise_learning_rate_decay": 0.0},
            "--layerwise_learning_rate_decay must be above 0",
        ),
        ({"freeze_lower_layers": -1}, "--freeze_lower_layers must be 0 or"),
        ({"attention_chunk": 64}, "--attention_chunk must be 0 or a positive"),
        (
            {
                "do_train": False,
                "do_eval": True,
                "max_position_embeddings": 9,
            },
            "--max_position_embeddings must be given with --do_train",
        ),
    ],
)
def test_bad_settings_name_their_flag(options, message):
    with pytest.raises(ValueError, match=message):
        FineTuningConfig(**{"output_dir": "output", "do_train": True} | options)


@pytest.mark.parametrize(
    ("values", "dropout"),
    [
        ({"classifier_dropout": 0.4}, 0.4),
        ({"classifier_dropout": None, "hidden_dropout_prob": 0.0}, 0.0),
    ],
)
def test_new_heads_have_the_dropout_of_config_json(
    shallow, tmp_path, values, dropout
):
    folder = tmp_path / "a"
    shutil.copytree(shallow, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))
    start = starting_point.find(folder)
    for task, model_class, head in (
        (TASK, BertClassifier, "classification_head"),
        (
            TaggingTask(scheme="iob1", labels=("O", "I-x")),
            BertTokenClassifier,
            "classification_head",
        ),
        (MultipleChoiceTask(num_choices=2), BertMultipleChoice, "choice_head"),
    ):
        arguments = {"num_labels": 2} if head != "choice_head" else {}
        for model in (
            checkpoints.load(folder, model_class, **arguments),
            task_folder.new_model(start, task),
        ):
            assert getattr(model, head).input_dropout.rate == dropout
            assert_equal(
                model.encoder.blocks[0].get_weights(),
                checkpoints.load(shallow, BertEncoder).blocks[0].get_weights(),
            )
    # What is saved tells it again.
    model = task_folder.new_model(start, TASK)
    saved = tmp_path / "saved"
    checkpoints.save(saved, model, start.tokenizer, 9, task=TASK.to_dict())
    model = task_folder.tuned_model(starting_point.find(saved), TASK)
    assert model.dropout == dropout
    given = checkpoints.load(folder, BertClassifier, dropout=0.2)
    assert given.dropout == 0.2
    # Another configuration rules over the checkpoint's.
    path = tmp_path / "other.json"
    path.write_text(json.dumps(config | {"hidden_dropout_prob": 0.3}))
    other = starting_point.find(folder, bert_config_file=str(path))
    assert task_folder.new_model(other, TASK).dropout == 0.1


def test_model_longer_than_its_checkpoint(checkpoint):
    start = starting_point.find(checkpoint, max_position_embeddings=14)
    model = task_folder.new_model(start, TASK)
    rows = model.encoder.embeddings.position_embeddings.numpy()
    np.testing.assert_array_equal(rows[9:], rows[:5])


def test_partial_checkpoint_is_taken_when_allowed(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "partial")
    path = tmp_path / "partial" / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    del tensors["pooler.dense.weight"]
    safetensors.numpy.save_file(tensors, path)
    start = starting_point.find(tmp_path / "partial")
    with pytest.raises(ValueError, match="pooler.dense.weight is missing"):
        task_folder.new_model(start, TASK)
    start = starting_point.find(tmp_path / "partial", allow_partial=True)
    assert_equal(
        task_folder.new_model(start, TASK).encoder.blocks[1].get_weights(),
        checkpoints.load(checkpoint, BertEncoder).blocks[1].get_weights(),
    )


def test_compiled_steps_are_the_same(tmp_path, shallow, three_epochs, caplog):
    caplog.set_level("INFO", logger="bert_tf")
    config = make_config(tmp_path, iterations_per_loop=1, jit_compile=True)
    _, _, weights = run(shallow, config, [0.5, 0.9, 0.7])
    for compiled, plain in zip(weights, three_epochs.weights, strict=True):
        for ours, theirs in zip(compiled, plain, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    # Six tokens, of at most nine: all batches are of two quarters.
    begun = [line for line in caplog.messages if line.startswith("Compiling")]
    assert len(begun) == 1
    assert begun[0].endswith(" for batches of 4 x 6.")


def test_compiled_batches_have_one_of_four_lengths(tmp_path, shallow):
    config = make_config(
        tmp_path, jit_compile="true", init_checkpoint=str(shallow)
    )
    examples = dataclasses.replace(
        make_examples(), texts=(["cat", "cat dog"] * 4,)
    )
    tuned = tuning_run.Run(config, TASK, {TRAIN: examples}, STRATEGY)
    batches = tuned.sources[TRAIN].training_batches(1).take(8)
    lengths = [batch["input_ids"].shape[1] for batch in batches]
    # Of 9 tokens a quarter is 3.
    assert sorted(set(lengths)) == [3, 6]
    with pytest.raises(ValueError, match="Received: jit_compile='yes'"):
        run(shallow, dataclasses.replace(config, jit_compile="yes"))
