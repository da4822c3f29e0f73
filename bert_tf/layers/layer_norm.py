"""Layer normalisation whose gradient takes few passes over memory.

Letters in tensor names: T position counted over the whole batch, D hidden size.
"""

import keras
from keras import ops

from bert_tf.layers.gathering import as_matrix
from bert_tf.layers.gradients import sum_rows
from bert_tf.layers.gradients import with_gradient
from bert_tf.layers.gradients import zero_after


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's layer normalisation over the last axis (arXiv 1607.06450).

    The input is centred before it is scaled, which rounds less than Keras's own
    order. In training, a hand-written gradient keeps only the normalised input
    and its scale, and takes its sums as matrix products.

    Call arguments:
        inputs: float `[..., hidden]`.
        recompute: Whether training keeps a 16-bit input instead, which is half
            as large, and normalises it again for the gradient.

    Returns:
        float `[..., hidden]` in the compute dtype, computed in float32.
    """

    def call(self, inputs, training=None, recompute=False):
        gamma_D = ops.cast(self.gamma, "float32")
        beta_D = ops.cast(self.beta, "float32")
        if training:
            x = inputs if recompute else ops.cast(inputs, "float32")
            outputs = _with_gradient(
                as_matrix(x), gamma_D, beta_D, self.epsilon
            )
            if len(x.shape) != 2:
                outputs = ops.reshape(outputs, ops.shape(x))
        else:
            # Keeps the custom gradient out of exports.
            normal, _ = _normalize(inputs, self.epsilon)
            outputs = normal * gamma_D + beta_D
        return ops.cast(outputs, self.compute_dtype)


def _normalize(x, epsilon):
    """Returns the normalised input and its scale, in float32."""
    x = ops.cast(x, "float32")
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon)
    return centered * scale, scale


def _with_gradient(x_TD, gamma_D, beta_D, epsilon):
    dtype = x_TD.dtype

    @with_gradient
    def normalize(x_TD, gamma_D, beta_D):
        first = normal_TD, _ = _normalize(x_TD, epsilon)

        def gradient(up_TD):
            normal_TD, scale_T1 = first
            if dtype != "float32":
                late_TD = x_TD + zero_after(up_TD, dtype)
                normal_TD, scale_T1 = _normalize(late_TD, epsilon)
            product_TD = up_TD * normal_TD
            # With u = gamma * upstream: (u - mean(u) - n mean(u n)) * scale.
            # Products with a vector sum several times faster than `mean`.
            gamma_D1 = ops.expand_dims(gamma_D / gamma_D.shape[0], 1)
            mean_T1 = ops.matmul(up_TD, gamma_D1)
            slope_T1 = ops.matmul(product_TD, gamma_D1)
            x_gradient_TD = (
                up_TD * gamma_D - mean_T1 - normal_TD * slope_T1
            ) * scale_T1
            return (
                ops.cast(x_gradient_TD, dtype),
                sum_rows(product_TD),
                sum_rows(up_TD),
            )

        return normal_TD * gamma_D + beta_D, gradient

    return normalize(x_TD, gamma_D, beta_D)
