"""LAMB: BERT's optimizer for batches of thousands of examples."""

from typing import Any

import keras
from keras import ops

from bert_tf.optimizers import bert


@keras.saving.register_keras_serializable(package="bert_tf")
class LambOptimizer(bert.BertOptimizer):
    """Layer-wise adaptive moments for batch training (You et al., 2019).

    Algorithm 2 of arXiv 1904.00962, with the identity for phi. With gradient g
    of variable w, clipped by the norm of all gradients:

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g * g
        r = m / (1 - beta_1**t) / (sqrt(v / (1 - beta_2**t)) + epsilon)
        u = r + weight_decay * w
        w = w - learning_rate * norm(w) / norm(u) * u

    The variables of `no_weight_decay`, by default biases and the scales of
    layer normalisation, are neither decayed nor scaled by their norm:
    w = w - learning_rate * r. A variable is not scaled either if it or its u is
    all zeros.

    Args:
        learning_rate: Float or a `LearningRateSchedule`.
        **kwargs: As in `BertOptimizer`, but `bias_correction` is True by
            default.
    """

    def __init__(
        self,
        learning_rate: bert.LearningRate = 1e-3,
        name: str = "lamb_optimizer",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("bias_correction", True)
        super().__init__(learning_rate, name=name, **kwargs)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        # Decided by the paths alone, because the weight decay may be 0.
        self._is_adapted = [not self._is_excluded(v) for v in variables]

    def _update(self, index, variable, step):
        update = super()._update(index, variable, step)
        if self._is_adapted[index]:
            update = _trust_ratio(variable, update) * update
        return update


def _trust_ratio(weights, update):
    norm = ops.norm(ops.cast(weights, update.dtype))
    size = ops.norm(update)
    is_zero = ops.logical_or(norm == 0, size == 0)
    # The divisor is 1 where `where` takes the other side.
    return ops.where(is_zero, 1.0, norm / ops.where(is_zero, 1.0, size))
