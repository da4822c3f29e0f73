"""StableAdamW: Adam whose steps are small where gradients grow suddenly."""

from typing import Any

import keras
from keras import ops

from bert_tf.optimizers import bert


@keras.saving.register_keras_serializable(package="bert_tf")
class StableAdamW(bert.BertOptimizer):
    """AdamW with AdaFactor's clipping of updates (Wortsman et al. 2023).

    Algorithm 2 of arXiv 2304.13013; ModernBERT was trained with it. With m and
    v as in `BertOptimizer`, corrected for their bias, of variable w:

        rate = learning_rate / max(1, sqrt(mean(g * g / max(v, epsilon ** 2))))
        w = w - rate * (m / (sqrt(v) + epsilon) + weight_decay * w)

    Args:
        learning_rate: Float or a `LearningRateSchedule`.
        **kwargs: As in `BertOptimizer`, but `bias_correction` is True by
            default.
    """

    def __init__(
        self,
        learning_rate: bert.LearningRate = 1e-3,
        name: str = "stable_adamw",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("bias_correction", True)
        super().__init__(learning_rate, name=name, **kwargs)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        # Kept for `update_norm`.
        self._shares = [
            self.add_variable(
                shape=(),
                initializer="ones",
                dtype="float32",
                aggregation="only_first_replica",
                name=f"share_{index}",
            )
            for index in range(len(variables))
        ]

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        square = ops.square(ops.cast(gradient, variable.dtype))
        # What the update is about to make of v.
        old = ops.convert_to_tensor(self._velocities[index])
        v = old + (square - old) * (1 - self.beta_2)
        if self.bias_correction:
            step = ops.cast(self.iterations + 1, variable.dtype)
            v = v / (1 - ops.power(self.beta_2, step))
        ratio = ops.mean(square / ops.maximum(v, self.epsilon**2))
        share = 1 / ops.maximum(1.0, ops.sqrt(ratio))
        self.assign(self._shares[index], ops.cast(share, "float32"))
        super().update_step(gradient, variable, learning_rate)

    def _update(self, index, variable, step):
        update = super()._update(index, variable, step)
        return update * ops.cast(self._shares[index], update.dtype)
