"""Layer normalisation whose gradient takes few passes over memory.

Letters in tensor names: T position counted over the whole batch, D hidden size.
"""

import functools

import keras
from keras import ops

from bert_tf.features import Tensor
from bert_tf.layers import chains
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.dropout import draw_levels
from bert_tf.layers.dropout import factors_of
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

    Returns:
        float `[..., hidden]` in the compute dtype, computed in float32.
    """

    def call(self, inputs, training=None):
        if training:
            return self._normalize_in_training(inputs)
        # Keeps the custom gradient out of exports.
        normal, _ = _normalize(inputs, self.epsilon)
        outputs = normal * self._gamma() + self._beta()
        return ops.cast(outputs, self.compute_dtype)

    def add(
        self,
        inputs: Tensor,
        added: Tensor,
        dropout: Dropout,
        training: bool | None = False,
        recompute: bool = False,
    ) -> Tensor:
        """Returns `self(inputs + dropout(added))`.

        In training, all of it is one chain: see `chains.py`.

        Args:
            inputs: float `[..., hidden]` in the compute dtype.
            added: Likewise.
            dropout: The layer that drops elements of `added`.
            training: Whether to drop any.
            recompute: Whether training keeps only the sum, and computes the
                rest again for the gradient. To keep the summands instead takes
                more memory on TPUs.
        """
        if not training:
            return self(inputs + added)
        return self._normalize_in_training(inputs, added, dropout, recompute)

    def _normalize_in_training(
        self, inputs, added=None, dropout=None, recompute=False
    ):
        """Does what `add` does, or without `added` what `call` does."""
        seed = num_kept = None
        # What happens once in a step is not worth compiling.
        runner = chains.PLAIN if added is None else chains.runner_here()
        rows = [as_matrix(inputs)]
        if added is not None:
            rows.append(as_matrix(added))
            seed, num_kept = dropout.draw_seed(True), dropout.num_kept
        forward = _forward(
            self.epsilon, num_kept, self.compute_dtype, recompute
        )
        again = _again(self.epsilon, num_kept)
        backward = _backward(inputs.dtype)

        def draw(x_TD):
            """Returns the levels of dropout; to recompute, once `x` is there.

            All masks would otherwise be made at the start of the step.
            """
            if seed is None:
                return None
            late_seed = seed
            if recompute:
                late_seed += zero_after(x_TD, seed.dtype)
            return draw_levels(ops.shape(x_TD), late_seed)

        @with_gradient
        def normalize(gamma_D, beta_D, inputs_TD, added_TD=None):
            outputs_TD, *kept = runner.run(
                forward,
                inputs_TD,
                added_TD,
                draw(added_TD),
                gamma_D,
                beta_D,
            )

            def gradient(up_TD):
                sum_TD, normal_TD, scale_T1, factors_TD = kept
                if recompute:
                    late_TD = sum_TD + zero_after(up_TD, sum_TD.dtype)
                    normal_TD, scale_T1, factors_TD = runner.run(
                        again, late_TD, draw(up_TD)
                    )
                up32_TD = ops.cast(up_TD, "float32")
                product_TD = up32_TD * normal_TD
                # Products with a vector sum several times faster than `mean`.
                gamma_D1 = ops.expand_dims(gamma_D / gamma_D.shape[0], 1)
                gradients = runner.run(
                    backward,
                    up_TD,
                    normal_TD,
                    scale_T1,
                    ops.matmul(up32_TD, gamma_D1),
                    ops.matmul(product_TD, gamma_D1),
                    gamma_D,
                    factors_TD,
                )
                return (
                    sum_rows(product_TD),
                    sum_rows(up32_TD),
                    *gradients[: len(rows)],
                )

            return outputs_TD, gradient

        outputs = normalize(self._gamma(), self._beta(), *rows)
        if len(inputs.shape) != 2:
            outputs = ops.reshape(outputs, ops.shape(inputs))
        return outputs

    def _gamma(self):
        return ops.cast(self.gamma, "float32")

    def _beta(self):
        return ops.cast(self.beta, "float32")


def _normalize(x, epsilon):
    """Returns the normalised input and its scale, in float32."""
    x = ops.cast(x, "float32")
    centered = x - ops.mean(x, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    scale = ops.rsqrt(variance + epsilon)
    return centered * scale, scale


@functools.cache
def _forward(epsilon, num_kept, output_dtype, keeps_sum):
    """Returns the chain of the outputs and of what their gradient needs."""

    def forward(inputs_TD, added_TD, levels_TD, gamma_D, beta_D, dtype):
        """Returns outputs, sum, normalised sum, its scale, factors of dropout.

        If the sum is kept, the last three are None; otherwise the sum is.
        `added_TD` may be None, and `levels_TD`, from `draw_levels`; there are
        no factors then.
        """
        factors_TD = None
        if levels_TD is not None:
            factors_TD = factors_of(levels_TD, num_kept, added_TD.dtype)
            added_TD = ops.cast(added_TD, dtype) * ops.cast(factors_TD, dtype)
        sum_TD = inputs_TD
        if added_TD is not None:
            sum_TD = ops.cast(inputs_TD, dtype) + ops.cast(added_TD, dtype)
        if keeps_sum:
            # Rounded as it is kept, so that it is normalised twice alike.
            sum_TD = ops.cast(sum_TD, inputs_TD.dtype)
        normal_TD, scale_T1 = _normalize(sum_TD, epsilon)
        outputs_TD = ops.cast(normal_TD * gamma_D + beta_D, output_dtype)
        if keeps_sum:
            return outputs_TD, sum_TD, None, None, None
        return outputs_TD, None, normal_TD, scale_T1, factors_TD

    return forward


@functools.cache
def _again(epsilon, num_kept):
    """Returns the chain that recomputes what the gradient needs."""

    def again(sum_TD, levels_TD, dtype):
        """Returns the normalised sum, its scale, and factors or None."""
        del dtype
        factors_TD = None
        if levels_TD is not None:
            factors_TD = factors_of(levels_TD, num_kept, sum_TD.dtype)
        return *_normalize(sum_TD, epsilon), factors_TD

    return again


@functools.cache
def _backward(input_dtype):
    """Returns the chain of the gradients of `inputs` and `added`."""

    def backward(up, normal, scale, mean, slope, gamma, factors, dtype):
        """Returns the two gradients.

        With u = gamma * up, that of the sum is
        (u - mean(u) - normal * mean(u * normal)) * scale.

        Args:
            up: Gradient of the outputs, float `[T, D]`.
            normal, scale, factors: From the forward chain.
            mean: mean(u), float32 `[T, 1]`.
            slope: mean(u * normal), likewise.
            gamma: float32 `[D]`.
            dtype: See `chains.Chain`.
        """
        up = ops.cast(up, "float32")
        gradient = (up * gamma - mean - normal * slope) * scale
        gradient = ops.cast(gradient, input_dtype)
        if factors is None:
            return gradient, gradient
        return gradient, ops.cast(
            ops.cast(gradient, dtype) * ops.cast(factors, dtype), input_dtype
        )

    return backward
