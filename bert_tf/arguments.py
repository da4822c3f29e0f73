"""Checks of single arguments, given by users from Python."""

import numbers
import operator
from typing import Any

from bert_tf import messages


def whole_number(name: str, value: Any) -> int:
    """Returns an argument as an int, also if it is a NumPy integer.

    Files of models can only hold Python's numbers.

    Args:
        name: Name of the argument.
        value: Value of the argument.

    Raises:
        ValueError: If it is no integer.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ValueError(
            f"`{name}` must be an integer. "
            f"Received: {name}={messages.shortened(value)}."
        )
    return number


def fraction(name: str, value: Any) -> float:
    """Returns an argument as a float, also if it is a NumPy number.

    Args:
        name: Name of the argument.
        value: Value of the argument.

    Raises:
        ValueError: If it is no number in [0, 1).
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value < 1:
        raise ValueError(
            f"`{name}` must be a number in [0, 1). "
            f"Received: {name}={messages.shortened(value)}."
        )
    return float(value)
