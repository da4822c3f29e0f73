"""Mined negatives: against a loop over every pair, and the files of them."""

import json
import math

import numpy as np
import pytest

from bert_tf.tasks import columns
from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval import mining
from bert_tf.tasks.retrieval.search_options import Rules
from references import retrieval as reference

GENERATOR = np.random.default_rng(11)
# The texts 3 and 7 read the same.
CORPUS = corpora.Texts(
    ids=tuple(f"t{n}" for n in range(12)),
    texts=tuple("same" if n in (3, 7) else f"text {n}" for n in range(12)),
)
QUERIES = corpora.Texts(ids=("a", "b", "c"), texts=("A", "B", "C"))
# The second query has none.
RELEVANCE = corpora.Relevance(
    query_rows=np.array([0, 0, 2]),
    corpus_rows=np.array([3, 5, 0]),
    grades=np.ones(3),
)
QUERY_VECTORS = GENERATOR.normal(size=(3, 4)).astype("float32")
CORPUS_VECTORS = GENERATOR.normal(size=(12, 4)).astype("float32")


def wanted_of(rules):
    """Returns the triplets, by the words of `Rules`."""
    triplets = []
    for query, positive in zip(RELEVANCE.query_rows, RELEVANCE.corpus_rows):
        scores = [
            reference.cosine(QUERY_VECTORS[query], text)
            for text in CORPUS_VECTORS
        ]
        own = {
            CORPUS.texts[text]
            for other, text in zip(RELEVANCE.query_rows, RELEVANCE.corpus_rows)
            if other == query
        }
        order = [
            text
            for text in reference.ranking(scores)
            if CORPUS.texts[text] not in own
        ]
        # Of texts that read the same the first.
        order = [
            text
            for place, text in enumerate(order)
            if CORPUS.texts[text]
            not in {CORPUS.texts[other] for other in order[:place]}
        ]
        found = []
        for text in order[rules.range_min : rules.range_max]:
            score, best = scores[text], scores[positive]
            margin = rules.relative_margin
            if margin is not None and score > best - margin * abs(best):
                continue
            found.append((int(query), int(positive), text))
        triplets += found[: rules.num_negatives]
    return triplets


@pytest.mark.parametrize(
    "rules",
    [
        Rules(),
        Rules(num_negatives=100),
        Rules(num_negatives=2, range_min=3),
        Rules(num_negatives=9, range_min=1, range_max=4),
        Rules(num_negatives=3, relative_margin=0.5),
    ],
    ids=str,
)
def test_negatives_are_those_of_the_rules(rules):
    found = mining.mine(
        QUERIES, CORPUS, RELEVANCE, QUERY_VECTORS, CORPUS_VECTORS, rules
    )
    assert found == wanted_of(rules)
    # Nothing that reads like what is relevant.
    assert not {(0, text) for text in (3, 5, 7)} & {
        (query, text) for query, _, text in found
    }
    assert {query for query, _, _ in wanted_of(Rules())} == {0, 2}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_negatives": 0}, "--num_negatives must be positive"),
        ({"range_min": -1}, "--range_min must be from 0 to 99"),
        ({"relative_margin": math.inf}, "--relative_margin must be a finite"),
        ({"relative_margin": 1.0}, r"--relative_margin must be in \[0, 1\)"),
    ],
)
def test_wrong_rules(arguments, message):
    with pytest.raises(ValueError, match=message):
        Rules(**arguments)


@pytest.mark.parametrize("name", ["out.jsonl", "out.tsv"])
def test_files_are_tables_of_three_texts(tmp_path, name):
    path = tmp_path / name
    mining.write(path, [(0, 3, 1), (2, 0, 4)], QUERIES, CORPUS)
    rows = [values for _, values in columns.read(path, mining.COLUMNS)]
    assert [list(row) for row in rows] == [
        ["A", "same", "text 1"],
        ["C", "text 0", "text 4"],
    ]


def test_what_cannot_be_written(tmp_path):
    texts = corpora.Texts(ids=("0", "1"), texts=("a\tb", "é\n"))
    with pytest.raises(ValueError, match=r"tabs or line ends.*'a\\tb'"):
        mining.write(tmp_path / "out.tsv", [(0, 0, 1)], texts, texts)
    with pytest.raises(ValueError, match=r"end with .jsonl or .tsv"):
        mining.write(tmp_path / "out.csv", [(0, 0, 1)], texts, texts)
    with pytest.raises(ValueError, match="No negative was found"):
        mining.write(tmp_path / "out.jsonl", [], texts, texts)
    assert list(tmp_path.iterdir()) == []
    mining.write(tmp_path / "out.jsonl", [(0, 0, 1)], texts, texts)
    (line,) = (tmp_path / "out.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == dict(
        zip(mining.COLUMNS, ("a\tb", "a\tb", "é\n"))
    )


def test_the_query_itself_is_no_negative():
    corpus = corpora.Texts(ids=("0", "1", "2"), texts=("q", "p", "n"))
    found = mining.mine(
        corpora.Texts(ids=("q",), texts=("q",)),
        corpus,
        corpora.Relevance(
            query_rows=np.array([0]),
            corpus_rows=np.array([1]),
            grades=np.ones(1),
        ),
        np.float32([[1, 0]]),
        np.float32([[1, 0], [1, 1], [0, 1]]),
        Rules(range_max=1),
    )
    assert found == [(0, 1, 2)]


def relevance_of(*pairs):
    query_rows, corpus_rows = np.array(pairs).T
    return corpora.Relevance(
        query_rows=query_rows,
        corpus_rows=corpus_rows,
        grades=np.ones(len(pairs)),
    )


def test_a_question_that_is_there_twice_has_the_answers_of_both():
    queries = corpora.Texts(ids=("1", "2"), texts=("When?", "When?"))
    corpus = corpora.Texts(ids=("0", "1", "2"), texts=("P1", "P2", "N"))
    found = mining.mine(
        queries,
        corpus,
        relevance_of((0, 0), (1, 1)),
        np.float32([[1, 0], [1, 0]]),
        np.float32([[1, 0.1], [1, 0.2], [0, 1]]),
        Rules(range_max=1),
    )
    assert found == [(0, 0, 2), (1, 1, 2)]


def test_a_negative_is_there_once_however_often_the_corpus_has_it():
    texts = ("P", "dup", "dup", "dup", "other", "last")
    corpus = corpora.Texts(ids=tuple("012345"), texts=texts)
    arguments = (
        corpora.Texts(ids=("q",), texts=("Q",)),
        corpus,
        relevance_of((0, 0)),
        np.float32([[1, 0]]),
        np.float32([[1, 0], [3, 1], [3, 1], [3, 1], [2, 1], [1, 1]]),
    )
    # Copies take no ranks: the second text is the other one.
    for rules, wanted in (
        (Rules(num_negatives=2, range_max=2), [1, 4]),
        (Rules(num_negatives=3), [1, 4, 5]),
        (Rules(range_min=1, range_max=2), [4]),
    ):
        found = mining.mine(*arguments, rules)
        assert [text for _, _, text in found] == wanted


def test_the_text_of_the_query_s_id_is_no_negative_and_has_no_rank():
    texts = ("a title and Q", "P", "near", "far")
    found = mining.mine(
        corpora.Texts(ids=("own", "q"), texts=("Q", "R")),
        corpora.Texts(ids=("own", "1", "2", "3"), texts=texts),
        relevance_of((0, 1), (1, 1)),
        np.float32([[1, 0], [1, 0]]),
        np.float32([[1, 0], [3, 1], [2, 1], [1, 1]]),
        Rules(range_max=1),
        own_rows=np.array([0, -1]),
    )
    assert found == [(0, 1, 2), (1, 1, 0)]
