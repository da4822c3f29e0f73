"""SIGTERM: a run saves its state before it ends, and can be gone on with."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# A program that was told to stop and has saved its state exits with this
# code: sysexits.h's EX_TEMPFAIL, "try again". Run again, it goes on.
PREEMPTED_EXIT_CODE = 75


class PreemptedError(Exception):
    """The run was told to stop, and has saved its state."""


@contextlib.contextmanager
def sigterm_noted() -> Iterator[threading.Event]:
    """Yields an event that is set when the process gets SIGTERM.

    Inside another such block it is that block's event.
    """
    # Python allows signal handlers in the main thread alone.
    if threading.current_thread() is not threading.main_thread():
        yield threading.Event()
        return
    before = signal.getsignal(signal.SIGTERM)
    if isinstance(before, _SetEvent):
        yield before.event
        return
    handler = _SetEvent()
    signal.signal(signal.SIGTERM, handler)
    try:
        yield handler.event
    finally:
        signal.signal(signal.SIGTERM, before)


class _SetEvent:
    """A signal handler."""

    def __init__(self):
        self.event = threading.Event()

    def __call__(self, number, frame):
        self.event.set()
