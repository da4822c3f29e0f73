"""Finds the columns of hard negatives in a table."""

import re
from collections.abc import Sequence

# Names of a column with one text a row, and of the column with lists.
NEGATIVE, NEGATIVES = "negative", "negatives"
_ONE_TEXT = re.compile(rf"{NEGATIVE}([_-]?\d+)?")


def find(
    title: str, names: Sequence[str], may_be_list: bool = False
) -> list[str]:
    """Returns the names of the columns of negatives, in the table's order.

    Args:
        title: Name of the table in error messages.
        names: Names of all of its columns.
        may_be_list: Whether a column `negatives` of lists is allowed.

    Raises:
        ValueError: If another column has "negative" in its name, because it
            might be meant as one.
    """
    found = []
    for name in names:
        if _ONE_TEXT.fullmatch(name) or (may_be_list and name == NEGATIVES):
            found.append(name)
        elif NEGATIVE in name.lower():
            a_list = f", or a list `{NEGATIVES}`" if may_be_list else ""
            raise ValueError(
                f"{title}: columns of negatives must be called `{NEGATIVE}`, "
                f"`{NEGATIVE}_1`, `{NEGATIVE}_2` and so on{a_list}; rename or "
                f"drop others. Received: {name!r}."
            )
    return found
