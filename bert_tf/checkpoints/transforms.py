"""How a tensor is converted between a file and its Keras variable.

A closed set. Each transform has an exact inverse and is linear: Adam's moments
are transformed like their weights.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Transform:
    """One of `TRANSFORMS`; results are views of the input.

    Args:
        to_variable: Brings a file's array into the layout of its variable.
        to_file: The inverse.
        variable_shape: Like `to_variable`, for a shape.
        file_shape: Like `to_file`, for a shape.
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
