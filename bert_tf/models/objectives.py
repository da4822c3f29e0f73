"""What training steps minimise and evaluations report.

An objective is made of sums, never of means: the loop divides each sum by a
weight that was summed over all replicas first. Then one device and N devices
take the same step from the same global batch, however unevenly the masked
positions, or the padding of a last batch, fall on the replicas.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Self

import keras
from keras import ops

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.features import Tensor

# Up to this many classes, hits are exact even where logits tie. They do in 16
# bits, or if a model always gives the same answer.
_MAX_CLASSES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss terms and metrics of a model, as sums with weights.

    The three functions use keras.ops only and return dictionaries of float32
    scalars. `weights` and `losses` have the same names; the step minimises
    the sum over the names of

        total over all replicas / (weight over all replicas + weight_epsilon)

    or 0 if the divisor is 0, each times its `loss_weights`. Terms are reported
    without this factor.

    Args:
        weights: `weights(batch) -> {name: weight}`: the denominators, from
            the batch alone, e.g. the number of masked tokens.
        losses: `losses(outputs, batch) -> {name: total}`: the numerators.
        metrics: `metrics(outputs, batch) -> {name: (total, weight)}`: what
            else to report, as total / weight over all replicas and batches.
        weight_epsilon: Added to the weight of every loss term, or {name: what
            to add}. In pre-training, google-research/bert has 1e-5.
        loss_weights: {name: factor of the term in the sum}; 1 for the others.
    """

    weights: Callable[[Batch], dict[str, Tensor]]
    losses: Callable[[Any, Batch], dict[str, Tensor]]
    metrics: Callable[[Any, Batch], dict[str, tuple[Tensor, Tensor]]]
    weight_epsilon: float | Mapping[str, float] = 0.0
    loss_weights: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def loss_terms(
        self, totals: Mapping[str, Tensor], weights: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
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
        epsilons = self.weight_epsilon
        if not isinstance(epsilons, Mapping):
            epsilons = dict.fromkeys(totals, epsilons)
        return {
            name: ops.divide_no_nan(
                totals[name], weights[name] + epsilons[name]
            )
            for name in totals
        }

    def loss(self, terms: Mapping[str, Any]) -> Any:
        """Returns the sum of {name: term}, each times its loss weight."""
        factors = {name: self.loss_weights.get(name, 1) for name in terms}
        return sum(
            # No factor of 1: it would be one more operation in the graph.
            term if factors[name] == 1 else factors[name] * term
            for name, term in terms.items()
        )

    @classmethod
    def of_elements(
        cls,
        weights: Callable[[Batch], Tensor],
        losses: Callable[[Any, Batch], Tensor],
        accuracy: str | None = None,
    ) -> Self:
        """Returns the objective of one loss, given element by element.

        Args:
            weights: `weights(batch)` -> float32 `[B, ...]`, 0 for elements
                that do not count.
            losses: `losses(outputs, batch)` -> float32, of the same shape.
            accuracy: None, or the name of a metric: the share of elements whose
                label has the largest logit. The outputs are then logits.
        """

        def metrics(outputs, batch):
            if accuracy is None:
                return {}
            labels = batch[features.LABELS]
            return {accuracy: hits(outputs, labels, weights(batch))}

        return cls(
            weights=lambda batch: {"loss": ops.sum(weights(batch))},
            losses=lambda outputs, batch: {
                "loss": ops.sum(weights(batch) * losses(outputs, batch))
            },
            metrics=metrics,
        )


def example_weights(batch: Batch) -> Tensor:
    """Returns float32 `[B]`: `example_weights`, or ones where there are none.

    Args:
        batch: Has `labels`, or a dictionary of them, each with the batch as
            its first axis.
    """
    weights = batch.get(features.EXAMPLE_WEIGHTS)
    if weights is not None:
        return weights
    labels = keras.tree.flatten(batch[features.LABELS])[0]
    return ops.ones(ops.shape(labels)[:1], "float32")


def by_example(weights: Tensor, batch: Batch) -> Tensor:
    """Returns weights `[B, ...]` times `example_weights`, if there are any."""
    examples_B = batch.get(features.EXAMPLE_WEIGHTS)
    if examples_B is None:
        return weights
    rest = [1] * (len(weights.shape) - 1)
    return weights * ops.reshape(examples_B, [-1, *rest])


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns every element's cross-entropy in nats, float32 `[...]`.

    Args:
        logits: float32 `[..., K]`, a tensor or an array.
        labels: `[...]`, class ids in `[0, K)`. Of others, TensorFlow raises an
            error on CPUs; on GPUs and with XLA their cross-entropy is NaN.
    """
    return ops.sparse_categorical_crossentropy(
        ops.cast(labels, "int32"), logits, from_logits=True
    )


def _pick(logits, labels):
    """Returns the logit of each label, `[..., 1]`."""
    # Unsigned, as otherwise -1 is the last class.
    labels = ops.cast(labels, "uint32")[..., None]
    return ops.take_along_axis(logits, labels, axis=-1)


def hits(
    logits: Tensor, labels: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns (sum, weight) of the hits, as `Objective.metrics` has them.

    A hit is a label that is predicted: the first class with the largest logit.
    Over a vocabulary it is a label whose logit no other exceeds. That is
    several times cheaper, and the same unless logits tie.

    Args:
        logits: float `[..., K]`.
        labels: int, with one element per row of logits.
        weights: float32, of the shape of the labels.
    """
    labels_N = ops.reshape(ops.cast(labels, "int32"), (-1,))
    logits_NK = ops.reshape(logits, (-1, logits.shape[-1]))
    if logits.shape[-1] <= _MAX_CLASSES:
        # On GPUs, Keras's `argmax` looks at the numbers' bits in host memory.
        predictions_N1 = ops.top_k(logits_NK, 1)[1]
        hits_N = ops.equal(ops.cast(predictions_N1[:, 0], "int32"), labels_N)
    else:
        max_N1 = ops.max(logits_NK, axis=-1, keepdims=True)
        picked_N1 = _pick(logits_NK, labels_N)
        hits_N = ops.greater_equal(picked_N1, max_N1)[:, 0]
    is_hit = ops.reshape(hits_N, ops.shape(labels))
    total = ops.sum(weights * ops.cast(is_hit, "float32"))
    return total, ops.sum(weights)


def _pretraining_targets(batch):
    """Returns what is predicted: {name: (labels, float32 weights)}.

    Args:
        batch: The records' features: `masked_lm_ids` and `masked_lm_weights`
            `[B, P]`, and optionally `next_sentence_labels` int32 `[B, 1]`, or
            `[B, S]` with `first_positions`, and `example_weights` float32
            `[B]`, 0 for examples that only fill the batch. Without labels
            there is no next-sentence loss (RoBERTa, Liu et al. 2019, section
            4.2).
    """
    targets = {
        "masked_lm": (
            batch[features.MASKED_LM_IDS],
            batch[features.MASKED_LM_WEIGHTS],
        )
    }
    if features.NEXT_SENTENCE_LABELS in batch:
        targets["next_sentence"] = (
            batch[features.NEXT_SENTENCE_LABELS],
            _next_sentence_weights(batch),
        )
    return {
        name: (labels, by_example(weights, batch))
        for name, (labels, weights) in targets.items()
    }


def _pretraining_weights(batch):
    """Returns the denominator of each loss: {name: float32 scalar}."""
    return {
        f"{name}_loss": ops.sum(weights)
        for name, (_, weights) in _pretraining_targets(batch).items()
    }


def _pretraining_losses(outputs, batch):
    """Returns the sums of the weighted cross-entropies: {name: scalar}."""
    found = {}
    for name, (labels, weights) in _pretraining_targets(batch).items():
        logits = outputs[f"{name}_logits"]
        # Without packed rows, there are labels [B, 1] for logits [B, 2].
        labels = ops.reshape(labels, ops.shape(logits)[:-1])
        weights = ops.reshape(weights, ops.shape(labels))
        found[f"{name}_loss"] = ops.sum(weights * cross_entropy(logits, labels))
    return found


def _pretraining_metrics(outputs, batch):
    """Returns the accuracies as {name: (sum, weight)}."""
    return {
        f"{name}_accuracy": hits(outputs[f"{name}_logits"], labels, weights)
        for name, (labels, weights) in _pretraining_targets(batch).items()
    }


def _next_sentence_weights(batch):
    """Returns float32 `[B, S]`: 1 for every sequence that exists."""
    labels_BS = batch[features.NEXT_SENTENCE_LABELS]
    first_positions_BS = batch.get(features.FIRST_POSITIONS)
    if first_positions_BS is None:
        return ops.ones(ops.shape(labels_BS), "float32")
    is_first_S = ops.arange(ops.shape(labels_BS)[1]) == 0
    exists_BS = ops.logical_or(first_positions_BS > 0, is_first_S)
    return ops.cast(exists_BS, "float32")


PRETRAINING = Objective(
    weights=_pretraining_weights,
    losses=_pretraining_losses,
    metrics=_pretraining_metrics,
    # As in google-research/bert.
    weight_epsilon=1e-5,
)
