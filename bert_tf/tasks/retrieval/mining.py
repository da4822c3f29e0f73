"""Hard negatives: texts that a model takes for an answer and that are none.

For each query the corpus is ranked by the model, and its relevant texts are
left out, with those that read the same or like the query. Queries that read the
same have the relevant texts of all of them. Of texts that read the same the
first counts. What is left is taken from a range of ranks, as the first are
often answers that nobody has marked, and only where it scores enough below the
relevant text (Qu et al. 2021, RocketQA; Moreira et al. 2024, NV-Retriever).
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
# Copies of texts that are looked through, beside the texts that are wanted.
_MOST_COPIES = 1000


def mine(
    queries: Texts,
    corpus: Texts,
    relevance: Relevance,
    query_vectors: np.ndarray,
    corpus_vectors: search.Rows,
    rules: search_options.Rules,
    similarity: str = search_options.COSINE,
    own_rows: np.ndarray | None = None,
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
        own_rows: int64 `[Q]`: of every query the text that is no negative and
            takes no rank, as of `evaluation.evaluate`; None for none.

    Raises:
        ValueError: As `search.top_k`.
    """
    if own_rows is None:
        own_rows = np.full(len(queries), -1)
    known = _known_answers(queries, corpus, relevance)
    # As many as these may stand before the others.
    copies = _counts(corpus, set().union(*known.values()))
    most = max(sum(copies[text] for text in texts) for texts in known.values())
    most += _num_repeated(corpus, rules.range_max) + np.any(own_rows >= 0)
    judged = query_vectors[relevance.queries]
    scores, found = search.top_k(
        judged,
        corpus_vectors,
        min(rules.range_max + most, len(corpus)),
        similarity,
    )
    right = search.pair_scores(
        judged,
        corpus_vectors,
        np.searchsorted(relevance.queries, relevance.query_rows),
        relevance.corpus_rows,
        similarity,
    )
    triplets = []
    # Query by query: of many, lists of all that was found would be too long.
    for query, right_rows, right_scores, row, row_scores in zip(
        relevance.queries.tolist(),
        relevance.by_query(relevance.corpus_rows),
        relevance.by_query(right),
        found,
        scores,
    ):
        others, seen = [], {*known[queries.texts[query]]}
        for text, score in zip(row.tolist(), row_scores.tolist()):
            if text != own_rows[query] and corpus.texts[text] not in seen:
                seen.add(corpus.texts[text])
                others.append((text, score))
        others = others[rules.range_min : rules.range_max]
        for positive, right_score in zip(
            right_rows.tolist(), right_scores.tolist()
        ):
            highest = rules.highest(right_score)
            good = [text for text, score in others if score <= highest]
            triplets += [
                (query, positive, text) for text in good[: rules.num_negatives]
            ]
    return triplets


def _known_answers(queries, corpus, relevance):
    """Returns {text of a query: texts that are none of its negatives}."""
    known: dict[str, set[str]] = {}
    for query, text in zip(relevance.query_rows, relevance.corpus_rows):
        # A question may be there twice, each time with another answer; and
        # where questions look for questions, it is in the corpus too.
        question = queries.texts[query]
        known.setdefault(question, {question}).add(corpus.texts[text])
    return known


def _num_repeated(corpus, num_texts):
    """Returns how many among the first `num_texts` texts may be copies.

    At most `_MOST_COPIES`: what is found for all queries is in memory.
    """
    # Numbers are smaller than a dictionary of a corpus. Two texts of one hash
    # only make it more.
    hashes = np.fromiter(map(hash, corpus.texts), np.int64, len(corpus))
    repeated = np.unique(hashes, return_counts=True)[1] - 1
    return min(int(np.sort(repeated)[-num_texts:].sum()), _MOST_COPIES)


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
    with files.whole_stream(path) as stream:
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
