"""The official scores, against loops and numbers worked out by hand."""

import math
import time

import numpy as np
import pytest
from scipy import stats

from bert_tf.tasks import metrics
from references import glue as reference

# TP 3, FP 1, FN 2, TN 4.
PREDICTIONS = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
LABELS = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]


def test_scores_worked_out_by_hand():
    assert metrics.accuracy(PREDICTIONS, LABELS) == 0.7
    # Precision 3/4, recall 3/5.
    assert metrics.f1(PREDICTIONS, LABELS) == pytest.approx(2 / 3)
    # (3 * 4 - 1 * 2) / sqrt(4 * 5 * 5 * 6)
    assert metrics.matthews_correlation(PREDICTIONS, LABELS) == pytest.approx(
        10 / 600**0.5
    )


def test_correlations_worked_out_by_hand():
    # Deviations -2 -1 0 3 and -1 0 -1 2: 8 / sqrt(14 * 6).
    assert metrics.pearson(
        [0.0, 1.0, 2.0, 5.0], [1.0, 2.0, 1.0, 4.0]
    ) == pytest.approx(8 / 84**0.5)
    # Ranks 1 2 3 4 and 1.5 3 1.5 4: 3 / sqrt(5 * 4.5).
    assert metrics.spearman(
        [0.0, 1.0, 2.0, 5.0], [1.0, 2.0, 1.0, 4.0]
    ) == pytest.approx(3 / 22.5**0.5)


def test_scores_of_classes_worked_out_by_hand():
    # Of class 0: TP 4, FP 2, FN 1.
    f1_of_0 = 8 / 11
    assert metrics.f1(PREDICTIONS, LABELS, positive=0) == pytest.approx(f1_of_0)
    assert metrics.macro_f1(PREDICTIONS, LABELS) == pytest.approx(
        (2 / 3 + f1_of_0) / 2
    )
    # Of the pairs 2 > 1, 2 = 2 (half), 0 < 1 and 0 < 2.
    assert metrics.auc([2.0, 0.0, 1.0, 2.0], [1, 1, 0, 0]) == 1.5 / 4
    assert metrics.auc([1.0, 2.0], [1, 1]) == 0


def test_area_under_the_curve_equals_the_share_of_pairs():
    generator = np.random.default_rng(4)
    logits = generator.normal(size=(40, 3)).round(1)
    labels = generator.integers(0, 3, 40)
    probabilities = np.exp(logits)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    areas = []
    for k in range(3):
        scores = probabilities[:, k]
        pairs = [
            (a > b) + 0.5 * (a == b)
            for a in scores[labels == k]
            for b in scores[labels != k]
        ]
        areas.append(np.mean(pairs))
    assert metrics.mean_auc(logits, labels) == pytest.approx(np.mean(areas))


def test_area_of_two_classes_tells_large_logits_apart():
    logits = np.float32([[50, 0], [60, 0], [70, 0], [-1, 0], [-2, 0], [41, 0]])
    labels = np.int32([0, 0, 1, 1, 1, 0])
    # Of nine pairs all but those of 70 with 50, 60 and 41.
    assert metrics.mean_auc(logits, labels) == pytest.approx(6 / 9)
    # Pairs of class 0 against the rest, of class 1, and of class 2.
    logits = np.float32([[90, 0, 0], [80, 0, 0], [70, 0, 0], [60, 0, 0]])
    labels = np.int32([0, 0, 1, 2])
    assert metrics.mean_auc(logits, labels) == pytest.approx((3 + 2 + 3) / 9)


def test_the_area_of_a_thousand_classes_is_a_matter_of_a_second():
    # The labels are the likeliest classes: each area is nearly 1.
    logits = np.random.default_rng(20181011).normal(size=(500, 1000))
    start = time.process_time()
    assert metrics.mean_auc(logits, logits.argmax(axis=1)) > 0.99
    assert time.process_time() - start < 3


@pytest.mark.parametrize("seed", range(5))
def test_scores_of_two_classes_equal_the_loops(seed):
    generator = np.random.default_rng(seed)
    predictions, labels = generator.integers(0, 2, (2, 37))
    assert metrics.f1(predictions, labels) == pytest.approx(
        reference.f1(predictions.tolist(), labels.tolist())
    )
    assert metrics.matthews_correlation(predictions, labels) == pytest.approx(
        reference.binary_matthews(predictions.tolist(), labels.tolist())
    )


@pytest.mark.parametrize("seed", range(5))
def test_matthews_of_several_classes_equals_the_loops(seed):
    generator = np.random.default_rng(seed)
    predictions, labels = generator.integers(0, 4, (2, 29))
    assert metrics.matthews_correlation(predictions, labels) == pytest.approx(
        reference.multiclass_matthews(predictions.tolist(), labels.tolist())
    )


@pytest.mark.parametrize("seed", range(5))
def test_correlations_equal_the_loops_with_ties(seed):
    generator = np.random.default_rng(seed)
    predictions = generator.integers(0, 9, 31) / 2
    labels = generator.integers(0, 6, 31) / 1.0
    p, t = predictions.tolist(), labels.tolist()
    assert metrics.pearson(predictions, labels) == pytest.approx(
        reference.pearson(p, t)
    )
    assert metrics.spearman(predictions, labels) == pytest.approx(
        reference.pearson(reference.ranks(p), reference.ranks(t))
    )


def test_spearman_sees_order_alone():
    scores = np.array([0.1, 3.0, 2.0, 0.7], np.float32)
    assert metrics.spearman(np.exp(scores), scores) == pytest.approx(1.0)
    assert metrics.spearman(-(scores**3), scores) == pytest.approx(-1.0)


def test_small_differences_of_large_float32_count():
    scores = np.array([1000.001, 1000.002, 1000.003], np.float32)
    assert metrics.pearson(scores, [1.0, 2.0, 3.0]) > 0.99


def test_f1_and_matthews_are_zero_where_they_are_not_defined():
    assert metrics.f1([0, 0], [0, 0]) == 0.0
    assert metrics.matthews_correlation([1, 1, 1], [0, 1, 1]) == 0.0


@pytest.mark.parametrize(
    "score, scipys",
    [
        (metrics.pearson, stats.pearsonr),
        (metrics.spearman, stats.spearmanr),
    ],
)
@pytest.mark.parametrize(
    "predictions, labels, what",
    [
        ([2.0, 2.0], [1.0, 5.0], "predictions"),
        ([2.0, 3.0], [1.0, 1.0], "labels"),
    ],
)
@pytest.mark.filterwarnings("ignore::scipy.stats.ConstantInputWarning")
def test_correlations_of_equal_values_are_nan(
    score, scipys, predictions, labels, what, caplog
):
    assert math.isnan(scipys(predictions, labels).statistic)
    caplog.set_level("WARNING", logger="absl")
    assert math.isnan(score(predictions, labels))
    assert [record.getMessage() for record in caplog.records] == [
        f"A correlation is not defined, and given as nan: all 2 {what} are "
        "equal."
    ]


@pytest.mark.parametrize("score", [metrics.pearson, metrics.spearman])
def test_one_pair_has_no_correlation(score):
    with pytest.raises(ValueError) as error:
        score([2.0], [1.0])
    assert str(error.value) == (
        "The examples: must be two or more, to correlate their scores. "
        "Received: 1."
    )


def test_nan_is_the_lowest_score():
    scores = [math.nan, -0.5, 0.25, math.nan]
    assert max(scores, key=metrics.comparable) == 0.25
    assert max(scores[1::-1], key=metrics.comparable) == -0.5
