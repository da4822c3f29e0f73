import dataclasses

import numpy as np
import pytest

from bert_tf.tasks.question_answering import report as squad_report
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.question_answering.answers import SquadAnswers
from bert_tf.tasks.question_answering.files import SquadExamples
from bert_tf.tasks.question_answering.task import SquadTask

CONTEXT = f"In 1066 William the Bastard *won* at Hastings. {'More. ' * 40}"


def make(rows, null_odds=()):
    """Makes examples and answers of (question, right answers, nbest)."""
    ids = tuple(f"q{index}" for index in range(len(rows)))
    nowhere = np.full(len(rows), -1, np.int32)
    examples = SquadExamples(
        ids=ids,
        questions=tuple(question for question, _, _ in rows),
        contexts=(CONTEXT,),
        context_indices=np.zeros(len(rows), np.int32),
        answer_starts=nowhere,
        answer_limits=nowhere,
        answers=tuple(right for _, right, _ in rows),
    )
    nbest, spans = {}, {}
    for name, (_, _, entries) in zip(ids, rows):
        nbest[name] = [
            {"text": text, "probability": probability}
            for text, probability in entries.items()
        ]
        places = {text: CONTEXT.find(text) for text in entries}
        spans[name] = [
            (place, place + len(text)) if text else (-1, -1)
            for text, place in places.items()
        ]
    answers = SquadAnswers(
        texts={
            name: next((text for text in entries if text), "")
            for name, (_, _, entries) in zip(ids, rows)
        },
        nbest=nbest,
        spans=spans,
        null_odds=dict(zip(ids, null_odds)),
    )
    return examples, answers


def test_report_of_1_1():
    examples, answers = make(
        [
            ("In what year?", ("1066", "in 1066"), {"1066": 0.9}),
            # Precision 1, recall 1/2: F1 2/3.
            ("Whose was it?", ("William Bastard",), {"William": 0.99}),
            ("Who won?", ("William",), {"Hastings": 0.4, "1066": 0.3}),
            ("How many won?", ("the Bastard *won* at",), {"1066": 0.6}),
            ("It was at?", ("Hastings",), {"Hastings.": 0.2}),
        ]
    )
    task = SquadTask()
    predictions = list(answers.predictions(task).values())
    results = squad_scores.scores_1_1(predictions, examples.answers)
    sections = dict(squad_report.sections(task, examples, answers, results))
    assert list(sections) == [
        "Questions",
        "Lengths of the first right answer",
        "Worst errors",
    ]
    assert sections["Questions"].splitlines()[2:] == [
        "| who | 2 | 0 | 33.33 |",
        "| what | 1 | 100 | 100 |",
        "| how many | 1 | 0 | 0 |",
        "| other | 1 | 100 | 100 |",
    ]
    assert sections["Lengths of the first right answer"].splitlines()[2:] == [
        "| 1 | 3 | 66.67 | 66.67 |",
        "| 2 | 1 | 0 | 66.67 |",
        "| 3 or 4 | 1 | 0 | 0 |",
    ]
    # Those without a right word come first, the surest of them before.
    rows = sections["Worst errors"].splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == ["| q3", "| q2", "| q1"]
    assert rows[0].startswith(
        r"| q3 | How many won? | the Bastard \*won\* at | 1066 | 0 | 0.6 "
        r"| In **1066** William the Bastard \*won\* at Hastings. More. "
    )
    assert rows[0].endswith("… |")
    assert "| William | 66.67 | 0.99 | In 1066 **William** the" in rows[2]


def test_report_of_2_0():
    task = SquadTask(
        version_2_with_negative=True, null_score_diff_threshold=-1.5
    )
    examples, answers = make(
        [
            ("When?", ("1066",), {"1066": 0.7, "": 0.3}),
            # Not answered, as the threshold wants it, and wrongly so.
            ("At?", ("Hastings",), {"Hastings": 0.8, "": 0.2}),
            ("Why?", (), {"William": 0.6, "": 0.4}),
            ("Which?", (), {"": 0.9, "William": 0.1}),
            ("What?", (), {"William": 0.3, "": 0.7}),
        ],
        null_odds=[-2.0, -1.0, -3.0, 4.0, -1.25],
    )
    predictions = list(answers.predictions(task).values())
    assert predictions == ["1066", "", "William", "", ""]
    results = {
        **squad_scores.scores_2_0(predictions, examples.answers),
        **squad_scores.best_thresholds(
            list(answers.texts.values()),
            list(answers.null_odds.values()),
            examples.answers,
        ),
        "null_score_diff_threshold": task.null_score_diff_threshold,
    }
    sections = dict(squad_report.sections(task, examples, answers, results))
    assert sections["Answered or not"].splitlines() == [
        "|  | answered | not answered |",
        "| --- | --- | --- |",
        "| has an answer | 1 | 1 |",
        "| has no answer | 1 | 2 |",
    ]
    assert results["NoAns_exact"] == pytest.approx(100 * 2 / 3)
    # From no answer on, 3 right, the threshold -3 loses one, -2 wins one.
    assert sections["Thresholds of no answer"].splitlines()[2:] == [
        "| used | -1.5 | 60 | 60 |",
        "| best for exact match | 0 | 60 |  |",
        "| best for F1 | 0 |  | 60 |",
    ]
    assert sections["Lengths of the first right answer"].splitlines()[2:] == [
        "| no answer | 3 | 66.67 | 66.67 |",
        "| 1 | 2 | 50 | 50 |",
    ]
    rows = sections["Worst errors"].splitlines()[2:]
    assert rows[0].startswith(
        "| q2 | Why? | *none* | William | 0 | 0.6 | In 1066 **William** the "
    )
    # Nothing was answered: the right answer is shown in its place.
    assert rows[1].startswith("| q1 | At? | Hastings | *none* | 0 | 0.2 | In ")
    assert r"\*won\* at **Hastings**. More." in rows[1]
    assert len(rows) == 2


def test_excerpt_is_cut_on_both_sides():
    examples, answers = make([("Who?", ("1066",), {"William": 0.5})])
    text = CONTEXT + CONTEXT
    examples = dataclasses.replace(examples, contexts=(text,))
    start = text.rfind("William")
    answers.spans["q0"] = [(start, start + len("William"))]
    sections = dict(squad_report.sections(SquadTask(), examples, answers, {}))
    excerpt = sections["Worst errors"].splitlines()[2].split(" | ")[-1]
    assert excerpt.startswith("…") and excerpt.endswith("… |")
    before, span, after = excerpt.strip("…| ").split("**")
    assert span == "William"
    assert before == text[start - 80 : start]
    after = after.replace("\\", "")
    assert after == text[start + len("William") :][:80].rstrip()


def test_no_errors():
    examples, answers = make([("When?", ("1066",), {"1066": 0.5})])
    sections = dict(squad_report.sections(SquadTask(), examples, answers, {}))
    assert sections["Worst errors"] == "None: every answer is right."
