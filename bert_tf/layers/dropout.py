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
from bert_tf.layers.chains import runner_here
from bert_tf.layers.gradients import run_with_slope

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

    Args and call arguments are Keras's; `noise_shape` is not offered.
    """

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(rate, **kwargs)
        if self.noise_shape is not None or not self.num_kept:
            raise ValueError(
                "`rate` must be below 1, and `noise_shape` None. Received: "
                f"rate={rate}, noise_shape={self.noise_shape}."
            )

    def call(self, inputs, training=False):
        return self.drop(inputs, self.draw_seed(training))

    def draw_seed(self, training: bool | None) -> Tensor | None:
        """Returns the seed of a call's mask; None if nothing is dropped."""
        if not training or self.num_kept == _NUM_LEVELS:
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
        return run_with_slope(lambda x: self.multiply(x, seed, x.dtype), inputs)

    def multiply(
        self, x: Tensor, seed: Tensor, dtype: str
    ) -> tuple[Tensor, Tensor]:
        """Returns what `drop` returns, and the factors that it multiplies by.

        Args:
            x: Float tensor of any shape.
            seed: int `[2]` from `draw_seed`.
            dtype: Dtype of the results.

        Returns:
            Two tensors of the shape of `x`. Each factor is either 0 or the
            constant that preserves the mean.
        """
        levels = draw_levels(ops.shape(x), seed)
        return runner_here().run(
            _multiplication(self.num_kept, dtype), x, levels
        )

    @property
    def num_kept(self) -> int:
        """How many of the 2^16 levels keep their element."""
        return _NUM_LEVELS - round(self.rate * _NUM_LEVELS)


def draw_levels(shape: tuple[Any, ...], seed: Tensor) -> Tensor:
    """Returns random int16 of a shape, from which `factors_of` makes factors.

    Args:
        shape: Ints, or scalar tensors where a length is not known.
        seed: int `[2]` from `Dropout.draw_seed`.
    """
    *rows, width = shape or (1,)
    if isinstance(width, int) and width % 2 == 0:
        return _draw_halves((*rows, width // 2), seed)
    size = math.prod(shape)
    levels = _draw_halves(((size + 1) // 2, 1), seed)
    return ops.reshape(ops.reshape(levels, (-1,))[:size], shape)


def factors_of(levels: Tensor, num_kept: int, dtype: str) -> Tensor:
    """Returns the factors of `Dropout.multiply`, for chains.

    Args:
        levels: int16 from `draw_levels`; those below a limit keep their
            element.
        num_kept: The layer's `num_kept`.
        dtype: Their dtype.
    """
    keeps = ops.cast(levels < num_kept - _NUM_LEVELS // 2, dtype)
    # `where` costs more than a product.
    return keeps * (_NUM_LEVELS / num_kept)


@functools.cache
def _multiplication(num_kept, kept_dtype):
    """Returns the chain that turns levels into factors and applies them."""

    def multiply(x, levels, dtype):
        # In the dtype that is kept: the factors are an output too, and must be
        # the same wherever they are used.
        del dtype
        factors = factors_of(levels, num_kept, kept_dtype)
        return ops.cast(x, kept_dtype) * factors, factors

    return multiply


def _draw_halves(shape, seed):
    """Returns random 16-bit numbers, two for each element of a shape."""
    words = runner_here().draw_words(shape, seed)
    # Viewed as float32 on the way, which changes no bit. To view int32 as int16
    # Keras reshapes it, which TensorFlow does in host memory on GPUs.
    return ops.view(ops.view(words, "float32"), "int16")
