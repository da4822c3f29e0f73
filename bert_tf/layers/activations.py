"""The activations of BERT's feed-forward layers and heads, by name.

Letters in tensor names: T row, F number of inputs, D number of outputs.
"""

import functools
import math

from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.chains import runner_here
from bert_tf.layers.gradients import run_with_slope
from bert_tf.layers.gradients import with_gradient
from bert_tf.layers.gradients import zero_after

_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBE = 0.044715 * _TANH_SCALE
_LARGEST_SQUARE = 64.0**2


def _gelu(x, dtype):
    """Returns exact GELU and its derivative; see `chains.Chain`.

    The derivative is Phi(x) + x phi(x), which shares Phi(x) with the output.
    This takes fewer passes over memory than automatic differentiation, and
    only one tensor is kept for the backward pass.
    """
    kept, x = x.dtype, ops.cast(x, dtype)
    below = ops.erf(x * math.sqrt(0.5)) * 0.5 + 0.5
    density = ops.exp(ops.square(x) * -0.5) * (1 / math.sqrt(2 * math.pi))
    slope = below + x * density
    return ops.cast(x * below, kept), ops.cast(slope, kept)


def _gelu_new(x, dtype):
    """Returns the tanh form and its derivative.

    With z = a x + b x^3 and h = (1 + tanh z) / 2, the output is y = x h, and
    the derivative is h + 2 x h (1 - h) (a + 3 b x^2).
    """
    kept, x = x.dtype, ops.cast(x, dtype)
    square = ops.square(x)
    if x.dtype == "float16":
        # The square of 256 is infinite, and 0 times infinity is NaN. From
        # |x| = 64 on, the output is x or 0 whatever the square.
        square = ops.minimum(square, _LARGEST_SQUARE)
    share = ops.tanh(x * (square * _TANH_CUBE + _TANH_SCALE)) * 0.5 + 0.5
    output = x * share
    slope = share + (output - output * share) * (
        square * (6 * _TANH_CUBE) + 2 * _TANH_SCALE
    )
    return ops.cast(output, kept), ops.cast(slope, kept)


_FUNCTIONS = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_new": lambda x: ops.gelu(x, approximate=True),
    "linear": lambda x: x,
    "quick_gelu": lambda x: x * ops.sigmoid(x * 1.702),
    "relu": ops.relu,
    # Not `ops.silu`, which has a custom gradient in TensorFlow.
    "silu": lambda x: x * ops.sigmoid(x),
    "tanh": ops.tanh,
}
# Forms with derivatives, for training. Elsewhere the plain forms are used:
# TensorFlow fuses them with the preceding matrix product, and exports hold no
# custom gradients.
_IN_TRAINING = {"gelu": _gelu, "gelu_new": _gelu_new}


def apply_activation(
    name: str, x: Tensor, training: bool | None = False
) -> Tensor:
    """Applies the activation `name`, one of `config.ACTIVATIONS`, to `x`.

    "gelu" is x * Phi(x) with the exact erf form, "gelu_new" its tanh
    approximation (Hendrycks and Gimpel 2016, section 2), which is what
    Google's BERT computes, "quick_gelu" another one, x * sigmoid(1.702 x), and
    "silu" is x * sigmoid(x). With `training` the gradient is cheaper. The
    outputs are the same up to rounding, which far below 0 reaches 1e-7 |x|.
    """
    if training and name in _IN_TRAINING:
        return run_with_slope(
            lambda x: runner_here().run(_IN_TRAINING[name], x), x
        )
    return _FUNCTIONS[name](x)


def multiply_activated(name: str, x_TF: Tensor, kernel_FD: Tensor) -> Tensor:
    """Returns the activations times a kernel, for training.

    For the gradient it keeps only `x_TF` and recomputes activations and slopes
    from it. `apply_activation` keeps both, which in a feed-forward layer, four
    times as wide as all others, is half of what a block keeps.

    Args:
        name: As in `apply_activation`.
        x_TF: float `[T, F]`.
        kernel_FD: float `[F, D]` of the same dtype; a tensor, not a variable.
    """
    if name not in _IN_TRAINING:
        return ops.matmul(_FUNCTIONS[name](x_TF), kernel_FD)

    @with_gradient
    def multiply(x_TF, kernel_FD):
        def gradient(up_TD):
            again_TF = x_TF + zero_after(up_TD, x_TF.dtype)
            active_TF, slope_TF = runner_here().run(
                _IN_TRAINING[name], again_TF
            )
            return (
                ops.matmul(up_TD, ops.transpose(kernel_FD)) * slope_TF,
                ops.matmul(ops.transpose(active_TF), up_TD),
            )

        active_TF = runner_here().run(_output_alone(name), x_TF)
        return ops.matmul(active_TF, kernel_FD), gradient

    return multiply(x_TF, kernel_FD)


@functools.cache
def _output_alone(name):
    """Returns the chain of an activation without its derivative."""
    return lambda x, dtype: _IN_TRAINING[name](x, dtype)[0]
