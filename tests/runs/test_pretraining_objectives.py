"""ELECTRA in the training loop: resumed, on devices, in parts, evaluated."""

import dataclasses
import math
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.config import ATTENTION_TILE as TILE
from bert_tf.input import pretraining
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.replaced_tokens import ReplacedTokensPretrainer
from bert_tf.models.replaced_tokens import generator_config
from bert_tf.models.replaced_tokens import replaced_tokens
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.runs import objectives as training_objectives
from bert_tf.runs import pretraining_run
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.training import compiled_steps
from bert_tf.training import health
from bert_tf.training import loop
from bert_tf.training import step as step_lib
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference
from support import pretraining_options
from support.family_models import of_family

CONFIG = dataclasses.replace(
    of_family(reference.tiny_config(), "electra"), num_hidden_layers=1
)
OBJECTIVE = replaced_tokens()


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    reference.write_records(path, reference.pretraining_arrays(30))
    return pretraining.pretraining_records(
        str(path),
        CONFIG,
        WordpieceSpec(reference.vocabulary()),
        max_seq_length=reference.LENGTH,
        max_predictions_per_seq=reference.PREDICTIONS,
        draws_replacements=True,
    )


def make_state(folder, strategy):
    with strategy.scope():
        model = ReplacedTokensPretrainer(CONFIG, generator_config(CONFIG, 0.5))
        reference.set_weights(model)
        return TrainingState(model, BertOptimizer(0.01), folder, {})


def train(state, records, strategy, parts=1, compiled=None):
    config = loop.TrainingConfig(
        num_train_steps=6,
        train_batch_size=8,
        options=LoopOptions(
            iterations_per_loop=1,
            save_checkpoints_steps=1,
            gradient_accumulation_steps=parts,
        ),
    )
    return loop.train(
        state, OBJECTIVE, records, config, strategy, compiled=compiled
    )


def weights_of(state):
    return [
        keras.ops.convert_to_numpy(value)
        for value in state.model.weights + state.optimizer.variables
    ]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, records):
    """A run of one device: its state, what it compiled, what it logged."""
    strategy = make_strategy()
    state = make_state(tmp_path_factory.mktemp("unbroken"), strategy)
    compiled = compiled_steps.CompiledSteps(
        state.model, OBJECTIVE, state.optimizer
    )
    history = train(state, records, strategy, compiled=compiled)
    return state, compiled, history, weights_of(state)


# Beside a run of one device, which the default tests have too.
@pytest.mark.survival
def test_two_devices_with_parts_make_the_steps_of_one(
    tmp_path, records, unbroken
):
    _, _, expected, weights = unbroken
    strategy = make_strategy("mirrored", num_cpu_devices=2)
    state = make_state(tmp_path, strategy)
    history = train(state, records, strategy, parts=2)
    for name in (
        "loss",
        "masked_lm_loss",
        "discriminator_loss",
        "gradient_norm",
        "replaced_share",
        "discriminator_recall",
    ):
        np.testing.assert_allclose(
            [report[name] for report in history],
            [report[name] for report in expected],
            rtol=1e-4,
            err_msg=name,
        )
    for found, wanted in zip(weights_of(state), weights):
        np.testing.assert_allclose(found, wanted, atol=2e-5)
    # The samples differ from step to step, and so from the text.
    shares = {report["replaced_share"] for report in expected}
    assert len(shares) > 2


def test_a_resumed_run_equals_an_unbroken_one_bit_for_bit(
    tmp_path, records, unbroken
):
    # After the devices, which look at its weights: they are restored here.
    state, compiled, expected, weights = unbroken
    shutil.copytree(state.folder, tmp_path / "train")
    for path in (tmp_path / "train").glob("state-[3-6].*"):
        path.unlink()
    again = TrainingState(state.model, state.optimizer, tmp_path, {})
    assert again.restore()
    assert again.step == 2
    history = train(again, records, make_strategy(), compiled=compiled)
    assert [report["loss"] for report in history] == [
        report["loss"] for report in expected[2:]
    ]
    for found, wanted in zip(weights_of(again), weights):
        np.testing.assert_array_equal(found, wanted)


def test_an_evaluation_does_not_depend_on_its_batches(records, unbroken):
    state, *_ = unbroken

    def evaluate(batch_size):
        # Without a graph: to trace one takes longer.
        results = [
            step_lib.eval_step(state.model, OBJECTIVE, batch)
            for batch in records.evaluation_batches(batch_size)
        ]
        return tf.nest.map_structure(lambda *values: sum(values), *results)

    found, otherwise = evaluate(10), evaluate(7)
    replaced, num_tokens = map(float, found["metrics"]["replaced_share"])
    assert 0 < replaced < 0.5 * num_tokens
    tf.nest.map_structure(
        lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-5),
        found,
        otherwise,
    )


def make_options(**values):
    return pretraining_options.make_options(
        **{
            "input_file": "a",
            "num_train_steps": 9,
            "train_batch_size": 4,
            "output_dir": "nowhere",
            "do_eval": True,
            "num_warmup_steps": 1,
        }
        | values
    )


ELECTRA = {"objective": "replaced_tokens"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"generator_size": 0.5},
            "--generator_size needs --objective=replaced_tokens. Received: "
            "--generator_size=0.5 --objective=masked_tokens.",
        ),
        (
            ELECTRA | {"generator_size": 1.5},
            "--generator_size must be above 0, and at most 1. Received: "
            "--generator_size=1.5.",
        ),
        (
            ELECTRA | {"span_boundary_objective": True},
            "--span_boundary_objective must not come with "
            "--objective=replaced_tokens",
        ),
        (
            ELECTRA | {"attention": "left_to_right"},
            "--objective=replaced_tokens needs attention in both directions. "
            "Received: --attention=left_to_right.",
        ),
        (
            {"span_boundary_objective": True, "attention": "left_to_right"},
            "--span_boundary_objective needs attention in both directions.",
        ),
        (
            {"span_boundary_objective": True},
            "--span_boundary_objective needs --do_train: its head is in no "
            "model folder",
        ),
        ({"adam_beta_2": 1.0}, "--adam_beta_2 must be in [0, 1). Received: "),
        (
            {"adam_epsilon": 0.0},
            "--adam_epsilon must be positive. Received: --adam_epsilon=0.0.",
        ),
        (
            {"adam_epsilon": math.inf},
            "--adam_epsilon must be a finite number. Received: ",
        ),
        ({"clip_norm": -1.0}, "--clip_norm must be 0 or more. Received: "),
        (
            {"weight_decay": -0.1},
            "--weight_decay must be 0 or more. Received: ",
        ),
        (
            {"weight_decay": math.inf},
            "--weight_decay must be a finite number. Received: ",
        ),
        (
            {"random_seed": -1},
            "--random_seed must be in [0, 2**32). Received: --random_seed=-1.",
        ),
        *(
            (
                {"attention_chunk": value},
                "--attention_chunk must be 0 or a positive multiple of 128. "
                f"Received: --attention_chunk={value}.",
            )
            for value in (TILE // 2, TILE + 1, -TILE)
        ),
    ],
)
def test_options_that_do_not_fit_together_are_refused(values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make_options(**values)


@pytest.mark.parametrize(
    ("config", "values", "encoders"),
    [
        (reference.tiny_config(), {}, lambda model: [model.encoder]),
        (
            CONFIG,
            ELECTRA,
            lambda model: [
                model.generator.encoder,
                model.discriminator.encoder,
            ],
        ),
        (
            reference.tiny_config(),
            {"span_boundary_objective": True, "do_train": True},
            lambda model: [model.pretrainer.encoder],
        ),
    ],
)
def test_how_to_compute_arrives_in_every_block(config, values, encoders):
    start = StartingPoint(
        init_checkpoint=None,
        config=config,
        tokenizer=WordpieceSpec(reference.vocabulary()),
    )
    for chunk in (None, 0, 2 * TILE):
        options = make_options(
            attention_chunk=chunk, rematerialize=True, **values
        )
        model = training_objectives.make(options, start, "float32").model
        # A copy computes as its original does.
        for each in (model, type(model).from_config(model.get_config())):
            for encoder in encoders(each):
                assert encoder.rematerialize
                for block in encoder.blocks:
                    assert block.attention.attention_chunk == chunk


@pytest.mark.parametrize(
    ("config", "values", "message"),
    [
        (
            reference.tiny_config(),
            ELECTRA,
            "--objective=replaced_tokens needs a model of the family electra, "
            "e.g. --bert_config_file=electra-small. Received: model_type=bert.",
        ),
        (
            dataclasses.replace(CONFIG, is_decoder=True),
            ELECTRA,
            "--objective=replaced_tokens needs attention in both directions. "
            "Received: a configuration with is_decoder=True.",
        ),
        (
            dataclasses.replace(reference.tiny_config(), is_decoder=True),
            {"span_boundary_objective": True, "do_train": True},
            "--span_boundary_objective needs attention in both directions.",
        ),
    ],
)
def test_an_objective_that_does_not_suit_the_model_is_refused(
    config, values, message
):
    start = StartingPoint(
        init_checkpoint=None,
        config=config,
        tokenizer=WordpieceSpec(reference.vocabulary()),
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        training_objectives.make(make_options(**values), start, "float32")


def save_electra(folder):
    """Saves both nets; returns what they began with, and the pre-training."""
    start = StartingPoint(
        init_checkpoint=None,
        config=CONFIG,
        tokenizer=WordpieceSpec(reference.vocabulary()),
    )
    made = training_objectives.make(make_options(**ELECTRA), start, "float32")
    for name, model in made.saved.items():
        checkpoints.save(folder / name, model, start.tokenizer, 16)
    return start, made


def test_a_checkpoint_needs_both_nets_and_their_one_embedding(tmp_path):
    start, made = save_electra(tmp_path)
    embeddings = made.model.discriminator.encoder.embeddings
    words = embeddings.word_embeddings
    before = keras.ops.convert_to_numpy(words)
    words.assign(before + 1)
    made.load_weights(str(tmp_path))
    np.testing.assert_array_equal(words, before)
    # The generator alone of another training.
    for weight, name in (
        (words, "word_embeddings"),
        (embeddings.layer_norm.gamma, "layer_norm/gamma"),
    ):
        weight.assign(weight + 1)
        checkpoints.save(
            tmp_path / "generator", made.model.generator, start.tokenizer, 16
        )
        with pytest.raises(ValueError, match=f"Received: different {name} in "):
            made.load_weights(str(tmp_path))

    shutil.rmtree(tmp_path / "generator")
    alone = dataclasses.replace(start, init_checkpoint=str(tmp_path))
    message = (
        "needs a checkpoint that has a generator in its folder generator, as "
        f"it writes them. Received: --init_checkpoint={tmp_path}."
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        training_objectives.make(make_options(**ELECTRA), alone, "float32")


def options_on_records(folder):
    """Returns options for records that are written into the folder."""
    path = str(folder / "a.tfrecord")
    reference.write_records(path, reference.pretraining_arrays(4))
    return make_options(
        input_file=path,
        max_predictions_per_seq=reference.PREDICTIONS,
        output_dir=str(folder),
        max_seq_length=reference.LENGTH,
    )


def test_a_head_that_a_folder_has_not_is_not_evaluated(tmp_path):
    start, made = save_electra(tmp_path)
    assert made.load_weights(str(tmp_path)) == []
    # The objective was forgotten: the folder's own is the discriminator.
    options = options_on_records(tmp_path)
    start = dataclasses.replace(start, init_checkpoint=str(tmp_path))
    with pytest.raises(ValueError) as error:
        pretraining_run.run(options, start, make_strategy(), "float32")
    assert str(error.value) == (
        f"{tmp_path}: has no head masked_lm to evaluate. It needs the trained "
        "heads of --objective."
    )
    assert not (tmp_path / "eval_results.txt").exists()


def test_a_next_sentence_head_that_a_folder_has_not_is_not_evaluated(tmp_path):
    start = StartingPoint(
        init_checkpoint=str(tmp_path),
        config=reference.tiny_config(),
        tokenizer=WordpieceSpec(reference.vocabulary()),
    )
    model = BertPretrainer(start.config, has_next_sentence_head=False)
    checkpoints.save(tmp_path, model, start.tokenizer, 16)
    options = options_on_records(tmp_path)
    with pytest.raises(ValueError, match="has no head next_sentence to eval"):
        pretraining_run.run(options, start, make_strategy(), "float32")
    assert not (tmp_path / "eval_results.txt").exists()


def test_operations_are_those_of_both_nets():
    start = StartingPoint(
        init_checkpoint=None,
        config=CONFIG,
        tokenizer=WordpieceSpec(reference.vocabulary()),
    )
    made = training_objectives.make(make_options(**ELECTRA), start, "float32")
    generator = generator_config(CONFIG, 0.25)
    assert made.model.generator.config == generator
    assert made.flops_per_example(11, 3) == (
        health.flops_per_example(generator, 11, 3)
        + health.flops_per_example(CONFIG, 11, 0)
    )
    assert made.description["generator"] == generator.to_dict()
