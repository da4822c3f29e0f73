"""Dropout with 16 random bits per element."""

import contextlib
import contextvars
import functools
import math
import types
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import keras
from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers.chains import run_chain
from bert_tf.layers.gradients import run_with_slope
from bert_tf.layers.gradients import with_gradient
from bert_tf.layers.gradients import zero_after

_NUM_LEVELS = 2**16

# The seeds that calls take instead of new ones: {id of the layer: seed}. Per
# thread: MirroredStrategy traces its devices in threads.
_GIVEN: contextvars.ContextVar[Mapping[int, Tensor | None]] = (
    contextvars.ContextVar("given", default=types.MappingProxyType({}))
)


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Dropout):
    """Keras's dropout, with masks that cost half as much to make.

    Keras draws 32 bits for every element, which on CPUs takes longer than the
    rest of dropout. Here a drawn number serves two elements. The rate is
    rounded to a multiple of 2^-16. Kept elements are divided by the share that
    the rounded rate keeps, so that means do not change.

    Args and call arguments are Keras's; `noise_shape` is not offered. With
    `recompute=True` the mask is not kept for the gradient but made again.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(rate, **kwargs)
        if self.noise_shape is not None or not self._num_kept():
            raise ValueError(
                "`rate` must be below 1, and `noise_shape` None. Received: "
                f"rate={rate}, noise_shape={self.noise_shape}."
            )

    def call(self, inputs, training=False, recompute=False):
        seed = self.draw_seed(training)
        if recompute and seed is not None:
            return self._drop_again(inputs, seed)
        return self.drop(inputs, seed)

    def draw_seed(self, training: bool | None) -> Tensor | None:
        """Returns the seed of a call's mask; None if nothing is dropped."""
        if not training or self._num_kept() == _NUM_LEVELS:
            return None
        given = _GIVEN.get().get(id(self))
        return self.seed_generator.next() if given is None else given

    @contextlib.contextmanager
    def given(self, seed: Tensor | None) -> Iterator[None]:
        """Makes calls in the block use a seed that `draw_seed` returned."""
        token = _GIVEN.set({**_GIVEN.get(), id(self): seed})
        try:
            yield
        finally:
            _GIVEN.reset(token)

    def drop(self, inputs: Tensor, seed: Tensor | None) -> Tensor:
        """Returns the inputs after dropout, which depends only on the seed.

        Args:
            inputs: Float tensor of any shape.
            seed: int `[2]` from `draw_seed`, or None.
        """
        if seed is None:
            return inputs
        return run_with_slope(lambda x: self.multiply(x, seed), inputs)

    def _drop_again(self, inputs, seed):
        """Does what `drop` does, but makes the mask again for the gradient."""

        def drop(x):
            # Without the input's 0, the masks of all layers would be made at
            # the start of the step.
            return self.multiply(x, seed + zero_after(x, seed.dtype))[0]

        return with_gradient(lambda inputs: (drop(inputs), drop))(inputs)

    def multiply(self, x: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what `drop` returns, and the factors that it multiplies by.

        Args:
            x: Float tensor of any shape.
            seed: int `[2]` from `draw_seed`.

        Returns:
            Two tensors of the shape and dtype of `x`. Each factor is either 0
            or the constant that preserves the mean.
        """
        shape = ops.shape(x)
        *rows, width = shape or (1,)
        if isinstance(width, int) and width % 2 == 0:
            levels = _draw_levels((*rows, width // 2), seed)
        else:
            size = math.prod(shape)
            levels = _draw_levels(((size + 1) // 2, 1), seed)
            levels = ops.reshape(ops.reshape(levels, (-1,))[:size], shape)
        return run_chain(_multiplication(self._num_kept()), x, levels)

    def _num_kept(self):
        """Returns how many of the 2^16 levels keep their element."""
        return _NUM_LEVELS - round(self.rate * _NUM_LEVELS)


@functools.cache
def _multiplication(num_kept):
    """Returns the chain that turns levels into factors and applies them."""

    def multiply(x, levels, dtype):
        # In the dtype of `x`: the factors are an output too, and must be the
        # same wherever they are used.
        del dtype
        keeps = ops.cast(levels < num_kept - _NUM_LEVELS // 2, x.dtype)
        factors = keeps * (_NUM_LEVELS / num_kept)
        # One product here and one in the backward pass; `where` costs more.
        return x * factors, factors

    return multiply


def _draw_levels(shape, seed):
    """Returns random 16-bit numbers, two for each element of a shape."""
    # All 32-bit numbers but the largest, which `maxval` excludes.
    words = keras.random.randint(
        shape,
        minval=-(2**31),
        maxval=2**31 - 1,
        dtype="int32",
        seed=_Drawn(seed),
    )
    # Viewed as float32 on the way, which changes no bit. To view int32 as int16
    # Keras reshapes it, which TensorFlow does in host memory on GPUs.
    return ops.view(ops.view(words, "float32"), "int16")


class _Drawn(keras.random.SeedGenerator):
    """Wraps an existing seed, because Keras draws from generators only."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed
