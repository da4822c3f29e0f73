"""Leaves a program's output to itself: TensorFlow and Keras say a lot.

What they log is shown from the level on that TF_CPP_MIN_LOG_LEVEL says, theirs
from Python too: 0 all, 1 warnings, 2 errors, 3 (here the default) only what
ends the program.
"""

import functools
import importlib.abc
import importlib.util
import logging
import os
import re
import sys
import tempfile
from typing import Any

from absl import logging as absl_logging

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
        sys.meta_path.insert(0, _QuietStart(letters))


class _QuietStart(importlib.abc.MetaPathFinder):
    """Imports TensorFlow without its notes on processor and drivers.

    They come from C++ before the variable is read.

    Args:
        letters: The first letters of the lines that are left out.
    """

    def __init__(self, letters):
        self._note = re.compile(
            rb"%b\d{4} \d\d:\d\d:|WARNING: All log messages before absl"
            % f"[{letters}]".encode()
        )

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(
                self._execute, loader.exec_module
            )
        return spec

    def _execute(self, execute, module):
        stderr = os.dup(2)
        with tempfile.TemporaryFile() as lines:
            os.dup2(lines.fileno(), 2)
            try:
                execute(module)
            finally:
                os.dup2(stderr, 2)
                os.close(stderr)
                lines.seek(0)
                for line in lines:
                    if not self._note.match(line):
                        os.write(2, line)
