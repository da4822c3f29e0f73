"""Which columns of a table are hard negatives, for all that read them."""

import re
from collections.abc import Sequence

# Columns of a text a row, and the one of lists of texts.
NEGATIVE, NEGATIVES = "negative", "negatives"
_ONE_TEXT = re.compile(rf"{NEGATIVE}([_-]?\d+)?")


def find(
    title: str, names: Sequence[str], may_be_list: bool = False
) -> list[str]:
    """Returns the names of the columns of negatives, in the table's order.

    Args:
        title: What messages call the table.
        names: Names of all of its columns.
        may_be_list: Whether there may be `negatives`, lists of texts.

    Raises:
        ValueError: If another column has "negative" in its name: it is
            neither left out nor taken for texts.
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
