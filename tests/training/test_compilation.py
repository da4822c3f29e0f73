"""Steps and chains compiled with XLA: they are the plain ones."""

import contextlib
import dataclasses
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.input import array_source
from bert_tf.layers import activations
from bert_tf.layers import attend
from bert_tf.layers import chains as chains_lib
from bert_tf.models import objectives
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.loss_scale import LossScaleOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training import compilation as compilation_lib
from bert_tf.training import loop
from bert_tf.training import rematerialization
from bert_tf.training import step as step_lib
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.compilation import Compilation
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


def noted(monkeypatch, name):
    """Returns a list that gets what a function of the library is given."""
    given = []
    function = getattr(compilation_lib, name)

    def note(argument):
        given.append(argument)
        return function(argument)

    monkeypatch.setattr(compilation_lib, name, note)
    return given


@pytest.fixture
def compiled_chains(monkeypatch):
    """Lets chains of any size be compiled, and lists those that are."""
    monkeypatch.setattr(compilation_lib, "_MIN_ELEMENTS", 1)
    return noted(monkeypatch, "_compiled_chain")


def make_model(policy="float32"):
    """Returns a model of one block, with dropout."""
    config = dataclasses.replace(
        reference.tiny_config(dropout=0.1), num_hidden_layers=1
    )
    model = BertPretrainer(config, dtype=policy)
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
        model = make_model(policy)
        optimizer = make_optimizer()
        if policy == "mixed_float16":
            # The first gradients are not finite.
            optimizer = LossScaleOptimizer(optimizer, initial_scale=2.0**20)
            rematerialization.rematerialize(model.encoder)
        optimizer.build(model.trainable_variables)
    steps = step_lib.CompiledSteps(
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
        if record.name == "absl" and record.module == "compilation"
    ]


# The whole step, and its chains.
@pytest.mark.slow
@pytest.mark.parametrize("compilation", [Compilation.STEP, Compilation.CHAINS])
def test_compiled_steps_are_the_plain_ones_in_float16(
    compilation, source, compiled_chains
):
    plain = make_steps(
        source,
        make_strategy(),
        "mixed_float16",
        compilation=Compilation.NOTHING,
    )
    assert not compiled_chains
    compiled = make_steps(
        source, make_strategy(), "mixed_float16", compilation=compilation
    )
    assert bool(compiled_chains) == (compilation is Compilation.CHAINS)
    assert_equal(compiled[0], plain[0], rtol=1e-3)
    # The update of a gradient near 0 has either sign.
    assert_equal(compiled[1], plain[1], atol=5e-3)
    norms = [step["values"]["gradient_norm"] for step in compiled[0]]
    assert np.isfinite(norms).tolist() == [False] * 3 + [True] * 3
    # It is measured in the last one alone.
    changes = [step["values"]["update_norm"] for step in compiled[0]]
    assert changes[-1] > 0 == max(changes[:-1])


@pytest.mark.slow
@pytest.mark.parametrize("num_devices", [1, 2])
def test_compiled_steps_of_mirrored_devices_are_the_plain_ones(
    source, caplog, num_devices
):
    caplog.set_level("INFO", logger="absl")
    strategy = make_strategy("mirrored", num_cpu_devices=num_devices)
    plain, compiled = (
        make_steps(source, strategy, compilation=compilation)
        for compilation in (Compilation.NOTHING, Compilation.STEP)
    )
    assert_equal(compiled, plain, rtol=0, atol=1e-5)
    begins, ends = lines_of(caplog)
    shape = f"{8 // num_devices} x {reference.LENGTH}"
    assert begins == f"Compiling the step with XLA for batches of {shape}."
    assert re.fullmatch(r"Compiled in [\d.]+ s, with the first step\.", ends)


def test_a_plain_run_is_resumed_compiled(tmp_path, source, caplog):
    caplog.set_level("INFO", logger="absl")
    strategy = make_strategy()

    def train(folder, compilation):
        state = TrainingState(make_model(), make_optimizer(), folder, {})
        state.restore()
        config = loop.TrainingConfig(
            num_train_steps=NUM_STEPS,
            train_batch_size=8,
            iterations_per_loop=1,
            save_checkpoints_steps=3,
            compilation=compilation,
        )
        history = loop.train(
            state, reference.pretraining_objective(), source, config, strategy
        )
        values = values_of(state.model, state.optimizer)
        return [report["loss"] for report in history], values

    losses, values = train(tmp_path / "plain", Compilation.NOTHING)
    assert not lines_of(caplog)
    # As if it had been stopped after the first of its two checkpoints.
    shutil.copytree(
        tmp_path / "plain",
        tmp_path / "resumed",
        ignore=shutil.ignore_patterns("state-6.*", "checkpoint"),
    )
    resumed_losses, resumed_values = train(
        tmp_path / "resumed", Compilation.STEP
    )
    assert len(resumed_losses) == 3
    assert_equal(resumed_losses, losses[3:], rtol=0, atol=1e-5)
    assert_equal(resumed_values, values, rtol=0, atol=1e-5)
    assert len(lines_of(caplog)) == 2


# Of short sequences, and of long ones, whose activations are made again.
@pytest.mark.parametrize(
    "min_scores, devices",
    [(10**9, {}), (1, {"name": "mirrored", "num_cpu_devices": 2})],
)
def test_steps_with_compiled_chains_are_the_plain_ones(
    min_scores, devices, source, compiled_chains, monkeypatch
):
    monkeypatch.setattr(attend, "_MIN_SCORES", min_scores)
    strategy = make_strategy(**devices)
    got = make_steps(source, strategy)
    # GELU, dropout, the scores' gradient, the normalised sum and its gradient,
    # the loss and its gradient, updates with decay and without; of long
    # sequences also activations alone, and sums that are normalised again.
    assert len(set(compiled_chains)) == (9 if min_scores > 1 else 11)
    del compiled_chains[:]
    plain = make_steps(source, strategy, compilation=Compilation.NOTHING)
    assert_equal(got, plain, rtol=0, atol=1e-5)
    assert not compiled_chains


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    ("shape", "is_drawn_by_xla"),
    [((5, 4000), True), ((20000,), True), ((3, 6667), False), ((8,), False)],
)
def test_random_words_are_the_same(shape, is_drawn_by_xla, dtype, monkeypatch):
    monkeypatch.setattr(compilation_lib, "_MIN_ELEMENTS", 10_000)
    drawn = noted(monkeypatch, "_compiled_drawing")
    largest = np.iinfo(dtype).max
    for seed in ([0, 0], [1337, 2], [largest, largest - 1]):
        seed = tf.constant(seed, dtype)
        with compilation_lib.compiled_chains():
            words = chains_lib.runner_here().draw_words(shape, seed)
        assert words.dtype == "int32"
        np.testing.assert_array_equal(
            words, chains_lib.PLAIN.draw_words(shape, seed)
        )
    assert drawn == [5000] * 3 * is_drawn_by_xla


def test_the_largest_random_word_is_the_smallest_integer():
    """The range of Keras's integers lacks one, so TensorFlow wraps around."""
    # The last of the four words is 2**32 - 1, which is one word in 2**32.
    key = tf.constant([5], tf.uint64)
    counter = tf.constant([0, 1893865623], tf.uint64)
    wanted = tf.raw_ops.StatelessRandomUniformIntV2(
        shape=[4],
        key=key,
        counter=counter,
        alg=1,
        minval=-(2**31),
        maxval=2**31 - 1,
    )
    assert wanted[3] == -(2**31)
    words = compilation_lib._compiled_drawing(1)(key, counter)
    got = tf.reshape(tf.bitcast(words, tf.int32), [4])
    np.testing.assert_array_equal(got, wanted)


def test_chains_of_lengths_that_are_not_static_are_not_compiled(
    compiled_chains,
):
    @tf.function(input_signature=[tf.TensorSpec([None, 8])])
    def activate(x):
        with compilation_lib.compiled_chains():
            return activations.apply_activation("gelu", x, training=True)

    x = np.linspace(-3, 3, 16, dtype="float32").reshape(2, 8)
    np.testing.assert_allclose(activate(x), tf.nn.gelu(x), atol=1e-6)
    assert not compiled_chains


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_out_of_range_are_errors(label, compiled_chains):
    logits, labels = tf.ones([1, 1, 3]), tf.constant([[label]])
    for chains in (compilation_lib.compiled_chains, contextlib.nullcontext):
        with chains(), pytest.raises(tf.errors.InvalidArgumentError):
            objectives._cross_entropy_of_words(logits, labels)
    with pytest.raises(tf.errors.InvalidArgumentError):
        objectives.cross_entropy(logits, labels)


def test_chains_are_compiled_on_cpus_alone(compiled_chains, monkeypatch):
    devices = [
        tf.config.LogicalDevice(f"/device:{kind}:0", kind)
        for kind in ("CPU", "GPU")
    ]
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: devices)
    with compilation_lib.compiled_chains():
        activations.apply_activation("gelu", tf.ones([2, 8]), training=True)
    assert not compiled_chains


@pytest.mark.parametrize("name", ["gelu", "gelu_new"])
def test_compiled_chains_round_16_bits_once(name, compiled_chains):
    x = tf.cast(tf.linspace(-6.0, 6.0, 4096), "bfloat16")
    with compilation_lib.compiled_chains(), tf.GradientTape() as tape:
        tape.watch(x)
        y = activations.apply_activation(name, x, training=True)
    slope = tape.gradient(y, x)
    assert len(compiled_chains) == 1
    wide = np.asarray(x).astype("float64")
    inputs = tf.constant(wide)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        expected = tf.nn.gelu(inputs, approximate=name == "gelu_new")
    for got, exact in ((y, expected), (slope, tape.gradient(expected, inputs))):
        # Half of the 2^-7 between two neighbours, and what float32 rounds.
        np.testing.assert_allclose(
            np.asarray(got).astype("float64"), exact, rtol=2.0**-8, atol=1e-5
        )
