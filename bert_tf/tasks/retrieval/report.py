"""The report of sentence embeddings: where they are worst."""

import dataclasses

import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.retrieval.files import RetrievalExamples

# How many found passages a report shows for a query.
NUM_FOUND = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranking:
    """How the passages of a set rank for its queries.

    Args:
        queries: int `[Q]`, indices of texts.
        relevant: For each query, the text indices of its passages, int `[R]`.
        ranks: For each query, their ranks among all passages, int `[R]`.
        found: int `[Q, K]`, text indices of the first passages.
        similarities: float `[Q, K]`, their cosines.
        scores: {name in `ranking.QUERY_SCORES`: float `[Q]`}.
    """

    queries: np.ndarray
    relevant: list[np.ndarray]
    ranks: list[np.ndarray]
    found: np.ndarray
    similarities: np.ndarray
    scores: dict[str, np.ndarray]


def of_ranking(
    examples: RetrievalExamples, answers: Ranking
) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`: the worst queries.

    Args:
        examples: The examples.
        answers: The `Ranking`.
    """
    best = np.array([each.min() for each in answers.ranks])
    rows = []
    for row in tables.worst(best, best > 1):
        relevant, ranks = answers.relevant[row], answers.ranks[row]
        found = tables.Markdown(
            "<br>".join(
                f"{similarity:.3f} {tables.quote(examples.texts[text])}"
                for text, similarity in zip(
                    answers.found[row], answers.similarities[row]
                )
            )
        )
        rows.append(
            (
                examples.texts[answers.queries[row]],
                examples.texts[relevant[np.argmin(ranks)]],
                int(best[row]),
                found,
            )
        )
    header = ("query", "its passage", "rank", "found first, with their cosines")
    counts = [
        (k, int(np.sum(best <= k)), float(np.mean(best <= k)))
        for k in (1, 10, 100)
    ]
    return [
        (
            "Ranks",
            tables.table(
                ("a passage among the first", "queries", "share"), counts
            ),
        ),
        ("Worst queries", tables.errors_table(header, rows)),
    ]


def of_scores(
    examples: RetrievalExamples, cosines: np.ndarray
) -> list[tuple[str, str]]:
    """Returns the sections for scored pairs: the pairs that rank worst.

    A pair is worse the farther its place in the order of cosines is from its
    place in the order of scores. Equal values share a range of places.

    Args:
        examples: The examples, with labels.
        cosines: float `[N]`.
    """
    assert examples.labels is not None
    (first, last), (first_found, last_found) = map(
        _places, (examples.labels, cosines)
    )
    gaps = np.maximum(first - last_found, first_found - last)
    is_low = first > last_found
    places = (
        np.where(is_low, first, last),
        np.where(is_low, last_found, first_found),
    )
    rows = [
        (
            *(examples.texts[text] for text in examples.rows[row]),
            float(examples.labels[row]),
            float(cosines[row]),
            f"{places[0][row]:.0%} and {places[1][row]:.0%}",
        )
        for row in tables.worst(gaps, gaps > 0)
    ]
    header = ("text", "text", "score", "cosine", "place in the order of both")
    return [("Worst pairs", tables.errors_table(header, rows))]


def _places(values):
    """Returns the first and last place of each value, from 0 to 1."""
    _, numbers, counts = np.unique(
        values, return_inverse=True, return_counts=True
    )
    last = np.cumsum(counts) - 1
    most = max(1, len(values) - 1)
    return (last - counts + 1)[numbers] / most, last[numbers] / most
