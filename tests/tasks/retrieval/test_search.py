"""Exact search by blocks: against sorting all scores of plain loops."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval import evaluation
from bert_tf.tasks.retrieval import ranking
from bert_tf.tasks.retrieval import search
from references import retrieval as reference


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks that end within both lists."""
    monkeypatch.setattr(search, "CORPUS_BLOCK", 7)
    monkeypatch.setattr(search, "QUERY_BLOCK", 3)


def integers(rows, seed):
    """Vectors of few values: scores are exact, and many are equal."""
    rng = np.random.default_rng(seed)
    return rng.integers(-1, 2, (rows, 4)).astype("float32")


@pytest.mark.parametrize("k", [1, 5, 9, 25])
def test_the_first_k_are_those_of_the_loops(small_blocks, k):
    queries, corpus = integers(8, 1), integers(25, 2)
    scores, indices = search.top_k(queries, corpus, k, "dot")
    assert scores.dtype == np.float32 and indices.dtype == np.int64
    for query, row, found in zip(queries, scores, indices):
        told = [reference.dot(query.tolist(), text) for text in corpus.tolist()]
        order = reference.ranking(told)[:k]
        assert found.tolist() == order
        assert row.tolist() == [told[index] for index in order]


def test_cosines_are_of_any_lengths(small_blocks):
    rng = np.random.default_rng(3)
    queries, corpus = rng.normal(size=(5, 4)), rng.normal(size=(19, 4))
    corpus *= rng.uniform(0.1, 9, (19, 1))
    scores, indices = search.top_k(queries, corpus, 19)
    for query, row, found in zip(queries, scores, indices):
        told = [reference.cosine(query, text) for text in corpus]
        assert found.tolist() == reference.ranking(told)
        np.testing.assert_allclose(row, sorted(told)[::-1], atol=1e-6)


def test_products_are_in_float32_where_others_may_be_in_tf32(monkeypatch):
    is_tf32 = tf.config.experimental.tensor_float_32_execution_enabled
    assert is_tf32()
    found = []
    multiply = tf.matmul

    def matmul(*arguments, **options):
        found.append(is_tf32())
        return multiply(*arguments, **options)

    monkeypatch.setattr(search.tf, "matmul", matmul)
    queries, corpus = integers(3, 4), integers(5, 5)
    search.top_k(queries, corpus, 2)
    search.ranks(queries, corpus, [0], [1])
    assert found == [False] * 3
    assert is_tf32()


def test_ranks_are_those_of_the_whole_list(small_blocks):
    queries, corpus = integers(8, 4), integers(25, 5)
    rng = np.random.default_rng(6)
    # One query has more pairs than fit into a block, one has none.
    rows = np.array([2] * 11 + [7, 0, 1, 3, 3, 4, 6])
    texts = rng.integers(0, 25, len(rows))
    found = search.ranks(queries, corpus, rows, texts, "dot")
    scores = queries @ corpus.T
    wanted = [
        ranking.ranks(scores[row], [text])[0] for row, text in zip(rows, texts)
    ]
    assert found.tolist() == wanted
    told = search.pair_scores(queries, corpus, rows, texts, "dot")
    assert told.tolist() == scores[rows, texts].tolist()


def test_the_corpus_is_read_once_in_blocks(small_blocks):
    class Files:
        shape = (25, 4)

        def __init__(self):
            self.read = []

        def __getitem__(self, index):
            self.read.append(index)
            return integers(25, 2)[index]

    files, queries = Files(), integers(8, 1)
    once = [slice(n, n + 7) for n in (0, 7, 14, 21)]
    search.top_k(queries, files, 3, "dot")
    assert files.read == once
    # An evaluation asks for scores, ranks, and what is first.
    files = Files()
    relevance = corpora.Relevance(
        query_rows=np.array([0, 5]),
        corpus_rows=np.array([3, 24]),
        grades=np.ones(2),
    )
    found = evaluation.evaluate(relevance, queries, files, "dot")
    assert files.read == once * 3
    told = (queries[[0, 5]] * integers(25, 2)[[3, 24]]).sum(axis=1)
    assert found.similarities.tolist() == told.tolist()


def test_a_query_in_the_corpus_is_not_ranked_for_itself(small_blocks):
    queries, texts = integers(8, 1), integers(25, 2)
    names = [f"c{n}" for n in range(25)]
    # Of these, one is not in the corpus and one is its own answer.
    own = ["c3", "c24", "q", "c8", "c0", "c5", "c17", "c12"]
    pairs = [(row, text) for row in range(8) for text in (4, 11, 19)]
    pairs.append((3, 8))
    query_rows, corpus_rows = np.array(sorted(pairs)).T
    relevance = corpora.Relevance(
        query_rows=query_rows,
        corpus_rows=corpus_rows,
        grades=np.ones(len(pairs)),
    )
    rows = evaluation.find_own_rows(
        corpora.Texts(ids=tuple(own), texts=("x",) * 8),
        corpora.Texts(ids=tuple(names), texts=("x",) * 25),
        relevance,
    )
    assert rows.tolist() == [3, 24, -1, -1, 0, 5, 17, 12]
    found = evaluation.evaluate(relevance, queries, texts, "dot", rows)
    scores = (queries @ texts.T).astype(float)
    scores[rows >= 0, rows[rows >= 0]] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")
    assert found.first.tolist() == order[:, 0].tolist()
    assert found.first_similarities.tolist() == scores.max(axis=1).tolist()
    ranks = np.argsort(order, axis=1)[query_rows, corpus_rows] + 1
    assert found.ranks.tolist() == ranks.tolist()
    plain = evaluation.evaluate(relevance, queries, texts, "dot")
    assert plain.ranks.sum() > ranks.sum()
