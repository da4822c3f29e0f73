"""Rerankers as they are served: scores of queries with texts."""

import json
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.kinds import opening
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.kinds.reranker import Reranker
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.reranking.task import RerankingTask
from support import peers
from support import serving_models

PAIRS = [
    (b"the quick", b"fox jumps"),
    (b"lorem", b"a b c " * 30),
    (b"", b"\xff"),
]


@pytest.fixture(scope="module")
def servable():
    return serving_models.servable("reranker")


def test_answers_are_those_of_training_on_hard_strings(servable):
    assert isinstance(servable, Reranker)
    assert servable.text_features == ("query", "text")
    found = serving_models.differences(
        "reranker", servable, servable.hard_texts()
    )
    assert set(found) == {
        *("examples", "ids", "ids_examples", "serving_default"),
    }
    for difference, where in found.values():
        assert difference < 1e-5, where


def test_scores_are_the_models_logits(servable):
    queries, texts = zip(*PAIRS)
    logits = servable.model(servable.preprocessor((queries, texts))).numpy()
    assert logits.shape == (3, 1)
    signature = serving_models.loaded("reranker").signatures["serving_default"]
    found = signature(query=np.array(queries), text=np.array(texts))
    np.testing.assert_allclose(found["scores"], logits[:, 0], atol=1e-5)
    np.testing.assert_allclose(
        found["probabilities"], 1 / (1 + np.exp(-logits[:, 0])), atol=1e-6
    )


def test_files_of_the_task_are_read_as_training_reads_them(servable, tmp_path):
    rows = {"query": "a", "positive": "b c", "negatives": ["é"]}
    path = tmp_path / "dev.jsonl"
    path.write_text(json.dumps(rows))
    pairs = [(b"a", b"b c"), (b"a", "é".encode())]
    assert servable.read_texts(path) == pairs
    path = tmp_path / "dev.tsv"
    path.write_text("label\tquery\ttext\n1\ta\tb c\n0\ta\té\n")
    assert servable.read_texts(path) == pairs
    path = tmp_path / "pairs.txt"
    path.write_text("a\tb c\na\té\n")
    assert servable.read_texts(path) == pairs


def test_classifiers_of_one_output_are_served_too(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(serving_models.model_dir("regression"), folder)
    (folder / "task.json").unlink()
    options = ExportOptions(kind="reranker")
    servable = opening.open_folder(folder, options)
    assert isinstance(servable, Reranker)
    assert servable.task is None
    assert isinstance(opening.open_folder(folder), Classification)
    # As sentence-transformers writes it, without being told.
    path = folder / "config_sentence_transformers.json"
    path.write_text('{"model_type": "CrossEncoder"}')
    assert isinstance(opening.open_folder(folder), Reranker)
    model, _, task = bert_tf.load(folder)
    assert isinstance(model, BertClassifier)
    assert task == RerankingTask()
    path.write_text('{"prompts": {"q": "q: "}, "default_prompt_name": "q"}')
    with pytest.raises(ValueError, match="must be null in a reranker"):
        opening.open_folder(folder, options)


IDENTITY = "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize(
    "values",
    [
        # Of sentence-transformers 4 and 5, and of those before.
        {
            "sentence_transformers": {
                "activation_fn": IDENTITY,
                "version": "4.1.0",
            },
            "_attn_implementation_autoset": True,
        },
        {"sbert_ce_default_activation_function": IDENTITY},
    ],
)
def test_cross_encoders_of_all_releases_are_found(tmp_path, values):
    folder = tmp_path / "model"
    shutil.copytree(serving_models.model_dir("regression"), folder)
    (folder / "task.json").unlink()
    expected = bert_tf.load(folder).model
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    servable = opening.open_folder(folder)
    assert isinstance(servable, Reranker)
    assert servable.task == RerankingTask()
    inputs = servable.encode(PAIRS)
    found = servable.trained_answers(inputs, PAIRS)["scores"]
    np.testing.assert_allclose(found, expected(inputs)[:, 0], atol=1e-6)


@pytest.mark.parametrize("kind", ["pair", "encoder"])
def test_other_models_are_refused(tmp_path, kind):
    folder = tmp_path / "model"
    shutil.copytree(serving_models.model_dir(kind), folder)
    (folder / "task.json").unlink(missing_ok=True)
    with pytest.raises(ValueError, match="must be a classifier of one output"):
        opening.open_folder(folder, ExportOptions(kind="reranker"))


SCORES = """
import json, sys
import torch
from sentence_transformers import CrossEncoder
model = CrossEncoder(sys.argv[1], device="cpu")
if sys.argv[3:]:
    torch.manual_seed(1)
    model = CrossEncoder(sys.argv[1], device="cpu", num_labels=1)
    model.save_pretrained(sys.argv[3])
pairs = json.load(open(sys.argv[2], encoding="utf-8"))
print(json.dumps([
    model.predict(pairs, activation_fn=torch.nn.Identity()).tolist(),
    model.predict(pairs).tolist(),
]))
"""


def peer_scores(tmp_path, *arguments):
    pairs = [
        ["A man eats.", "Food is eaten, naïve café…"],
        ["who", "word " * 400],
    ]
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps(pairs), "utf-8")
    folder, *others = arguments
    printed = peers.run("-c", SCORES, folder, path, *others)
    rows = [tuple(text.encode() for text in pair) for pair in pairs]
    return rows, json.loads(printed.splitlines()[-1])


def assert_equal_scores(folder, rows, expected):
    servable = opening.open_folder(folder)
    assert isinstance(servable, Reranker)
    found = servable.trained_answers(servable.encode(rows), rows)
    for name, values in zip(("scores", "probabilities"), expected):
        np.testing.assert_allclose(found[name], values, atol=1e-5)


@pytest.mark.peers
def test_cross_encoders_of_sentence_transformers_score_as_there(tmp_path):
    folder = tmp_path / "theirs"
    rows, expected = peer_scores(tmp_path, peers.minilm(), folder)
    assert_equal_scores(folder, rows, expected)
    # And what we write of it, scored there.
    loaded = bert_tf.load(folder)
    assert loaded.task == RerankingTask()
    bert_tf.save(tmp_path / "ours", *loaded)
    rows, again = peer_scores(tmp_path, tmp_path / "ours")
    np.testing.assert_allclose(again, expected, atol=1e-5)
    assert_equal_scores(tmp_path / "ours", rows, expected)


def test_a_column_of_labels_is_refused_of_triplets(tmp_path, servable):
    path = tmp_path / "dev.tsv"
    path.write_text("query\tpositive\tnegative\nq\ta\tb\n")
    assert servable.read_dev_set(path).num_texts == 2
    with pytest.raises(ValueError, match="says itself where the labels are"):
        servable.read_dev_set(path, "gold")
    path.write_text("query\ttext\tlabel\tgold\nq\ta\t0\t1\nq\tb\t1\t0\n")
    answers = {"scores": [2.0, 1.0]}
    assert servable.read_dev_set(path).score(answers) == 0.5
    assert servable.read_dev_set(path, "gold").score(answers) == 1.0
