"""The task itself: loss, decoding, its models, and how they are tuned."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.checkpoints import starting_point
from bert_tf.config import BertConfig
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.tasks import task_folder
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.question_answering.files import SquadExamples
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.question_answering.windows import WindowMaker
from bert_tf.tasks.question_answering.windows import WindowSource
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from support import keras_fit

VOCABULARY = Vocabulary(tokens=(*SPECIAL_TOKENS, *"abcdef?"))
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=20,
    max_position_embeddings=14,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
TASK = SquadTask(doc_stride=3, max_query_length=4, max_answer_length=5)


def make_source(task=TASK):
    count = 10
    contexts = tuple("abcdef"[i % 6] + " a b c d e f" for i in range(count))
    return WindowSource(
        examples=SquadExamples(
            ids=tuple(f"q{i}" for i in range(count)),
            questions=("a ?",) * count,
            contexts=contexts,
            context_indices=np.arange(count, dtype=np.int32),
            answer_starts=np.arange(count, dtype=np.int32),
            answer_limits=np.arange(count, dtype=np.int32) + 3,
            answers=tuple(
                (text[i : i + 3],) for i, text in enumerate(contexts)
            ),
        ),
        maker=WindowMaker(
            Preprocessor(WordpieceSpec(VOCABULARY), max_seq_length=11), task
        ),
        is_trimmed=True,
    )


def test_task_is_stored_and_read():
    task = SquadTask(
        version_2_with_negative=True,
        doc_stride=3,
        max_query_length=4,
        n_best_size=5,
        max_answer_length=6,
        null_score_diff_threshold=-1.5,
    )

    stored = json.loads(json.dumps(task.to_dict()))

    assert stored["family"] == "squad"
    assert SquadTask.from_dict(stored) == task
    assert SquadTask().to_dict() == {
        "family": "squad",
        "version_2_with_negative": False,
        "doc_stride": 128,
        "max_query_length": 64,
        "n_best_size": 20,
        "max_answer_length": 30,
        "null_score_diff_threshold": 0.0,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"family": "glue"}, "`family` must be 'squad'"),
        ({"doc_stride": 0}, "--doc_stride must be a positive integer"),
        ({"n_best_size": 2.0}, "--n_best_size must be an integer"),
        ({"n_best_size": 1001}, "--n_best_size must be from 1 to 1,000.*1001"),
        ({"version_2_with_negative": 1}, "--version_2_with_negative must be"),
        ({"null_score_diff_threshold": "0"}, "must be a number"),
        ({"more": 1}, "must have the keys family, version_2"),
    ],
)
def test_bad_task_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        SquadTask.from_dict(SquadTask().to_dict() | changes)


def test_loss_is_the_mean_of_start_and_end_over_the_windows():
    generator = np.random.default_rng(1)
    outputs = {
        name: generator.normal(size=(3, 5)).astype(np.float32)
        for name in squad.OUTPUTS
    }
    labels = {
        "start_logits": np.array([0, 4, 2], np.int32),
        "end_logits": np.array([1, 4, 3], np.int32),
    }
    each = np.zeros(3)
    for name in squad.OUTPUTS:
        for row in range(3):
            logits = outputs[name][row].astype(np.float64)
            total = np.log(np.sum(np.exp(logits)))
            each[row] += (total - logits[labels[name][row]]) / 2

    objective = TASK.objective()
    batch = {features.INPUT_IDS: np.zeros((3, 5)), features.LABELS: labels}
    weighted = batch | {features.EXAMPLE_WEIGHTS: np.float32([1, 0, 1])}

    assert float(objective.weights(batch)["loss"]) == 3
    assert float(objective.losses(outputs, batch)["loss"]) == pytest.approx(
        each.sum(), rel=1e-6
    )
    assert float(objective.weights(weighted)["loss"]) == 2
    assert float(objective.losses(outputs, weighted)["loss"]) == pytest.approx(
        each[0] + each[2], rel=1e-6
    )


def test_decoded_span_is_the_best_of_all():
    generator = np.random.default_rng(2)
    logits = generator.normal(size=(4, 9, 2)).astype(np.float32)
    is_candidate = generator.random((4, 9)) < 0.7
    is_candidate[3] = False
    task = dataclasses.replace(TASK, max_answer_length=3)

    found = task.find_spans(
        {name: logits[..., i] for i, name in enumerate(squad.OUTPUTS)},
        tf.constant(is_candidate),
    )

    for row in range(3):
        score, start, end = max(
            (logits[row, i, 0] + logits[row, j, 1], i, j)
            for i in range(9)
            for j in range(i, min(i + 3, 9))
            if is_candidate[row, i] and is_candidate[row, j]
        )
        assert float(found["scores"][row]) == pytest.approx(score)
        assert (found["starts"][row], found["ends"][row]) == (start, end)
    assert found["scores"][3] == -np.inf
    np.testing.assert_allclose(
        found["null_scores"], logits[:, 0].sum(axis=-1), rtol=1e-6
    )


def make_state(folder, strategy):
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = BertSpanPredictor(CONFIG)
        optimizer = BertOptimizer(WarmupDecay(1e-2, 12, 2))
        return TrainingState(model, optimizer, folder, {})


def test_fit_and_loop_give_equal_weights(tmp_path):
    source = make_source()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    config = loop.TrainingConfig(
        num_train_steps=6,
        train_batch_size=4,
        options=LoopOptions(iterations_per_loop=6),
    )
    fitted = make_state(tmp_path / "fit", strategy)
    before = [np.array(value) for value in fitted.model.trainable_variables]
    keras_fit.fit(fitted, TASK, source, config)
    looped = make_state(tmp_path / "loop", strategy)
    loop.train(looped, TASK.objective(), source, config, strategy)

    for old, ours, theirs in zip(
        before,
        fitted.model.trainable_variables,
        looped.model.trainable_variables,
    ):
        # A softmax over positions does not depend on the bias of its scores, so
        # that the gradient is rounding, which Adam makes into steps.
        is_noise = ours.path.endswith("span/dense/bias")
        atol = 1e-3 if is_noise else 1e-5
        np.testing.assert_allclose(ours, theirs, atol=atol, err_msg=ours.path)
        assert np.abs(old - ours).max() > 1e-3 or not ours.path.endswith(
            "kernel"
        )


def test_a_whole_epoch_has_all_windows():
    source = make_source()
    whole = dataclasses.replace(source, whole_epochs=True)
    assert whole.num_examples > len(source.examples)
    assert TASK.num_epoch_examples(whole) == whole.num_examples
    # As in google-research/bert.
    assert TASK.num_epoch_examples(source) == len(source.examples)
    rows = [
        tuple(ids)
        for batch in whole.training_batches(4).take(
            math.ceil(whole.num_examples / 4)
        )
        for ids, weight in zip(
            batch["input_ids"].numpy(), batch["example_weights"]
        )
        if weight
    ]
    (every,) = source.evaluation_batches(source.num_examples)
    assert sorted(rows) == sorted(map(tuple, every["input_ids"].numpy()))


def test_logits_of_a_trimmed_batch_are_filled_up():
    model = BertSpanPredictor(CONFIG)
    ids = np.array([[1, 2, 3], [4, 5, 6]], np.int32)
    inputs = dict.fromkeys(features.MODEL_INPUTS, np.ones_like(ids))
    inputs[features.INPUT_IDS] = ids
    inputs[features.INPUT_MASK] = np.array([[1, 1, 1], [1, 1, 0]], np.int32)

    logits = squad_answers.stacked_outputs(model, 11)(inputs, training=False)

    assert logits.shape == (2, 11, 2)
    outputs = model(inputs)
    for column, name in enumerate(squad.OUTPUTS):
        for row, length in enumerate((3, 2)):
            np.testing.assert_array_equal(
                logits[row, :length, column], outputs[name][row, :length]
            )
    # Padding is no candidate, within the batch's length and beyond it.
    assert np.max(logits[:, 3:]) < -1e8
    assert np.max(logits[1, 2]) < -1e8


def test_model_begins_at_an_encoder_or_goes_on_with_its_head(tmp_path):
    encoder = BertEncoder(CONFIG)
    checkpoints.save(
        tmp_path / "encoder", encoder, WordpieceSpec(VOCABULARY), 14
    )
    start = starting_point.find(tmp_path / "encoder")
    assert task_folder.stored_task(tmp_path / "encoder", SquadTask) is None
    model = task_folder.new_model(start, TASK)
    with pytest.raises(ValueError, match="not tuned to .* family 'squad'"):
        task_folder.tuned_model(start, TASK)

    checkpoints.save(
        tmp_path / "tuned",
        model,
        WordpieceSpec(VOCABULARY),
        14,
        task=TASK.to_dict(),
    )
    assert task_folder.stored_task(tmp_path / "tuned", SquadTask) == TASK
    start = starting_point.find(tmp_path / "tuned")
    for again in (
        task_folder.new_model(start, TASK),
        task_folder.tuned_model(start, TASK),
    ):
        for ours, theirs in zip(
            model.trainable_variables, again.trainable_variables
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_folder_of_another_task_is_refused(tmp_path):
    checkpoints.save(
        tmp_path / "other",
        BertEncoder(CONFIG),
        WordpieceSpec(VOCABULARY),
        14,
        task={"family": "glue"},
    )

    with pytest.raises(ValueError, match=r"other/task.json: `family` must be"):
        task_folder.stored_task(tmp_path / "other", SquadTask)
