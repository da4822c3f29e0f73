"""The task, its batches, and a tuning from files to scores."""

import dataclasses

import numpy as np
import pytest

from bert_tf import tuning
from bert_tf.checkpoints import sentence_folder
from bert_tf.models.reranker import BertReranker
from bert_tf.tasks.reranking import report
from bert_tf.tasks.reranking.files import Groups
from bert_tf.tasks.reranking.files import read_groups
from bert_tf.tasks.reranking.source import RerankingSource
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.text.preprocessor import Preprocessor
from support import serving_models

POINTWISE = RerankingTask()
SOFTMAX = RerankingTask(loss_name="softmax", num_negatives=2)
GROUPS = Groups(
    queries=("a b", "c"),
    texts=("a", "b c", "d", "e", "f", "g h i", "j"),
    group_ids=np.int32([0, 1, 0, 0, 1, 0, 0]),
    labels=np.int32([1, 1, 0, 0, 0, 0, 1]),
)
SCORES = np.float32([0.5, 2.0, 1.5, -1.0, 0.0, 0.5, -2.0])


def softmax_loss(right, wrong):
    return np.log(np.exp([right, *wrong]).sum()) - right


def test_losses_are_those_of_the_formulas():
    logits = np.float32([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
    labels = np.int32([[1, 0, 0], [1, 0, -1]])
    losses = np.asarray(SOFTMAX.losses(logits, labels))
    expected = [
        [softmax_loss(1.0, [-2.0, 0.5])],
        [softmax_loss(0.0, [3.0])],
    ]
    np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert SOFTMAX.weights(labels).shape == losses.shape
    losses = np.asarray(POINTWISE.losses(logits[:, :2], labels[:, :2]))
    shares = 1 / (1 + np.exp(-logits[:, :2]))
    expected = -np.log(np.where(labels[:, :2] == 1, shares, 1 - shares))
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert POINTWISE.weights(labels[:, :2]).shape == losses.shape


def test_results_are_of_the_ranks_and_of_all_texts():
    source = RerankingSource(examples=GROUPS, preprocessor=None)
    # Of the first query: 1.5 wrong, 0.5 wrong, 0.5 right, -1 wrong, -2 right.
    gain = (1 / np.log2(4) + 1 / np.log2(6)) / (1 + 1 / np.log2(3))
    wanted = {"eval_MRR@10": (1 / 3 + 1) / 2, "eval_nDCG@10": (gain + 1) / 2}
    for task in (POINTWISE, SOFTMAX):
        results = task.evaluate(source, SCORES[:, None], SCORES)
        loss = results.pop("eval_loss")
        assert results == pytest.approx(wanted)
        if task is SOFTMAX:
            wrong = [1.5, -1.0, 0.5]
            losses = [
                softmax_loss(0.5, wrong),
                softmax_loss(-2.0, wrong),
                softmax_loss(2.0, [0.0]),
            ]
        else:
            losses = np.logaddexp(0, SCORES) - GROUPS.labels * SCORES
        assert loss == pytest.approx(np.mean(losses), rel=1e-5)
    (_, counts), (_, worst) = report.sections(GROUPS, SCORES)
    assert counts.splitlines()[2:4] == [
        "| 1 | 1 | 0.5 |",
        "| 2 to 3 | 1 | 0.5 |",
    ]
    assert worst.splitlines()[2:] == ["| a b | 5 | 3 | a | 0.5 | d | 1.5 |"]


def test_scores_that_are_all_alike_put_no_text_first():
    # Files of `positive` have it before the negatives.
    groups = read_groups(
        {"query": ["a", "b"], "positive": ["c", "d"], "negative": ["e", "f"]}
    )
    scores = np.zeros(4, "float32")
    ranks = report.ranks_of(groups, scores)
    assert [each.tolist() for each in ranks] == [[2], [2]]
    _, (_, worst) = report.sections(groups, scores)
    assert worst.splitlines()[2] == "| a | 2 | 2 | c | 0 | e | 0 |"


def test_rows_to_train_on_have_one_right_text():
    source = RerankingSource(
        examples=GROUPS, preprocessor=None, seed=3, num_negatives=3
    )
    arrays = source.arrays
    assert arrays["contexts"] == ["a b", "a b", "c"]
    assert arrays["labels"].tolist() == [
        [1, 0, 0, 0],
        [1, 0, 0, 0],
        [1, 0, -1, -1],
    ]
    assert [row[0] for row in arrays["choices"]] == ["a", "j", "b c"]
    assert {*arrays["choices"][0][1:]} == {"d", "e", "g h i"}
    assert arrays["choices"][2][1:] == ["f", "", ""]
    one = dataclasses.replace(source, num_negatives=1)
    drawn = {
        dataclasses.replace(one, seed=seed).arrays["choices"][0][1]
        for seed in range(20)
    }
    assert drawn == {"d", "e", "g h i"}


def test_sources_are_of_the_split():
    preprocessor = Preprocessor.from_folder(serving_models.model_dir("encoder"))
    examples = {"train": GROUPS, "dev": GROUPS}
    sources = SOFTMAX.make_sources(examples, preprocessor, is_trimmed=True)
    assert sources["train"].num_examples == 3
    assert sources["dev"].num_examples == len(GROUPS)
    assert POINTWISE.make_sources(examples, preprocessor)["train"].arrays[
        "labels"
    ].tolist() == [[label] for label in GROUPS.labels]
    (batch,) = sources["train"].evaluation_batches(3)
    assert batch["input_ids"].shape[:2] == (3, 3)
    pairs = preprocessor([["a b"], ["a"]])
    length = int(pairs["input_mask"].numpy().sum())
    np.testing.assert_array_equal(
        batch["input_ids"][0, 0, :length], pairs["input_ids"][0, :length]
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            {"loss_name": "triplet"},
            "--loss_name must be one of pointwise, soft",
        ),
        ({"num_negatives": 0}, "--num_negatives must be from 1 to 1,000"),
        ({"num_negatives": True}, "--num_negatives must be an integer"),
    ],
)
def test_bad_fields_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RerankingTask(**arguments)


def test_groups_must_have_what_the_loss_wants():
    rows = {"query": ["a", "a"], "text": ["b", "c"]}
    right, wrong = (rows | {"label": [label] * 2} for label in (1, 0))
    assert len(POINTWISE.read(wrong, "train")) == 2
    for task, data, split in (
        (POINTWISE, wrong, "dev"),
        (SOFTMAX, wrong, "train"),
        (SOFTMAX, right, "train"),
    ):
        with pytest.raises(ValueError, match="every query must have a text"):
            task.read(data, split)
    assert SOFTMAX.read(rows, "test").labels is None


# The text that answers has the letter of the query.
LETTERS = "abcdefgh"
TABLE = {
    "query": [letter for letter in LETTERS for _ in range(4)],
    "text": [
        f"{LETTERS[(n + k) % 8]} lorem" for n in range(8) for k in range(4)
    ],
    "label": [1, 0, 0, 0] * 8,
}


# "softmax" is tuned in tests/test_run_reranker.py.
@pytest.mark.slow
def test_a_reranker_is_tuned_saved_and_scores(tmp_path):
    task = POINTWISE
    arguments = {"output_dir": str(tmp_path), "max_seq_length": 12}
    run = tuning.run(
        task,
        train=TABLE,
        dev=TABLE,
        test=TABLE,
        start=serving_models.model_dir("encoder"),
        train_batch_size=8,
        learning_rate=1e-3,
        num_train_epochs=1.0,
        **arguments,
    )
    assert isinstance(run.model, BertReranker)
    assert 0 < run.results["eval_MRR@10"] <= 1
    scores = np.array([answer["score"] for answer in run.answers["test"]])
    groups = read_groups(TABLE)
    ranks = report.ranks_of(groups, scores)
    assert run.results["eval_MRR@10"] == pytest.approx(
        np.mean([1 / each[0] for each in ranks])
    )
    table = np.loadtxt(tmp_path / "test_results.tsv", skiprows=1)
    np.testing.assert_allclose(table[:, 0], scores, rtol=1e-5)
    np.testing.assert_allclose(
        table[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-4
    )
    assert table[::4, 2].tolist() == [each[0] for each in ranks]
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# reranking: eval_MRR@10 ")
    assert "Worst queries" in text
    again = tuning.run(task, test=TABLE, **arguments)
    assert again.answers["test"] == [
        {"score": pytest.approx(score, abs=1e-6)} for score in scores
    ]


def test_a_cross_encoder_is_told_by_its_files(tmp_path):
    assert not sentence_folder.is_cross_encoder(str(tmp_path), {"id2label": {}})
    for key in (
        "sentence_transformers",
        "sbert_ce_default_activation_function",
    ):
        assert sentence_folder.is_cross_encoder(str(tmp_path), {key: None})
    (tmp_path / "config_sentence_transformers.json").write_text(
        '{"model_type": "CrossEncoder", "default_prompt_name": "query"}'
    )
    assert sentence_folder.is_cross_encoder(str(tmp_path), {})
    with pytest.raises(ValueError, match="`default_prompt_name` must be null"):
        sentence_folder.check_has_no_prompt(tmp_path)
