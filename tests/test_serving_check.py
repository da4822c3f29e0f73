"""The check finds differences, and people can read its tables."""

import dataclasses

import numpy as np
import pytest
import serving_models

from bert_tf.serving import caller
from bert_tf.serving import check
from bert_tf.serving import report
from bert_tf.serving import saved_model
from bert_tf.serving import texts as texts_lib


def test_a_small_difference_is_found_and_placed():
    path = serving_models.exported("encoder", "ids")
    source = check.source_of(path, serving_models.model_dir("encoder"))
    # One word, in one of the texts.
    row = serving_models.VOCABULARY.index("quick")
    table = source.model.embeddings.word_embeddings
    values = table.value.numpy()
    values[row, 0] += 0.01
    table.assign(values)
    texts = [(b"lorem",), (b"the quick one",), (b"",)]
    _, comparisons = check.compare(path, source, texts)
    for comparison in comparisons:
        assert not comparison.is_equal
        assert 1e-4 < comparison.max_difference < 1
        assert comparison.worst.endswith("of b'the quick one'")
    table = report.comparisons_table("2.0", comparisons)
    assert table.count("DIFFERENT") == len(comparisons) == 2


@pytest.mark.parametrize(
    "answer, difference",
    [
        ([[0.25, 0.75]], 0.0),
        ([[0.25, 0.7500001]], 1.2e-7),
        ([[0.25, np.nan]], np.inf),
        ([[0.25, 0.75, 0.0]], np.inf),
        (np.array([[b"a", b"b"]], object), np.inf),
    ],
)
def test_differences(answer, difference):
    answer = np.asarray(answer)
    if answer.dtype != object:
        answer = answer.astype("float32")
    expected = {"probabilities": np.array([[0.25, 0.75]], "float32")}
    if answer.dtype == object:
        expected = {"probabilities": np.array([[b"a", b"c"]], object)}
    found, _, _ = check._difference(
        {"probabilities": answer}, expected, [(b"text",)]
    )
    assert found == pytest.approx(difference, rel=0.1)


def test_differences_of_large_numbers_are_relative():
    expected = {"scores": np.array([400.0, 0.5], "float32")}
    answer = {"scores": np.array([400.004, 0.5], "float32")}
    found, where, _ = check._difference(answer, expected, [(b"a",), (b"b",)])
    assert found == pytest.approx(1e-5, rel=0.1)
    assert where == "scores of b'a'"


def test_another_process_that_fails_is_an_error_with_its_last_words():
    path = serving_models.exported("encoder", "ids")
    with pytest.raises(ValueError, match="KeyError: 'no_such'"):
        caller.call(path, [("no_such", {"x": np.zeros(1)})], with_text=False)


def test_a_python_that_is_none_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no_python"):
        caller.call(tmp_path, [], python=f"{tmp_path}/no_python")


def test_lines_are_texts_or_pairs(tmp_path):
    assert texts_lib.parse_texts(["a\tb", "ü"], 1, "x") == [
        (b"a\tb",),
        ("ü".encode(),),
    ]
    path = tmp_path / "pairs"
    path.write_bytes(b"a\tb\r\n\xff\t\n")
    assert texts_lib.read_texts(path, 2) == [(b"a", b"b"), (b"\xff", b"")]
    path.write_bytes(b"a\tb\nc\n")
    with pytest.raises(ValueError, match="pairs, line 2: must be 2 strings"):
        texts_lib.read_texts(path, 2)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="at least one text"):
        texts_lib.read_texts(path, 1)


def test_answers_are_shown_likeliest_first():
    answers = {
        "labels": np.array([b"ja", b"nein"], object),
        "classes": np.array([[b"nein", b"ja"]] * 2, object),
        "probabilities": np.array([[0.25, 0.75], [0.9, 0.1]]),
    }
    texts = [(b"a  b", b"c"), ("ü\n".encode() * 99, b"")]
    lines = report.answers_table(texts, answers).splitlines()
    assert lines[0].split() == ["text", "label", "probabilities"]
    assert lines[1].split() == [
        *("a", "b", "|", "c"),
        *("ja", "0.750", "ja,", "0.250", "nein"),
    ]
    assert lines[2].endswith("nein   0.900 nein, 0.100 ja")
    assert "ü ü" in lines[2] and "..." in lines[2]


def test_scores_and_vectors_are_shown():
    table = report.answers_table([(b"a",)], {"scores": np.array([1.23456])})
    assert table.splitlines()[1].split() == ["a", "1.2346"]
    table = report.answers_table(
        [(b"a",)],
        {
            "pooled_output": np.array([[3.0, 4.0, 0.0, 0.0]]),
            "sequence_output": np.zeros([1, 5, 4]),
        },
    )
    assert "[3.000, 4.000, 0.000, ...] of 4, norm 5.000" in table


def test_spans_are_shown_with_their_characters():
    found = {
        "nbest_answers": np.array([[b"b", b""]], object),
        "answers": np.array([b"b"], object),
        "starts": np.array([2]),
        "limits": np.array([3]),
        "scores": np.array([0.75]),
        "null_odds": np.array([-4.0]),
    }
    table = report.answers_table([(b"q", b"a b")], found).splitlines()
    assert table[0].split() == [
        *("text", "answer", "characters", "score", "null", "odds")
    ]
    assert table[1].split() == ["q", "|", "a", "b", "b", "2-3", "0.750"] + [
        "-4.000"
    ]
    found = {
        "num_entities": np.array([1, 0]),
        "labels": np.array([[b"per"], [b""]], object),
        "starts": np.array([[0], [-1]]),
        "limits": np.array([[4], [-1]]),
        "scores": np.array([[0.5], [0.0]]),
    }
    table = report.answers_table([(b"Anna",), (b"x",)], found).splitlines()
    assert table[1].split() == ["Anna", "per", "0-4", "0.500"]
    assert table[2].split() == ["x"]


def test_answers_need_a_saved_model_that_takes_text():
    with pytest.raises(ValueError, match="takes ids only"):
        check.answer_texts(serving_models.exported("encoder", "ids"), [(b"a",)])


def test_where_no_saved_model_is(tmp_path):
    with pytest.raises(ValueError, match="holds neither saved_model.pb"):
        saved_model.newest(tmp_path)


def test_comparison_within_tolerance_is_equal():
    comparison = check.Comparison(
        signature="ids", num_texts=1, max_difference=1e-5, worst=""
    )
    assert comparison.is_equal
    worse = dataclasses.replace(comparison, max_difference=1.1e-5)
    assert not worse.is_equal
