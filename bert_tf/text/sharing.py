"""Functions that a graph holds once, however often it uses them."""

from collections.abc import Callable

import tensorflow as tf


def shared(
    function: Callable[[tf.Tensor], tf.Tensor],
) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns a function of strings `[N]` whose uses in graphs are calls.

    An export has several signatures, and one that tells the places of tokens
    normalises twice. Without this, each use would be traced anew and have its
    own operations in the graph. Eagerly, `function` itself is called.

    Args:
        function: From string `[N]` to string `[N]`, in TensorFlow operations.
    """
    traced = tf.function(
        function,
        autograph=False,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )

    # Not a `tf.function` itself: tf.saved_model.save would write each that an
    # object holds as a callable of its own.
    def call(texts):
        if tf.executing_eagerly():
            return function(texts)
        result = traced(texts)
        result.set_shape(texts.shape)
        return result

    return call
