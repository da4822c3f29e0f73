"""The basic layers and functions that BERT's layers are made of.

Dense and Dropout are Keras's own, but for what their docstrings say.
"""

import math
from typing import Any

import keras
from keras import ops

from bert_tf.backend import custom_gradient
from bert_tf.backend import traced_once
from bert_tf.features import Tensor

_NUM_LEVELS = 2**16


@keras.saving.register_keras_serializable(package="bert_tf")
class Dense(keras.layers.Dense):
    """Keras's dense layer; in 16 bits, its bias is added by `add_bias`.

    Args and call arguments are Keras's.
    """

    def call(self, inputs, training=None):
        is_16_bit = self.compute_dtype in ("bfloat16", "float16")
        if not training or not is_16_bit or self.bias is None:
            return super().call(inputs)
        bias = ops.cast(self.bias, self.compute_dtype)
        outputs = add_bias(ops.matmul(inputs, self.kernel), bias)
        return outputs if self.activation is None else self.activation(outputs)

    def load_own_variables(self, store: Any) -> None:
        super().load_own_variables(store)
        if self.lora_enabled:
            # Files hold the sum, so Keras sets both factors to 0. Neither would
            # have a gradient then. As in `enable_lora`, only B is to be 0.
            factor = self.lora_kernel_a
            initializer = keras.initializers.HeUniform()
            factor.assign(initializer(factor.shape, factor.dtype))


@traced_once
@custom_gradient
def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Adds a vector to every row, for training in 16 bits.

    On CPUs, TensorFlow's own gradient of a bias adds bfloat16 in bfloat16,
    which is 5 % off over the 4,096 rows of a batch. A matrix product adds in
    float32.

    Args:
        x: float `[..., D]`.
        bias: float `[D]`, of the same dtype.
    """

    def gradient(up):
        up_TD = ops.reshape(up, (-1, up.shape[-1]))
        ones_1T = ops.ones((1, ops.shape(up_TD)[0]), up_TD.dtype)
        return up, ops.matmul(ones_1T, up_TD)[0]

    return ops.add(x, bias), gradient


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Dropout):
    """Keras's dropout, whose seed can be given.

    Keras's own layer always draws the seed from its generator, so that what is
    computed again for the gradient would have another mask. It also draws 32
    bits for each element, which takes CPUs longer than the rest of dropout.
    Here a number serves two elements: the rate is rounded to a multiple of
    2^-16.

    Args are Keras's; `noise_shape` is not offered.

    Call arguments:
        inputs: float, of any shape.
        seed: int `[2]` from `draw_seed`; None for a new one.
        training: Whether to drop elements.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(rate, **kwargs)
        if self.noise_shape is not None or not num_kept(self.rate):
            raise ValueError(
                "`rate` must be below 1, and `noise_shape` None. Received: "
                f"rate={rate}, noise_shape={self.noise_shape}."
            )

    def call(self, inputs, seed=None, training=False):
        if not training or not self.rate:
            return inputs
        if seed is None:
            seed = self.draw_seed()
        return inputs * draw_factors(
            ops.shape(inputs), self.rate, seed, inputs.dtype
        )

    def draw_seed(self) -> Tensor | None:
        """Returns the seed of a mask, int `[2]`; None if the rate is 0."""
        return self.seed_generator.next() if self.rate else None


def num_kept(rate: float) -> int:
    """Returns how many of the 2^16 levels keep their element."""
    return _NUM_LEVELS - round(rate * _NUM_LEVELS)


def draw_factors(
    shape: tuple[Any, ...], rate: float, seed: Tensor, dtype: str
) -> Tensor:
    """Returns what dropout multiplies by: 0, or what preserves the mean.

    Args:
        shape: Ints, or scalar tensors where a length is not known.
        rate: Share of zeros, in [0, 1).
        seed: int `[2]`. The result depends on nothing else.
        dtype: Of the result.
    """
    kept = num_kept(rate)
    if kept == _NUM_LEVELS:
        return ops.ones(shape, dtype)
    levels = _draw_levels(shape, seed)
    # The levels are signed: from -2**15 on.
    keeps = ops.cast(levels < kept - _NUM_LEVELS // 2, dtype)
    # `where` costs more than a product.
    return keeps * (_NUM_LEVELS / kept)


def _draw_levels(shape, seed):
    """Returns random int16 of a shape."""
    *rows, width = shape or (1,)
    if isinstance(width, int) and width % 2 == 0:
        return _draw_halves((*rows, width // 2), seed)
    size = math.prod(shape)
    levels = _draw_halves(((size + 1) // 2, 1), seed)
    return ops.reshape(ops.reshape(levels, (-1,))[:size], shape)


def _draw_halves(shape, seed):
    """Returns random int16, two for each element of a shape."""
    words = keras.random.randint(
        shape,
        minval=-(2**31),
        # Never drawn itself. No larger bound is an int32.
        maxval=2**31 - 1,
        dtype="int32",
        seed=_Given(seed),
    )
    # Viewed as float32 on the way, which changes no bit. To view int32 as int16
    # Keras reshapes it, which TensorFlow does in host memory on GPUs.
    return ops.view(ops.view(words, "float32"), "int16")


class _Given(keras.random.SeedGenerator):
    """A seed that exists, because Keras draws from generators only."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


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


def gather_positions(sequence: Tensor, positions: Tensor | int) -> Tensor:
    """Picks vectors by position from every row.

    Args:
        sequence: float or bool `[B, L, D]`.
        positions: int32 `[B, P]` in `[0, L)`, or P itself for the first P. Not
            checked: another position may be in another row.

    Returns:
        `[B, P, D]`, of the dtype of `sequence`.
    """
    if isinstance(positions, int):
        return sequence[:, :positions]
    batch_size, length, size = ops.shape(sequence)
    # Takes whole rows of one matrix; `take_along_axis` moves single elements.
    first = ops.arange(batch_size, dtype="int32")[:, None] * length
    return ops.take(
        ops.reshape(sequence, (-1, size)),
        ops.cast(positions, "int32") + first,
        axis=0,
    )
