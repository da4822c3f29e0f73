"""Exact search by blocks: against sorting all scores of plain loops."""

import numpy as np
import pytest

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


def test_the_corpus_is_read_once_in_blocks(small_blocks):
    class Files:
        shape = (25, 4)
        read = []

        def __getitem__(self, index):
            self.read.append(index)
            return integers(25, 2)[index]

    files = Files()
    search.top_k(integers(8, 1), files, 3, "dot")
    assert files.read == [slice(n, n + 7) for n in (0, 7, 14, 21)]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((integers(2, 0), integers(5, 0), 6), "from 1 to 5.*Received: k=6"),
        ((integers(2, 0), integers(5, 0), 0), "from 1 to 5.*Received: k=0"),
        ((integers(2, 0)[:, 1:], integers(5, 0), 1), r"\(2, 3\), \(5, 4\)"),
        ((integers(2, 0), integers(5, 0), 1, "l2"), "cosine, dot.*'l2'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        search.top_k(*arguments)
