"""Scores of rankings: against plain loops, scipy, and by hand."""

import numpy as np
import pytest
from scipy import stats

from bert_tf.tasks.retrieval import ranking
from references import retrieval as reference


@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_loops(seed):
    rng = np.random.default_rng(seed)
    # Few values, so that there are ties; recall@100 is not of all texts.
    scores = rng.integers(0, 40, 150).astype(float)
    relevant = rng.choice(150, rng.integers(1, 20), replace=False)
    grades = rng.integers(1, 4, len(relevant)).astype(float)
    order = reference.ranking(scores.tolist())
    told = dict(zip(relevant.tolist(), grades.tolist()))
    ranks = ranking.ranks(scores, relevant)
    assert ranks.tolist() == [order.index(index) + 1 for index in relevant]
    found = ranking.score_queries([ranks, ranks[:1]], [grades, grades[:1]])
    assert list(found) == list(ranking.QUERY_SCORES)
    for query, part in enumerate((told, dict([next(iter(told.items()))]))):
        wanted = {
            f"recall@{k}": reference.recall(order, part, k)
            for k in (1, 10, 100)
        } | {
            "MRR@10": reference.reciprocal_rank(order, part, 10),
            "nDCG@10": reference.ndcg(order, part, 10),
            "MAP": reference.average_precision(order, part),
        }
        for name, value in wanted.items():
            assert found[name][query] == pytest.approx(value, abs=1e-12), name
    assert ranking.average_precision(ranks, 30) == pytest.approx(
        reference.average_precision(order, told, 30)
    )
    assert ranking.means(found)["MAP"] == pytest.approx(found["MAP"].mean())


def test_scores_by_hand():
    # Relevant at ranks 2 and 4, with grades 1 and 3.
    assert ranking.recall([4, 2], 3) == 0.5
    assert ranking.reciprocal_rank([4, 2], 10) == 0.5
    assert ranking.reciprocal_rank([4, 2], 1) == 0
    assert ranking.average_precision([4, 2]) == 0.5
    assert ranking.ndcg([4, 2], 10, [3, 1]) == pytest.approx(
        (1 / np.log2(3) + 3 / np.log2(5)) / (3 + 1 / np.log2(3))
    )


def test_of_equal_scores_the_first_is_first():
    assert ranking.ranks([1, 2, 2, 1], [3, 2, 1, 0]).tolist() == [4, 2, 1, 3]


def test_correlations_of_cosines_are_scipys():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(2, 30, 5)).astype("float32")
    left[3] = 0
    labels = rng.integers(0, 5, 30)
    found = ranking.cosines(left, right)
    wanted = [
        reference.cosine(*pair) if any(pair[0]) else 0
        for pair in zip(left.tolist(), right.tolist())
    ]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    told = ranking.correlations(found, labels)
    assert told["spearman"] == pytest.approx(
        stats.spearmanr(wanted, labels).statistic
    )
    assert told["pearson"] == pytest.approx(
        stats.pearsonr(wanted, labels).statistic
    )
