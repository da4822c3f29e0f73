"""Checks of an optimizer's options and variables."""

import math
import numbers
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras

# {option: (what it must be, whether a number is that)}; None is no number.
_RANGES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "learning_rate": (
        "a finite number, 0 or more, or a schedule",
        lambda rate: 0 <= rate < math.inf,
    ),
    "weight_decay": ("0 or more", lambda x: x >= 0),
    "beta_1": ("in [0, 1)", lambda x: 0 <= x < 1),
    "beta_2": ("in [0, 1)", lambda x: 0 <= x < 1),
    "epsilon": ("0 or more", lambda x: x >= 0),
    "global_clipnorm": ("positive or None", lambda x: x > 0),
    "layerwise_decay": ("above 0, and at most 1", lambda x: 0 < x <= 1),
}
_MAY_BE_NONE = ("weight_decay", "global_clipnorm")
# Keras would apply these before the sum over the replicas, or (the last) after
# it has been clipped.
_NOT_OFFERED = ("clipnorm", "clipvalue", "loss_scale_factor")


def check_options(
    name: str, keras_options: Mapping[str, Any], **options: Any
) -> None:
    """Checks the options of a `BertOptimizer`.

    Args:
        name: Name of the class, for the message.
        keras_options: Those that are Keras's.
        **options: The others that are numbers.

    Raises:
        ValueError: If an option is not offered, no number or out of its range.
    """
    for option in _NOT_OFFERED:
        if keras_options.get(option) is not None:
            raise ValueError(
                f"`{option}` is not offered by {name}. "
                f"Received: {option}={keras_options[option]}."
            )
    for option, value in options.items():
        expected, is_allowed = _RANGES[option]
        if value is None and option in _MAY_BE_NONE:
            continue
        if option == "learning_rate" and not isinstance(value, float):
            # Keras itself rejects other types of rates.
            continue
        is_number = isinstance(value, numbers.Real)
        if not is_number or not is_allowed(value):
            raise ValueError(
                f"`{option}` must be {expected if is_number else 'a number'}. "
                f"Received: {option}={value!r}."
            )


def checked_patterns(patterns: Any) -> tuple[str, ...]:
    """Returns regular expressions as a tuple.

    Raises:
        ValueError: If `patterns` is not a list of regular expressions.
    """
    # A string's characters would each match nearly every path.
    if isinstance(patterns, str) or not isinstance(patterns, Iterable):
        raise ValueError(
            "`no_weight_decay` must be a list of regular expressions. "
            f"Received: no_weight_decay={patterns!r}."
        )
    patterns = tuple(patterns)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ValueError(
                "`no_weight_decay` must be a list of regular expressions. "
                f"Received: {pattern!r}, {error}."
            ) from error
    return patterns


def check_bits(name: str, variables: Sequence[Any]) -> None:
    """Raises `ValueError` if a variable has 16 bits.

    In bfloat16, beta_2 would be 1 and v would stay 0. In float16, v and epsilon
    would all but vanish.
    """
    for variable in variables:
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype in ("bfloat16", "float16"):
            raise ValueError(
                f"{name} must have float32 weights. In 16 "
                "bits, train with dtype='mixed_bfloat16'. Received: "
                f"{getattr(variable, 'path', variable.name)} of {dtype}."
            )
