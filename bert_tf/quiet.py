"""Leaves a program's output to itself: TensorFlow and Keras say a lot.

What they log is shown from the level on that TF_CPP_MIN_LOG_LEVEL says, theirs
from Python too: 0 all, 1 warnings, 2 errors, 3 (here the default) only what
ends the program.
"""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from typing import NoReturn

from absl import logging as absl_logging

from bert_tf import import_hooks

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
# By level, the letters of the lines that are left out, and the level of
# Python's lines that are not.
_LEVELS = {
    "0": ("", logging.DEBUG),
    "1": ("I", logging.WARNING),
    "2": ("IW", logging.ERROR),
}
_DEFAULT = ("IWE", logging.ERROR)
# Files of those that log under absl's name, as our programs do.
_OTHERS = ("/tensorflow/python/", "/tensorflow_datasets/", "/keras/src/")
# After the last line that is filtered; no log has it.
_END = b"\0\n"


def quieten() -> None:
    """Hides the logs of libraries; call it before TensorFlow is imported."""
    shown = os.environ.setdefault(_VARIABLE, "3")
    letters, level = _LEVELS.get(shown, _DEFAULT)
    logging.getLogger("tensorflow").setLevel(level)

    def is_shown(record):
        return record.levelno >= level or not any(
            folder in record.pathname for folder in _OTHERS
        )

    absl_logging.get_absl_logger().addFilter(is_shown)
    if letters and "tensorflow" not in sys.modules:
        # Its notes on processor and drivers come from C++ before the variable
        # is read.
        note = re.compile(
            rb"[%b]\d{4} \d\d:\d\d:|WARNING: All log messages before absl"
            % letters.encode()
        )

        def import_quietly(execute, module):
            with _without_lines(note):
                execute(module)

        import_hooks.wrap("tensorflow", import_quietly)


@contextlib.contextmanager
def _without_lines(pattern):
    """Leaves lines out of what the block writes to stderr, from C++ too.

    Another process reads and filters them, so that the last words of one that
    crashes are shown. Where there can be none, nothing is left out.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    # A fork has one thread.
    if not hasattr(os, "fork") or threading.active_count() > 1:
        os.close(stderr)
        yield
        return
    source, sink = os.pipe()
    process = os.fork()
    if not process:
        os.close(sink)
        _filter(source, stderr, pattern)
    os.close(source)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        # Others, which the block has started, may hold the pipe open.
        with contextlib.suppress(OSError):
            os.write(2, _END)
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)


def _filter(source, sink, pattern) -> NoReturn:
    # Ctrl-C is the other process's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError), open(source, "rb") as lines:
        for line in lines:
            text, end, _ = line.partition(_END)
            if text and not pattern.match(text):
                os.write(sink, text)
            if end:
                break
    os._exit(0)
