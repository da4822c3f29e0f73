"""Phases: read, trained through, gone on with across their boundary."""

import dataclasses
import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.input import array_source
from bert_tf.models.objectives import Objective
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.optimizers.schedule import WarmupDecay
from bert_tf.runs import options
from bert_tf.runs import phases
from bert_tf.training import preemption
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.options import LoopOptions
from bert_tf.training.strategy import make_strategy
from references import training as reference

PHASES = options.parse_phases("8:4:6,11:3:4", "a;b")
# The second phase begins at step 4.
NUM_STEPS = 7


def test_phases_are_read():
    text = "128:900000:256,512:100000:64"
    assert options.parse_phases(text, "a,b;c") == (
        phases.Phase(
            input_file="a,b",
            max_seq_length=128,
            num_steps=900000,
            train_batch_size=256,
        ),
        phases.Phase(
            input_file="c",
            max_seq_length=512,
            num_steps=100000,
            train_batch_size=64,
        ),
    )
    with pytest.raises(ValueError, match="the records of 2 phases, with a sem"):
        options.parse_phases(text, "a,b")
    with pytest.raises(ValueError, match="--train_batch_size must not be giv"):
        options.InputOptions(input_file="a;b", phases=text, train_batch_size=8)


@pytest.mark.parametrize("part", ["", "128:5", "128:5:a", "128:0:4", "1:2:3:4"])
def test_what_is_no_phase_is_named(part):
    with pytest.raises(ValueError, match=f"Received: '{part}' in --phases="):
        options.parse_phases(f"128:5:4,{part}", "a;b")


class Sum(keras.Model):
    """The sum of the places that dropout keeps, times a weight."""

    def __init__(self):
        super().__init__()
        self.dropout = keras.layers.Dropout(0.1)
        self.weight = keras.layers.Dense(1, use_bias=False)
        self.weight.build((None, 1))
        self.weight.kernel.assign([[2.0]])
        self.built = True

    def call(self, batch, training=None):
        kept = self.dropout(batch["x"], training=training)
        return self.weight(keras.ops.sum(kept, axis=1, keepdims=True))


OBJECTIVE = Objective(
    weights=lambda batch: {
        "square": tf.cast(tf.shape(batch["x"])[0], tf.float32)
    },
    losses=lambda outputs, batch: {"square": tf.reduce_sum(outputs**2)},
    metrics=lambda outputs, batch: {},
)


def make_sources():
    random = np.random.default_rng(5)
    return [
        array_source.ArraySource(
            arrays={
                "x": random.normal(size=(30, length)).astype("float32"),
                features.INPUT_MASK: np.ones((30, length), "int32"),
            },
            seed=length,
        )
        for length in (8, 11)
    ]


def train(folder, stops=(), sources=None, num_parts=(1, 1, 1)):
    """Trains; told to stop at these steps, it goes on with a new state.

    Each time it has one of `num_parts` of gradient accumulation.
    """
    strategy = make_strategy()
    history = []
    for stop, parts in zip((*stops, None), num_parts):
        with strategy.scope():
            model = Sum()
            state = TrainingState(
                model,
                BertOptimizer(WarmupDecay(0.01, NUM_STEPS, 2)),
                folder,
                {},
            )
        state.restore()

        def stop_there(state=state, stop=stop):
            if state.step == stop:
                os.kill(os.getpid(), signal.SIGTERM)

        loop_options = LoopOptions(
            iterations_per_loop=1,
            save_checkpoints_steps=1,
            gradient_accumulation_steps=parts,
        )
        try:
            history += phases.train(
                state,
                OBJECTIVE,
                PHASES,
                loop_options,
                sources or make_sources(),
                strategy,
                on_save=stop_there,
            )
        except preemption.PreemptedError:
            assert state.step == stop
    weights = [keras.ops.convert_to_numpy(weight) for weight in model.weights]
    return history, weights, state


def test_a_run_goes_on_across_the_boundary_as_if_unbroken(tmp_path):
    history, expected, state = train(tmp_path / "unbroken")
    assert [report["step"] for report in history] == [*range(1, NUM_STEPS + 1)]
    # One schedule over all phases.
    np.testing.assert_allclose(
        [report["learning_rate"] for report in history],
        [
            reference.warmup_linear_decay(step, 0.01, NUM_STEPS, 2)
            for step in range(NUM_STEPS)
        ],
        rtol=1e-5,
    )
    assert (state.step, state.example) == (NUM_STEPS, 3 * 4)
    # Stopped on the boundary, and behind it.
    _, weights, state = train(tmp_path / "stopped", (4, 5))
    assert (state.step, state.example) == (NUM_STEPS, 3 * 4)
    for got, wanted in zip(weights, expected):
        np.testing.assert_array_equal(got, wanted)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noting(array_source.ArraySource):
    """Notes in `read` which batches are asked of it: (size, first example)."""

    read: list

    def training_batches(self, batch_size, start_example=0, context=None):
        self.read.append((batch_size, start_example))
        return super().training_batches(batch_size, start_example, context)


def test_phases_of_one_source_read_on(tmp_path):
    read = []
    source = Noting(arrays=make_sources()[0].arrays, read=read)
    *_, state = train(tmp_path / "unbroken", sources=[source] * 2)
    assert read == [(6, 0), (4, 4 * 6)]
    assert state.example == 4 * 6 + 3 * 4
    # Stopped on the boundary, and behind it.
    read.clear()
    train(tmp_path / "stopped", (4, 5), sources=[source] * 2)
    assert read == [(6, 0), (4, 4 * 6), (4, 4 * 6), (4, 4 * 6 + 4)]


def test_batches_of_a_later_phase_are_looked_at_first(tmp_path):
    # 6 can be cut into three parts, 4 cannot.
    with pytest.raises(
        ValueError, match="^Phase 2 of 2: `train_batch_size` must be a multiple"
    ):
        train(tmp_path / "run", num_parts=[3])
    assert not (tmp_path / "run").exists()
    # Phase 1, of batches that cannot be cut into four, is over at step 4.
    *_, state = train(tmp_path / "run", (4,), num_parts=[1, 4])
    assert state.step == NUM_STEPS
