"""Leaves out, counts and reports unreadable lines of text, or refuses them."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

# Function of a place; returns it in words, e.g. a file and a line.
Where = Callable[..., str]
# How many of the lines that are left out are reported.
NUM_REPORTED = 3
# How the format begins, versions 1.0 and 1.1.
_WARC = b"WARC/1."


class BadTextError(ValueError):
    """Text cannot be read; results from other text stay valid."""


class BadLines:
    """Counts the lines that a reader leaves out.

    Args:
        max_bad_lines: How many lines may be left out.
        where: Function of the place given to `add`; returns it in words, e.g.
            a file and a line.

    Attributes:
        count: How many lines were left out so far.
        places: What `add` got for the first `NUM_REPORTED` of them, as lists.
    """

    def __init__(self, max_bad_lines: int, where: Where) -> None:
        self._most = max_bad_lines
        self._where = where
        self.count = 0
        self.places: list[list[Any]] = []

    def add(self, *place: Any, reason: str) -> None:
        """Counts one more line.

        Raises:
            BadTextError: If it is one too many.
        """
        self.count += 1
        if len(self.places) < NUM_REPORTED:
            self.places.append([*place, reason])
        if self.count > self._most:
            raise BadTextError(
                refusal(f"{self._where(*place)}: {reason}", self._most)
            )

    def summary(self) -> str:
        """Returns in words how many lines were left out, and the first ones."""
        return summarize(self.count, self.places, self._where)


def not_utf_8(error: UnicodeDecodeError) -> str:
    """Returns the reason in words for a `UnicodeDecodeError`."""
    return f"not UTF-8 (byte {error.object[error.start]:#04x})"


def check_is_no_archive(path: str, start: bytes) -> None:
    """Checks that a file is no web archive: WARC, or WET with extracted text.

    The headers of its records would be read as text.

    Args:
        path: The file, for the message.
        start: Its first bytes.

    Raises:
        BadTextError: If it is one.
    """
    if start.startswith(_WARC):
        raise BadTextError(
            f"{path}: must hold text. Received: a web archive (WARC or WET), "
            "whose headers are not text. Write the text of its records as "
            'lines of JSON, {"text": ...}, e.g. with the package warcio, and '
            "give --input_format=jsonl."
        )


def refusal(what: str, max_bad_lines: int) -> str:
    """Returns the error message for more bad lines than are allowed."""
    return (
        f"{what}. To leave such lines out, `max_bad_lines` must be at least "
        f"their number. Received: max_bad_lines={max_bad_lines}."
    )


def summarize(count: int, places: Sequence[Sequence[Any]], where: Where) -> str:
    """Returns in words how many lines were left out, and the first ones."""
    first = "; ".join(f"{where(*place)}: {reason}" for *place, reason in places)
    if count == 1:
        return f"1 line cannot be read: {first}"
    return f"{count:,} lines cannot be read, first {first}"
