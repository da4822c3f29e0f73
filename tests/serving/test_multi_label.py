"""Exports of multi-label classifications: signatures, answers, the check."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.multi_label import MultiLabel
from bert_tf.serving.proof import report
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models

TEXTS = [(b"the quick",), (b"lorem ipsum the",), (b"",), (b"x" * 99,)]


def answers_of(texts):
    answer = serving_models.loaded("topics").signatures["serving_default"]
    found = answer(text=tf.constant([text for (text,) in texts]))
    return {name: value.numpy() for name, value in found.items()}


def test_answers_are_the_calibrated_sigmoids_of_the_trained_models_logits():
    folder = serving_models.model_dir("topics")
    model = checkpoints.load(folder, BertClassifier, num_labels=4)
    preprocessor = Preprocessor.from_folder(folder)
    logits = keras.ops.convert_to_numpy(
        model(preprocessor(tf.constant([text for (text,) in TEXTS])))
    )
    found = answers_of(TEXTS)
    np.testing.assert_allclose(
        found["probabilities"], 1 / (1 + np.exp(-logits / 0.625)), atol=1e-6
    )
    np.testing.assert_array_equal(found["is_label"], logits > 0)
    # Some are labels and some are not: both were seen.
    assert 0 < found["is_label"].sum() < found["is_label"].size
    names = [label.encode() for label in serving_models.TOPICS_TASK.labels]
    assert found["classes"].tolist() == [names] * len(TEXTS)


def test_all_signatures_answer_as_the_trained_model():
    servable = serving_models.servable("topics")
    found = serving_models.differences("topics", servable, TEXTS)
    assert {*found} == {
        *("serving_default", "ids", "examples", "ids_examples"),
    }
    assert all(difference <= 1e-5 for difference, _ in found.values())


def test_a_folder_of_transformers_is_served_with_its_label_names(tmp_path):
    folder = serving_models.model_dir("topics")
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "task.json").unlink()
    path = tmp_path / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["problem_type"] = "multi_label_classification"
    config["id2label"] = {str(i): name for i, name in enumerate("zéca")}
    path.write_text(json.dumps(config))
    servable = opening.open_folder(tmp_path)
    assert servable.task.labels == ("z", "é", "c", "a")
    assert servable.text_features == ("text",)
    inputs = servable.encode(TEXTS)
    answers = servable.trained_answers(inputs, TEXTS)
    wanted = answers_of(TEXTS)
    # It has no task.json, and so no temperature.
    odds = wanted["probabilities"] / (1 - wanted["probabilities"])
    np.testing.assert_allclose(
        answers["probabilities"], 1 / (1 + odds**-0.625), atol=1e-5
    )
    names = [name.encode() for name in "zéca"]
    assert answers["classes"].tolist() == [names] * len(TEXTS)
    config["id2label"]["1"] = "z|a"
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="config.json, id2label: `labels`"):
        opening.open_folder(tmp_path)


def test_a_label_of_even_odds_may_go_either_way():
    servable = serving_models.servable("topics")
    trained = {
        "is_label": np.array([[True, False]]),
        "probabilities": np.array([[0.5000001, 0.3]]),
    }
    answers = {"is_label": np.array([[False, True]])}
    settled = servable.settle_ties(TEXTS[:1], trained, answers, 1e-5)
    assert settled["is_label"].tolist() == [[False, False]]


def test_the_table_says_which_are_labels():
    answers = {
        "is_label": np.array([[True, False]]),
        "probabilities": np.array([[0.75, 0.25]]),
        "classes": np.array([[b"a", b"b"]]),
    }
    table = report.answers_table(TEXTS[:1], answers, MultiLabel)
    assert table.splitlines()[1].endswith("  0.750 a, 0.250 b (no)")
