"""What a run tells: means over steps, and the line of the log."""

import importlib.util

import pytest

from bert_tf.training import progress
from support.disk import full_disk


def test_means_are_of_steps_and_shares_of_their_places():
    steps = [
        {
            "values": {"loss": 3.0, "tokens": 30.0},
            "metrics": {"padding": (10.0, 40.0)},
        },
        {
            "values": {"loss": 1.0, "tokens": 10.0},
            "metrics": {"padding": (30.0, 40.0)},
        },
    ]
    assert progress.summarize(steps) == {
        "loss": 2.0,
        "tokens": 20.0,
        "padding": 0.5,
    }


def test_log_line():
    report = {
        "step": 20,
        "step_seconds": 0.5,
        "input_share": 0.021,
        "loss": 1.23456,
        "padding": 0.1749,
        "examples_per_second": 64.0,
        "tokens_per_second": 6758.4,
    }
    assert progress.log_line(report, 100) == (
        "step 20/100  loss 1.235  64.0 examples/s  6,758 tokens/s  "
        "17.5% padding  2.1% waiting  0.5 s/step  0m40s left"
    )
    assert "  64.0 windows/s  " in progress.log_line(report, 100, "windows")


def test_curves_on_a_full_disk_are_an_os_error_that_names_the_file(tmp_path):
    told = f"curves.*{tmp_path}"
    with (
        full_disk(300),
        pytest.raises(OSError, match=told) as raised,
        progress.summary_writer(str(tmp_path)),
    ):
        for step in range(9):
            progress.write_summaries({"step": step, "loss": 1.0})
    assert "\n" not in str(raised.value)


def test_curves_hide_no_error_of_the_training(tmp_path):
    with (
        full_disk(300),
        pytest.raises(OSError, match="step 5 cannot be"),
        progress.summary_writer(str(tmp_path)),
    ):
        for step in range(9):
            progress.write_summaries({"step": step, "loss": 1.0})
        raise OSError("the checkpoint of step 5 cannot be written")


@pytest.mark.parametrize(
    ("found", "advice"),
    [(object(), ""), (None, " (pip install 'bert_tf[tensorboard]')")],
)
def test_the_log_names_what_shows_the_curves(
    monkeypatch, caplog, found, advice
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    with caplog.at_level("INFO", logger="bert_tf"):
        progress.log_curves("out/train")
    assert caplog.messages == [
        f"Curves: tensorboard --logdir=out/train{advice}"
    ]


def test_calls_that_compiled_tell_nothing_of_the_speed(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    timer = progress.Timer()

    def call(seconds, waited):
        clock[0] += seconds
        timer.called(1, waited)

    call(60.0, None)
    call(2.0, 0.5)
    call(70.0, None)
    assert timer.report() == {"step_seconds": 2.0, "input_share": 0.0}
    call(3.0, 1.5)
    assert timer.report() == {"step_seconds": 3.0, "input_share": 0.5}
