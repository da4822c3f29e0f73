"""Scores of a ranking, computed from the ranks of the relevant texts.

The scores depend only on these ranks, so a corpus of any size is scored without
sorting all of its texts; see `search.ranks`. A rank is 1 plus the number of
texts with a higher score, or with an equal score and a lower index: ties go to
the text that comes first.

recall@k, reciprocal rank   as in Karpukhin et al. 2020 (DPR), MS MARCO
nDCG@k                      Järvelin and Kekäläinen 2002, with the grade as the
                            gain, as in trec_eval and BEIR
average precision           over the whole corpus, unless it is truncated
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from bert_tf.tasks import metrics


def ranks(scores: ArrayLike, relevant: ArrayLike) -> np.ndarray:
    """Returns the ranks of texts among all that were scored.

    Args:
        scores: float `[N]`, of every text; no NaN.
        relevant: int `[R]`, indices of the relevant ones.

    Returns:
        int64 `[R]`, from 1, in the order of `relevant`.
    """
    scores = np.asarray(scores)
    order = np.argsort(-scores, kind="stable")
    places = np.empty(len(scores), np.int64)
    places[order] = np.arange(1, len(scores) + 1)
    return places[np.asarray(relevant, np.int64)]


def recall(ranks: ArrayLike, k: int) -> float:
    """Returns the share of the relevant texts among the first k.

    Args:
        ranks: int `[R]`, from 1: the ranks of all relevant texts, at least
            one. A text that was not found has a rank above `k`.
        k: From 1.
    """
    return float(np.mean(np.asarray(ranks) <= k))


def reciprocal_rank(ranks: ArrayLike, k: int | None = None) -> float:
    """Returns 1 / the rank of the first relevant text, or 0 beyond k.

    Args:
        ranks: See `recall`.
        k: From 1; None for no limit.
    """
    first = np.asarray(ranks).min()
    return 0.0 if k is not None and first > k else float(1 / first)


def ndcg(ranks: ArrayLike, k: int, grades: ArrayLike | None = None) -> float:
    """Returns the discounted gain of the first k, divided by the best one.

    Args:
        ranks: See `recall`.
        k: From 1.
        grades: float `[R]` above 0: how relevant each text is; None for 1.
    """
    ranks = np.asarray(ranks)
    gains = np.ones(len(ranks)) if grades is None else np.array(grades, float)
    is_found = ranks <= k
    gained = np.sum(gains[is_found] / np.log2(ranks[is_found] + 1))
    best = -np.sort(-gains)[:k]
    return float(gained / np.sum(best / np.log2(np.arange(len(best)) + 2)))


def average_precision(ranks: ArrayLike, k: int | None = None) -> float:
    """Returns the mean, over the relevant texts, of the precision at each.

    Args:
        ranks: See `recall`.
        k: Where the list is truncated, or None. Relevant texts beyond k count
            0, and the mean is over at most k, as in sentence-transformers.
    """
    ranks = np.sort(np.asarray(ranks))
    precisions = np.arange(1, len(ranks) + 1) / ranks
    if k is None:
        return float(precisions.mean())
    return float(precisions[ranks <= k].sum() / min(k, len(ranks)))


# {name: function of a query's ranks and grades}. Reports have their means over
# the queries. The mean of the average precision is MAP.
QUERY_SCORES: Mapping[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "recall@1": lambda ranks, grades: recall(ranks, 1),
    "recall@10": lambda ranks, grades: recall(ranks, 10),
    "recall@100": lambda ranks, grades: recall(ranks, 100),
    "MRR@10": lambda ranks, grades: reciprocal_rank(ranks, 10),
    "nDCG@10": lambda ranks, grades: ndcg(ranks, 10, grades),
    "MAP": lambda ranks, grades: average_precision(ranks),
}


def score_queries(
    ranks: Sequence[ArrayLike], grades: Sequence[ArrayLike] | None = None
) -> dict[str, np.ndarray]:
    """Returns the scores of every query.

    Args:
        ranks: The ranks of the relevant texts of each of Q queries, at least
            one each.
        grades: How relevant each text is, above 0; None for 1.

    Returns:
        {name in `QUERY_SCORES`: float64 `[Q]`}.
    """
    if grades is None:
        grades = [np.ones(len(np.asarray(each))) for each in ranks]
    rows = [
        [score(np.asarray(each), np.asarray(grade)) for score in _FUNCTIONS]
        for each, grade in zip(ranks, grades, strict=True)
    ]
    return dict(zip(QUERY_SCORES, np.array(rows).T))


_FUNCTIONS = tuple(QUERY_SCORES.values())


def means(scores: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Returns the means over the queries of what `score_queries` returns."""
    return {name: float(np.mean(values)) for name, values in scores.items()}


def check_can_rank(name: str, num_texts: int) -> None:
    """Raises `ValueError` if every ranking of so few texts is perfect.

    Args:
        name: Name of the texts in the message.
        num_texts: Their number.
    """
    if num_texts < 2:
        raise ValueError(
            f"{name}: must be two or more, to score their ranking. "
            f"Received: {num_texts}."
        )


def cosines(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the cosines of two lists of vectors `[N, D]`: float64 `[N]`.

    A vector of zeros has the cosine 0 with every other vector.
    """
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.sum(left * right, axis=1) / np.maximum(lengths, 1e-24)


def correlations(
    similarities: ArrayLike, labels: ArrayLike
) -> dict[str, float]:
    """Returns Spearman's and Pearson's correlations with human scores.

    Args:
        similarities: float `[N]`.
        labels: float `[N]`.
    """
    return {
        "spearman": metrics.spearman(similarities, labels),
        "pearson": metrics.pearson(similarities, labels),
    }
