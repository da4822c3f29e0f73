"""Activations that are made again for the gradient, also under XLA."""

from collections.abc import Callable

import tensorflow as tf

from bert_tf.features import Tensor
from bert_tf.layers.gradients import zero_after
from bert_tf.models.encoder import BertEncoder


def rematerialize(encoder: BertEncoder) -> None:
    """Lets training forget the blocks' activations, and compute them again."""
    encoder.rematerialize = True
    encoder.remat = remat


def remat(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Makes a function forget what its gradient needs, and compute it again.

    As `keras.remat`, which on TPUs saves nothing: that is `tf.recompute_grad`,
    whose tie to the upstream gradient, `x == x`, the compiler knows to be true.
    It then sees that the same is made twice, and keeps the first. To be called
    in a `tf.function`: a tape of eager TensorFlow would keep all of it.

    Args:
        function: Of a float tensor, to a float tensor; it changes no state.
            The trainable variables that it reads get their gradients too.
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
