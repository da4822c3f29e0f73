"""Checks what a request to the playground holds, and how much."""

from collections.abc import Mapping
from typing import Any

from bert_tf import messages

# The size of a request's JSON.
MAX_BODY_BYTES = 64 * 1024
# The length of each text.
MAX_CHARACTERS = 10_000
# The number of sentences to compare, or of texts to rerank.
MAX_TEXTS = 32
# The number of masks in a text, which are all filled in at once.
MAX_MASKS = 32


def check_names(values: Any, names: tuple[str, ...]) -> None:
    """Checks that a request's JSON is an object of known names.

    Args:
        values: The decoded JSON.
        names: The names that it may have.

    Raises:
        ValueError: If it is not an object, or has another name.
    """
    if not isinstance(values, dict):
        raise ValueError("A request must be a JSON object.")
    for name in values:
        if name not in names:
            raise ValueError(
                f"A request must have no values except {', '.join(names)}."
            )


def texts_of(
    values: Mapping[str, Any], least: int, most: int
) -> tuple[str, ...]:
    """Returns the texts of a request, valid Unicode.

    JavaScript's strings may hold halves of characters, which become U+FFFD.

    Args:
        values: A request.
        least, most: How many texts there must be.

    Raises:
        ValueError: If `texts` are not strings, too few, too many or too long.
    """
    texts = values.get("texts")
    if not isinstance(texts, list) or not all(
        isinstance(text, str) for text in texts
    ):
        raise ValueError("`texts` must be a list of strings.")
    if not least <= len(texts) <= most:
        number = str(least) if least == most else f"{least} to {most}"
        raise ValueError(
            f"`texts` must be {number}. Received: "
            f"{messages.counted(len(texts), 'text', 'texts')}."
        )
    longest = max(map(len, texts))
    if longest > MAX_CHARACTERS:
        raise ValueError(
            f"A text must have at most {MAX_CHARACTERS:,} characters. "
            f"Received: a text of {longest:,}."
        )
    return tuple(
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        for text in texts
    )


def position_of(values: Mapping[str, Any]) -> int | None:
    """Returns a request's position of a token, None if it has none.

    Raises:
        ValueError: If `position` is not an integer from 0.
    """
    position = values.get("position")
    if position is not None and (type(position) is not int or position < 0):
        raise ValueError("`position` must be an integer from 0.")
    return position
