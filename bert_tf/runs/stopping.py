"""The end of a program whose run was told to stop."""

import contextlib
import logging
import signal
import sys
from collections.abc import Iterator

from bert_tf.training.preemption import PREEMPTED_EXIT_CODE
from bert_tf.training.preemption import PreemptedError

_logger = logging.getLogger(__name__)


@contextlib.contextmanager
def exits_when_told() -> Iterator[None]:
    """Ends the program with one log line if its run was told to stop.

    Outside training, and when pressed twice, Ctrl-C ends it at once.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except PreemptedError as stop:
        _logger.info("%s Run the same command again to resume.", stop)
        sys.exit(PREEMPTED_EXIT_CODE)
