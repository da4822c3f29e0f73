"""Options that are described once, as fields of dataclasses.

`program.define_flags` makes a flag from every field, and `check` applies the
same ranges to the values wherever they come from.
"""

import dataclasses
import math
import os
import typing
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import messages


@dataclasses.dataclass(frozen=True)
class Range:
    """A range of valid values.

    Args:
        text: How messages describe the values.
        has: Returns whether a value, other than None, is in the range.
    """

    text: str
    has: Callable[[float], bool]


POSITIVE = Range("positive", lambda value: value > 0)
NOT_NEGATIVE = Range("0 or more", lambda value: value >= 0)
# A factor that is applied from each layer to the one below.
LAYER_SHARE = Range("above 0, and at most 1", lambda value: 0 < value <= 1)
SEED = Range("in [0, 2**32)", lambda value: 0 <= value < 2**32)

# Types, and how messages describe their values. Options of other types are
# checked where they are used.
_KINDS: dict[Any, str] = {
    bool: "true or false",
    bool | None: "true, false or None",
    int: "an integer",
    int | None: "an integer or None",
    float: "a number",
    float | None: "a number or None",
    str: "a string or path",
    str | None: "a string, path or None",
    Sequence[str]: "names",
    Sequence[int]: "integers",
    Sequence[float]: "numbers",
}
# What may be given for a type. Not by `isinstance`: for Python, True is an
# integer.
_TAKEN = {float: (int, float)}


def option(
    default: Any,
    text: str,
    values: Range | None = None,
    *,
    choices: Sequence[str] | None = None,
    **metadata: Any,
) -> Any:
    """Returns a field of a dataclass.

    Args:
        default: Its default; `dataclasses.MISSING` for none.
        text: The help of its flag.
        values: The `Range` of its values; None for any.
        choices: All its values, strings; None for any.
        **metadata: Further entries of the field's metadata.
    """
    return dataclasses.field(
        default=default,
        metadata={
            "help": text,
            "choices": choices,
            "range": values,
            **metadata,
        },
    )


def check(options: Any) -> None:
    """Checks a dataclass's `option`s, and makes NumPy's values Python's.

    Lists become tuples, and a range holds for each of their entries.

    Args:
        options: The dataclass; fields that are no options are left alone.

    Raises:
        ValueError: If a value is of another type, not finite, or out of its
            range; the message names the flag.
    """
    for field in dataclasses.fields(options):
        if "help" in field.metadata:
            value = getattr(options, field.name)
            if isinstance(value, np.generic | np.ndarray):
                # The files of a training cannot hold NumPy values.
                value = value.tolist()
            if isinstance(value, list | range):
                value = tuple(value)
            object.__setattr__(options, field.name, value)
            _check(field, value)


def _check(field, value):
    values, choices = field.metadata["range"], field.metadata["choices"]
    wanted = None
    # Flags have the right types, but values from Python code may not.
    if field.type in _KINDS and not _is_of(field.type, value):
        wanted = _KINDS[field.type]
        if choices:
            wanted = f"one of {', '.join(choices)}"
    elif isinstance(value, float) and not math.isfinite(value):
        wanted = "a finite number"
    elif value is None:
        return
    elif values is not None and not all(
        map(values.has, value if isinstance(value, tuple) else [value])
    ):
        wanted = values.text
    elif choices and field.type in _KINDS and value not in choices:
        wanted = f"one of {', '.join(choices)}"
    if wanted is not None:
        raise ValueError(
            f"--{field.name} must be {wanted}. "
            f"Received: --{field.name}={_as_flag(value)}."
        )


def _as_flag(value):
    if isinstance(value, tuple):
        return ",".join(map(messages.shortened, value))
    return messages.shortened(value)


def _is_of(kind, value):
    """Returns whether a value is of one of `_KINDS`."""
    if typing.get_origin(kind) is Sequence:
        (kind,) = typing.get_args(kind)
        return isinstance(value, tuple) and all(
            _is_of(kind, entry) for entry in value
        )
    wanted, *others = typing.get_args(kind) or (kind,)
    if value is None:
        return bool(others)
    if wanted is str:
        return isinstance(value, str | os.PathLike)
    return type(value) in _TAKEN.get(wanted, (wanted,))
