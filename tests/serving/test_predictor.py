"""A predictor gives what the export of its folder gives, as plain Python."""

import logging
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.classification import Classification
from support import serving_models

# More than a batch, of several lengths.
TEXTS = ["the quick", "lorem, the é😀 b", "", "x y " * 30, "abc. 字 d"] * 7
OTHERS = TEXTS[2:] + TEXTS[:2]
MASKED = [f"{text} [MASK] the[MASK]" for text in TEXTS[:3]] + ["no mask"]
CHOICES = [[text, "the", f"quick {text}"] for text in OTHERS]
OPTIONS = {
    "fill_mask": {"kind": "fill_mask", "top_k": 3},
    "embedding": {"kind": "embedding", "normalize": True},
}


@pytest.fixture(scope="module")
def predict_with():
    predictors = {}

    def find(kind):
        if kind not in predictors:
            predictors[kind] = bert_tf.predictor(
                serving_models.model_dir(kind), **OPTIONS.get(kind, {})
            )
        return predictors[kind]

    return find


def exported(kind, **columns):
    """Returns the answers of the reloaded SavedModel, {name: array}."""
    answer = serving_models.loaded(kind).signatures[signatures.DEFAULT]
    texts = {name: tf.constant(column) for name, column in columns.items()}
    return {name: value.numpy() for name, value in answer(**texts).items()}


def check_same(answers, expected):
    """Compares structures: scores to 1e-6, everything else exactly."""
    assert type(answers) is type(expected)
    if isinstance(expected, dict):
        assert list(answers) == list(expected)
        for name, value in expected.items():
            check_same(answers[name], value)
    elif isinstance(expected, list):
        assert len(answers) == len(expected)
        for answer, value in zip(answers, expected):
            check_same(answer, value)
    elif isinstance(expected, float):
        assert answers == pytest.approx(expected, rel=1e-6, abs=1e-6)
    else:
        assert answers == expected


def test_classes(predict_with):
    found = exported("pair", sentence_1=TEXTS, class_=OTHERS)
    names = serving_models.PAIR_TASK.labels
    ranked = [
        sorted(
            (
                {"label": name, "score": float(share)}
                for name, share in zip(names, shares)
            ),
            key=lambda entry: -entry["score"],
        )
        for shares in found["probabilities"]
    ]
    predict = predict_with("pair")
    answers = predict(TEXTS, OTHERS)
    check_same(answers, [entries[0] for entries in ranked])
    labels = [label.decode() for label in found["labels"]]
    assert [answer["label"] for answer in answers] == labels
    assert len({answer["score"] for answer in answers}) > 4
    check_same(
        predict(TEXTS, OTHERS, top_k=2), [entries[:2] for entries in ranked]
    )
    assert len(predict("a", "b", top_k=9)) == 3
    folder = serving_models.model_dir("pair")
    check_same(
        bert_tf.predictor(folder, top_k=2)(TEXTS[1], OTHERS[1]), ranked[1][:2]
    )


def test_regression(predict_with):
    found = exported("regression", sentence=TEXTS)
    answers = predict_with("regression")(TEXTS)
    check_same(answers, [{"score": float(score)} for score in found["scores"]])
    assert len({answer["score"] for answer in answers}) > 4


def test_labels(predict_with):
    found = exported("topics", text=TEXTS)
    names = serving_models.TOPICS_TASK.labels
    ranked = [
        sorted(zip(shares.tolist(), names), key=lambda entry: -entry[0])
        for shares in found["probabilities"]
    ]

    def entries(pairs):
        return [{"label": name, "score": share} for share, name in pairs]

    predict = predict_with("topics")
    check_same(
        predict(TEXTS),
        [entries(each for each in row if each[0] > 0.5) for row in ranked],
    )
    check_same(predict(TEXTS, top_k=3), [entries(row[:3]) for row in ranked])
    assert 0 < found["is_label"].mean() < 1


def test_entities(predict_with):
    found = exported("tagger", text=TEXTS)
    expected = [
        [
            {
                "text": text[start:limit],
                "label": found["labels"][row][place].decode(),
                "start": start,
                "end": limit,
                "score": float(found["scores"][row][place]),
            }
            for place, (start, limit) in enumerate(
                zip(
                    found["starts"][row].tolist(), found["limits"][row].tolist()
                )
            )
            if place < found["num_entities"][row]
        ]
        for row, text in enumerate(TEXTS)
    ]
    assert sum(map(len, expected)) > 4
    check_same(predict_with("tagger")(TEXTS), expected)


@pytest.mark.parametrize("kind", ["squad", "squad_1"])
def test_answers_to_questions(kind, predict_with):
    found = exported(kind, question=TEXTS, context=OTHERS)
    expected = [
        {
            "text": text.decode(),
            "start": int(start),
            "end": int(limit),
            "score": float(score),
        }
        if start >= 0
        else None
        for text, start, limit, score in zip(
            *(found[name] for name in ("answers", "starts", "limits", "scores"))
        )
    ]
    # Of an empty context, if of no other.
    assert None in expected
    assert any(expected)
    predict = predict_with(kind)
    check_same(predict(question=TEXTS, context=OTHERS), expected)
    cited = [
        (answer["text"], context[answer["start"] : answer["end"]])
        for answer, context in zip(predict(TEXTS, OTHERS), OTHERS)
        if answer
    ]
    assert all(text == place for text, place in cited)


def test_choices(predict_with):
    found = exported("choice", context=TEXTS, choices=CHOICES)
    expected = [
        {
            "choice": int(choice),
            "text": texts[choice],
            "score": float(shares[choice]),
        }
        for choice, shares, texts in zip(
            found["choice"], found["probabilities"], CHOICES
        )
    ]
    predict = predict_with("choice")
    check_same(predict(TEXTS, CHOICES), expected)
    check_same(predict(TEXTS[1], CHOICES[1]), expected[1])
    check_same(predict(TEXTS[1], [CHOICES[1]]), [expected[1]])
    assert predict(["a", "b"], CHOICES[1]) == predict(
        ["a", "b"], [CHOICES[1]] * 2
    )
    with pytest.raises(ValueError, match="3 strings for each row.*d: 2"):
        predict("a", ["b", "c"])
    with pytest.raises(ValueError, match="must be a list of strings"):
        predict(["a", "b"], [["b", "c", "d"], "abc"])


def test_rerankers_scores(predict_with):
    found = exported("reranker", query=["the"] * len(TEXTS), text=TEXTS)
    expected = [{"score": float(score)} for score in found["scores"]]
    # One query stands for every row.
    check_same(predict_with("reranker")("the", TEXTS), expected)


def test_embeddings_and_their_cosines(predict_with):
    found = exported("embedding", text=TEXTS)["embeddings"]
    predict = predict_with("embedding")
    vectors = predict(TEXTS)
    np.testing.assert_allclose(vectors, found, rtol=0, atol=1e-6)
    np.testing.assert_allclose(predict(TEXTS[1]), found[1], rtol=0, atol=1e-6)
    assert predict([]).shape == (0, 8)
    cosines = found @ found[:2].T
    np.testing.assert_allclose(
        predict.similarity(TEXTS, TEXTS[:2]), cosines, rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(
        predict.similarity(3 * vectors[0], TEXTS[1]), cosines[0, 1], atol=1e-6
    )


def test_tokens_for_masks(predict_with):
    found = exported("fill_mask", text=MASKED)
    expected = [
        [
            [
                {"token": token.decode(), "score": score}
                for token, score in zip(tokens, scores.tolist())
            ]
            for tokens, scores in zip(
                found["tokens"][row][:count], found["scores"][row][:count]
            )
        ]
        for row, count in enumerate(found["num_masks"])
    ]
    assert [*map(len, expected)] == [2, 2, 2, 0]
    predict = predict_with("fill_mask")
    check_same(predict(MASKED), expected)
    check_same(
        predict(MASKED[0], top_k=1), [tokens[:1] for tokens in expected[0]]
    )
    with pytest.raises(ValueError, match="at most the predictor's 3.*top_k=4"):
        predict(MASKED, top_k=4)


@pytest.mark.parametrize(
    "kind",
    [
        "pair",
        "regression",
        "topics",
        "tagger",
        "squad_1",
        "choice",
        "reranker",
        "embedding",
        "fill_mask",
    ],
)
def test_the_cards_example_is_answered(kind, capsys):
    folder = serving_models.model_dir(kind)
    with open(f"{folder}/README.md", encoding="utf-8") as file:
        use = file.read().partition("## How to use")[2]
    code = use.split("```python\n")[1].partition("```")[0]
    exec(code.replace("path/of/this/folder", folder), {})
    assert capsys.readouterr().out.strip()


def test_all_forms_of_texts(predict_with):
    predict = predict_with("pair")
    assert predict.columns == ("sentence 1", "class")
    left, right = TEXTS[:4], OTHERS[:4]
    expected = predict(left, right)
    table = {"class": right, "sentence 1": left}
    for answers in (
        predict((left, right)),
        predict(np.array(left), pd.Series(right, index=[5, 6, 7, 8])),
        predict(*zip(*zip(left, right))),
        predict(**table),
        predict(table),
        predict(pd.DataFrame(table | {"id": [0, 1, 2, 3]})),
    ):
        assert answers == expected
    check_same(predict((left[1], right[1])), expected[1])
    one = predict_with("topics")
    assert one(tuple(left)) == one(pd.Series(left)) == one(left)
    assert one([]) == []


@pytest.mark.parametrize(
    "texts, message",
    [
        ((TEXTS,), r"must be sentence 1, class: .*zip.*Received: 1 column\."),
        (([("a", "b")],), r"zip\(\*rows\)\)\. Received: 1 column\."),
        (({"class": "a"},), r"Received: class\."),
        ((["a"], ["b", "c"]), r"one length\. Received: 1, 2 rows\."),
        ((["a", None], "b"), r"`sentence 1` .*strings.*None in row 2\."),
        ((["a"], 3), r"`class` must be a list of strings\. Received: 3\."),
    ],
)
def test_wrong_texts_are_told_in_one_line(texts, message, predict_with):
    with pytest.raises(ValueError, match=message) as caught:
        predict_with("pair")(*texts)
    assert "\n" not in str(caught.value)


def test_what_a_kind_does_not_have(predict_with):
    with pytest.raises(ValueError, match="for labels and masks only"):
        predict_with("regression")("a", top_k=2)
    with pytest.raises(ValueError, match="must be 1 or more. .*top_k=0"):
        predict_with("topics")("a", top_k=0)
    with pytest.raises(ValueError, match="similarity needs embeddings"):
        predict_with("topics").similarity("a", "b")


@pytest.mark.parametrize(
    "kind, options, message",
    [
        ("encoder", {}, "tuned to a task.*kind=\"embedding\".*'encoder'"),
        ("encoder", {"kind": "preprocessor"}, "Received: .*'preprocessor'"),
        ("pair", {"freeze": True}, "must be among kind, .*Received: freeze"),
        ("pair", {"pooling": "cls"}, "--pooling must not be given"),
        ("squad", {"top_k": 2}, "for labels and masks only. .*top_k=2"),
    ],
)
def test_wrong_options_are_told_in_one_line(kind, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        bert_tf.predictor(serving_models.model_dir(kind), **options)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}/none: must be .*nothing"):
        bert_tf.predictor(tmp_path / "none")


def test_another_backend_is_refused():
    code = "import bert_tf; bert_tf.predictor('folder')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    *_, last = done.stderr.strip().splitlines()
    assert "needs TensorFlow as Keras's backend" in last


def test_later_calls_trace_nothing_and_use_the_models_weights(monkeypatch):
    traces = []
    answer_texts = Classification.answer_texts

    def counted(*arguments):
        traces.append(1)
        return answer_texts(*arguments)

    monkeypatch.setattr(Classification, "answer_texts", counted)
    folder = serving_models.model_dir("regression")
    files = sorted(os.listdir(folder))
    predict = bert_tf.predictor(folder)
    before = predict(TEXTS[0])["score"]
    predict(TEXTS)
    predict(TEXTS[:3])
    assert len(traces) == 1
    bias = predict.model.trainable_variables[-1]
    bias.assign_add([2.0])
    assert predict(TEXTS[0])["score"] == pytest.approx(before + 2, abs=1e-5)
    assert sorted(os.listdir(folder)) == files


def test_long_inputs_show_progress(predict_with, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("bert_tf.progress_bar.SECONDS_PER_LINE", 0.0)
    predict_with("topics")(TEXTS)
    assert "predict" in caplog.text
    assert "1/2" in caplog.text
