"""Dropout at 16 random bits an element."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.features import Tensor

_NUM_LEVELS = 2**16


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Dropout):
    """Keras's dropout, whose masks cost half as much to make.

    Keras draws 32 bits for every element, which on CPUs takes longer than all
    the rest of it. Here a drawn number serves two elements. The rate is
    rounded to a multiple of 2^-16, and what is kept is divided by the share
    that is kept under the rounded rate, so that means stay what they are.

    Args and call arguments are Keras's; `noise_shape` is not offered.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(rate, **kwargs)
        if self.noise_shape is not None or not self._num_kept():
            raise ValueError(
                "`rate` must be below 1, and `noise_shape` None. Received: "
                f"rate={rate}, noise_shape={self.noise_shape}."
            )

    @property
    def scale(self) -> float:
        """What is kept is multiplied by it; 1 where all is kept."""
        return _NUM_LEVELS / self._num_kept()

    def call(self, inputs, training=False):
        if not training or self.scale == 1:
            return inputs
        seed = self.seed_generator.next()
        keeps = self.make_keeps(ops.shape(inputs), seed)
        # A product, and in the backward pass another: `where` is dearer.
        return inputs * (ops.cast(keeps, inputs.dtype) * self.scale)

    def make_keeps(self, shape: Sequence[int | Tensor], seed: Tensor) -> Tensor:
        """Returns which elements are kept: of one seed, always the same.

        Args:
            shape: As `ops.shape` gives it.
            seed: int `[2]`, which `seed_generator.next()` gave.

        Returns:
            bool, of that shape.
        """
        size = math.prod(shape)
        # All numbers of 32 bits but the largest, which `maxval` excludes.
        words = keras.random.randint(
            ((size + 1) // 2, 1),
            minval=-(2**31),
            maxval=2**31 - 1,
            dtype="int32",
            seed=_Drawn(seed),
        )
        levels = ops.reshape(ops.view(words, "int16"), (-1,))[:size]
        levels = ops.reshape(levels, shape)
        return levels < self._num_kept() - _NUM_LEVELS // 2

    def _num_kept(self):
        """Returns how many of the levels keep their element."""
        return _NUM_LEVELS - round(self.rate * _NUM_LEVELS)


class _Drawn(keras.random.SeedGenerator):
    """A seed that is there already: Keras draws from generators alone."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed
