"""Layers whose activations are recomputed for the gradient, not kept."""

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
    """Calls a layer in training, and recomputes it for the gradient.

    Only `x` is kept. A stack of blocks then needs the memory of one block's
    activations, for about a third more time (Chen et al. 2016, arXiv
    1604.06174).

    Args:
        remat: `keras.remat`, or a function that does the same.
        layer: A built `keras.Layer` that calls each of its dropouts once.
        x: Float tensor, the layer's first argument.
        *args: Other arguments of the layer, which get no gradient.
        **kwargs: Likewise.

    Returns:
        The layer's output, a float tensor.
    """
    dropouts = [
        part for part in layer._flatten_layers() if isinstance(part, Dropout)
    ]
    # Drawn once, for both computations: a recomputation must not change state.
    # Each is tied to `x`. Otherwise XLA would see the same masks twice, and
    # keep them.
    seeds = [dropout.draw_seed(True) for dropout in dropouts]

    def compute(x):
        with contextlib.ExitStack() as stack:
            for dropout, seed in zip(dropouts, seeds):
                if seed is not None:
                    seed += zero_after(x, seed.dtype)
                stack.enter_context(dropout.given(seed))
            return layer(x, *args, **kwargs)

    return remat(compute)(x)
