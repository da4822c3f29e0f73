"""Losses of sentence embeddings, in keras.ops alone.

Letters: B examples of this replica, G examples of all replicas, C texts of an
example (anchor, positive, hard negatives), D size of a vector.
"""

from keras import ops

from bert_tf.features import Tensor
from bert_tf.models import objectives
from bert_tf.models.sentence_encoder import normalize

# Below all logits: these terms vanish in a sum of exponentials.
_NEVER = -1e12
# As in PyTorch: without it, the distance of equal vectors has no gradient.
_OFFSET = 1e-6


def multiple_negatives(
    own: Tensor,
    everyone: Tensor,
    first: Tensor | int,
    scale: float,
    is_symmetric: bool = False,
    hard_negative_weight: float = 0.0,
) -> Tensor:
    """Returns every anchor's cross-entropy over all texts of the batch.

    Henderson et al. 2017 (arXiv 1705.00652), section 4.4. Each anchor must
    find its positive among the positives and hard negatives of all anchors.

    Args:
        own: float32 `[B, C, D]`, the vectors of this replica.
        everyone: float32 `[G, C, D]`, the vectors of all replicas.
        first: Index of the first own example in `everyone`.
        scale: Factor of the cosines, the inverse of a temperature.
        is_symmetric: Whether each positive must also find its anchor among
            all anchors. The loss is then the mean of both.
        hard_negative_weight: Added to the logits of an anchor's own hard
            negatives. In Gao et al. 2021 (arXiv 2104.08821), section 4.2, it
            is the logarithm of alpha.

    Returns:
        float32 `[B]`.
    """
    own_BCD, everyone_GCD = normalize(own), normalize(everyone)
    num_texts = own_BCD.shape[1]
    anchors_BD = own_BCD[:, 0]
    rows_B = first + ops.arange(ops.shape(own_BCD)[0])
    # Positives come first, so an anchor's positive has the index of its row.
    logits = [
        scale * ops.matmul(anchors_BD, ops.transpose(everyone_GCD[:, text]))
        for text in range(1, num_texts)
    ]
    if hard_negative_weight:
        is_own_BG = ops.cast(
            rows_B[:, None] == ops.arange(ops.shape(everyone_GCD)[0])[None, :],
            "float32",
        )
        logits[1:] = [
            each + hard_negative_weight * is_own_BG for each in logits[1:]
        ]
    losses_B = objectives.cross_entropy(
        ops.concatenate(logits, axis=-1), rows_B
    )
    if not is_symmetric:
        return losses_B
    back_BG = scale * ops.matmul(
        own_BCD[:, 1], ops.transpose(everyone_GCD[:, 0])
    )
    return (losses_B + objectives.cross_entropy(back_BG, rows_B)) / 2


def cosent(everyone: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Returns log(1 + the sum of exp(scale * (s_k - s_i)) where y_i > y_k).

    CoSENT (Su 2022, kexue.fm/archives/8847): s are cosines and y human scores.
    All pairs of texts are compared with each other.

    Args:
        everyone: float32 `[G, 2, D]`.
        labels: float32 `[G]`.
        scale: Factor of the cosines.

    Returns:
        A float32 scalar.
    """
    cosines_G = _cosines(everyone)
    differences_GG = scale * (cosines_G[None, :] - cosines_G[:, None])
    counts_GG = labels[:, None] > labels[None, :]
    terms = ops.where(counts_GG, differences_GG, _NEVER)
    terms = ops.concatenate([ops.zeros((1,)), ops.reshape(terms, (-1,))])
    return ops.logsumexp(terms)


def cosine(own: Tensor, labels: Tensor) -> Tensor:
    """Returns the squares of cosine - label, float32 `[B]`.

    Reimers & Gurevych 2019 (arXiv 1908.10084), section 3.

    Args:
        own: float32 `[B, 2, D]`.
        labels: float32 `[B]`.
    """
    return ops.square(_cosines(own) - labels)


def triplet(own: Tensor, margin: float) -> Tensor:
    """Returns max(0, |a - p| - |a - n| + margin), float32 `[B]`.

    Reimers & Gurevych 2019, section 3, with the Euclidean distance. The loss is
    the mean over several negatives.

    Args:
        own: float32 `[B, C, D]`, C at least 3.
        margin: How much farther a negative must be than the positive.
    """
    differences_BCD = own[:, :1] - own[:, 1:] + _OFFSET
    distances_BC = ops.sqrt(ops.sum(ops.square(differences_BCD), axis=-1))
    return ops.mean(
        ops.relu(distances_BC[:, :1] - distances_BC[:, 1:] + margin), axis=-1
    )


def _cosines(vectors):
    """Returns the cosines `[B]` of pairs `[B, 2, D]`."""
    vectors = normalize(vectors)
    return ops.sum(vectors[:, 0] * vectors[:, 1], axis=-1)
