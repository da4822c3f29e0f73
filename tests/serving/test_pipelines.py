"""A predictor against transformers' pipelines and sentence-transformers.

    python -m pytest -m peers tests/serving/test_pipelines.py

Both open the same folders. docs/ask_a_model.md says where definitions differ.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import checkpoints
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.reranker import BertReranker
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import paths
from support import peers
from support import serving_models

pytestmark = pytest.mark.peers

PROGRAM = paths.TESTS / "references/pipelines.py"
NUM_TEXTS = 50
CONFIG = dataclasses.replace(serving_models.CONFIG, hidden_size=16)
# {name: (model, its task)}.
MODELS = {
    "one text": (
        lambda: BertClassifier(CONFIG, 3),
        ClassificationTask(
            name="one",
            text_features=("text",),
            labels=("a", "é", "c"),
            metrics=("accuracy",),
        ),
    ),
    "pair": (
        lambda: BertClassifier(CONFIG, 2),
        ClassificationTask(
            name="pair",
            text_features=("left", "right"),
            labels=("no", "yes"),
            metrics=("accuracy",),
        ),
    ),
    "regression": (
        lambda: BertClassifier(CONFIG, 1),
        ClassificationTask(
            name="number", text_features=("text",), metrics=("pearson",)
        ),
    ),
    "labels": (
        lambda: BertClassifier(CONFIG, 4),
        MultiLabelTask(
            name="topics", text_features=("text",), labels=("a", "b", "é", "d")
        ),
    ),
    "tags": (
        lambda: BertTokenClassifier(CONFIG, 5),
        TaggingTask(scheme="bio", labels=("O", "B-é", "I-é", "B-x", "I-x")),
    ),
    "reranker": (lambda: BertReranker(CONFIG), RerankingTask()),
    "masks": (lambda: BertPretrainer(CONFIG), None),
    "encoder": (lambda: BertEncoder(CONFIG), None),
}


def make_texts(seed, longest):
    """Returns texts of words of one or more pieces, and punctuation."""
    generator = np.random.default_rng(seed)
    words = [*"abcé", "the", "Quick", "lorem", "字", ".", "xyz", "don't"]
    return [
        " ".join(generator.choice(words, size=1 + number % longest))
        for number in range(NUM_TEXTS)
    ]


TEXTS, OTHERS = make_texts(1, 30), make_texts(2, 25)
# Shorter than a window.
SHORT = make_texts(3, 3)
MASKED = [f"{text} [MASK] [MASK]" for text in SHORT]
PAIRS = [
    {"text": text, "text_pair": other} for text, other in zip(TEXTS, OTHERS)
]
CUT = {"truncation": True}
ALL = CUT | {"top_k": None}
NUMBER = CUT | {"function_to_apply": "none"}
# {name: (folder, task of the pipeline, inputs, options)}.
REQUESTS = {
    "one text": ("one text", "text-classification", TEXTS, ALL),
    "pair": ("pair", "text-classification", PAIRS, ALL),
    "regression": ("regression", "text-classification", TEXTS, NUMBER),
    "labels": ("labels", "text-classification", TEXTS, ALL),
    "reranker": ("reranker", "text-classification", PAIRS, NUMBER),
    "tags": (
        "tags",
        "token-classification",
        SHORT,
        {"aggregation_strategy": "first"},
    ),
    "masks": ("masks", "fill-mask", MASKED, {"top_k": 5}),
    "vectors": ("encoder", "feature-extraction", SHORT, {}),
    "sentences": ("minilm", "sentence-transformers", TEXTS, {}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = {"minilm": peers.minilm()}
    keras.utils.set_random_seed(1)
    for name, (make, task) in MODELS.items():
        model = make()
        # So wide that answers differ; biases would make them alike.
        for variable in model.trainable_variables:
            if len(variable.shape) > 1:
                noise = tf.random.normal(variable.shape, stddev=0.5)
                variable.assign(variable.value + noise)
        found[name] = str(tmp_path_factory.mktemp("models") / name)
        checkpoints.save(
            found[name],
            model,
            WordpieceSpec(serving_models.VOCABULARY),
            serving_models.MAX_SEQ_LENGTH,
            task=task.to_dict() if task else None,
            label_names=task.labels or None if task else None,
            problem_type=task.problem_type if task else None,
        )
    return found


@pytest.fixture(scope="module")
def theirs(folders, tmp_path_factory):
    """Returns {name: the answers to `REQUESTS`}."""
    path = tmp_path_factory.mktemp("peers")
    requests = {
        name: {
            "task": task,
            "model": folders[folder],
            "inputs": inputs,
            "options": options,
        }
        for name, (folder, task, inputs, options) in REQUESTS.items()
    }
    (path / "requests.json").write_text(json.dumps(requests), "utf-8")
    peers.run(PROGRAM, path / "requests.json", path / "answers.json")
    return json.loads((path / "answers.json").read_text("utf-8"))


def check_ranked(ours, theirs):
    """Compares rows of labels with scores: labels exactly, scores to 1e-5."""
    assert len(ours) == len(theirs) == NUM_TEXTS
    for found, wanted in zip(ours, theirs):
        assert [
            {
                "label": each["label"],
                "score": pytest.approx(each["score"], abs=1e-5),
            }
            for each in wanted
        ] == found
    assert len({tuple(each["label"] for each in row) for row in ours}) > 1
    assert len({round(row[0]["score"], 3) for row in ours}) > 10


@pytest.mark.parametrize(
    "name, columns, count",
    [
        ("one text", [TEXTS], 3),
        ("pair", [TEXTS, OTHERS], 2),
        ("labels", [TEXTS], 4),
    ],
)
def test_labels(name, columns, count, folders, theirs):
    predict = bert_tf.predictor(folders[name])
    check_ranked(predict(*columns, top_k=count), theirs[name])
    if name != "labels":
        best = [row[0]["label"] for row in theirs[name]]
        assert [each["label"] for each in predict(*columns)] == best


@pytest.mark.parametrize(
    "name, columns", [("regression", [TEXTS]), ("reranker", [TEXTS, OTHERS])]
)
def test_numbers(name, columns, folders, theirs):
    ours = bert_tf.predictor(folders[name])(*columns)
    scores = [each["score"] for each in ours]
    np.testing.assert_allclose(
        scores, [wanted["score"] for wanted in theirs[name]], atol=1e-5
    )
    assert len({round(score, 3) for score in scores}) > 10


def test_tags(folders, theirs):
    names = ("start", "end", "label", "score")
    ours = bert_tf.predictor(folders["tags"])(SHORT)
    found = [[[each[name] for name in names] for each in row] for row in ours]
    names = ("start", "end", "entity_group", "score")
    wanted = [
        [[each[name] for name in names] for each in row]
        for row in theirs["tags"]
    ]
    assert sum(map(len, found)) > NUM_TEXTS // 2
    num_of_many_words = 0
    for text, row, others in zip(SHORT, found, wanted):
        assert [each[:3] for each in row] == [each[:3] for each in others]
        for (start, end, _, score), (*_, mean) in zip(row, others):
            # Ours is the least score of the words, theirs the mean.
            if end - start == 1 or text[start:end].isalnum():
                assert score == pytest.approx(mean, abs=1e-5)
            else:
                assert score < mean
                num_of_many_words += 1
    assert num_of_many_words


def test_masks(folders, theirs):
    ours = bert_tf.predictor(folders["masks"], kind="fill_mask")(MASKED)
    assert ours == [
        [
            [
                {
                    "token": each["token_str"],
                    "score": pytest.approx(each["score"], abs=1e-5),
                }
                for each in mask
            ]
            for mask in row
        ]
        for row in theirs["masks"]
    ]
    assert {len(row) for row in ours} == {2}
    assert len({mask[0]["token"] for row in ours for mask in row}) > 3


def test_vectors_of_tokens_have_our_mean(folders, theirs):
    ours = bert_tf.predictor(folders["encoder"], kind="embedding")(SHORT)
    means = [np.mean(vectors[0], axis=0) for vectors in theirs["vectors"]]
    np.testing.assert_allclose(ours, means, atol=1e-5)


def test_vectors_of_sentences(folders, theirs):
    # What the folder is, its modules.json tells.
    ours = bert_tf.predictor(folders["minilm"])(TEXTS)
    np.testing.assert_allclose(ours, theirs["sentences"], atol=1e-5)
