import json

import pytest

from bert_tf.tasks.question_answering import scores as squad_scores
from support import paths

GOLDEN = json.loads((paths.GOLDEN / "squad_scores.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("The Cat!", "cat"),
        ("an  apple\ta day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.", "us"),
        ("a-the", "athe"),
        ("", ""),
    ],
)
def test_words_that_count(text, normalized):
    assert squad_scores.normalize_answer(text) == normalized


def test_f1_counts_words_with_their_repetitions():
    # Common: cat once, dog once. Precision 2/3, recall 2/3.
    assert squad_scores.f1("cat cat dog", "cat dog dog") == pytest.approx(2 / 3)
    # Common: cat. Precision 1/1, recall 1/2.
    assert squad_scores.f1("the cat", "a cat dog") == pytest.approx(2 / 3)
    assert squad_scores.f1("the", "a") == 0


def test_every_answer_of_1_1_as_the_official_script():
    questions = GOLDEN["version_1_1"]["questions"]
    for question in questions:
        scores = squad_scores.scores_1_1(
            [question["prediction"]], [question["answers"]]
        )
        assert scores == {
            "exact_match": 100 * question["exact_match"],
            "f1": pytest.approx(100 * question["f1"], rel=1e-12),
        }, question
    scores = squad_scores.scores_1_1(
        [question["prediction"] for question in questions],
        [question["answers"] for question in questions],
    )
    assert scores == pytest.approx(GOLDEN["version_1_1"]["scores"], rel=1e-12)


@pytest.mark.parametrize("golden", GOLDEN["version_2_0"])
def test_scores_and_thresholds_of_2_0_as_the_official_script(golden):
    questions = golden["questions"]
    best = [question["prediction"] for question in questions]
    null_odds = [question["null_odds"] for question in questions]
    answers = [question["answers"] for question in questions]
    predictions = [
        "" if odds > golden["threshold"] else text
        for text, odds in zip(best, null_odds)
    ]

    scores = squad_scores.scores_2_0(predictions, answers)
    thresholds = squad_scores.best_thresholds(best, null_odds, answers)

    assert scores == pytest.approx(golden["scores"], rel=1e-12)
    assert thresholds == pytest.approx(golden["best"], rel=1e-12)


@pytest.mark.parametrize("has_ties", [False, True])
@pytest.mark.parametrize("golden", GOLDEN["version_2_0"])
def test_tuned_threshold_gives_the_best_score(golden, has_ties):
    # Without answers like "the", which are right where none is given.
    questions = [
        question
        for question in golden["questions"]
        if all(map(squad_scores.normalize_answer, question["answers"]))
    ]
    texts = [question["prediction"] for question in questions]
    null_odds = [question["null_odds"] for question in questions]
    if has_ties:
        null_odds = [round(odds) for odds in null_odds]
    answers = [question["answers"] for question in questions]
    best = squad_scores.best_thresholds(texts, null_odds, answers)
    tuned = squad_scores.tuned_null_threshold(texts, null_odds, answers)

    def f1_at(threshold):
        predictions = [
            "" if odds > threshold else text
            for text, odds in zip(texts, null_odds)
        ]
        return squad_scores.scores_2_0(predictions, answers)["f1"]

    if not has_ties:
        assert f1_at(tuned) == pytest.approx(best["best_f1"])
    assert f1_at(tuned) == pytest.approx(
        max(map(f1_at, [-1e9, *null_odds])), rel=1e-12
    )


def test_question_of_1_1_must_have_an_answer():
    with pytest.raises(ValueError, match="Received: 1 question without"):
        squad_scores.scores_1_1(["a", "b"], [("a",), ()])
