"""Dropout whose mask is a function of a seed."""

import math
from typing import Any

import keras
from keras import ops

from bert_tf.features import Tensor

_NUM_LEVELS = 2**16


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
