"""Pairs, triplets, scored pairs, NLI, SQuAD and texts, good and bad."""

import dataclasses
import json

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval.task import RetrievalTask

PAIRS = RetrievalTask()
SCORED = RetrievalTask(loss_name="cosent")
SIMCSE = RetrievalTask(loss_name="simcse")


def texts_of(examples):
    return [[examples.texts[text] for text in row] for row in examples.rows]


GROUPS = {
    "negative_2": ["d", "h"],
    "query": ["a", "e"],
    "negative_10": ["i", "j"],
    "positive": ["b", "f"],
}
ROWS = [["a", "b", "d", "i"], ["e", "f", "h", "j"]]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_groups_are_read_from_every_kind_of_file(tmp_path, suffix):
    path = tmp_path / f"train.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pyarrow.table(GROUPS), path)
    else:
        rows = [*zip(*GROUPS.values())]
        separator = "," if suffix == "csv" else "\t"
        lines = (
            [json.dumps(dict(zip(GROUPS, row))) for row in rows]
            if suffix == "jsonl"
            else [separator.join(row) for row in [[*GROUPS], *rows]]
        )
        path.write_text("\n".join(lines) + "\n")
    assert texts_of(PAIRS.read(path, "train")) == ROWS
    dev = PAIRS.read(str(path), "dev")
    assert dev.is_ranking
    assert dev.labels is None


@pytest.mark.parametrize("name", ["negative1", "negative-1", "negative_1"])
def test_negatives_have_one_rule_of_names(name):
    table = {"query": ["a"], "positive": ["b"], name: ["c"]}
    assert texts_of(PAIRS.read(table, "train")) == [["a", "b", "c"]]
    for other in ("negative_score", "Negative", "hard_negative", "negatives"):
        with pytest.raises(ValueError, match=f"Received: '{other}'"):
            PAIRS.read(table | {other: ["0.7"]}, "train")
    named = RetrievalTask(text_columns=("query", "positive", "Negative"))
    found = named.read(table | {"Negative": ["d"]}, "train")
    assert texts_of(found) == [["a", "b", "d"]]


def test_names_of_columns_are_given():
    task = RetrievalTask(text_columns=("negative_2", "query"))
    examples = task.read(GROUPS, "train")
    assert texts_of(examples) == [["d", "a"], ["h", "e"]]
    anchors = {"anchor": ["a"], "positive": ["b"]}
    assert texts_of(PAIRS.read(anchors, "train")) == [["a", "b"]]


def test_scored_pairs():
    table = {
        "sentence1": ["a", "b"],
        "sentence2": ["c", "a"],
        "score": ["5", 2.5],
    }
    task = RetrievalTask(loss_name="cosine", max_score=5)
    for split in ("train", "dev"):
        examples = task.read(table, split)
        assert texts_of(examples) == [["a", "c"], ["b", "a"]]
        np.testing.assert_allclose(examples.labels, [1, 0.5])
    assert examples.texts == ("a", "c", "b")
    with pytest.raises(ValueError, match="`corpus_file` must not.*'more.txt'"):
        RetrievalTask(loss_name="cosine", corpus_file=("more.txt",)).read(
            table, "dev"
        )
    del table["score"]
    assert task.read(table, "test").labels is None
    with pytest.raises(ValueError, match="must be one of recall@1.*spearman"):
        task.read(table, "dev")


@pytest.mark.parametrize(
    ("loss_name", "names", "table"),
    [
        ("simcse", ("sentence",), {"sentence": ["a", "b"]}),
        ("multiple_negatives", ("q", "p"), {"q": ["a"], "p": ["b"]}),
        (
            "triplet",
            ("q", "p", "n"),
            {"q": ["a"], "p": ["b"], "n": ["c"]},
        ),
    ],
)
def test_pairs_may_have_other_columns_than_the_training(
    loss_name, names, table
):
    task = RetrievalTask(
        loss_name=loss_name, text_columns=names, metric="spearman"
    )
    assert len(task.read(table, "train")) == len(table[names[0]])
    sts = {"sentence1": ["a"], "sentence2": ["c"], "score": [0.5]}
    for split, labels in (("dev", [0.5]), ("test", None)):
        examples = task.read(sts, split)
        assert texts_of(examples) == [["a", "c"]]
        assert labels is None or examples.labels.tolist() == labels
        # Where the table has them too, they are the ones.
        if len(names) > 1:
            both = {names[0]: ["x"], names[1]: ["y"]} | sts
            assert texts_of(task.read(both, split)) == [["x", "y"]]


def test_scores_that_are_no_cosines_are_refused():
    table = {"sentence1": ["a", "b"], "sentence2": ["c", "c"]}
    table["score"] = [-0.5, 2.5]
    task = RetrievalTask(loss_name="cosine")
    with pytest.raises(ValueError) as error:
        task.read(table, "train")
    assert str(error.value) == (
        "the data: with the loss cosine, scores must be from -1 to 1 when "
        "divided by `max_score`. Received: 2.5, max_score=1."
    )
    # Their order is all that counts elsewhere.
    assert task.read(table, "dev").labels.tolist() == [-0.5, 2.5]
    scaled = dataclasses.replace(task, max_score=2.5)
    labels = scaled.read(table, "train").labels
    assert labels.tolist() == pytest.approx([-0.2, 1.0], rel=1e-6)
    other = RetrievalTask(loss_name="cosent")
    assert other.read(table, "train").labels.tolist() == [-0.5, 2.5]


@pytest.mark.parametrize("loss_name", ["multiple_negatives", "triplet"])
@pytest.mark.parametrize(
    "names",
    [
        ("sentence1", "sentence2", "score"),
        ("query", "positive", "label"),
        ("anchor", "positive", "score"),
    ],
)
def test_scores_that_a_loss_does_not_read_are_refused(loss_name, names):
    table = dict(zip(names, (["a"], ["b"], [0])))
    task = RetrievalTask(loss_name=loss_name)
    with pytest.raises(ValueError, match=f"scores in the column '{names[2]}"):
        task.read(table, "train")
    # Who names the columns knows.
    named = RetrievalTask(text_columns=names[:2])
    assert texts_of(named.read(table, "train")) == [["a", "b"]]


def test_scores_under_another_name_are_refused_too():
    table = {"query": ["a"], "positive": ["b"], "rating": [0.5]}
    assert texts_of(PAIRS.read(table, "train")) == [["a", "b"]]
    with pytest.raises(ValueError, match="scores in the column 'rating'"):
        PAIRS.read(table, "train", "rating")
    with pytest.raises(ValueError, match="scores in the column 'label'"):
        PAIRS.read({"query": ["a"], "positive": ["b"], "label": [0]}, "dev")


def test_nli_becomes_triplets(tmp_path):
    path = tmp_path / "snli.tsv"
    rows = [
        ("sentence1", "sentence2", "gold_label"),
        ("p", "e1", "entailment"),
        ("p", "c1", "contradiction"),
        ("q", "e9", "entailment"),
        ("p", "n1", "neutral"),
        ("p", "e2", "entailment"),
        ("p", "e3", "entailment"),
        ("p", "c2", "contradiction"),
        ("q", "x", "-"),
    ]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    assert texts_of(PAIRS.read(path, "train")) == [
        ["p", "e1", "c1"],
        ["p", "e2", "c2"],
        ["p", "e3", "c1"],
    ]
    with open(path, "a") as stream:
        print("p", "e2", "contradiction", sep="\t", file=stream)
        print("p", "p", "contradiction", sep="\t", file=stream)
    # What is an entailment too is no negative.
    assert [row[2] for row in texts_of(PAIRS.read(path, "train"))] == [
        *("c1", "c2", "c1")
    ]
    table = {"premise": ["p", "p"], "hypothesis": ["e", "c"], "label": [0, 2]}
    assert texts_of(PAIRS.read(table, "train")) == [["p", "e", "c"]]
    with pytest.raises(ValueError, match="row 2: `label` must be entailment"):
        PAIRS.read(table | {"label": [0, 3]}, "train")
    with pytest.raises(ValueError, match="no premise has both"):
        PAIRS.read(table | {"label": [0, 1]}, "train")


def write_squad(path, contexts):
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{context}{number}",
                    "question": question,
                    "answers": [{"text": context[:1], "answer_start": 0}],
                }
                for number, question in enumerate(questions)
            ],
        }
        for context, questions in contexts.items()
    ]
    data = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data))
    return path


def test_questions_of_squad_have_their_paragraphs(tmp_path):
    path = write_squad(
        tmp_path / "dev.json", {"alpha": ["q", "r"], "beta": "s"}
    )
    (tmp_path / "more.txt").write_text("gamma\n\nalpha\n")
    task = RetrievalTask(corpus_file=(str(tmp_path / "more.txt"),))
    examples = task.read(path, "dev")
    assert texts_of(examples) == [["q", "alpha"], ["r", "alpha"], ["s", "beta"]]
    others = {examples.texts[text] for text in examples.others}
    assert others == {"alpha", "beta", "gamma"}
    assert texts_of(PAIRS.read(path, "train")) == texts_of(examples)


def test_passages_of_a_beir_corpus_are_those_of_a_search(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [
        {"_id": "1", "title": "Alpha", "text": "first"},
        {"_id": "2", "title": "Beta", "text": ""},
        {"_id": "3", "text": "third"},
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = RetrievalTask(corpus_file=(str(path),))
    examples = task.read({"query": ["q"], "positive": ["third"]}, "dev")
    others = {examples.texts[text] for text in examples.others}
    assert others == {*corpora.read_corpus(path).texts}
    assert others == {"Alpha first", "Beta", "third"}
    # A table that has no such ids.
    path.write_text('{"_id": 1, "title": "Alpha", "text": "first"}\n')
    examples = task.read({"query": ["q"], "positive": ["third"]}, "dev")
    assert {examples.texts[text] for text in examples.others} == {"first"}


def test_texts_are_their_own_positives(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text("a b\n\nc\n")
    assert texts_of(SIMCSE.read(path, "train")) == [["a b"] * 2, ["c"] * 2]
    table = {"text": ["a b", "c"]}
    assert texts_of(SIMCSE.read(table, "train"))[1] == ["c", "c"]


@pytest.mark.parametrize(
    ("task", "data", "message"),
    [
        (PAIRS, {"query": ["a"]}, "two columns of texts or more.*Received"),
        (
            RetrievalTask(text_columns=("query",)),
            {"query": ["a"]},
            r"two columns of texts or more.*Received: \['query'\]",
        ),
        (
            PAIRS,
            {"query": ["a", "b"], "positive": ["c", " "]},
            "row 2: `positive` must not be empty",
        ),
        (
            PAIRS,
            {"query": ["a"], "positive": [None]},
            "row 1: `positive` must be a string",
        ),
        (
            SCORED,
            {"sentence1": ["a"], "sentence2": ["b"], "score": ["high"]},
            "row 1: the score must be a number. Received: 'high'",
        ),
        (
            RetrievalTask(loss_name="cosent", text_columns=("a", "score")),
            {"a": ["1"], "score": ["2"]},
            "labels must be none of the texts'. Received: 'score' for both",
        ),
        (
            SCORED,
            {"sentence1": ["a"], "sentence2": ["b"], "score": [-1e39]},
            "row 1: the score must be a number that float32 holds",
        ),
        (
            SCORED,
            {"sentence1": ["a"], "sentence2": ["b"], "score": [True]},
            "row 1: the score must be a number",
        ),
        (
            SCORED,
            {"sentence1": ["a"], "sentence2": ["b"], "score": [None]},
            "row 1: the score must be a number. Received: None",
        ),
        (
            SCORED,
            {"sentence1": ["a"], "sentence2": ["b"]},
            "must have a column 'score'",
        ),
        (
            PAIRS,
            {"query": ["a"], "positive": ["b"], "negative": ["b"]},
            "row 1: `negative` must be neither the query nor its positive",
        ),
        (SIMCSE, {"text": ["a", ""]}, "row 2: `text` must not be empty"),
        (
            RetrievalTask(loss_name="triplet"),
            {"query": ["a"], "positive": ["b"]},
            "must have a negative",
        ),
    ],
)
def test_bad_data_are_told(task, data, message):
    with pytest.raises(ValueError, match=message):
        task.read(data, "train")


def test_a_task_of_another_family_is_told_by_its_name():
    with pytest.raises(ValueError, match="`family` must be 'retrieval'. Rec"):
        RetrievalTask.from_dict(RerankingTask().to_dict())


@pytest.mark.parametrize("columns", ["query", (3,)])
def test_names_of_columns_are_names(columns):
    with pytest.raises(ValueError, match="--text_columns must be names"):
        RetrievalTask(text_columns=columns)
