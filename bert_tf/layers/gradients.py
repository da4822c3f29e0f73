"""Functions whose gradient is written out."""

from collections.abc import Callable
from typing import Any

from keras import ops


def with_gradient(function: Callable[..., tuple[Any, Callable]]) -> Callable:
    """Makes a function of tensors of one that returns its gradient too.

    Args:
        function: `function(*tensors) -> outputs, gradient`, where
            `gradient(upstream)` returns the gradients of the tensors.
    """

    @ops.custom_gradient
    def compute(*tensors):
        outputs, gradient = function(*tensors)

        # Keras's backends give the gradient of the outputs in one or the
        # other.
        def call_gradient(*args, upstream=None):
            return gradient(args[0] if upstream is None else upstream)

        return outputs, call_gradient

    return compute
