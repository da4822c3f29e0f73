"""What TensorFlow makes one operation of, on CPUs, if it is written as here.

Where it runs no oneDNN operations, as by default on older processors, the form
written here takes longer than the layers' own: it is for frozen exports alone.
Its graph optimizer looks for the operations that Keras 2 wrote, in their order
(`FindMklLayerNorm` in tensorflow/core/grappler/optimizers/remapper.cc). Of the
forms of a layer normalisation that it finds this is the one whose epsilon it
keeps: of a product with the inverse deviation, less the mean's, it makes a
normalisation with its own epsilon, 0.001 (TensorFlow 2.21).
"""

import tensorflow as tf


def layer_norm(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """Normalises over the last axis; a `substitutes.LayerNormFunction`.

    Args:
        x: float32 `[..., D]`.
        gamma, beta: float32 `[D]`.
        epsilon: What is added to the variance.
    """
    size = x.shape[-1]
    if x.shape.rank != 2:
        rows = layer_norm(tf.reshape(x, [-1, size]), gamma, beta, epsilon)
        return tf.reshape(rows, tf.shape(x))
    # Every row as a channel of one image, normalised as in training: by its
    # own mean and variance.
    shape = tf.shape(x)
    images = tf.reshape(x, [1, -1, size, 1])
    # Not of the images, of which there must be no other use.
    channels = shape[:1]
    nothing = tf.constant([], tf.float32)
    normal = tf.raw_ops.FusedBatchNormV3(
        x=images,
        scale=tf.fill(channels, 1.0),
        offset=tf.fill(channels, 0.0),
        mean=nothing,
        variance=nothing,
        epsilon=epsilon,
        data_format="NCHW",
        is_training=True,
    )[0]
    return beta + tf.reshape(normal, shape) * gamma
