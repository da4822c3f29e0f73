"""Layers whose activations are not kept for the gradient, but made again."""

from typing import Any

import keras
from keras import ops

from bert_tf.features import Tensor


def call_rematerialized(
    layer: keras.layers.Layer, x: Tensor, *args: Any, **kwargs: Any
) -> Tensor:
    """Calls a layer; in the backward pass it is computed once more.

    Only `x` is kept of it, so that a stack of blocks has the memory of one
    block's activations, for about a third more time (Chen et al. 2016, arXiv
    1604.06174).

    Args:
        layer: A built `keras.Layer`.
        x: Float tensor, its first argument.
        *args: The others, which get no gradient.
        **kwargs: As those.

    Returns:
        What the layer returns, a float tensor.
    """
    generators = [
        part.seed_generator
        for part in layer._flatten_layers()
        if isinstance(part, keras.layers.Dropout) and part.rate > 0
    ]
    # A generator counts its calls. Both computations begin at the same count,
    # and so have the same masks.
    seeds = [ops.copy(generator.state.value) for generator in generators]

    def compute(x):
        for generator, seed in zip(generators, seeds):
            generator.state.assign(seed)
        return layer(x, *args, **kwargs)

    return keras.remat(compute)(x)
