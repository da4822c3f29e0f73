"""Progress of long work: one line if a user watches, otherwise log lines."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Iterable
from collections.abc import Iterator
from typing import TypeVar

from tqdm import tqdm

_logger = logging.getLogger(__name__)

# There is a log line at least every 30 seconds.
SECONDS_PER_LINE = 30.0
_SECONDS_PER_UPDATE = 1.0
# Erases a line of a terminal from the cursor on.
_ERASED = "\x1b[K"

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


class ProgressBar(contextlib.AbstractContextManager):
    """A line on stderr, if that is a terminal or a notebook; otherwise nothing.

    A context manager. What is logged in its block overwrites the line, which
    is written again below.

    Args:
        title: Name of the work.
        total: Number of units to do; None if it is not known.
        unit: Name of one unit.
        first: Number of units that were done before.
        stays: Whether the line stays when its block ends.

    Attributes:
        is_shown: Whether there is a line.
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
        self._title, self._total, self._unit = title, total, unit
        self._first, self._stays = first, stays
        self._line = ""
        self._start = time.monotonic()
        self._due = Interval(_SECONDS_PER_UPDATE)

    def __exit__(self, *exception):
        if self.is_shown:
            line = f"{self._line}\n" if self._stays and self._line else ""
            print(f"{_ERASED}{line}", end="", file=sys.stderr, flush=True)

    @property
    def is_due(self) -> bool:
        """Whether there is a line that was not updated for a second."""
        return self.is_shown and self._due.is_over

    def update(self, done: int, text: str = "") -> None:
        """Shows the total number of units done so far, and a text after it."""
        if self.is_shown:
            self._line = self.line(done, text)
            # The cursor goes back: what is logged stands in the line's place.
            shown = f"{_ERASED}{self._line}"
            print(shown, end="\r", file=sys.stderr, flush=True)
            self._due.restart()

    def line(self, done: int, text: str = "") -> str:
        """Returns what `update` shows."""
        return tqdm.format_meter(
            done,
            self._total,
            time.monotonic() - self._start,
            # Width 0 gives the numbers alone.
            ncols=0,
            prefix=self._title,
            unit=self._unit,
            postfix=text,
            initial=self._first,
        )


@contextlib.contextmanager
def track(
    items: Iterable[_Item],
    title: str,
    total: int | None = None,
    unit: str = "batch",
) -> Iterator[Iterator[_Item]]:
    """Yields an iterator of items that shows its progress.

    Without such a line there is a log line every 30 seconds.

    Args:
        items: Items that take time to make or to process.
        title, total, unit: As for `ProgressBar`.
    """
    line = Interval(SECONDS_PER_LINE)
    with ProgressBar(title, total, unit, stays=False) as bar:

        def shown():
            for done, item in enumerate(items):
                if bar.is_due:
                    bar.update(done)
                elif line.is_over and not bar.is_shown:
                    _logger.info("%s", bar.line(done))
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
