"""What the objectives of several tasks are made of."""

import keras
from keras import ops

from bert_tf import features


def example_weights(batch):
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


def cross_entropy(logits, labels):
    """Returns every example's cross-entropy in nats, float32 `[B]`.

    Args:
        logits: float32 `[B, K]`, a tensor or an array.
        labels: int32 `[B]`, class ids.
    """
    picked = ops.take_along_axis(logits, labels[:, None], axis=-1)
    return ops.logsumexp(logits, axis=-1) - picked[:, 0]


def accuracy(logits, labels, weights):
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
