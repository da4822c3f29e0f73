"""Layer normalisation with a gradient of few passes.

Letters in tensor names: T position in the batch, D hidden size.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerNorm(keras.layers.LayerNormalization):
    """Keras's layer normalisation over the last axis (arXiv 1607.06450).

    Outside training it is Keras's own computation. In training the numbers
    are the same up to rounding; the gradient is written out, keeps the
    normalised input alone, and takes its sums as matrix products.

    Call arguments:
        inputs: float `[..., hidden]`.

    Returns:
        float `[..., hidden]` in the compute dtype; it is computed in float32.
    """

    def call(self, inputs, training=None):
        if not training:
            return super().call(inputs)
        x_TD = ops.reshape(inputs, (-1, inputs.shape[-1]))
        outputs_TD = _normalize(
            ops.cast(x_TD, "float32"),
            ops.cast(self.gamma, "float32"),
            ops.cast(self.beta, "float32"),
            self.epsilon,
        )
        outputs_TD = ops.cast(outputs_TD, self.compute_dtype)
        return ops.reshape(outputs_TD, ops.shape(inputs))


def _normalize(x_TD, gamma_D, beta_D, epsilon):
    @ops.custom_gradient
    def normalize(x_TD, gamma_D, beta_D):
        centered_TD = x_TD - ops.mean(x_TD, axis=-1, keepdims=True)
        variance_T1 = ops.mean(ops.square(centered_TD), axis=-1, keepdims=True)
        scale_T1 = ops.rsqrt(variance_T1 + epsilon)
        normal_TD = centered_TD * scale_T1

        def gradient(*args, upstream=None):
            # Keras's backends give it in one or the other.
            up_TD = args[0] if upstream is None else upstream
            product_TD = up_TD * normal_TD
            # With u = gamma * upstream: (u - mean(u) - n mean(u n)) * scale.
            # Products with a vector sum several times faster than `mean`.
            gamma_D1 = (gamma_D / gamma_D.shape[0])[:, None]
            mean_T1 = ops.matmul(up_TD, gamma_D1)
            slope_T1 = ops.matmul(product_TD, gamma_D1)
            x_gradient_TD = (
                up_TD * gamma_D - mean_T1 - normal_TD * slope_T1
            ) * scale_T1
            ones_1T = ops.ones_like(scale_T1[:, 0])[None, :]
            return (
                x_gradient_TD,
                ops.matmul(ones_1T, product_TD)[0],
                ops.matmul(ones_1T, up_TD)[0],
            )

        return normal_TD * gamma_D + beta_D, gradient

    return normalize(x_TD, gamma_D, beta_D)
