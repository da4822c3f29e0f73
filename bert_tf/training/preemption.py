"""SIGTERM and Ctrl-C: a run saves its state, ends, and can be resumed."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

_logger = logging.getLogger(__name__)


# A program that was told to stop and has saved its state exits with this
# code: EX_TEMPFAIL of sysexits.h, "try again". Rerun the program to resume.
PREEMPTED_EXIT_CODE = 75


class PreemptedError(Exception):
    """The run was told to stop, and has saved its state."""


class Stop:
    """A signal handler that notes that a run is told to stop.

    As a string it says who told it: SIGTERM, Ctrl-C, or another worker.
    """

    def __init__(self) -> None:
        self._signal: int | None = None
        self.before: dict[int, Any] = {}

    def __call__(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._signal = self._signal or number
        if number == signal.SIGINT:
            # A second Ctrl-C acts as it would have without us.
            signal.signal(number, self.before[number])

    def __str__(self) -> str:
        if self._signal == signal.SIGINT:
            return "Ctrl-C"
        return "SIGTERM" if self._signal else "another worker"

    def is_set(self) -> bool:
        return self._signal is not None


def stopped(stop: Stop, step: int, num_train_steps: int) -> PreemptedError:
    """Returns the error for a run that was told to stop and has saved."""
    return PreemptedError(
        f"Stopped by {stop}; step {step} of {num_train_steps} is saved."
    )


@contextlib.contextmanager
def stop_noted() -> Iterator[Stop]:
    """Yields a `Stop` that notes SIGTERM and the first Ctrl-C (SIGINT).

    Inside another such block, it yields that block's `Stop`.
    """
    # Python allows signal handlers only in the main thread.
    if threading.current_thread() is not threading.main_thread():
        yield Stop()
        return
    handlers = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    outer = handlers[signal.SIGTERM]
    if isinstance(outer, Stop):
        yield outer
        return
    stop = Stop()
    for number, handler in handlers.items():
        # A background process is started with Ctrl-C ignored.
        if handler not in (signal.SIG_IGN, None):
            stop.before[number] = handler
            signal.signal(number, stop)
    try:
        with _ctrl_c_answered(stop):
            yield stop
    finally:
        for number, handler in stop.before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _ctrl_c_answered(stop):
    """Answers Ctrl-C at once, even while TensorFlow makes steps.

    Python calls its handlers only between two calls into TensorFlow, each of
    which takes seconds. A thread reads the signals from Python's wakeup file
    descriptor instead, and tells the user. A second Ctrl-C ends the process if
    it would do so without us.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def answer():
        count = 0
        while number := os.read(reader, 1):
            if number[0] != signal.SIGINT:
                continue
            count += 1
            if count == 1:
                _logger.warning(
                    "Stopping: a checkpoint is saved first. Press Ctrl-C "
                    "again to stop at once."
                )
            elif stop.before.get(signal.SIGINT) is signal.SIG_DFL:
                os._exit(128 + signal.SIGINT)

    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        # This ends what the thread reads, and so the thread.
        os.close(writer)
        thread.join()
        os.close(reader)
