"""The report of sentence embeddings: where they are worst."""

import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.retrieval import evaluation
from bert_tf.tasks.retrieval.evaluation import Evaluation
from bert_tf.tasks.retrieval.files import RetrievalExamples


def of_ranking(
    examples: RetrievalExamples, answers: Evaluation
) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`: the worst queries.

    Args:
        examples: The examples.
        answers: The `Evaluation` of their queries.
    """
    best = answers.best_ranks
    counts = [
        (k, int(np.sum(best <= k)), float(np.mean(best <= k)))
        for k in (1, 10, 100)
    ]
    header = ("a passage among the first", "queries", "share")
    queries, passages = (
        [examples.texts[text] for text in texts]
        for texts in (examples.queries, examples.passages)
    )
    return [
        ("Ranks", tables.table(header, counts)),
        ("Worst queries", evaluation.worst_queries(answers, queries, passages)),
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
