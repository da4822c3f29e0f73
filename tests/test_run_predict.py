"""bert_tf predict: lines of JSON from texts and files."""

import json

import pytest

import bert_tf
from support import serving_models

PROGRAM = "bert_tf.run_predict"


def lines_of(text):
    return [json.loads(line) for line in text.splitlines()]


def test_texts_become_lines_with_their_answers(run_program):
    folder = serving_models.model_dir("pair")
    done = run_program(
        PROGRAM,
        f"--model_dir={folder}",
        *("--text=the quick\tlorem", "--text=a\tb", "--top_k=2"),
    )
    found = bert_tf.predictor(folder, top_k=2)(
        ["the quick", "a"], ["lorem", "b"]
    )
    assert [len(answer) for answer in found] == [2, 2]
    lines = lines_of(done.stdout)
    assert [list(line) for line in lines] == [
        ["sentence 1", "class", "answer"]
    ] * 2
    assert (lines[0]["sentence 1"], lines[1]["class"]) == ("the quick", "b")
    for line, answers in zip(lines, found):
        for entry, answer in zip(line["answer"], answers):
            assert entry["label"] == answer["label"]
            assert entry["score"] == pytest.approx(answer["score"], abs=1e-6)


def test_a_file_of_choices_becomes_a_file_of_answers(tmp_path, run_program):
    rows = [
        {"context": "the quick", "choices": ["a", "b", "lorem"]},
        {"context": "a", "choices": ["the", "c", "x y"]},
    ]
    path, output = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    folder = serving_models.model_dir("choice")
    done = run_program(
        PROGRAM,
        f"--model_dir={folder}",
        f"--input_file={path}",
        f"--output_file={output}",
    )
    assert done.stdout == f"2 rows in {output}\n"
    lines = lines_of(output.read_text())
    predict = bert_tf.predictor(folder)
    for line, row in zip(lines, rows, strict=True):
        assert {**line, "answer": 0} == row | {"answer": 0}
        answer = predict(row["context"], row["choices"])
        assert line["answer"]["text"] == answer["text"]
        assert line["answer"]["score"] == pytest.approx(
            answer["score"], abs=1e-6
        )


def test_vectors_are_lists(run_program):
    done = run_program(
        PROGRAM,
        f"--model_dir={serving_models.model_dir('encoder')}",
        *("--text=the quick", "--kind=embedding", "--normalize"),
    )
    (line,) = lines_of(done.stdout)
    assert line["text"] == "the quick"
    assert sum(value**2 for value in line["answer"]) == pytest.approx(1)


def test_a_wrong_number_of_texts_is_told(run_program):
    folder = serving_models.model_dir("pair")
    done = run_program(
        PROGRAM, f"--model_dir={folder}", "--text=only one", check=False
    )
    assert done.returncode == 1
    assert "--text, line 1: must be 2 strings" in done.stderr
