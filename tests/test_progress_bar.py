"""One line on a terminal, lines in a log."""

import logging
import re
import sys
import threading
import time

import pytest

from bert_tf import progress_bar
from support.terminal import Terminal

logger = logging.getLogger("some.library")


@pytest.fixture
def attach(monkeypatch):
    """Returns a function that makes a terminal stderr, and the log's stream.

    Called in the test: pytest sets stderr anew when a test begins.
    """
    handlers = []

    def attach():
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        handlers.append(logging.StreamHandler(terminal))
        logger.addHandler(handlers[0])
        return terminal

    yield attach
    logger.removeHandler(handlers[0])


def test_what_is_logged_stands_in_the_line_s_place(attach):
    terminal = attach()
    with progress_bar.ProgressBar("train", 40, first=10) as bar:
        assert bar.is_shown
        bar.update(20, "loss 0.5")
        assert terminal.lines()[0].startswith("train:  50% 20/40 [00:00<")
        message = "A warning that is as long as what stands there, and longer."
        logger.warning(message)
        bar.update(30, "loss 0.25")
    logger.warning("Another.")
    first, second, third, rest = terminal.lines()
    assert first == message
    assert re.fullmatch(
        r"train:  75% 30/40 \[\d\d:\d\d<\d\d:\d\d, .*step/s, loss 0\.25\]",
        second,
    )
    assert (third, rest) == ("Another.", "")


def test_a_line_within_another_goes_when_it_ends(attach, monkeypatch):
    terminal = attach()
    monkeypatch.setattr(progress_bar, "_SECONDS_PER_UPDATE", 0.0)
    with progress_bar.ProgressBar("train", 4) as bar:
        bar.update(1)
        with progress_bar.track(iter("abc"), "evaluate", 3) as tracked:
            assert list(tracked) == ["a", "b", "c"]
            assert terminal.lines()[0].startswith("evaluate:  67% 2/3")
        assert terminal.lines() == [""]
        bar.update(4)
    line, rest = terminal.lines()
    assert line.startswith("train: 100% 4/4")
    assert rest == ""


def test_what_takes_no_second_has_no_line(attach):
    terminal = attach()
    with progress_bar.track(range(3), "evaluate", 3) as tracked:
        assert list(tracked) == [0, 1, 2]
    assert "evaluate" not in terminal.getvalue()


def test_a_log_has_lines_of_its_own(capsys, caplog, monkeypatch):
    caplog.set_level("INFO", logger="bert_tf")
    with progress_bar.ProgressBar("train", 4) as bar:
        assert not bar.is_shown
        assert not bar.is_due
        bar.update(2, "loss 0.5")
    with progress_bar.track(range(3), "evaluate", 3) as tracked:
        assert list(tracked) == [0, 1, 2]
    assert not caplog.text
    monkeypatch.setattr(progress_bar, "SECONDS_PER_LINE", 0.0)
    with progress_bar.track(range(2), "count", 8, "text") as tracked:
        assert list(tracked) == [0, 1]
    with progress_bar.track(range(1), "read") as tracked:
        assert list(tracked) == [0]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[0].startswith("count:   0% 0/8 [00:00<")
    assert re.fullmatch(r"count:  12% 1/8 \[00:00<00:00, .*text/s\]", lines[1])
    assert lines[2].startswith("read: 0batch [00:00, ")
    assert capsys.readouterr().err == ""


def test_work_that_tells_nothing_is_told(capsys):
    with progress_bar.telling("learning", seconds=0.01):
        time.sleep(0.2)
    told = capsys.readouterr().out.splitlines()
    assert len(told) > 1
    assert set(told) == {"learning, 0 s"}
    num_threads = threading.active_count()
    with progress_bar.telling("learning"):
        assert threading.active_count() == num_threads + 1
    assert threading.active_count() == num_threads
    assert not capsys.readouterr().out
