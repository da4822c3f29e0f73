"""Steps on a GPU beside a CPU's, by `make gpu-check`.

No GPU was at hand when they were written: the tolerances are estimates.
"""

import dataclasses
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from bert_tf import backend
from bert_tf.input import array_source
from bert_tf.layers.basic import Dropout
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.training import compiled_steps
from bert_tf.training import devices
from bert_tf.training import randomness
from bert_tf.training import step as step_lib
from references import training as reference

pytestmark = pytest.mark.gpu

CPU, GPU = "/cpu:0", "/gpu:0"
ROWS = 16
NUM_STEPS = 3


@pytest.fixture(autouse=True)
def _float32_products():
    if not tf.config.list_logical_devices("GPU"):
        pytest.skip("TensorFlow finds no GPU.")
    devices.set_arithmetic(tf32=False, deterministic=False)
    yield
    devices.set_arithmetic(tf32=True, deterministic=False)


def make_steps(strategy, policy="float32", rows=ROWS, folder=None, **config):
    """Makes steps of pre-training, with dropout.

    Args:
        folder: If given, where a profile is written of all but the first.

    Returns:
        The losses, and all weights after the steps.
    """
    config = dataclasses.replace(reference.tiny_config(0.1), **config)
    with strategy.scope():
        model = BertPretrainer(config, dtype=policy)
        reference.set_weights(model)
        optimizer = BertOptimizer(1e-2)
        optimizer.build(model.trainable_variables)
    arrays = {
        name: value.astype("int32") if value.dtype == np.int64 else value
        for name, value in reference.pretraining_arrays(3 * rows).items()
    }
    source = array_source.ArraySource(arrays=arrays)
    batches = strategy.distribute_datasets_from_function(
        lambda context: source.training_batches(rows, 0, context)
    )
    steps = compiled_steps.CompiledSteps(
        model, reference.pretraining_objective(), optimizer
    )
    iterator = iter(batches)
    results, _ = steps.run(strategy, iterator, 0, 1)
    if folder is not None:
        tf.profiler.experimental.start(str(folder))
    results += steps.run(strategy, iterator, 1, NUM_STEPS - 1)[0]
    if folder is not None:
        tf.profiler.experimental.stop()
    losses = np.array([result["values"]["loss"] for result in results])
    return losses, [keras.ops.convert_to_numpy(v) for v in model.weights]


def assert_equal_steps(one, other, atol):
    np.testing.assert_allclose(one[0], other[0], rtol=0, atol=atol)
    for weight, other_weight in zip(one[1], other[1], strict=True):
        np.testing.assert_allclose(weight, other_weight, rtol=0, atol=atol)


def on(device):
    return tf.distribute.OneDeviceStrategy(device)


def test_steps_are_those_of_a_cpu():
    assert_equal_steps(make_steps(on(GPU)), make_steps(on(CPU)), 1e-4)


def test_steps_in_tf32_are_near():
    devices.set_arithmetic(tf32=True, deterministic=False)
    losses, _ = make_steps(on(GPU))
    # Products' factors are rounded by up to 2**-11, 0.05 %: no more than a
    # float16, of which the test below tells what it does to losses.
    np.testing.assert_allclose(losses, make_steps(on(CPU))[0], rtol=1e-2)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_steps_of_16_bits_are_near(policy):
    losses, _ = make_steps(on(GPU), policy)
    # Numbers are rounded by up to 2**-9, 0.2 %, in bfloat16, and 2**-11 in
    # float16. On a CPU the losses of these steps then differ from float32's by
    # 0.06 % and 0.006 %; a GPU adds up in another order.
    np.testing.assert_allclose(losses, make_steps(on(CPU))[0], rtol=2e-2)


def test_one_mirrored_gpu_makes_the_steps_of_one_device():
    mirrored = tf.distribute.MirroredStrategy([GPU])
    assert_equal_steps(make_steps(mirrored), make_steps(on(GPU)), 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dropout_masks_are_those_of_a_cpu(dtype):
    masks = []
    for device in (CPU, GPU):
        with tf.device(device):
            layer = Dropout(0.3, seed=5)
            x = tf.ones((31, 17, 9), dtype)
            # Twice: the second draw is another one.
            masks += [np.array(layer(x, training=True) != 0) for _ in range(2)]
    np.testing.assert_array_equal(masks[0], masks[2])
    np.testing.assert_array_equal(masks[1], masks[3])
    assert (masks[0] != masks[1]).any()


def test_a_step_compiled_with_xla_is_the_plain_one():
    batch = reference.as_batch(reference.pretraining_arrays(ROWS))
    losses = {}
    for jit_compile in (False, True):
        with tf.device(GPU):
            model = BertPretrainer(reference.tiny_config(0.1))
            reference.set_weights(model)
            optimizer = BertOptimizer(1e-2)
            optimizer.build(model.trainable_variables)
        states = backend.seed_states(model)

        @tf.function(autograph=False, jit_compile=jit_compile)
        def run(batch, model=model, optimizer=optimizer):
            return step_lib.train_step(
                model, reference.pretraining_objective(), optimizer, batch
            )["values"]["loss"]

        losses[jit_compile] = []
        for step in range(NUM_STEPS):
            # Outside: XLA takes 32 bits of a seed's 64.
            randomness.set_seeds(states, 1, tf.constant(step, tf.int64))
            with tf.device(GPU):
                losses[jit_compile].append(float(run(batch)))
    np.testing.assert_allclose(losses[True], losses[False], atol=1e-4)


def test_deterministic_operations_give_the_same_bits(tmp_path, run_program):
    reference.write_records(
        tmp_path / "a.tfrecord", reference.pretraining_arrays(64)
    )
    vocabulary = reference.vocabulary().tokens
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    weights = []
    for name in ("once", "again"):
        output = tmp_path / name
        process = run_program(
            "bert_tf.run_pretraining",
            "--do_train",
            "--deterministic",
            "--bert_config_file=tiny",
            f"--vocab_file={tmp_path}/vocab.txt",
            f"--input_file={tmp_path}/a.tfrecord",
            f"--output_dir={output}",
            f"--max_seq_length={reference.LENGTH}",
            f"--max_predictions_per_seq={reference.PREDICTIONS}",
            "--num_train_steps=20",
            "--num_warmup_steps=2",
            "--learning_rate=1e-3",
        )
        assert "1 device: GPU" in process.stderr
        weights.append((output / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


def copied_bytes(folder):
    """Returns the bytes that a profile has between the host and its GPUs."""
    return sum(
        size_of_copy(plane, event)
        for path in folder.rglob("*.xplane.pb")
        for plane in xplane_pb2.XSpace.FromString(path.read_bytes()).planes
        if plane.name.startswith("/device:GPU")
        for line in plane.lines
        for event in line.events
    )


def size_of_copy(plane, event):
    """Returns its bytes; 0 if it is no copy from or to the host."""
    name = plane.event_metadata[event.metadata_id].name
    if name not in ("MemcpyH2D", "MemcpyD2H"):
        return 0
    for stat in event.stats:
        text = stat.str_value or plane.stat_metadata[stat.ref_value].name
        size = re.search(r"\bsize:(\d+)", text)
        if size:
            return int(size[1])
    return 0


def test_a_step_copies_its_batch_alone(tmp_path):
    rows = 256
    num_tokens = rows * reference.LENGTH
    make_steps(on(GPU), rows=rows, folder=tmp_path, hidden_size=96)
    per_token = copied_bytes(tmp_path) / (NUM_STEPS - 1) / num_tokens
    # Ids, positions and masks go to and fro a few times: 4 bytes each. The
    # random words of one dropout are 2 bytes of each of 96 activations.
    assert 4 <= per_token < 160
