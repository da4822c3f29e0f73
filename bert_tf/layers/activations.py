"""The activations of BERT's feed-forward layers and heads, by name."""

import keras
from keras import ops

from bert_tf.features import Tensor


def _gelu_new(x):
    if keras.backend.standardize_dtype(x.dtype) != "float16":
        return ops.gelu(x, approximate=True)
    # The square of 256 is infinite there, and the slope no number.
    return ops.cast(ops.gelu(ops.cast(x, "float32"), approximate=True), x.dtype)


_FUNCTIONS = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_new": _gelu_new,
    "linear": lambda x: x,
    "quick_gelu": lambda x: x * ops.sigmoid(x * 1.702),
    "relu": ops.relu,
    # Not `ops.silu`, which has a custom gradient in TensorFlow.
    "silu": lambda x: x * ops.sigmoid(x),
    "tanh": ops.tanh,
}


def apply_activation(name: str, x: Tensor) -> Tensor:
    """Applies the activation `name`, one of `config.ACTIVATIONS`, to `x`.

    "gelu" is x * Phi(x) with the exact erf form, "gelu_new" its tanh
    approximation (Hendrycks and Gimpel 2016, section 2), which is what
    Google's BERT computes, "quick_gelu" another one, x * sigmoid(1.702 x), and
    "silu" is x * sigmoid(x).
    """
    return _FUNCTIONS[name](x)
