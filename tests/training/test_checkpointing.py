"""The training state: saved, kept, restored, refused."""

import dataclasses
import os
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import files
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.optimizers.bert import BertOptimizer
from bert_tf.runs import output_folder
from bert_tf.training import lock
from bert_tf.training import strategy as strategies
from bert_tf.training.checkpointing import TrainingState
from bert_tf.training.strategy import make_strategy
from bert_tf.tuning import identity
from references import training as reference

DESCRIPTION = {"hidden_size": 12, "layers": [1, 2]}


def make_state(folder, strategy=None):
    config = dataclasses.replace(
        reference.tiny_config(0.1), num_hidden_layers=1
    )
    with (strategy or make_strategy()).scope():
        model = BertPretrainer(config)
        return TrainingState(model, BertOptimizer(0.01), folder, DESCRIPTION)


def make_small_state(folder, description=DESCRIPTION, **kwargs):
    """Makes that of a layer: a state does not ask what its model is."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(70)])
    return TrainingState(
        model, BertOptimizer(0.01), folder, description, **kwargs
    )


def saved_state(folder, steps):
    """Makes a small state that keeps the checkpoints of all these steps."""
    state = make_small_state(folder, keep_checkpoint_max=len(steps))
    for state.step in steps:
        state.save()
    return state


def restored_state(folder, num_kept):
    state = make_small_state(folder, keep_checkpoint_max=num_kept)
    assert state.restore()
    return state


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
    state = make_small_state(tmp_path, keep_checkpoint_max=2)
    for step in (2, 4, 6):
        state.step = step
        state.save()
    names = sorted(name.name for name in (tmp_path / "train").glob("*.index"))
    assert names == ["state-4.index", "state-6.index"]
    # A program that is started again goes on keeping two.
    again = make_small_state(tmp_path, keep_checkpoint_max=2)
    again.restore()
    again.step = 8
    again.save()
    names = sorted(name.name for name in (tmp_path / "train").glob("*.index"))
    assert names == ["state-6.index", "state-8.index"]


def test_a_checkpoint_that_is_removed_in_part_is_none(tmp_path, monkeypatch):
    state = make_small_state(tmp_path, keep_checkpoint_max=1)
    state.step = 2
    state.save()

    def remove(path, remove=files.remove):
        remove(path)
        if "state-2." in path:
            raise KeyboardInterrupt

    state.step = 4
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "remove", remove)
        state.save()
    again = make_small_state(tmp_path, keep_checkpoint_max=1)
    assert again.saved_steps() == [4]
    with again.hold():
        pass
    names = [path.name for path in (tmp_path / "train").glob("state-2.*")]
    assert names == []


def test_a_folder_of_another_model_is_refused(tmp_path):
    make_small_state(tmp_path).save()
    with pytest.raises(ValueError) as error:
        make_small_state(
            tmp_path, {"hidden_size": 16, "layers": [1, 2]}
        ).restore()
    assert "hidden_size was 12 and is 16" in str(error.value)
    assert "layers" not in str(error.value)


def test_nothing_is_written_before_the_first_checkpoint(tmp_path):
    make_small_state(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = make_small_state(tmp_path).save()
    with open(f"{path}.index", "r+b") as stream:
        stream.truncate(40)
    with pytest.raises(ValueError, match="state-0 cannot be restored"):
        make_small_state(tmp_path).restore()


def truncate(path, random):
    os.truncate(path, random.integers(0, os.path.getsize(path)))


def flip_a_bit(path, random):
    with open(path, "r+b") as stream:
        data = bytearray(stream.read())
        data[random.integers(0, len(data))] ^= 1 << random.integers(0, 8)
        stream.seek(0)
        stream.write(data)


@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001"])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, "remove"])
def test_damage_is_found_and_the_checkpoint_before_is_used(
    tmp_path, caplog, damage, suffix
):
    state = make_small_state(tmp_path)
    random = np.random.default_rng(8)
    saved = {}
    for step in (3, 6):
        scramble(state)
        state.step, state.example = step, step * 32
        state.optimizer.gradient_norm.assign(step)
        path = pathlib.Path(f"{state.save()}.{suffix}")
        saved[step] = values_of(state)
    again = make_small_state(tmp_path)
    whole = path.read_bytes()
    num_trials = 1 if damage == "remove" else 8
    num_found = 0
    for _ in range(num_trials):
        path.write_bytes(whole)
        if damage == "remove":
            path.unlink()
        else:
            damage(path, random)
        caplog.clear()
        assert again.restore()
        # A bit that means nothing leaves the checkpoint as good as it was.
        assert again.example == again.step * 32
        for got, wanted in zip(values_of(again), saved[again.step]):
            np.testing.assert_array_equal(got, wanted)
        if again.step == 3:
            num_found += 1
            # Without its index a checkpoint was never there.
            if (damage, suffix) != ("remove", "index"):
                assert "state-6 cannot be restored" in caplog.text
                assert "state-3. The reason given: " in caplog.text
    assert num_found >= 0.75 * num_trials


def test_a_lost_list_of_checkpoints_does_not_matter(tmp_path):
    state = make_small_state(tmp_path, keep_checkpoint_max=2)
    for state.step in (2, 4):
        state.save()
    (tmp_path / "train" / "checkpoint").write_text("model_checkpoint_pa")
    again = make_small_state(tmp_path, keep_checkpoint_max=2)
    assert again.restore()
    assert again.step == 4
    again.step = 6
    assert again.save() == tf.train.latest_checkpoint(str(tmp_path / "train"))
    assert again.saved_steps() == [4, 6]


def test_what_a_kill_leaves_is_removed(tmp_path):
    state = make_small_state(tmp_path)
    state.step = 5
    state.save()
    kept = sorted(path.name for path in (tmp_path / "train").iterdir())
    leftovers = [
        ".model.safetensors.0123abcd",
        ".README.md.0123abcd",
        # The temporary file of a temporary file.
        "..config.json.0123abcd.4567cdef",
        "best/..tokenizer_config.json.0123abcd.4567cdef",
        ".best.k2_0abcd/config.json",
        "1_Pooling/..config.json.0123abcd.4567cdef",
        "2_Dense/.model.safetensors.0123abcd",
        "train/.model.json.0123abcd",
        "train/state-9_temp/part-00000-of-00001.data-00000-of-00001",
        "train/state-9.data-00000-of-00001",
        "train/state-9.data-00000-of-00001.tempstate123456",
    ]
    others = [".hidden", "best/vocab.txt", "notes.txt", "train/state-9.txt"]
    for name in leftovers + others:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    with make_small_state(tmp_path).hold():
        pass
    assert sorted(
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*")
        if path.is_file()
    ) == sorted(others + [f"train/{name}" for name in kept])
    assert not (tmp_path / "train" / "state-9_temp").exists()
    assert not (tmp_path / ".best.k2_0abcd").exists()


def test_a_directory_in_use_is_refused(tmp_path):
    first, second = make_small_state(tmp_path), make_small_state(tmp_path)
    with first.hold():
        # A program holds it round its restore, the loop once more.
        with first.hold():
            first.save()
        with pytest.raises(lock.HeldError, match="is in use"), second.hold():
            pass
        # A host that does not write needs no leave.
        with second.hold(is_chief=False):
            pass
    with second.hold():
        pass


def test_a_checkpoint_without_the_optimizers_variables_is_named(tmp_path):
    state = make_small_state(tmp_path)
    state.save()
    checkpoint = tf.train.Checkpoint(model=state.model)
    checkpoint.write(str(tmp_path / "train" / "state-0"))
    with pytest.raises(ValueError, match="state-0 cannot be restored"):
        make_small_state(tmp_path).restore()


def test_at_least_one_is_kept(tmp_path):
    with pytest.raises(ValueError, match="`keep_checkpoint_max` must be"):
        make_small_state(tmp_path, keep_checkpoint_max=0)


def test_a_full_disk_is_an_os_error_and_leaves_the_checkpoints_before(
    tmp_path, monkeypatch
):
    state = make_small_state(tmp_path)
    state.save()

    def save(_, path):
        os.mkdir(f"{path}_temp")
        # No OOM, as TensorFlow calls too little memory.
        message = "/BLOOM/step-5; No space left"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    state.step = 5
    names = sorted(os.listdir(state.folder))
    with monkeypatch.context() as patch:
        patch.setattr(tf.train.Checkpoint, "write", save)
        with pytest.raises(OSError, match="step 5 cannot be .*No space left"):
            state.save()
    assert sorted(os.listdir(state.folder)) == names
    again = make_small_state(tmp_path)
    assert again.restore()
    assert again.step == 0


def test_too_little_memory_is_no_failed_write(tmp_path, monkeypatch):
    state = make_small_state(tmp_path)

    def fail(*args, **kwargs):
        message = "OOM when allocating tensor with shape[9,9]"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(tf.train.Checkpoint, "write", fail)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="OOM"):
        state.save()


def nudge(variable):
    variable.assign(variable + 1e-6)


def test_workers_with_other_states_all_stop(tmp_path, monkeypatch):
    numbers_of_workers = []

    def gather(numbers):
        numbers_of_workers.append(numbers)
        return numbers_of_workers

    monkeypatch.setattr(strategies, "make_gather", lambda strategy: gather)
    state = make_state(tmp_path)
    state.save()
    strategy = make_strategy()
    state.check_workers(strategy)
    # A run of one process asks no other.
    assert not numbers_of_workers
    monkeypatch.setattr(strategies, "is_multi_host", lambda strategy: True)
    # Three workers one after the other, in one process: two alike, and one
    # that has read another example, has another weight or moment, or another
    # step.
    state.check_workers(strategy)
    state.check_workers(strategy)
    assert len(numbers_of_workers) == 1

    def check_as_another_worker():
        state._workers_agree = False
        state.check_workers(strategy)

    check_as_another_worker()
    alike = numbers_of_workers[:2]
    for change in (
        lambda: setattr(state, "example", 1),
        lambda: nudge(state.model.masked_lm_head.output_bias),
        lambda: nudge(state.optimizer._velocities[3]),
        lambda: setattr(state, "step", 60),
    ):
        state.restore()
        numbers_of_workers[:] = alike
        change()
        with pytest.raises(
            ValueError,
            match=r"`output_dir` must be a folder that they share, .*"
            r"step 0 \(state \w+\) at worker 0, 1; step \d+ .* worker 2\.",
        ):
            check_as_another_worker()


def test_what_was_trained_meanwhile_is_not_written_over(tmp_path):
    """Between what a run restores and its lock another one may have ended."""
    state = make_small_state(tmp_path)
    assert not state.restore()
    make_small_state(tmp_path).save()
    with (
        pytest.raises(ValueError, match="another program trained there"),
        state.hold(),
    ):
        pass
    assert state.restore()
    with state.hold():
        state.step = 3
        state.save()
    # Its own checkpoints are no other's.
    with state.hold():
        assert state.saved_steps() == [0, 3]


def test_a_model_of_another_run_is_not_written_over(tmp_path):
    output_folder.check(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="was not trained there"):
        output_folder.check(str(tmp_path))
    (tmp_path / "train").mkdir()
    output_folder.check(str(tmp_path))


def test_the_model_of_the_output_folder_comes_first(tmp_path):
    folder = str(tmp_path)
    with pytest.raises(ValueError, match="there must be a model in"):
        output_folder.trained_model(folder, None)
    assert output_folder.trained_model(folder, "other") == "other"
    # The other's answers would be taken for those of a model to come.
    (tmp_path / "train").mkdir()
    with pytest.raises(ValueError, match="has not written a model yet. Give"):
        output_folder.trained_model(folder, "other")
    (tmp_path / "config.json").write_text("{}")
    assert output_folder.trained_model(folder, "other") == folder


def test_what_only_one_training_has_is_told_in_short(tmp_path):
    make_small_state(tmp_path).save()
    other = {**DESCRIPTION, "generator": {f"size_{n}": n for n in range(99)}}
    with pytest.raises(
        ValueError, match="another model: generator was None"
    ) as (error):
        make_small_state(tmp_path, other).restore()
    assert len(str(error.value)) < 400 + len(str(tmp_path))


def test_of_two_generators_the_sizes_that_differ_are_told(tmp_path):
    sizes = {f"size_{n}": n for n in range(99)}
    make_small_state(tmp_path, {**DESCRIPTION, "generator": sizes}).save()
    other = {**DESCRIPTION, "generator": {**sizes, "size_7": 8}}
    with pytest.raises(ValueError) as error:
        make_small_state(tmp_path, other).restore()
    assert str(error.value) == (
        f"{tmp_path}/train holds the training of another model: generator: "
        "size_7 was 7 and is 8. Choose another output folder."
    )


def test_a_training_of_another_kind_is_told_as_such(tmp_path):
    make_small_state(tmp_path / "records").save()
    tuning = {"task": {"name": "a"}, "learning_rate": 1.0}
    make_small_state(tmp_path / "tuned", tuning).save()
    with pytest.raises(ValueError) as error:
        make_small_state(tmp_path / "tuned").restore()
    assert str(error.value) == (
        f"{tmp_path / 'tuned'} holds a fine-tuning, and this is a training on "
        "records. Choose another output folder, and give this one as "
        "--init_checkpoint to begin with its model."
    )
    with pytest.raises(ValueError, match="on records, and this is a fi"):
        identity.check_same("out", DESCRIPTION, {"learning_rate": 1.0}, tuning)
