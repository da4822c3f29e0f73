"""SQuAD's official scores: exact match and F1 of words, in percent.

They follow the rules of evaluate-v1.1.py and evaluate-v2.0.py: an answer gets
the best of its scores against all right answers.
"""

import collections
import math
import re
import string
from collections.abc import Sequence
from typing import TypeAlias

from bert_tf import messages

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

# The right answers of each question.
Answers: TypeAlias = Sequence[Sequence[str]]


def normalize_answer(text: str) -> str:
    """Returns the words that count: lower-case, no punctuation, no articles."""
    text = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answer: str) -> int:
    """Returns 1 if the two are the same answer, otherwise 0."""
    return int(normalize_answer(prediction) == normalize_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Returns the F1 of the words of two answers, repeated words included.

    It is 0 if they have no word in common. As in evaluate-v1.1.py, that holds
    even if neither has any words.
    """
    predicted = normalize_answer(prediction).split()
    wanted = normalize_answer(answer).split()
    common = collections.Counter(predicted) & collections.Counter(wanted)
    num_common = sum(common.values())
    if num_common == 0:
        return 0.0
    precision = num_common / len(predicted)
    recall = num_common / len(wanted)
    return 2 * precision * recall / (precision + recall)


def scores_1_1(
    predictions: Sequence[str], answers: Answers
) -> dict[str, float]:
    """Returns the scores of SQuAD 1.1.

    Args:
        predictions: List of N strings.
        answers: One or more right answers for each question.

    Returns:
        `{"exact_match": percent, "f1": percent}`.

    Raises:
        ValueError: If a question has no right answer.
    """
    num_without = sum(not own for own in answers)
    if num_without:
        raise ValueError(
            "Every question must have an answer, except with "
            "version_2_with_negative. Received: "
            f"{messages.counted(num_without, 'question', 'questions')} without."
        )
    exact, partial = question_scores_1_1(predictions, answers)
    return {"exact_match": _percent(exact), "f1": _percent(partial)}


def question_scores_1_1(
    predictions: Sequence[str], answers: Answers
) -> tuple[list[int], list[float]]:
    """Returns every question's scores, from 0 to 1: exact matches and F1s.

    Args:
        predictions, answers: See `scores_1_1`.
    """
    exact, partial = [], []
    for prediction, own in zip(predictions, answers, strict=True):
        exact.append(max(exact_match(prediction, text) for text in own))
        partial.append(max(f1(prediction, text) for text in own))
    return exact, partial


def scores_2_0(
    predictions: Sequence[str], answers: Answers
) -> dict[str, float]:
    """Returns the scores of SQuAD 2.0.

    Args:
        predictions: List of N strings, "" for no answer.
        answers: The right answers of each question, maybe none.

    Returns:
        `exact` and `f1` in percent and `total`, over all questions. With the
        prefix `HasAns_` they are over questions that have an answer, with
        `NoAns_` over those that have none.
    """
    exact, partial = question_scores_2_0(predictions, answers)
    groups = {
        "": range(len(answers)),
        "HasAns_": [i for i, own in enumerate(answers) if own],
        "NoAns_": [i for i, own in enumerate(answers) if not own],
    }
    results: dict[str, float] = {}
    for prefix, indices in groups.items():
        if indices:
            results |= {
                f"{prefix}exact": _percent([exact[i] for i in indices]),
                f"{prefix}f1": _percent([partial[i] for i in indices]),
                f"{prefix}total": len(indices),
            }
    return results


def best_thresholds(
    predictions: Sequence[str], null_odds: Sequence[float], answers: Answers
) -> dict[str, float]:
    """Returns the best scores that any threshold of no answer could give.

    Args:
        predictions: List of N strings: the best answers that are not empty.
        null_odds: List of N floats: the empty answer's score minus the best
            answer's.
        answers: The right answers of each question, maybe none.

    Returns:
        `best_exact` and `best_f1` in percent, and the thresholds that give
        them, `best_exact_thresh` and `best_f1_thresh`: an answer is to be
        empty if its `null_odds` is greater. As in evaluate-v2.0.py, the
        threshold is 0.0 if it is best to answer no question at all.
    """
    results = {}
    raw = question_scores_2_0(predictions, answers)
    for name, scores in zip(("exact", "f1"), raw):
        best, threshold = _best_threshold(
            predictions, scores, null_odds, answers
        )
        results[f"best_{name}"] = best
        results[f"best_{name}_thresh"] = threshold
    return results


def tuned_null_threshold(
    predictions: Sequence[str], null_odds: Sequence[float], answers: Answers
) -> float:
    """Returns the threshold of no answer that gives the best F1.

    It differs from `best_thresholds` in two cases, where that is not exact: no
    threshold separates questions of equal odds, and if it is best to answer no
    question at all, the threshold lies below all odds.

    Args:
        predictions, null_odds, answers: See `best_thresholds`.
    """
    _, partial = question_scores_2_0(predictions, answers)
    # For equal odds the dictionary keeps the last sum, which counts them all.
    sums = dict(_sums_by_threshold(predictions, partial, null_odds, answers))
    nothing = math.nextafter(min(null_odds), -math.inf)
    sums = {nothing: sum(not own for own in answers)} | sums
    return max(sums, key=sums.__getitem__)


def _best_threshold(predictions, scores, null_odds, answers):
    best, threshold = sum(not own for own in answers), 0.0
    for odds, score in _sums_by_threshold(
        predictions, scores, null_odds, answers
    ):
        if score > best:
            best, threshold = score, odds
    return 100 * best / len(scores), threshold


def _sums_by_threshold(predictions, scores, null_odds, answers):
    """Yields (threshold, sum of the scores), from the least odds upwards.

    Below all odds no question is answered; each threshold answers one more.
    """
    score = sum(not own for own in answers)
    order = sorted(range(len(null_odds)), key=lambda index: null_odds[index])
    for index in order:
        if answers[index]:
            score += scores[index]
        elif predictions[index]:
            score -= 1
        yield null_odds[index], score


def question_scores_2_0(
    predictions: Sequence[str], answers: Answers
) -> tuple[list[int], list[float]]:
    """Returns every question's scores, from 0 to 1: exact matches and F1s.

    Args:
        predictions, answers: See `scores_2_0`.
    """
    exact, partial = [], []
    for prediction, own in zip(predictions, answers, strict=True):
        wanted = [text for text in own if normalize_answer(text)] or [""]
        exact.append(max(exact_match(prediction, text) for text in wanted))
        partial.append(max(_f1_2_0(prediction, text) for text in wanted))
    return exact, partial


def _f1_2_0(prediction, answer):
    """Returns the F1, by which two answers without words agree."""
    if not normalize_answer(prediction) or not normalize_answer(answer):
        return float(exact_match(prediction, answer))
    return f1(prediction, answer)


def _percent(scores):
    return 100 * sum(scores) / len(scores)
