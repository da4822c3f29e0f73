"""Distillation on records: what is trained, saved, resumed, and refused."""

import dataclasses
import logging
import shutil

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import starting_point
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.lesson import Lesson
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.runs import distillation
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from bert_tf.training import checkpointing
from bert_tf.training import strategy as strategies
from references import training as reference
from support import block_calls
from support import pretraining_options

TOKENIZER = WordpieceSpec(reference.vocabulary())
CONFIG = reference.tiny_config(0.1)
ONE_DEVICE = tf.distribute.OneDeviceStrategy("/cpu:0")
# A loss of words, of states and of heads.
LESSON = Lesson(losses={"soft_targets": 5.0, "hidden": 2.0, "relations": 1.0})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records, a teacher of two layers, and its encoder alone."""
    folder = tmp_path_factory.mktemp("distillation")
    reference.write_records(
        folder / "a.tfrecord", reference.pretraining_arrays(16)
    )
    teacher = BertPretrainer(CONFIG)
    reference.set_weights(teacher)
    checkpoints.save(folder / "teacher", teacher, TOKENIZER, 16)
    checkpoints.save(folder / "encoder", teacher.encoder, TOKENIZER, 16)
    return folder


def make_teaching(folder, lesson=LESSON, teacher="teacher", **options):
    found = starting_point.find(str(folder / teacher))
    layers = options.setdefault("student_layers", (1,))
    student = options.pop("student", None) or distillation.find_student(
        found, student_layers=layers
    )
    return distillation.Teaching(
        teacher=found, student=student, lesson=lesson, **options
    )


def make_options(folder, output_dir, **options):
    values = {
        "max_seq_length": 11,
        "num_train_steps": 4,
        "train_batch_size": 8,
        "max_predictions_per_seq": 3,
        "num_warmup_steps": 1,
        "learning_rate": 1e-2,
        "save_checkpoints_steps": 2,
        "iterations_per_loop": 2,
    }
    return pretraining_options.make_options(
        input_file=str(folder / "a.tfrecord"),
        output_dir=str(output_dir),
        do_train=True,
        **values | options,
    )


def run(folder, output_dir, teaching, strategy=ONE_DEVICE, **options):
    """Distils for four steps; returns the tensors of the student's folder."""
    options = make_options(folder, output_dir, **options)
    results = distillation.run_on_records(
        options, teaching, strategy, "float32"
    )
    return results, weights_of(output_dir)


def weights_of(folder):
    with reader.open_checkpoint(str(folder)) as checkpoint:
        is_pretrainer = "masked_lm" in checkpoint.found_parts
    model_class = BertPretrainer if is_pretrainer else BertEncoder
    model = checkpoints.load(str(folder), model_class)
    return {v.path.split("/", 1)[1]: np.array(v) for v in model.weights}


def test_student_is_an_ordinary_folder_and_resumes_to_the_bit(
    folder, tmp_path, caplog
):
    caplog.set_level(logging.INFO, logger="bert_tf")
    teaching = make_teaching(folder)
    _, weights = run(folder, tmp_path / "a", teaching)
    assert "begins with the teacher's layers 1." in caplog.text
    assert "new weights" not in caplog.text
    # What no loss is of is as the teacher has it.
    before = weights_of(folder / "teacher")
    for path, value in weights.items():
        theirs = before[path.replace("layer_0/", "layer_1/")]
        is_untrained = path.startswith(("next_sentence/", "pooler/"))
        assert np.array_equal(value, theirs) == is_untrained, path
    card = (tmp_path / "a" / "README.md").read_text()
    assert "distilled with bert_tf" in card
    assert "Teacher: teacher." in card
    assert "Initial weights: teacher." in card
    assert "- `losses`: soft_targets:5, hidden:2, relations:1" in card
    assert str(folder) not in card
    # The teacher is not in the state.
    names = dict(
        tf.train.list_variables(
            str(tmp_path / "a" / checkpointing.FOLDER / "state-4")
        )
    )
    assert not any("teacher" in name for name in names)

    # From the checkpoint before the last.
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for path in (tmp_path / "b" / checkpointing.FOLDER).glob("state-4.*"):
        path.unlink()
    (tmp_path / "b" / "model.safetensors").unlink()
    caplog.clear()
    _, again = run(folder, tmp_path / "b", teaching)
    assert "Resuming from step 2." in caplog.text
    assert "begins with" not in caplog.text
    assert again.keys() == weights.keys()
    for path in weights:
        np.testing.assert_array_equal(again[path], weights[path])

    other = make_teaching(folder, Lesson(losses={"masked_lm": 1.0}))
    with pytest.raises(
        ValueError, match="soft_targets was 5.0 and is None"
    ) as error:
        run(folder, tmp_path / "b", other)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_two_devices_are_one_device(folder, tmp_path):
    # Without dropout, whose masks are each device's own.
    found = starting_point.find(str(folder / "teacher"))
    config = dataclasses.replace(
        CONFIG,
        num_hidden_layers=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    student = dataclasses.replace(found, init_checkpoint=None, config=config)
    lesson = Lesson(losses={"hidden": 1.0})
    teaching = make_teaching(
        folder, lesson, student=student, student_layers=None
    )
    _, one = run(folder, tmp_path / "one", teaching)
    _, two = run(
        folder,
        tmp_path / "two",
        teaching,
        strategies.make_strategy("mirrored", num_cpu_devices=2),
    )
    assert one.keys() == two.keys()
    for path in one:
        # Adam makes more of the last bits than they are.
        np.testing.assert_allclose(
            two[path], one[path], atol=2e-4, err_msg=path
        )


def test_losses_of_encoders_make_an_encoder(folder, tmp_path):
    teaching = make_teaching(
        folder, Lesson(losses={"relations": 2.0}), "encoder"
    )
    with pytest.raises(ValueError, match="rematerialize must not be given"):
        run(folder, tmp_path / "a", teaching, rematerialize=True)
    assert not (tmp_path / "a").exists()
    options = make_options(
        folder,
        tmp_path / "a",
        num_train_steps=1,
        num_warmup_steps=0,
        do_eval=True,
        max_eval_steps=1,
    )
    results = distillation.run_on_records(
        options, teaching, ONE_DEVICE, "float32"
    )
    # The loss as it is, and what it counts.
    assert results["loss"] == 2 * results["relations_loss"] > 0
    assert results["global_step"] == 1
    config = (tmp_path / "a" / "config.json").read_text()
    assert '"BertModel"' in config
    checkpoints.load(str(tmp_path / "a"), BertEncoder)


def test_records_that_are_too_long_for_the_teacher_are_told(
    folder, tmp_path, monkeypatch
):
    teacher = BertPretrainer(
        dataclasses.replace(CONFIG, max_position_embeddings=8)
    )
    checkpoints.save(tmp_path / "short", teacher, TOKENIZER, 8)
    found = starting_point.find(str(tmp_path / "short"))
    student = dataclasses.replace(found, init_checkpoint=None, config=CONFIG)
    teaching = make_teaching(
        tmp_path, teacher="short", student=student, student_layers=None
    )
    with pytest.raises(ValueError) as error:
        run(folder, tmp_path / "a", teaching)
    assert str(error.value) == (
        "`max_seq_length` must be at most the teacher's "
        "max_position_embeddings=8. Received: max_seq_length=11. "
        "--max_position_embeddings gives more: to a new model in bert_tf "
        "pretrain, to a checkpoint in bert_tf convert."
    )
    assert not (tmp_path / "a").exists()
    # Of words alone no teacher is asked.
    teaching = dataclasses.replace(
        teaching, lesson=Lesson(losses={"masked_lm": 1.0})
    )
    calls = block_calls.note(monkeypatch)
    how = {"rematerialize": True, "attention_chunk": 128}
    run(folder, tmp_path / "a", teaching, **how)
    # In pre-training, of which this is one, the flags reach the student.
    assert len(calls) == CONFIG.num_hidden_layers
    assert {block.attention.attention_chunk for block in calls} == {128}
    kept = checkpoints.load(str(tmp_path / "a"), BertPretrainer)
    assert kept.config.max_position_embeddings == 16


def test_a_teacher_is_told_by_what_its_folder_holds(folder, tmp_path):
    # A masked LM alone: pooler and next sentences are made anew, by the seed.
    shutil.copytree(folder / "teacher", tmp_path / "teacher")
    path = tmp_path / "teacher" / "model.safetensors"
    tensors = {
        name: value
        for name, value in safetensors.numpy.load_file(path).items()
        if "pooler" not in name and "seq_relationship" not in name
    }
    safetensors.numpy.save_file(tensors, path)
    options = make_options(folder, tmp_path / "a")
    found = []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        teaching = make_teaching(tmp_path)
        make = distillation.on_records(teaching)
        found.append(make(options, teaching.student, "float32"))
    first, second = (
        {weight.path: weight.numpy() for weight in each.model.teacher().weights}
        for each in found
    )
    assert any((first[path] != second[path]).any() for path in first)
    assert found[0].description == found[1].description
    # And it is told from another.
    full = distillation.on_records(make_teaching(folder))
    full = full(options, make_teaching(folder).student, "float32")
    assert full.description != found[0].description


def test_bad_teachers_are_told_in_a_line(folder):
    other = Vocabulary(tokens=tuple(reversed(TOKENIZER.vocabulary.tokens)))
    found = starting_point.find(str(folder / "teacher"))
    student = dataclasses.replace(
        found, init_checkpoint=None, tokenizer=WordpieceSpec(other)
    )
    with pytest.raises(ValueError, match="one tokenizer for the loss") as one:
        distillation.on_records(
            make_teaching(folder, student=student, student_layers=None)
        )
    assert "no loss on records can do without" in str(one.value)
    with pytest.raises(ValueError, match="must have a masked-LM head"):
        distillation.on_records(make_teaching(folder, teacher="encoder"))
    for arguments, message in (
        ({"student_layers": (0, 2)}, "0 to 1. Received: student_layers=0,2"),
        ({}, "One of `student_layers`, `init_checkpoint` and"),
        (
            {"student_layers": (0,), "bert_config_file": "tiny"},
            "`bert_config_file` must not be given with `student_layers`: the",
        ),
        (
            {"bert_config_file": "tiny", "max_position_embeddings": 9},
            "`max_position_embeddings` must not be given with "
            "`bert_config_file`: there is no checkpoint.",
        ),
    ):
        with pytest.raises(ValueError) as error:
            distillation.find_student(found, **arguments)
        assert message in str(error.value)
    decoder = dataclasses.replace(CONFIG, is_decoder=True)
    student = dataclasses.replace(found, init_checkpoint=None, config=decoder)
    words = {"masked_lm": 1.0}
    for losses in (words, words | {"soft_targets": 1.0}):
        teaching = make_teaching(
            folder, Lesson(losses=losses), student=student, student_layers=None
        )
        if "soft_targets" not in losses:
            # Of words alone no teacher is asked.
            distillation.on_records(teaching)
            continue
        with pytest.raises(ValueError, match="left to right, or neither"):
            distillation.on_records(teaching)
    # A size's name is of the teacher's vocabulary.
    named = distillation.find_student(found, bert_config_file="tiny")
    assert named.config.vocab_size == 37
    assert named.tokenizer == TOKENIZER
