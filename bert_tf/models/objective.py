"""What a training step minimises and what an evaluation reports.

An objective is made of sums, never of means: the loop divides each sum by a
weight that was summed over all replicas first. Then one device and N devices
take the same step from the same global batch, however unevenly the masked
positions, or the padding of a last batch, fall on the replicas.
"""

import dataclasses
from collections.abc import Callable

from keras import ops


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss terms and metrics of a model, as sums with weights.

    The three functions use keras.ops only and return dictionaries of float32
    scalars. `weights` and `losses` have the same names; the step minimises
    the sum over the names of

        total over all replicas / (weight over all replicas + weight_epsilon)

    with 0 where the divisor is 0.

    Args:
        weights: `weights(batch) -> {name: weight}`: the denominators, from
            the batch alone, e.g. the number of masked tokens.
        losses: `losses(outputs, batch) -> {name: total}`: the numerators.
        metrics: `metrics(outputs, batch) -> {name: (total, weight)}`: what
            else to report, as total / weight over all replicas and batches.
        weight_epsilon: Added to every weight of a loss term;
            google-research/bert has 1e-5 in pre-training.
    """

    weights: Callable
    losses: Callable
    metrics: Callable
    weight_epsilon: float = 0.0

    def loss_terms(self, totals, weights):
        """Divides {name: total} by {name: weight}, both float32 scalars.

        Returns:
            {name: total / (weight + weight_epsilon)}.

        Raises:
            ValueError: If the names of the two differ.
        """
        if set(totals) != set(weights):
            raise ValueError(
                "`losses` and `weights` of an objective must return the same "
                f"names. Received: losses={sorted(totals)}, "
                f"weights={sorted(weights)}."
            )
        return {
            name: ops.divide_no_nan(
                totals[name], weights[name] + self.weight_epsilon
            )
            for name in totals
        }
