"""What a resumed run changes of what it was given."""

import json

import pytest

from bert_tf.config import ATTENTION_TILE
from bert_tf.runs.options import attention_masks
from bert_tf.training import settings
from bert_tf.training.settings import RunSettings

GIVEN = {
    "records": ["4 files (0a1b2c3d)"],
    "train_batch_size": [8],
    "num_train_steps": 100,
    "learning_rate": 1e-4,
    "random_seed": 5,
}


def resume(folder, step, **changes):
    """Returns the settings of a run that is resumed from a step."""
    run = RunSettings(folder, GIVEN | changes)
    run.find(step)
    return run


@pytest.fixture
def folder(tmp_path):
    RunSettings(tmp_path, GIVEN).write()
    return tmp_path


def test_what_differs_is_named_with_what_follows(folder):
    assert resume(folder, 60).changes() == {}
    run = resume(folder, 60, train_batch_size=[16], learning_rate=5e-5)
    assert settings.describe(run.changes(), 60, 480) == (
        "Resuming from step 60 with other settings: train_batch_size 8 -> 16; "
        "learning_rate 0.0001 -> 5e-05. The run no longer equals an "
        "uninterrupted one. The learning rate follows the new schedule from "
        "step 60 on. Reading continues at example 480, in batches of the new "
        "size."
    )
    run = resume(folder, 60, records=["5 files (4d3c2b1a)"], random_seed=6)
    text = settings.describe(run.changes(), 60, 480)
    assert "records 4 files (0a1b2c3d) -> 5 files (4d3c2b1a); random_s" in text
    assert "From number 480 on, the examples come in another order" in text
    assert "learning rate" not in text


def test_a_longer_run_is_not_called_another(folder):
    changes = resume(folder, 60, num_train_steps=200).changes()
    assert settings.are_meant(changes)
    text = settings.describe(changes, 60, 480)
    assert "num_train_steps 100 -> 200. The learning rate follows" in text
    assert "uninterrupted" not in text
    # Nor is one with another phase; what was done is as it was.
    changes = resume(
        folder,
        60,
        num_train_steps=150,
        train_batch_size=[8, 4],
        records=[*GIVEN["records"], "2 files (11111111)"],
    ).changes()
    assert settings.are_meant(changes)


def test_another_evaluation_changes_no_training(folder):
    run = resume(folder, 60, evaluation="1 files (0a1b2c3d), 100 batches of 8")
    run.write()
    changes = resume(folder, 61, evaluation="another").changes()
    assert settings.are_meant(changes)
    text = settings.describe(changes, 61, 488)
    assert "uninterrupted" not in text
    assert "Earlier evaluations are not compared with new ones" in text


def test_a_change_is_named_until_a_checkpoint_was_made_with_it(folder):
    changed = {"learning_rate": (1e-4, 2e-4)}
    for _ in range(2):
        # The first is killed after it has written them, and before that.
        run = resume(folder, 60, learning_rate=2e-4)
        assert run.changes() == changed
        run.write()
    assert resume(folder, 61, learning_rate=2e-4).changes() == {}
    # The newest checkpoint is damaged, and the one before was made otherwise.
    assert resume(folder, 60, learning_rate=2e-4).changes() == changed
    assert resume(folder, 61).changes() == {"learning_rate": (2e-4, 1e-4)}
    entries = json.loads((folder / "settings.json").read_text())
    assert [entry["from_step"] for entry in entries] == [0, 60]


def test_descriptions_are_compared_by_name_and_key():
    old = {"a": 1, "b": {"x": 1, "y": {"z": 2}}, "c": [1], "d": 5, "e": None}
    new = {"a": 2, "b": {"x": 1, "y": {"z": 3}}, "d": 6, "long": "x" * 999}
    *texts, last = settings.differences(old, new, exempt=["d"], flags=["a"])
    assert texts == [
        "--a was 1 and is 2",
        "b: y: z was 2 and is 3",
        "c was [1] and is None",
    ]
    # What only one has is cut.
    assert last.startswith("long was None and is 'xxx")
    assert len(last) < 250


def test_older_folders_have_nothing_to_compare(tmp_path):
    run = resume(tmp_path, 60, learning_rate=2e-4)
    assert run.changes() == {}
    run.write()
    assert resume(tmp_path, 61).changes() == {"learning_rate": (2e-4, 1e-4)}
    # What another release does not know is no change.
    assert resume(tmp_path, 61, learning_rate=2e-4, new=1).changes() == {}


def test_without_settings_nothing_is_kept(tmp_path):
    run = RunSettings(tmp_path, {})
    run.find(60)
    run.write()
    assert run.changes() == {} and not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "3", "[3]", '[{"from_step": 1}]'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "settings.json").write_text(text)
    with pytest.raises(ValueError, match="settings.json: not the settings"):
        resume(tmp_path, 60)


def masks(*lengths, dropout=0.1):
    """Returns the setting of a run of phases, rows of a length in each."""
    return {
        settings.ATTENTION_MASKS: [
            attention_masks(length, dropout) for length in lengths
        ]
    }


def test_a_run_that_0_2_0_began_is_told_that_its_masks_change(folder):
    run = resume(folder, 60, **masks(129))
    assert settings.describe(run.changes(), 60, 480) == (
        "Resuming from step 60 with other settings: attention_masks one for "
        "all queries -> one for 128 queries. The run no longer equals an "
        "uninterrupted one."
    )
    assert ATTENTION_TILE == 128
    # Shorter rows have the masks that they had.
    assert resume(folder, 60, **masks(128)).changes() == {}
    assert resume(folder, 60, **masks(512, dropout=0.0)).changes() == {}


def test_a_phase_of_long_rows_may_follow_one_of_short_rows(tmp_path, folder):
    longer = {"train_batch_size": [8, 4], **masks(128, 512)}
    # After 0.2.0.
    assert resume(folder, 60, **longer).changes() == {}
    RunSettings(tmp_path / "now", GIVEN | masks(128)).write()
    assert resume(tmp_path / "now", 60, **longer).changes() == {}
    # Of a fine-tuning, which has no phases.
    RunSettings(tmp_path / "tuning", {"mixed_precision": "float32"}).write()
    run = RunSettings(
        tmp_path / "tuning", {"attention_masks": attention_masks(256, 0.1)}
    )
    run.find(1)
    assert run.changes() == {
        "attention_masks": ("one for all queries", "one for 128 queries")
    }
