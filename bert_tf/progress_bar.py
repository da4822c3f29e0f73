"""Progress of long work: a bar if a user watches, otherwise log lines."""

import contextlib
import logging as std_logging
import sys
import threading
import time
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TypeVar

from absl import logging
from tqdm import tqdm

# There is a log line at least every 30 seconds.
SECONDS_PER_LINE = 30.0
_SECONDS_PER_UPDATE = 1.0

_Item = TypeVar("_Item")


class Interval:
    """Tells whether a number of seconds has passed since its restart."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.restart()

    def restart(self) -> None:
        self._start = time.monotonic()

    @property
    def is_over(self) -> bool:
        return time.monotonic() - self._start >= self._seconds


class _Tqdm(tqdm):
    # Otherwise a thread checks every bar every ten seconds.
    monitor_interval = 0


class ProgressBar(contextlib.AbstractContextManager):
    """A bar on stderr, if that is a terminal or a notebook; otherwise nothing.

    A context manager. Log lines in its block appear above the bar.

    Args:
        title: Name of the work.
        total: Number of units to do; None if it is not known.
        unit: Name of one unit.
        first: Number of units that were done before.
        stays: Whether the bar stays when its block ends. If it does not stay,
            it is not shown at all for work of less than a second.

    Attributes:
        is_shown: Whether there is a bar.
    """

    def __init__(
        self,
        title: str,
        total: int | None = None,
        unit: str = "step",
        first: int = 0,
        stays: bool = True,
    ) -> None:
        self.is_shown = _somebody_looks_on()
        self._due = Interval(_SECONDS_PER_UPDATE)
        self._exits = contextlib.ExitStack()
        if self.is_shown:
            self._bar = self._exits.enter_context(
                _Tqdm(
                    desc=title,
                    total=total,
                    unit=unit,
                    initial=first,
                    leave=stays,
                    delay=0 if stays else _SECONDS_PER_UPDATE,
                    mininterval=_SECONDS_PER_UPDATE,
                    miniters=1,
                    dynamic_ncols=True,
                )
            )
            self._exits.enter_context(_cleared_for_logs(self._bar))

    def __exit__(self, *exception):
        self._exits.close()

    @property
    def is_due(self) -> bool:
        """Whether there is a bar that was not updated for a second."""
        return self.is_shown and self._due.is_over

    def update(self, done: int, text: str = "") -> None:
        """Shows the total number of units done so far, and a text after it."""
        if self.is_shown:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(done - self._bar.n)
            self._due.restart()


@contextlib.contextmanager
def track(
    items: Iterable[_Item],
    title: str,
    total: int | None = None,
    unit: str = "batch",
) -> Iterator[Iterator[_Item]]:
    """Yields an iterator of items that shows its progress.

    Without a bar there is a log line every 30 seconds.

    Args:
        items: Items that take time to make or to process.
        title, total, unit: As for `ProgressBar`.
    """
    line = Interval(SECONDS_PER_LINE)
    start = time.monotonic()
    with ProgressBar(title, total, unit, stays=False) as bar:

        def shown():
            for done, item in enumerate(items):
                if bar.is_due:
                    bar.update(done)
                elif line.is_over and not bar.is_shown:
                    # Width 0 gives the numbers without a bar.
                    text = tqdm.format_meter(
                        done,
                        total,
                        time.monotonic() - start,
                        ncols=0,
                        prefix=title,
                        unit=unit,
                    )
                    logging.info("%s", text)
                    line.restart()
                yield item

        yield shown()


@contextlib.contextmanager
def telling(what: str, seconds: float = 10.0) -> Iterator[None]:
    """Prints a line from time to time, for work that reports nothing itself.

    Args:
        what: Description of the work, the beginning of the line.
        seconds: Seconds between two lines.
    """
    start = time.monotonic()
    is_over = threading.Event()

    def tell():
        while not is_over.wait(seconds):
            print(f"{what}, {time.monotonic() - start:.0f} s", flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


def _somebody_looks_on():
    # A notebook's stream is no terminal.
    is_notebook = type(sys.stderr).__module__.startswith("ipykernel")
    return is_notebook or sys.stderr.isatty()


@contextlib.contextmanager
def _cleared_for_logs(bar):
    """Clears the bar before anything is logged by Python in the block."""
    make_record = std_logging.getLogRecordFactory()

    # All loggers and handlers use this, whatever their streams.
    def clear_and_make(*arguments, **options):
        bar.clear()
        return make_record(*arguments, **options)

    std_logging.setLogRecordFactory(clear_and_make)
    try:
        yield
    finally:
        std_logging.setLogRecordFactory(make_record)
