"""Hard negatives: texts that a model takes for an answer and that are none.

For each query the corpus is ranked by the model, and its relevant texts are
left out, with those that read the same. What is left is taken from a range of
ranks, as the first are often answers that nobody has marked, and only where it
scores enough below the relevant text (Qu et al. 2021, RocketQA; Moreira et al.
2024, NV-Retriever).
"""

import json
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from bert_tf import files
from bert_tf.tasks.retrieval import search
from bert_tf.tasks.retrieval import search_options
from bert_tf.tasks.retrieval.corpora import Relevance
from bert_tf.tasks.retrieval.corpora import Texts

# As retrieval's training reads them.
COLUMNS = ("anchor", "positive", "negative")


def mine(
    queries: Texts,
    corpus: Texts,
    relevance: Relevance,
    query_vectors: np.ndarray,
    corpus_vectors: search.Rows,
    rules: search_options.Rules,
    similarity: str = search_options.COSINE,
) -> list[tuple[int, int, int]]:
    """Returns (query, relevant text, negative), indices, in that order.

    A pair of `relevance` has up to `num_negatives` of them, the highest first.

    Args:
        queries, corpus: The texts.
        relevance: Which of them answer which.
        query_vectors, corpus_vectors: Their vectors; those of the corpus are
            read twice.
        rules: Which texts are negatives.
        similarity: As of `search.top_k`.

    Raises:
        ValueError: As `search.top_k`.
    """
    positives: dict[int, set[str]] = {}
    for query, text in zip(relevance.query_rows, relevance.corpus_rows):
        positives.setdefault(int(query), set()).add(corpus.texts[text])
    # As many as read like a relevant text may stand before the others.
    copies = _counts(corpus, set().union(*positives.values()))
    most = max(
        sum(copies[text] for text in texts) for texts in positives.values()
    )
    rows = relevance.queries
    judged = query_vectors[rows]
    scores, found = search.top_k(
        judged,
        corpus_vectors,
        min(rules.range_max + most, len(corpus)),
        similarity,
    )
    own = search.pair_scores(
        judged,
        corpus_vectors,
        np.searchsorted(rows, relevance.query_rows),
        relevance.corpus_rows,
        similarity,
    )
    triplets = []
    candidates: dict[int, list[tuple[int, float]]] = {}
    for query, row_scores, row in zip(rows.tolist(), scores, found):
        others = [
            (int(text), float(score))
            for text, score in zip(row, row_scores)
            if corpus.texts[text] not in positives[query]
        ]
        candidates[query] = others[rules.range_min : rules.range_max]
    for query, positive, score in zip(
        relevance.query_rows.tolist(), relevance.corpus_rows.tolist(), own
    ):
        highest = rules.highest(float(score))
        good = [text for text, other in candidates[query] if other <= highest]
        triplets += [
            (query, positive, text) for text in good[: rules.num_negatives]
        ]
    return triplets


def _counts(corpus, wanted):
    counts = dict.fromkeys(wanted, 0)
    for text in corpus.texts:
        if text in counts:
            counts[text] += 1
    return counts


def write(
    path: files.AnyPath,
    triplets: Sequence[tuple[int, int, int]],
    queries: Texts,
    corpus: Texts,
) -> None:
    """Writes triplets to train on: `anchor`, `positive` and `negative`.

    Args:
        path: The file, .jsonl or .tsv; whole or not at all.
        triplets: What `mine` returned.
        queries, corpus: The texts.

    Raises:
        ValueError: If there are none, or the name ends with neither, or a text
            has a tab or a line end and it is a .tsv.
    """
    if not triplets:
        raise ValueError(
            "No negative was found for any pair: the ranks or margins allow "
            f"none. Nothing is written to {path}."
        )
    search_options.check_triplets_file(path)
    make = _tsv_lines if str(path).endswith(".tsv") else _json_lines
    rows = (
        (queries.texts[query], corpus.texts[positive], corpus.texts[negative])
        for query, positive, negative in triplets
    )
    with (
        files.whole_file(path) as temporary,
        files.local_target(temporary) as local,
        open(local, "w", encoding="utf-8", newline="") as stream,
    ):
        stream.writelines(make(path, rows))


def _json_lines(path, rows) -> Iterator[str]:
    del path
    for row in rows:
        values = dict(zip(COLUMNS, row))
        yield f"{json.dumps(values, ensure_ascii=False)}\n"


def _tsv_lines(path, rows) -> Iterator[str]:
    yield "\t".join(COLUMNS) + "\n"
    for row in rows:
        for text in row:
            if {*"\t\r\n"} & {*text}:
                raise ValueError(
                    f"{path}: a text must not have tabs or line ends in a "
                    f".tsv; take a .jsonl. Received: {files.shortened(text)}."
                )
        yield "\t".join(row) + "\n"
