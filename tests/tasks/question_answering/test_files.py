import copy
import json
import time

import numpy as np
import pytest
from absl import logging

from bert_tf.tasks.question_answering import files as squad_files

CONTEXT = "Paris is\tthe capital of France (since 987)."


def question(name, *answers, **more):
    return {
        "id": name,
        "question": f"What about {name}?",
        "answers": [
            {"text": text, "answer_start": start} for text, start in answers
        ],
    } | more


CONTENT = {
    "version": "1.1",
    "data": [
        {
            "title": "France",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        question("q1", ("Paris", 0), ("paris", 0)),
                        question("q2", ("France", 24)),
                    ],
                },
                {"context": "One.", "qas": [question("q3", ("One", 0))]},
            ],
        },
        {
            "title": "Again",
            "paragraphs": [
                {"context": CONTEXT, "qas": [question("q4", ("987", 38))]}
            ],
        },
    ],
}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "squad.json"
        path.write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def warnings(monkeypatch):
    told = []
    monkeypatch.setattr(
        logging, "warning", lambda text, *values: told.append(text % values)
    )
    return told


def learned(examples):
    return [
        examples.context(i)[start:limit] if start >= 0 else None
        for i, (start, limit) in enumerate(
            zip(examples.answer_starts, examples.answer_limits)
        )
    ]


def with_questions(*questions):
    return {"data": [{"paragraphs": [{"context": CONTEXT, "qas": questions}]}]}


@pytest.mark.parametrize("is_training", [False, True])
def test_questions_are_read_in_order_and_texts_once(write, is_training):
    examples = squad_files.read_squad(write(CONTENT), False, is_training)

    assert examples.ids == ("q1", "q2", "q3", "q4")
    assert examples.questions[1] == "What about q2?"
    assert examples.contexts == (CONTEXT, "One.")
    assert examples.context_indices.tolist() == [0, 0, 1, 0]
    assert examples.answers[:2] == (("Paris", "paris"), ("France",))
    assert examples.answer_starts.dtype == np.int32
    if is_training:
        assert learned(examples) == ["Paris", "France", "One", "987"]
    else:
        assert learned(examples) == [None] * 4


def test_questions_without_answer_are_of_version_2(write):
    content = with_questions(
        question("q1", ("capital", 13), is_impossible=False),
        question("q2", is_impossible=True),
    )

    examples = squad_files.read_squad(write(content), True, True)

    assert learned(examples) == ["capital", None]
    assert examples.answers == (("capital",), ())
    with pytest.raises(
        ValueError,
        match=r"qas\[1\].answers must have an answer in training, except",
    ):
        squad_files.read_squad(write(content), False, True)


def test_test_file_tells_no_answers(write):
    content = with_questions({"id": "q", "question": "Why?"})

    assert squad_files.read_squad(write(content), False, False).answers is None


@pytest.mark.parametrize(
    ("text", "start", "found"),
    [
        # A character aside, within the words that it touches.
        ("France", 25, "France"),
        ("987", 37, "987"),
        # Other white space: the whole words.
        ("is the", 6, "is\tthe"),
        ("since 987", 32, "since 987"),
    ],
)
def test_answers_that_stand_aside_are_found(write, text, start, found):
    content = with_questions(question("q", (text, start)))

    examples = squad_files.read_squad(write(content), False, True)

    assert learned(examples) == [found]


def test_a_long_answer_not_in_the_text_is_told_in_short(write, warnings):
    content = with_questions(
        question("q" * 9999, ("x" * 10**5, 0)), question("q", ("Paris", 0))
    )
    squad_files.read_squad(write(content), False, True)
    assert "qas[0]" in warnings[0] and len(warnings[0]) < 400
    assert "left out 1 of the questions" in warnings[1]


@pytest.mark.parametrize("verbose", [False, True])
def test_answers_not_in_the_text_are_left_out_and_counted(
    write, warnings, verbose
):
    missing = [question(f"m{i}", ("Lyon", i)) for i in range(7)]
    missing += [question("far", ("Paris", 900)), question("low", ("P", -1))]
    content = with_questions(question("q", ("Paris", 0)), *missing)

    examples = squad_files.read_squad(
        write(content), False, True, verbose_logging=verbose
    )

    assert examples.ids == ("q",)
    assert len(warnings) == (10 if verbose else 6)
    assert "squad.json: data[0].paragraphs[0].qas[1] (id 'm0')" in warnings[0]
    assert "could not find the answer 'Lyon'" in warnings[0]
    assert "left out 9 of the questions" in warnings[-1]
    # An answer to predict is none of ours to doubt.
    assert len(squad_files.read_squad(write(content), False, False)) == 10


def test_text_without_blanks_is_not_searched_for_every_answer(write):
    answer = {"text": "no such", "answer_start": 10**6 // 2}
    questions = [
        {"id": str(index), "question": "q", "answers": [answer]}
        for index in range(300)
    ]
    questions[0] = questions[0] | {
        "answers": [{"text": "x" * 9, "answer_start": 0}]
    }
    paragraph = {"context": "x" * 10**6, "qas": questions}
    path = write({"data": [{"paragraphs": [paragraph]}]})
    start = time.process_time()
    assert len(squad_files.read_squad(path, False, True)) == 1
    # It was 17 seconds.
    assert time.process_time() - start < 5


def damage(*keys, value=None):
    content = copy.deepcopy(CONTENT)
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    if value is None:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"the top level must be an object. Received: \[\]"),
        (damage("data"), "data is missing"),
        (damage("data", value={"a": 1}), "data must be a list. Received: {'a'"),
        (
            damage("data", 1, "paragraphs", value=["x" * 99]),
            r"data\[1\].paragraphs\[0\] must be an object. Rec.*xxx\.\.\.xxx",
        ),
        (
            damage("data", 0, "paragraphs", 1, "context", value=3),
            r"data\[0\].paragraphs\[1\].context must be a string. Received: 3",
        ),
        (
            damage("data", 0, "paragraphs", 0, "qas", 1, "question"),
            r"data\[0\].paragraphs\[0\].qas\[1\].question is missing",
        ),
        (
            damage(
                *("data", 0, "paragraphs", 0, "qas", 0, "answers", 1),
                "answer_start",
                value="0",
            ),
            r"data\[0\].paragraphs\[0\].qas\[0\].answers\[1\].answer_start "
            "must be an integer. "
            "Received: '0'",
        ),
        (
            damage("data", 1, "paragraphs", 0, "qas", 0, "id", value="q2"),
            r"data\[1\].paragraphs\[0\].qas\[0\].id must be unique. "
            "Received: id='q2'",
        ),
        (
            damage("data", 1, "paragraphs", 0, "qas", 0, "answers", value=[]),
            r"data\[1\].paragraphs\[0\].qas\[0\].answers must have an answer",
        ),
        ({"data": []}, "there is no question in it"),
    ],
)
def test_bad_file_is_told_with_the_path_in_it(write, content, message):
    with pytest.raises(ValueError, match=rf"squad\.json: {message}"):
        squad_files.read_squad(write(content), False, True)


def test_what_is_not_json_is_told_with_its_line(tmp_path):
    path = tmp_path / "squad.json"
    path.write_text('{"data":\n [}')

    with pytest.raises(ValueError, match=r"squad.json: not JSON: .* line 2"):
        squad_files.read_squad(path, False, True)


def test_json_is_written_as_the_original_does(tmp_path):
    squad_files.write_json(tmp_path / "a.json", {"q": "é"})

    assert (tmp_path / "a.json").read_text() == '{\n    "q": "\\u00e9"\n}\n'


def test_scores_that_json_cannot_hold_are_refused(tmp_path):
    path = tmp_path / "null_odds.json"
    with pytest.raises(ValueError, match="null_odds.json: scores must be fin"):
        squad_files.write_json(path, {"a": float("nan")})
    assert not path.exists()
