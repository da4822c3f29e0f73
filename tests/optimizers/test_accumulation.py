"""A batch gone through in parts: the sums, and the steps of the whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import backend
from bert_tf import features
from bert_tf.input import array_source
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers import accumulation
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.training import loop
from bert_tf.training import randomness
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference

NUM_STEPS = 8


def test_parts_are_summed():
    batch = {"x": tf.reshape(tf.range(12.0), (6, 2)), "y": tf.range(6)}
    table = tf.Variable(tf.ones((8, 3)))

    def run_part(part):
        with tf.GradientTape() as tape:
            rows = tf.gather(table, part["y"])
            loss = tf.reduce_sum(rows * part["x"][:, :1])
        return {"g": tape.gradient(loss, table), "l": (loss,)}

    results = tf.function(accumulation.sum_over_parts)(run_part, batch, 3)
    assert float(results["l"][0]) == 3 * sum(range(0, 12, 2))
    expected = np.zeros((8, 3))
    expected[:6] = np.arange(0, 12, 2)[:, None]
    np.testing.assert_array_equal(results["g"], expected)
    with pytest.raises(ValueError, match="divide the 6 rows"):
        accumulation.sum_over_parts(run_part, batch, 4)


def test_labels_of_several_outputs_are_parted_too():
    """As of question answering, whose labels are a dictionary."""
    places = {"start": tf.range(6), "end": tf.range(6, 12)}
    batch = {"x": tf.range(6.0), features.LABELS: places}

    def run_part(part):
        labels = part[features.LABELS]
        assert labels["start"].shape == (2,)
        products = tf.cast(labels["end"] * labels["start"], tf.float32)
        return tf.reduce_sum(products * part["x"])

    total = tf.function(accumulation.sum_over_parts)(run_part, batch, 3)
    assert float(total) == sum(n * n * (n + 6) for n in range(6))


def test_masks_differ_by_part_and_repeat_by_step():
    model = keras.Sequential([keras.Input((70,)), keras.layers.Dropout(0.5)])
    states = backend.seed_states(model)

    @tf.function
    def masks(step):
        randomness.set_seeds(states, 3, step)

        def run_part(part):
            kept = model(tf.ones((1, 70)), training=True)
            return tf.one_hot(part["number"], 3)[:, :, None] * kept

        return accumulation.sum_over_parts(
            run_part, {"number": tf.range(3)}, 3
        )[0]

    first, again, other = (
        masks(tf.constant(step, tf.int64)).numpy() for step in (4, 4, 5)
    )
    np.testing.assert_array_equal(first, again)
    kept = [*first, *other]
    for i, mask in enumerate(kept):
        assert 15 < np.count_nonzero(mask) < 55
        assert not any((mask == later).all() for later in kept[i + 1 :])


def train(folder, strategy, parts):
    """Trains on uneven numbers of masked tokens; clipping and decay act."""
    arrays = reference.pretraining_arrays(40)
    counts = arrays[features.MASKED_LM_WEIGHTS].sum(axis=1)
    assert len(set(counts)) == reference.PREDICTIONS
    arrays = reference.as_batch(arrays)
    with strategy.scope():
        model = BertPretrainer(reference.tiny_config())
        reference.set_weights(model)
        state = TrainingState(
            model,
            BertOptimizer(WarmupDecay(0.01, NUM_STEPS, 2)),
            folder,
            {},
        )
    history = loop.train(
        state,
        reference.pretraining_objective(),
        array_source.ArraySource(arrays=arrays),
        loop.TrainingConfig(
            num_train_steps=NUM_STEPS,
            train_batch_size=12,
            options=LoopOptions(
                iterations_per_loop=1, gradient_accumulation_steps=parts
            ),
        ),
        strategy,
    )
    return history, [keras.ops.convert_to_numpy(w) for w in model.weights]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train(tmp_path_factory.mktemp("whole"), make_strategy(), 1)


@pytest.mark.parametrize(
    ("num_devices", "parts"),
    [(1, 4), pytest.param(2, 3, marks=pytest.mark.slow)],
)
def test_parts_make_the_steps_of_the_whole_batch(
    tmp_path, whole, num_devices, parts
):
    strategy = make_strategy()
    if num_devices > 1:
        strategy = make_strategy("mirrored", num_cpu_devices=num_devices)
    history, weights = train(tmp_path, strategy, parts)
    expected, expected_weights = whole
    assert max(report["gradient_norm"] for report in expected) > 1
    assert [report["step"] for report in history] == [*range(1, NUM_STEPS + 1)]
    for got, wanted in zip(history, expected):
        for name in ("loss", "masked_lm_accuracy", "gradient_norm", "padding"):
            np.testing.assert_allclose(
                got[name], wanted[name], rtol=0, atol=1e-5, err_msg=name
            )
    for got, wanted in zip(weights, expected_weights):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5)


def test_the_batch_must_divide(tmp_path):
    strategy = make_strategy("mirrored", num_cpu_devices=2)
    message = "multiple of 10: 2 replicas times gradient_accumulation_steps=5"
    with pytest.raises(ValueError, match=message):
        train(tmp_path / "out", strategy, 5)
    assert not (tmp_path / "out").exists()
