"""Keeps TensorFlow's and Keras's many log lines out of a program's output.

TF_CPP_MIN_LOG_LEVEL says which of their lines are shown, also those from
Python: 0 all, 1 warnings and errors, 2 errors, 3 (the default here) only fatal
errors from C++, and errors from Python. What TensorFlow's libraries write while
they are loaded, some lines on the processor and drivers, comes before they
read the variable.
"""

import contextlib
import logging
import os
from collections.abc import Iterator

from absl import logging as absl_logging

_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"
# {level: lowest level of the Python lines that are shown}.
_LEVELS = {"0": logging.DEBUG, "1": logging.WARNING}
# Paths of libraries that log with absl, as our programs do.
_OTHERS = ("/tensorflow/python/", "/tensorflow_datasets/", "/keras/src/")


def quieten() -> None:
    """Hides the logs of libraries; call it before TensorFlow is imported."""
    shown = os.environ.setdefault(_VARIABLE, "3")
    level = _LEVELS.get(shown, logging.ERROR)
    logging.getLogger("tensorflow").setLevel(level)
    absl_logging.get_absl_logger().addFilter(_filter_of_others(level))


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
