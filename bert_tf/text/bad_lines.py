"""Lines of text that cannot be read: left out, counted, told of; or refused."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

# What is told of a place, a file and a line, in words.
Where = Callable[..., str]
# Of the lines that are left out, the first so many are told.
NUM_TOLD = 3


class BadTextError(ValueError):
    """Text cannot be read; what was made of other text stays good."""


class BadLines:
    """Counts the lines that a reader leaves out.

    Args:
        max_bad_lines: How many there may be.
        where: A function of what `add` gets as place: a file and a line, in
            words.

    Attributes:
        count: How many there were.
        places: Of the first `NUM_TOLD`, lists: what `add` got.
    """

    def __init__(self, max_bad_lines: int, where: Where) -> None:
        self._most = max_bad_lines
        self._where = where
        self.count = 0
        self.places: list[list[Any]] = []

    def add(self, *place: Any, reason: str) -> None:
        """Counts one more.

        Raises:
            BadTextError: If it is one too many.
        """
        self.count += 1
        if len(self.places) < NUM_TOLD:
            self.places.append([*place, reason])
        if self.count > self._most:
            raise BadTextError(
                refusal(f"{self._where(*place)}: {reason}", self._most)
            )

    def told(self) -> str:
        """Returns how many they are, and the first of them, in words."""
        return tell(self.count, self.places, self._where)


def not_utf_8(error: UnicodeDecodeError) -> str:
    """Returns what is said of a `UnicodeDecodeError`."""
    return f"not UTF-8 (byte {error.object[error.start]:#04x})"


def refusal(what: str, max_bad_lines: int) -> str:
    """Returns what is said where there are more than may be."""
    return (
        f"{what}. To leave such lines out, `max_bad_lines` must be at least "
        f"their number. Received: max_bad_lines={max_bad_lines}."
    )


def tell(count: int, places: Sequence[Sequence[Any]], where: Where) -> str:
    """Returns in words how many were left out, and the first of them."""
    first = "; ".join(f"{where(*place)}: {reason}" for *place, reason in places)
    if count == 1:
        return f"1 line cannot be read: {first}"
    return f"{count:,} lines cannot be read, first {first}"
