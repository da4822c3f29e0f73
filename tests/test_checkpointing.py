"""The training state: saved, kept, restored, refused."""

import os

import keras
import numpy as np
import pytest
import reference_training as reference
import tensorflow as tf

from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.optimizer import BertOptimizer
from bert_tf.training.strategy import make_strategy

DESCRIPTION = {"hidden_size": 12, "layers": [1, 2]}


def make_state(folder, description=None, strategy=None, **kwargs):
    with (strategy or make_strategy()).scope():
        model = BertPretrainer(reference.tiny_config(0.1))
        return TrainingState(
            model,
            BertOptimizer(0.01),
            folder,
            DESCRIPTION if description is None else description,
            **kwargs,
        )


def values_of(state):
    variables = state.model.variables + state.optimizer.variables
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def scramble(state):
    random = np.random.default_rng(5)
    for variable in state.model.weights + state.optimizer.variables:
        value = random.integers(1, 9, variable.shape)
        variable.assign(value.astype(variable.dtype))


@pytest.mark.parametrize("num_devices", [None, 2])
def test_all_variables_and_the_place_come_back(tmp_path, num_devices):
    strategy = None
    if num_devices:
        strategy = make_strategy("mirrored", num_cpu_devices=num_devices)
    state = make_state(tmp_path, strategy=strategy)
    assert not state.restore()
    assert (state.step, state.example) == (0, 0)
    scramble(state)
    state.step, state.example = 7, 7 * 32 + 1
    path = state.save()
    assert os.path.dirname(path) == str(tmp_path / "train")

    # Saved on one or two devices, restored on one.
    again = make_state(tmp_path)
    assert again.restore()
    assert (again.step, again.example) == (7, 7 * 32 + 1)
    num_weights = 0
    for got, wanted, variable in zip(
        values_of(again),
        values_of(state),
        again.model.variables + again.optimizer.variables,
    ):
        # Dropout's states are set at every step and are not saved.
        if variable.name != "seed_generator_state":
            np.testing.assert_array_equal(got, wanted)
            num_weights += 1
    # And the iteration, the learning rate and the norm of the gradient.
    assert num_weights == len(state.model.weights) * 3 + 3


def test_only_the_newest_are_kept(tmp_path):
    state = make_state(tmp_path, keep_checkpoint_max=2)
    for step in (2, 4, 6):
        state.step = step
        state.save()
    names = sorted(name.name for name in (tmp_path / "train").glob("*.index"))
    assert names == ["state-4.index", "state-6.index"]
    # A program that is started again goes on keeping two.
    again = make_state(tmp_path, keep_checkpoint_max=2)
    again.restore()
    again.step = 8
    again.save()
    names = sorted(name.name for name in (tmp_path / "train").glob("*.index"))
    assert names == ["state-6.index", "state-8.index"]


def test_a_folder_of_another_model_is_refused(tmp_path):
    make_state(tmp_path).save()
    with pytest.raises(ValueError) as error:
        make_state(tmp_path, {"hidden_size": 16, "layers": [1, 2]})
    assert "hidden_size is 12 there and 16 here" in str(error.value)
    assert "layers" not in str(error.value)


def test_nothing_is_written_before_the_first_checkpoint(tmp_path):
    make_state(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = make_state(tmp_path).save()
    with open(f"{path}.index", "r+b") as stream:
        stream.truncate(40)
    with pytest.raises(ValueError, match="state-0 cannot be restored"):
        make_state(tmp_path).restore()


def test_a_checkpoint_without_the_optimizers_variables_is_named(tmp_path):
    state = make_state(tmp_path)
    state.save()
    checkpoint = tf.train.Checkpoint(model=state.model)
    checkpoint.write(str(tmp_path / "train" / "state-0"))
    with pytest.raises(ValueError, match="state-0 cannot be restored"):
        make_state(tmp_path).restore()


def test_at_least_one_is_kept(tmp_path):
    with pytest.raises(ValueError, match="`keep_checkpoint_max` must be"):
        make_state(tmp_path, keep_checkpoint_max=0)


def test_a_full_disk_is_an_os_error_and_leaves_the_checkpoints_before(
    tmp_path, monkeypatch
):
    state = make_state(tmp_path)
    state.save()

    def save(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left")

    state.step = 5
    with monkeypatch.context() as patch:
        patch.setattr(tf.train.CheckpointManager, "save", save)
        with pytest.raises(OSError, match="step 5 cannot be .*No space left"):
            state.save()
    again = make_state(tmp_path)
    assert again.restore()
    assert again.step == 0
