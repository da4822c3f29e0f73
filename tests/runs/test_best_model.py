"""Which model of a pre-training is kept as the best."""

import json

import pytest

from bert_tf import atomic
from bert_tf.runs import best_model
from bert_tf.runs.best_model import BestModel
from bert_tf.training import evaluation
from bert_tf.training.settings import RunSettings


def resumed_settings(folder, step, **values):
    """Returns the settings of a run that was resumed at this step."""
    settings = RunSettings(str(folder), values)
    settings.find(step)
    return settings


def test_the_best_of_another_evaluation_is_not_compared_with(
    tmp_path, monkeypatch
):
    results = tmp_path / "best" / "eval_results.txt"

    def keep(settings, loss):
        """Saves a model of this loss; returns the loss of the best so far."""

        def write(folder):
            assert folder == str(results.parent)
            evaluation.write_results(str(results), {"loss": loss})

        best = BestModel(str(tmp_path), settings)
        best.restore()
        is_kept = best.keep(loss, write)
        settings.write()
        kept = evaluation.read_results(str(results))["loss"]
        assert is_kept == (kept == loss)
        return kept

    def killed(path, text, write_text=atomic.write_text):
        if path.endswith("best.json") and "10.0" in text:
            raise KeyboardInterrupt
        write_text(path, text)

    # What was trained on has a lower loss than what was not.
    given = {"evaluation": "1 files (aaaaaaaa)", "discriminator_weight": 50}
    settings = resumed_settings(tmp_path, 0, **given)
    assert keep(settings, 0.5) == 0.5
    given["evaluation"] = "1 files (bbbbbbbb)"
    settings = resumed_settings(tmp_path, 10, **given)
    assert keep(settings, 7.0) == 7.0
    # From here on both are of the new one: in this run, and when it goes on.
    settings = resumed_settings(tmp_path, 20, **given)
    assert keep(settings, 8.0) == 7.0
    assert keep(settings, 6.0) == 6.0
    given["discriminator_weight"] = 500
    assert keep(resumed_settings(tmp_path, 30, **given), 60.0) == 60.0
    # A run that was stopped before its first evaluation changes nothing.
    given["discriminator_weight"] = 5000
    resumed_settings(tmp_path, 40, **given).write()
    assert keep(resumed_settings(tmp_path, 50, **given), 600.0) == 600.0
    # Nor does one that keeps no best model.
    resumed_settings(tmp_path, 60, random_seed=5).write()
    given["evaluation"] = "1 files (cccccccc)"
    assert keep(resumed_settings(tmp_path, 70, **given), 900.0) == 900.0
    # Of an older release, which did not keep them.
    (tmp_path / "train" / "best.json").unlink()
    assert keep(resumed_settings(tmp_path, 80, **given), 950.0) == 900.0
    given["evaluation"] = "1 files (dddddddd)"
    assert keep(resumed_settings(tmp_path, 80, **given), 950.0) == 950.0
    # Killed as it told of a better one, of another evaluation: neither what
    # is told nor what is there says how good the model is by the old one.
    other = given | {"evaluation": "1 files (eeeeeeee)"}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(best_model.atomic, "write_text", killed)
        keep(resumed_settings(tmp_path, 90, **other), 10.0)
    assert keep(resumed_settings(tmp_path, 80, **given), 960.0) == 960.0
    # Evaluated by itself on other records, where it is: its results are not
    # what is compared with.
    results.write_text("global_step = 0\nloss = 5000.0\n")
    assert keep(resumed_settings(tmp_path, 100, **given), 970.0) == 5000.0
    results.write_text("global_step = 0\nloss = 0.5\n")
    assert keep(resumed_settings(tmp_path, 100, **given), 950.0) == 950.0


def test_the_lowest_loss_of_a_run_is_kept(tmp_path):
    best = BestModel(str(tmp_path), resumed_settings(tmp_path, 0))
    assert best.loss is None
    written = []
    losses = [3.0, 4.0, 3.0, float("nan"), 2.0]
    kept = [best.keep(loss, written.append) for loss in losses]
    assert kept == [True, False, False, False, True]
    assert written == [f"{tmp_path}/best"] * 2
    assert best.loss == 2.0


def test_any_loss_is_better_than_one_that_is_no_number(tmp_path):
    best = BestModel(str(tmp_path), resumed_settings(tmp_path, 0))
    losses = [float("nan"), 2.0, 3.0]
    assert [best.keep(loss, lambda _: None) for loss in losses] == [
        True,
        True,
        False,
    ]
    assert best.loss == 2.0
    # As earlier releases wrote it.
    path = tmp_path / "train/best.json"
    values = json.loads(path.read_text()) | {"loss": float("nan")}
    path.write_text(json.dumps(values))
    (tmp_path / "best").mkdir()
    (tmp_path / "best/eval_results.txt").write_text("loss = nan\n")
    best = BestModel(str(tmp_path), resumed_settings(tmp_path, 0))
    best.restore()
    assert best.keep(9.0, lambda _: None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("best/eval_results.txt", "loss"),
        ("best/eval_results.txt", "global_step = 3\n"),
        ("best/eval_results.txt", "loss = low\n"),
        ("train/best.json", "[]"),
        ("train/best.json", '{"loss": 1.0}'),
    ],
)
def test_damage_in_what_tells_the_best_is_named(tmp_path, name, text):
    (tmp_path / "best").mkdir()
    (tmp_path / "train").mkdir()
    (tmp_path / "best/eval_results.txt").write_text("loss = 1.0\n")
    (tmp_path / name).write_text(text)
    best = BestModel(str(tmp_path), resumed_settings(tmp_path, 3))
    with pytest.raises(ValueError, match=f"{name}: .* Remove it"):
        best.restore()
