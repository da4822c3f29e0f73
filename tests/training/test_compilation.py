"""Steps compiled with XLA: they are the plain ones."""

import dataclasses
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.input import array_source
from bert_tf.models import objectives
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training import compiled_steps
from bert_tf.training import loop
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference

NUM_STEPS = 6


@pytest.fixture(scope="module")
def source():
    arrays = {
        name: value.astype("int32") if value.dtype == np.int64 else value
        for name, value in reference.pretraining_arrays(40).items()
    }
    return array_source.ArraySource(arrays=arrays)


def make_model(policy="float32", **options):
    """Returns a model of one block, with dropout."""
    config = dataclasses.replace(
        reference.tiny_config(dropout=0.1), num_hidden_layers=1
    )
    model = BertPretrainer(config, dtype=policy, **options)
    reference.set_weights(model)
    return model


def make_optimizer():
    return BertOptimizer(WarmupDecay(0.01, 20, 2))


def values_of(model, optimizer):
    return [
        keras.ops.convert_to_numpy(variable)
        for variable in model.weights + optimizer.variables
    ]


def make_steps(source, strategy, policy="float32", **options):
    """Makes steps, plain or compiled.

    Returns:
        What `train_step` did in each, and all variables after them.
    """
    with strategy.scope():
        is_scaled = policy == "mixed_float16"
        model = make_model(policy, rematerialize=is_scaled)
        optimizer = make_optimizer()
        if is_scaled:
            # The first gradients are not finite.
            optimizer = LossScaleOptimizer(optimizer, initial_scale=2.0**20)
        optimizer.build(model.trainable_variables)
    steps = compiled_steps.CompiledSteps(
        model,
        reference.pretraining_objective(),
        optimizer,
        accumulation_steps=2,
        **options,
    )
    batches = strategy.distribute_datasets_from_function(
        lambda context: source.training_batches(8, 0, context)
    )
    results, _ = steps.run(strategy, iter(batches), 0, NUM_STEPS)
    return results, values_of(model, optimizer)


def assert_equal(got, wanted, **tolerance):
    for value, expected in zip(
        keras.tree.flatten(got), keras.tree.flatten(wanted), strict=True
    ):
        np.testing.assert_allclose(value, expected, **tolerance)


def lines_of(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.module == "compiled_steps"
    ]


@pytest.mark.slow
def test_compiled_steps_are_the_plain_ones_in_float16(source):
    plain, compiled = (
        make_steps(
            source, make_strategy(), "mixed_float16", jit_compile=jit_compile
        )
        for jit_compile in (False, True)
    )
    assert_equal(compiled[0], plain[0], rtol=1e-3)
    # The update of a gradient near 0 has either sign.
    assert_equal(compiled[1], plain[1], atol=5e-3)
    norms = [step["values"]["gradient_norm"] for step in compiled[0]]
    assert np.isfinite(norms).tolist() == [False] * 3 + [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 2])
def test_compiled_steps_of_mirrored_devices_are_the_plain_ones(
    source, caplog, num_devices
):
    caplog.set_level("INFO", logger="bert_tf")
    strategy = make_strategy("mirrored", num_cpu_devices=num_devices)
    plain, compiled = (
        make_steps(source, strategy, jit_compile=jit_compile)
        for jit_compile in (False, True)
    )
    assert_equal(compiled, plain, rtol=0, atol=1e-5)
    begins, ends = lines_of(caplog)
    shape = f"{8 // num_devices} x {reference.LENGTH}"
    assert begins == f"Compiling the step with XLA for batches of {shape}."
    assert re.fullmatch(r"Compiled in [\d.]+ s, with the first step\.", ends)


def test_a_plain_run_is_resumed_compiled(tmp_path, source, caplog):
    caplog.set_level("INFO", logger="bert_tf")
    strategy = make_strategy()

    def train(folder, jit_compile):
        state = TrainingState(make_model(), make_optimizer(), folder, {})
        state.restore()
        config = loop.TrainingConfig(
            num_train_steps=NUM_STEPS,
            train_batch_size=8,
            options=LoopOptions(
                iterations_per_loop=1,
                save_checkpoints_steps=3,
                jit_compile=jit_compile,
            ),
        )
        history = loop.train(
            state, reference.pretraining_objective(), source, config, strategy
        )
        values = values_of(state.model, state.optimizer)
        return [report["loss"] for report in history], values

    losses, values = train(tmp_path / "plain", False)
    assert not lines_of(caplog)
    # As if it had been stopped after the first of its two checkpoints.
    shutil.copytree(
        tmp_path / "plain",
        tmp_path / "resumed",
        ignore=shutil.ignore_patterns("state-6.*", "checkpoint"),
    )
    resumed_losses, resumed_values = train(tmp_path / "resumed", True)
    assert len(resumed_losses) == 3
    assert_equal(resumed_losses, losses[3:], rtol=0, atol=1e-5)
    assert_equal(resumed_values, values, rtol=0, atol=1e-5)
    assert len(lines_of(caplog)) == 2


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range_are_errors(label):
    logits, labels = tf.ones([1, 1, 3]), tf.constant([[label]])
    with pytest.raises(tf.errors.InvalidArgumentError):
        objectives.cross_entropy(logits, labels)
