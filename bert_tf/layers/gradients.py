"""Functions whose gradient is written out."""

from collections.abc import Callable
from typing import Any

from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.gathering import as_matrix


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


def run_with_slope(
    function: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor
) -> Tensor:
    """Runs a function of every element whose derivative is made on the way.

    Args:
        function: `function(x) -> outputs, slope`, of the shape of `x`: the
            gradient is the outputs' times the slope.
        x: What it takes.

    Returns:
        The outputs.
    """

    @with_gradient
    def run(x):
        outputs, slope = function(x)
        return outputs, lambda upstream: upstream * slope

    return run(x)


def sum_rows(x: Tensor) -> Tensor:
    """Returns the sum of all rows, `[D]`, taken as a matrix product.

    On CPUs that is several times faster than a sum, and rounds less: bfloat16
    is added up in float32, or where the processor has no products in bfloat16
    block by block.

    Args:
        x: Float `[..., D]`.
    """
    x_TD = as_matrix(x)
    ones_1T = ops.ones((1, ops.shape(x_TD)[0]), x_TD.dtype)
    return ops.squeeze(ops.matmul(ones_1T, x_TD), 0)


def zero_after(x: Tensor, dtype: str) -> Tensor:
    """Returns a 0 (or 1, of NaN) that is there only when `x` is.

    Added to what a gradient computes a second time from the upstream gradient
    on, so that it is neither computed earlier nor seen to be the same as the
    first, by TensorFlow or by XLA, and kept.

    Args:
        x: Float tensor of one axis or more.
        dtype: Of the scalar.
    """
    first = x[(slice(0, 1),) * len(x.shape)]
    return ops.cast(ops.any(ops.isnan(first)), dtype)
