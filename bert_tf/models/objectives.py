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

    weights: Callable[[Batch], dict[str, Tensor]]
    losses: Callable[[Any, Batch], dict[str, Tensor]]
    metrics: Callable[[Any, Batch], dict[str, tuple[Tensor, Tensor]]]
    weight_epsilon: float = 0.0

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
        return {
            name: ops.divide_no_nan(
                totals[name], weights[name] + self.weight_epsilon
            )
            for name in totals
        }

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
            accuracy: If given, what the share of elements whose `labels` have
                the largest logit is called; the outputs are the logits.
        """

        def metrics(outputs, batch):
            if accuracy is None:
                return {}
            labels = batch[features.LABELS]
            return {accuracy: _accuracy(outputs, labels, weights(batch))}

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


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns every element's cross-entropy in nats, float32 `[...]`.

    Args:
        logits: float32 `[..., K]`, a tensor or an array.
        labels: `[...]`, class ids.
    """
    labels = ops.cast(labels, "int32")[..., None]
    picked = ops.take_along_axis(logits, labels, axis=-1)
    return ops.logsumexp(logits, axis=-1) - picked[..., 0]


def _accuracy(logits, labels, weights):
    """Returns (sum, weight) of the hits, as `Objective.metrics` has them.

    Args:
        logits: float `[..., K]`.
        labels: int `[...]`.
        weights: float32 `[...]`.
    """
    hits = ops.equal(
        ops.cast(ops.argmax(logits, axis=-1), labels.dtype), labels
    )
    total = ops.sum(weights * ops.cast(hits, "float32"))
    return total, ops.sum(weights)


def _pretraining_weights(batch):
    """Returns the denominator of each loss: {name: float32 scalar}.

    Args:
        batch: The records' features: `masked_lm_weights` float32 `[B, P]`,
            and optionally `next_sentence_labels` int32 `[B, 1]`, or `[B, S]`
            with `first_positions`, and `example_weights` float32 `[B]`, 0 for
            examples that only fill the batch. Without labels there is no
            next-sentence loss (RoBERTa, Liu et al. 2019, section 4.2).
    """
    weights = {"masked_lm_loss": ops.sum(_masked_lm_weights(batch))}
    if features.NEXT_SENTENCE_LABELS in batch:
        weights["next_sentence_loss"] = ops.sum(_next_sentence_weights(batch))
    return weights


def _pretraining_losses(outputs, batch):
    """Returns the sums of the weighted cross-entropies: {name: scalar}."""
    masked_lm_BP = _cross_entropy(
        batch[features.MASKED_LM_IDS], outputs["masked_lm_logits"]
    )
    losses = {
        "masked_lm_loss": ops.sum(_masked_lm_weights(batch) * masked_lm_BP)
    }
    if features.NEXT_SENTENCE_LABELS in batch:
        next_sentence_BS = _cross_entropy(
            batch[features.NEXT_SENTENCE_LABELS], _next_sentence_logits(outputs)
        )
        losses["next_sentence_loss"] = ops.sum(
            _next_sentence_weights(batch) * next_sentence_BS
        )
    return losses


def _pretraining_metrics(outputs, batch):
    """Returns the accuracies as {name: (sum, weight)}."""
    weights_BP = _masked_lm_weights(batch)
    hits_BP = _hits(batch[features.MASKED_LM_IDS], outputs["masked_lm_logits"])
    metrics = {
        "masked_lm_accuracy": (
            ops.sum(weights_BP * hits_BP),
            ops.sum(weights_BP),
        )
    }
    if features.NEXT_SENTENCE_LABELS in batch:
        weights_BS = _next_sentence_weights(batch)
        hits_BS = _hits(
            batch[features.NEXT_SENTENCE_LABELS], _next_sentence_logits(outputs)
        )
        metrics["next_sentence_accuracy"] = (
            ops.sum(weights_BS * hits_BS),
            ops.sum(weights_BS),
        )
    return metrics


def _masked_lm_weights(batch):
    return _of_examples(batch[features.MASKED_LM_WEIGHTS], batch)


def _next_sentence_weights(batch):
    """Returns float32 `[B, S]`: 1 for every sequence that there is."""
    labels_BS = batch[features.NEXT_SENTENCE_LABELS]
    weights_BS = ops.ones(ops.shape(labels_BS), "float32")
    first_positions_BS = batch.get(features.FIRST_POSITIONS)
    if first_positions_BS is not None:
        is_first_S = ops.arange(ops.shape(labels_BS)[1]) == 0
        exists_BS = ops.logical_or(first_positions_BS > 0, is_first_S)
        weights_BS = ops.cast(exists_BS, "float32")
    return _of_examples(weights_BS, batch)


def _of_examples(weights, batch):
    """Returns the weights `[B, ...]`, 0 for examples that fill the batch."""
    example_B = batch.get(features.EXAMPLE_WEIGHTS)
    return weights if example_B is None else weights * example_B[:, None]


def _next_sentence_logits(outputs):
    logits = outputs["next_sentence_logits"]
    # Rows that hold one sequence have no axis of sequences.
    return logits[:, None] if len(logits.shape) == 2 else logits


def _cross_entropy(labels, logits):
    """Returns the cross-entropies, float32 `[...]`.

    Over the vocabulary each pass costs as much as a small matrix product.
    The gradient, softmax less one at the label, is therefore made of the
    exponentials of the forward pass, and changed at the labels in place.
    """
    shape = ops.shape(labels)
    labels_N = ops.reshape(ops.cast(labels, "int32"), (-1,))

    @ops.custom_gradient
    def compute(logits_NV):
        max_N1 = ops.max(logits_NV, axis=-1, keepdims=True)
        powers_NV = ops.exp(logits_NV - max_N1)
        sum_N1 = ops.sum(powers_NV, axis=-1, keepdims=True)
        picked_N1 = ops.take_along_axis(logits_NV, labels_N[:, None], axis=-1)
        losses_N1 = ops.log(sum_N1) + max_N1 - picked_N1

        def gradient(*args, upstream=None):
            # Keras's backends give it in one or the other.
            up_N = args[0] if upstream is None else upstream
            places_N2 = ops.stack(
                [ops.arange(ops.shape(labels_N)[0]), labels_N], axis=-1
            )
            return ops.scatter_update(
                powers_NV * (up_N[:, None] / sum_N1),
                places_N2,
                (ops.exp(-losses_N1[:, 0]) - 1) * up_N,
            )

        return losses_N1[:, 0], gradient

    losses_N = compute(ops.reshape(logits, (-1, logits.shape[-1])))
    return ops.reshape(losses_N, shape)


def _hits(labels, logits):
    # Several times faster than `argmax` in TensorFlow on CPUs.
    predictions = ops.top_k(logits, 1)[1][..., 0]
    return ops.cast(ops.cast(predictions, labels.dtype) == labels, "float32")


PRETRAINING = Objective(
    weights=_pretraining_weights,
    losses=_pretraining_losses,
    metrics=_pretraining_metrics,
    # As in google-research/bert.
    weight_epsilon=1e-5,
)
