"""Loss scaling, for float16: the same on one device and on many."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.optimizers import clipping
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
        if inner_optimizer.gradient_accumulation_steps:
            raise ValueError(
                "`gradient_accumulation_steps` of the optimizer must be None "
                "if the loss is scaled. Received: gradient_accumulation_steps="
                f"{inner_optimizer.gradient_accumulation_steps}."
            )
        super().__init__(inner_optimizer, **kwargs)
        inner_optimizer.skip_nonfinite = True

    def add_variable(self, *args, **kwargs):
        # With Keras's "none", several replicas may not assign the variable.
        kwargs["aggregation"] = "only_first_replica"
        return super().add_variable(*args, **kwargs)

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        gradients = clipping.dense(grads, trainable_variables)
        self.apply_summed(self.sum_and_clip(gradients), trainable_variables)

    @property
    def gradient_norm(self) -> keras.Variable:
        """The norm of the last gradient, without the scale."""
        return self.inner_optimizer.gradient_norm

    def sum_and_clip(self, gradients: Sequence[Any]) -> list[Any]:
        """Returns what `BertOptimizer.sum_and_clip` does, without the scale.

        Args:
            gradients: As there.
        """
        scale = ops.convert_to_tensor(self.dynamic_scale)
        return self.inner_optimizer.sum_and_clip(
            [
                None if g is None else g / ops.cast(scale, g.dtype)
                for g in gradients
            ]
        )

    def apply_summed(
        self, gradients: Sequence[Any], variables: Sequence[Any] | None = None
    ) -> None:
        """Makes a step by what `sum_and_clip` returned, and sets the scale."""
        self.inner_optimizer.apply_summed(gradients, variables)
        is_finite = ops.isfinite(self.inner_optimizer.gradient_norm)
        count = ops.where(is_finite, self.step_counter + 1, 0)
        grows = count >= self.dynamic_growth_steps
        factor = ops.where(is_finite, ops.where(grows, 2.0, 1.0), 0.5)
        self.dynamic_scale.assign(self.dynamic_scale * factor)
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
