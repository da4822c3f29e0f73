"""Exact search of vectors: a block of the corpus and one of queries at a time.

The matrix of all queries and the whole corpus never exists. Besides the vectors
and the results, memory holds one block of the corpus (`CORPUS_BLOCK` x D
float32) and its scores with one block of queries (`QUERY_BLOCK` x
`CORPUS_BLOCK` float32, 8 MB), some of them twice. A corpus in files, such as
`vectors.Vectors`, is read once, in order.

Equal scores are in the order of the corpus, so the vectors determine the
result. Scores that are equal in exact arithmetic may still differ in the last
bit. They are computed in float32, even on GPUs with TF32.
"""

import contextlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import tensorflow as tf

from bert_tf import progress_bar
from bert_tf.tasks.retrieval.search_options import COSINE

CORPUS_BLOCK = 8192
QUERY_BLOCK = 256


class Rows(Protocol):
    """Vectors `[N, D]` that can be sliced: an array, or files."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: slice) -> np.ndarray: ...


def top_k(
    queries: Rows, corpus: Rows, k: int, similarity: str = COSINE
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the k texts with the highest scores for every query.

    Args:
        queries: float `[Q, D]`.
        corpus: float `[N, D]`.
        k: From 1 to N.
        similarity: "cosine", or "dot" for the dot product.

    Returns:
        The scores, float32 `[Q, k]`, descending; and the indices of the texts,
        int64 `[Q, k]`. Among equal scores the lower index comes first.
    """
    num_queries = queries.shape[0]
    scores = np.full((num_queries, k), -np.inf, np.float32)
    indices = np.zeros((num_queries, k), np.int64)
    for first, rows, block in _blocks(queries, corpus, similarity, "search"):
        values, places = tf.math.top_k(block, min(k, block.shape[1]))
        if not first:
            kept, found = _padded(values.numpy(), places.numpy(), k)
        else:
            # Earlier results have lower indices, so they come first.
            values = np.concatenate([scores[rows], values], axis=1)
            places = np.concatenate([indices[rows], places + first], axis=1)
            kept, order = tf.math.top_k(values, k)
            found = np.take_along_axis(places, order.numpy(), axis=1)
        scores[rows], indices[rows] = kept, found
    return scores, indices


def _padded(values, places, k):
    """Pads to `k` columns, because the first block may have fewer."""
    missing = [(0, 0), (0, k - values.shape[1])]
    return (
        np.pad(values, missing, constant_values=-np.inf),
        np.pad(places, missing),
    )


def ranks(
    queries: Rows,
    corpus: Rows,
    query_rows: np.ndarray,
    corpus_rows: np.ndarray,
    similarity: str = COSINE,
    scores: np.ndarray | None = None,
) -> np.ndarray:
    """Finds the ranks of texts for queries, in the whole corpus.

    Args:
        queries: float `[Q, D]`.
        corpus: float `[N, D]`.
        query_rows: int `[P]`: the query of each pair.
        corpus_rows: int `[P]`: the text whose rank is wanted.
        similarity: See `top_k`.
        scores: The result of `pair_scores` for these arguments, if it is
            known. It must be the same to the bit.

    Returns:
        int64 `[P]`, from 1; see `ranking`. The corpus is read once, or twice
        without `scores`.
    """
    order, sorted_queries, sorted_texts = _by_query(query_rows, corpus_rows)
    if scores is None:
        scores = pair_scores(
            queries, corpus, query_rows, corpus_rows, similarity
        )
    thresholds = np.asarray(scores)[order]
    counts = np.zeros(len(order), np.int64)
    for first, rows, block in _blocks(queries, corpus, similarity, "rank"):
        block = block.numpy()
        pairs = _pairs_of(sorted_queries, rows)
        # In parts, because a query may have many relevant texts.
        for start in range(pairs.start, pairs.stop, QUERY_BLOCK):
            part = slice(start, min(start + QUERY_BLOCK, pairs.stop))
            found = block[sorted_queries[part] - rows.start]
            threshold = thresholds[part, np.newaxis]
            counts[part] += np.count_nonzero(found > threshold, axis=1)
            is_before = (
                np.arange(first, first + found.shape[1])
                < (sorted_texts[part, np.newaxis])
            )
            counts[part] += np.count_nonzero(
                (found == threshold) & is_before, axis=1
            )
    ranks = np.empty(len(order), np.int64)
    ranks[order] = counts + 1
    return ranks


def pair_scores(
    queries: Rows,
    corpus: Rows,
    query_rows: np.ndarray,
    corpus_rows: np.ndarray,
    similarity: str = COSINE,
) -> np.ndarray:
    """Computes the scores of some pairs, as a search does.

    Args:
        queries, corpus, query_rows, corpus_rows, similarity: See `ranks`.

    Returns:
        float32 `[P]`. The corpus is read once.
    """
    order, sorted_queries, sorted_texts = _by_query(query_rows, corpus_rows)
    scores = np.zeros(len(order), np.float32)
    for first, rows, block in _blocks(queries, corpus, similarity, "score"):
        pairs = _pairs_of(sorted_queries, rows)
        columns = sorted_texts[pairs] - first
        is_here = (columns >= 0) & (columns < block.shape[1])
        lines = sorted_queries[pairs][is_here] - rows.start
        scores[order[pairs][is_here]] = block.numpy()[lines, columns[is_here]]
    return scores


def _by_query(query_rows, corpus_rows):
    """Returns an order by query, and the rows in this order."""
    query_rows, corpus_rows = np.asarray(query_rows), np.asarray(corpus_rows)
    order = np.argsort(query_rows, kind="stable")
    return order, query_rows[order], corpus_rows[order]


def _pairs_of(sorted_queries, rows):
    """Returns the slice of the pairs whose queries are in a block."""
    return slice(
        *(
            int(n)
            for n in np.searchsorted(sorted_queries, [rows.start, rows.stop])
        )
    )


def _blocks(
    queries: Rows, corpus: Rows, similarity: str, title: str
) -> Iterator[tuple[int, slice, tf.Tensor]]:
    """Yields (first text, slice of queries, their scores) of all blocks.

    The scores are a tensor `[queries, texts]`. For each query, blocks come in
    the order of the corpus.
    """
    starts = range(0, corpus.shape[0], CORPUS_BLOCK)
    with progress_bar.track(starts, title, len(starts), "block") as tracked:
        for first in tracked:
            texts = _prepared(corpus[first : first + CORPUS_BLOCK], similarity)
            for start in range(0, queries.shape[0], QUERY_BLOCK):
                rows = slice(start, min(start + QUERY_BLOCK, queries.shape[0]))
                block = _prepared(queries[rows], similarity)
                with _in_float32():
                    scores = tf.matmul(block, texts, transpose_b=True)
                yield first, rows, scores


@contextlib.contextmanager
def _in_float32():
    """Turns TF32 off: its 10-bit mantissa would reorder close scores."""
    was_on = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(was_on)


def _prepared(vectors, similarity):
    vectors = np.asarray(vectors, np.float32)
    if similarity == COSINE:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors = vectors / np.maximum(lengths, 1e-12)
    return vectors
