"""Evaluates a search: scores of every query, and a report."""

import dataclasses
import functools
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import atomic
from bert_tf import files
from bert_tf.tasks import tables
from bert_tf.tasks import tsv
from bert_tf.tasks.retrieval import ranking
from bert_tf.tasks.retrieval import search
from bert_tf.tasks.retrieval.corpora import Relevance
from bert_tf.tasks.retrieval.corpora import Texts
from bert_tf.tasks.retrieval.search_options import COSINE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The scores of queries over a corpus.

    Args:
        relevance: Which texts are relevant.
        rows: int64 `[Q]`: the queries that were scored, which are those with a
            relevant text.
        scores: {name in `ranking.QUERY_SCORES`: float64 `[Q]`}.
        ranks: int64 `[P]`, the ranks of the relevant pairs.
        similarities: float32 `[P]`, the similarities of the relevant pairs.
        first: int64 `[Q]`: the texts that were ranked first.
        first_similarities: float32 `[Q]`, their similarities.
    """

    relevance: Relevance
    rows: np.ndarray
    scores: Mapping[str, np.ndarray]
    ranks: np.ndarray
    similarities: np.ndarray
    first: np.ndarray
    first_similarities: np.ndarray

    @property
    def results(self) -> dict[str, float]:
        """The means of the scores, and the number of queries."""
        return ranking.means(self.scores) | {"queries": float(len(self.rows))}

    @functools.cached_property
    def best_ranks(self) -> np.ndarray:
        """int64 `[Q]`: each query's rank of the first relevant text."""
        return self.ranks[self.best_pairs]

    @functools.cached_property
    def best_pairs(self) -> np.ndarray:
        """int64 `[Q]`: the numbers of the pairs with these ranks."""
        pairs = self.relevance.by_query(np.arange(len(self.relevance)))
        return np.array([each[np.argmin(self.ranks[each])] for each in pairs])


def evaluate(
    relevance: Relevance,
    query_vectors: np.ndarray,
    corpus_vectors: search.Rows,
    similarity: str = COSINE,
    own_rows: np.ndarray | None = None,
) -> Evaluation:
    """Scores the search for the queries that have a relevant text.

    Args:
        relevance: Which texts are relevant.
        query_vectors: float `[Q, D]`.
        corpus_vectors: float `[N, D]`; read a few times, in order.
        similarity: See `search.top_k`.
        own_rows: int64 `[Q]`, from `find_own_rows`. As in BEIR, these texts
            are left out of the ranking. None leaves out nothing.
    """
    rows = relevance.queries
    judged = query_vectors[rows]
    places = np.searchsorted(rows, relevance.query_rows)
    vectors = judged, corpus_vectors
    pairs = (*vectors, places, relevance.corpus_rows, similarity)
    scores = search.pair_scores(*pairs)
    ranks = search.ranks(*pairs, scores)
    own = np.full(len(rows), -1) if own_rows is None else own_rows[rows]
    (left_out,) = np.nonzero(own >= 0)
    if len(left_out):
        own_scores = np.full(len(rows), -np.inf, np.float32)
        own_scores[left_out] = search.pair_scores(
            *vectors, left_out, own[left_out], similarity
        )
        others, texts = own_scores[places], own[places]
        is_before = (others == scores) & (texts < relevance.corpus_rows)
        ranks = ranks - ((others > scores) | is_before)
    # One more, in case the first is left out.
    k = min(1 + bool(len(left_out)), corpus_vectors.shape[0])
    similarities, first = search.top_k(*vectors, k, similarity)
    is_own = first[:, 0] == own
    similarities[is_own, 0] = similarities[is_own, -1]
    first[is_own, 0] = first[is_own, -1]
    return Evaluation(
        relevance=relevance,
        rows=rows,
        scores=ranking.score_queries(
            relevance.by_query(ranks), relevance.by_query(relevance.grades)
        ),
        ranks=ranks,
        similarities=scores,
        first=first[:, 0],
        first_similarities=similarities[:, 0],
    )


def find_own_rows(
    queries: Texts, corpus: Texts, relevance: Relevance | None = None
) -> np.ndarray:
    """Finds the texts that are the queries themselves.

    In some of BEIR's sets the queries are also in the corpus, under the same
    ids. A query is nearest to itself, which says nothing about the search.

    Args:
        queries, corpus: Texts with ids of their data set. The counted ids of
            `corpora.read_squad` do not identify texts.
        relevance: Which texts are relevant; None if unknown.

    Returns:
        int64 `[Q]`: the index of the text with the query's id, or -1 if there
        is none or it is one of the query's relevant texts.
    """
    places = {name: row for row, name in enumerate(corpus.ids)}
    own = np.array([places.get(name, -1) for name in queries.ids], np.int64)
    if relevance is None:
        return own
    is_own = relevance.corpus_rows == own[relevance.query_rows]
    own[relevance.query_rows[is_own]] = -1
    return own


def write_queries(
    path: files.AnyPath, evaluation: Evaluation, queries: Texts
) -> None:
    """Writes the scores of every query as a .tsv with a header."""
    rows = [
        # Ids come from JSON and may hold tabs and line ends.
        (
            " ".join(queries.ids[row].split()),
            *(f"{each:.6g}" for each in values),
        )
        for row, *values in zip(evaluation.rows, *evaluation.scores.values())
    ]
    tsv.write(path, [("query-id", *evaluation.scores), *rows])


def worst_queries(
    evaluation: Evaluation, queries: Sequence[str], corpus: Sequence[str]
) -> str:
    """Returns a Markdown table of the queries with the lowest ranks.

    It shows the relevant text that ranked highest, and the text that came
    first instead.

    Args:
        evaluation: The `Evaluation`.
        queries, corpus: The texts, or what stands for them in the table.
    """
    pairs, best = evaluation.best_pairs, evaluation.best_ranks
    rows = []
    for index in tables.worst(best, best > 1):
        pair = pairs[index]
        rows.append(
            (
                queries[evaluation.rows[index]],
                int(best[index]),
                corpus[evaluation.relevance.corpus_rows[pair]],
                float(evaluation.similarities[pair]),
                corpus[evaluation.first[index]],
                float(evaluation.first_similarities[index]),
            )
        )
    header = ("query", "rank", "relevant", "score", "first", "score")
    return tables.errors_table(header, rows)


def write_report(
    path: files.AnyPath,
    results: Mapping[str, float],
    settings: Mapping[str, Any],
    command: str,
    worst: str,
) -> None:
    """Writes report.md: scores, worst queries, settings and command.

    Args:
        path: The file.
        results: {name: score}.
        settings: {name: value}.
        command: The command that makes it again.
        worst: The result of `worst_queries`.
    """
    parts = ["# Search", tables.table(("result", "value"), results.items())]
    parts += ["## Worst queries", worst]
    parts += [
        "## Settings",
        tables.table(("setting", "value"), settings.items()),
        f"## Command\n\n```text\n{command}\n```",
    ]
    atomic.write_text(path, "\n\n".join(parts) + "\n")
