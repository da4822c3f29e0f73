"""Loss scaling, for float16: the same on one device and on many."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops

from bert_tf.optimizers.bert import BertOptimizer


@keras.saving.register_keras_serializable(package="bert_tf")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Keras's, but its replicas agree on whether a gradient is finite.

    Keras checks only the first replica's gradients, before they are summed over
    the replicas. What is not finite on another replica goes into the weights.
    Here the inner optimizer checks the norm of the sum, and skips the step. As
    everywhere in this library, a skipped step counts as one: the learning rate
    schedule advances.

    The scale is halved by each skipped step, and doubled after
    `dynamic_growth_steps` others in a row (arXiv 1710.03740, section 3.2).

    Args:
        inner_optimizer: A `BertOptimizer`.
        **kwargs: `initial_scale`, `dynamic_growth_steps` and `name` of
            `keras.optimizers.LossScaleOptimizer`.
    """

    def __init__(self, inner_optimizer: BertOptimizer, **kwargs: Any) -> None:
        super().__init__(inner_optimizer, **kwargs)
        inner_optimizer.skip_nonfinite = True

    def add_variable(self, *args, **kwargs):
        # With Keras's "none", several replicas may not assign the variable.
        kwargs["aggregation"] = "only_first_replica"
        return super().add_variable(*args, **kwargs)

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        scale = tf.convert_to_tensor(self.dynamic_scale)
        self.inner_optimizer.apply(
            [
                None
                if gradient is None
                else tf.convert_to_tensor(gradient)
                / tf.cast(scale, gradient.dtype)
                for gradient in grads
            ],
            trainable_variables,
        )
        is_finite = ops.isfinite(self.inner_optimizer.gradient_norm)
        count = ops.where(is_finite, self.step_counter + 1, 0)
        grows = count >= self.dynamic_growth_steps
        factor = ops.where(is_finite, ops.where(grows, 2.0, 1.0), 0.5)
        self.dynamic_scale.assign(scale * factor)
        self.step_counter.assign(ops.where(grows, 0, count))


def scaled_for(
    compute_dtype: str, optimizer: BertOptimizer
) -> keras.optimizers.Optimizer:
    """Returns the optimizer, with a loss scale if it is to train in float16.

    Args:
        compute_dtype: The model's compute dtype.
        optimizer: A `BertOptimizer`.
    """
    if compute_dtype == "float16":
        return LossScaleOptimizer(optimizer)
    return optimizer
