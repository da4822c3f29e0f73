"""How errors show values, counts and places."""

import contextlib
import reprlib
from collections.abc import Iterator

# How messages show received values.
_SHOWN = reprlib.Repr()
_SHOWN.maxlist = 20
_SHOWN.maxlevel = 3
_SHOWN.maxstring = 60
_MAX_SHOWN = 200


@contextlib.contextmanager
def errors_named(place: object) -> Iterator[None]:
    """Puts `place` before the messages of the block's `ValueError`s."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def shortened(value: object) -> str:
    """Returns a value as messages show it: on one line, cut if it is long."""
    text = _SHOWN.repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def counted(number: int, one: str, more: str, separator: str = "") -> str:
    """Returns a number with a word for one or for more: "1 row".

    Args:
        number: The number.
        one: What follows 1.
        more: What follows any other number.
        separator: Separator of thousands, "," or none.
    """
    return f"{number:{separator}} {one if number == 1 else more}"
