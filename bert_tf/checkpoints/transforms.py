"""What a tensor goes through between a file and its Keras variable.

A closed set. Each has an inverse that gives back every bit, and is linear:
Adam's moments go the way of their weights.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Transform:
    """One of `TRANSFORMS`; arrays come back as views of what went in.

    Args:
        to_variable: An array of a file in the layout of its variable.
        to_file: The inverse.
        variable_shape: As `to_variable`, of a shape.
        file_shape: As `to_file`, of a shape.
    """

    to_variable: Callable[[np.ndarray], np.ndarray]
    to_file: Callable[[np.ndarray], np.ndarray]
    variable_shape: Callable[[Shape], Shape]
    file_shape: Callable[[Shape], Shape]


def _same(value):
    return value


def _reversed(shape):
    return shape[::-1]


IDENTITY = Transform(_same, _same, _same, _same)
TRANSPOSE = Transform(np.transpose, np.transpose, _reversed, _reversed)
TRANSFORMS = (IDENTITY, TRANSPOSE)
