"""Layers whose activations are not kept for the gradient, but made again."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras

from bert_tf.features import Tensor
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.gradients import zero_after


def call_rematerialized(
    remat: Callable[[Callable[[Tensor], Tensor]], Callable[[Tensor], Tensor]],
    layer: keras.layers.Layer,
    x: Tensor,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    """Calls a layer in training; for the gradient it is computed once more.

    Only `x` is kept of it, so that a stack of blocks has the memory of one
    block's activations, for about a third more time (Chen et al. 2016, arXiv
    1604.06174).

    Args:
        remat: `keras.remat`, or what does the same.
        layer: A built `keras.Layer`, which calls each of its dropouts once.
        x: Float tensor, its first argument.
        *args: The others, which get no gradient.
        **kwargs: As those.

    Returns:
        What the layer returns, a float tensor.
    """
    dropouts = [
        part for part in layer._flatten_layers() if isinstance(part, Dropout)
    ]
    # Drawn once, for both computations: what is computed a second time must
    # change no state. Each is tied to `x`: else the masks would be the same to
    # XLA, and kept.
    seeds = [dropout.draw_seed(True) for dropout in dropouts]

    def compute(x):
        with contextlib.ExitStack() as stack:
            for dropout, seed in zip(dropouts, seeds):
                if seed is not None:
                    seed += zero_after(x, seed.dtype)
                stack.enter_context(dropout.given(seed))
            return layer(x, *args, **kwargs)

    return remat(compute)(x)
