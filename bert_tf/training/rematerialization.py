"""Recomputes activations for the gradient, also under XLA."""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.features import Tensor
from bert_tf.layers.gradients import zero_after
from bert_tf.models.encoder import BertEncoder


def rematerialize(encoder: BertEncoder) -> None:
    """Makes training forget and recompute the blocks' activations."""
    encoder.rematerialize = True
    encoder.remat = remat


def remat(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Makes a function forget what its gradient needs, and recompute it.

    `keras.remat` does the same but saves nothing on TPUs. It is
    `tf.recompute_grad`, which ties the recomputation to the upstream gradient
    by `x == x`. The compiler knows that this is true, sees the same values
    computed twice and keeps the first. Call the result in a `tf.function`: an
    eager tape would keep everything.

    Args:
        function: Takes and returns a float tensor, and changes no state. The
            trainable variables that it reads get their gradients too.
    """

    @tf.custom_gradient
    def compute(x):
        def gradient(upstream, variables=()):
            again = x + zero_after(upstream, x.dtype.name)
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([again, *variables])
                output = function(again)
            slope, *slopes = tape.gradient(
                output,
                [again, *variables],
                output_gradients=upstream,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            return (slope, slopes) if variables else slope

        return function(x), gradient

    return compute
