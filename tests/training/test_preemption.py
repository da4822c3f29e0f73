"""SIGTERM and Ctrl-C are noted; a second Ctrl-C is none of ours."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from bert_tf.runs import stopping
from bert_tf.training import preemption

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")]
)
def test_a_signal_is_noted_and_answered(number, name, caplog):
    before = [signal.getsignal(number) for number in SIGNALS]
    with preemption.stop_noted() as stop:
        assert not stop.is_set()
        with preemption.stop_noted() as inner:
            os.kill(os.getpid(), number)
            assert inner is stop
        assert stop.is_set()
        assert str(stop) == name
    assert [signal.getsignal(number) for number in SIGNALS] == before
    assert signal.set_wakeup_fd(-1) == -1
    assert ("Press Ctrl-C again" in caplog.text) == (name == "Ctrl-C")


def test_a_second_ctrl_c_from_python_is_an_interrupt():
    with preemption.stop_noted() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert stop.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with preemption.stop_noted() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop.is_set()
        with stopping.exits_when_told():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread_nothing_is_noted():
    noted = []

    def note():
        with preemption.stop_noted() as stop:
            noted.append(stop.is_set())

    thread = threading.Thread(target=note)
    thread.start()
    thread.join()
    assert noted == [False]


# Long in C, without the interpreter's lock, as a step of TensorFlow is.
_BUSY = """
import hashlib
import threading
from bert_tf.training import preemption
from bert_tf.runs import stopping

with stopping.exits_when_told(), preemption.stop_noted():
    threading.Timer(0.2, print, ["ready"], {"flush": True}).start()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


def test_a_program_answers_ctrl_c_in_the_middle_of_a_step():
    process = subprocess.Popen(
        [sys.executable, "-c", _BUSY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGINT)
            assert "Press Ctrl-C again" in process.stderr.readline()
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 128 + signal.SIGINT
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_program_exits_with_the_code_of_preemption(caplog):
    caplog.set_level("INFO", logger="bert_tf")
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as exit, stopping.exits_when_told():
            raise preemption.PreemptedError("Step 3 is saved.")
    finally:
        signal.signal(signal.SIGINT, before)
    assert exit.value.code == preemption.PREEMPTED_EXIT_CODE
    assert "Step 3 is saved. Run the same command again" in caplog.text
