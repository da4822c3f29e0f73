"""Keeps TensorFlow's and Keras's many log lines out of a program's output.

TF_CPP_MIN_LOG_LEVEL says which of their lines are shown, also those from
Python: 0 all, 1 warnings and errors, 2 errors, 3 (the default here) only fatal
errors from C++, and errors from Python.
"""

import contextlib
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from typing import NoReturn

from absl import logging as absl_logging

from bert_tf import import_hooks

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
# {level: (letters of the C++ lines that are hidden, lowest level of the Python
# lines that are shown)}.
_LEVELS = {
    "0": ("", logging.DEBUG),
    "1": ("I", logging.WARNING),
    "2": ("IW", logging.ERROR),
}
_DEFAULT = ("IWE", logging.ERROR)
# Paths of libraries that log with absl, as our programs do.
_OTHERS = ("/tensorflow/python/", "/tensorflow_datasets/", "/keras/src/")
# Marks the end of the lines to filter; it occurs in no log.
_END = b"\0\n"


def quieten() -> None:
    """Hides the logs of libraries; call it before TensorFlow is imported."""
    shown = os.environ.setdefault(_VARIABLE, "3")
    letters, level = _LEVELS.get(shown, _DEFAULT)
    logging.getLogger("tensorflow").setLevel(level)

    absl_logging.get_absl_logger().addFilter(_filter_of_others(level))
    if letters and "tensorflow" not in sys.modules:
        # C++ logs notes on the processor and drivers before it reads the
        # variable.
        note = re.compile(
            rb"[%b]\d{4} \d\d:\d\d:|WARNING: All log messages before absl"
            % letters.encode()
        )

        def import_quietly(execute, module):
            with _without_lines(note):
                execute(module)

        import_hooks.wrap("tensorflow", import_quietly)


@contextlib.contextmanager
def others_hidden() -> Iterator[None]:
    """Hides in the block what is no warning of libraries with absl's logger."""
    logger = absl_logging.get_absl_logger()
    is_shown = _filter_of_others(logging.WARNING)
    logger.addFilter(is_shown)
    try:
        yield
    finally:
        logger.removeFilter(is_shown)


def _filter_of_others(level):
    def is_shown(record):
        return record.levelno >= level or not any(
            folder in record.pathname for folder in _OTHERS
        )

    return is_shown


@contextlib.contextmanager
def _without_lines(pattern):
    """Filters lines out of the block's stderr, including those from C++.

    Another process reads and filters them, so that the last lines are shown
    even if this process crashes. If that is not possible, nothing is filtered.
    """
    try:
        stderr = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    # Forking is not safe with several threads.
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
        # Processes that the block has started may keep the pipe open.
        with contextlib.suppress(OSError):
            os.write(2, _END)
        os.dup2(stderr, 2)
        os.close(stderr)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process, 0)


def _filter(source, sink, pattern) -> NoReturn:
    # Ctrl-C is for the main process to handle.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError), open(source, "rb") as lines:
        for line in lines:
            text, end, _ = line.partition(_END)
            if text and not pattern.match(text):
                os.write(sink, text)
            if end:
                break
    os._exit(0)
