"""What a request to the playground may hold, and how much of it."""

from collections.abc import Mapping
from typing import Any

# Of a request's JSON.
MAX_BODY_BYTES = 64 * 1024
# Of each text.
MAX_CHARACTERS = 10_000
# Sentences that are compared, texts that are reranked.
MAX_TEXTS = 32
# Of a text, those that are filled in at once.
MAX_MASKS = 32


def check_names(values: Any, names: tuple[str, ...]) -> None:
    """Checks that a request's JSON is an object of known names.

    Args:
        values: What the JSON was.
        names: Those that it may have.

    Raises:
        ValueError: If it is anything else.
    """
    if not isinstance(values, dict):
        raise ValueError("A request must be a JSON object.")
    for name in values:
        if name not in names:
            raise ValueError(
                f"A request must have no other values than {', '.join(names)}."
            )


def texts_of(
    values: Mapping[str, Any], least: int, most: int
) -> tuple[str, ...]:
    """Returns the texts of a request, valid Unicode.

    JavaScript's strings may hold halves of characters: of these, U+FFFD.

    Args:
        values: A request.
        least, most: How many texts there must be.

    Raises:
        ValueError: If `texts` are no strings, too few, too many or too long.
    """
    texts = values.get("texts")
    if not isinstance(texts, list) or not all(
        isinstance(text, str) for text in texts
    ):
        raise ValueError("`texts` must be a list of strings.")
    if not least <= len(texts) <= most:
        number = str(least) if least == most else f"{least} to {most}"
        raise ValueError(
            f"`texts` must be {number}. Received: {len(texts)} texts."
        )
    longest = max(map(len, texts))
    if longest > MAX_CHARACTERS:
        raise ValueError(
            f"A text must have at most {MAX_CHARACTERS:,} characters. "
            f"Received: one of {longest:,}."
        )
    return tuple(
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for text in texts
    )


def position_of(values: Mapping[str, Any]) -> int | None:
    """Returns the place of a token in a request, None if it names none.

    Raises:
        ValueError: If `position` is no integer from 0.
    """
    position = values.get("position")
    if position is not None and (type(position) is not int or position < 0):
        raise ValueError("`position` must be an integer from 0.")
    return position
