"""Hard negatives: texts that a model mistakes for answers.

For each query the model ranks the corpus. Left out are the query's relevant
texts, their copies, and copies of the query. Equal queries share their relevant
texts. Of equal texts only the first counts. Negatives come from a range of the
remaining ranks, because the first ones are often answers that nobody has
marked; and they must score sufficiently below the relevant text (Qu et al.
2021, RocketQA; Moreira et al. 2024, NV-Retriever).
"""

import json
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf.tasks.retrieval import search
from bert_tf.tasks.retrieval import search_options
from bert_tf.tasks.retrieval.corpora import Relevance
from bert_tf.tasks.retrieval.corpora import Texts

# The columns that retrieval training reads.
COLUMNS = ("anchor", "positive", "negative")
# Most extra texts that are searched to make up for copies.
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
    """Returns triplets of indices: (query, relevant text, negative).

    They are sorted by query and relevant text. Each such pair has up to
    `num_negatives` triplets, the negative with the highest score first.

    Args:
        queries, corpus: The texts.
        relevance: Which texts answer which queries.
        query_vectors, corpus_vectors: Their vectors. The vectors of the corpus
            are read twice.
        rules: Which texts are negatives.
        similarity: See `search.top_k`.
        own_rows: int64 `[Q]`, a text for each query that is left out of the
            ranking; see `evaluation.evaluate`. None leaves out nothing.
    """
    if own_rows is None:
        own_rows = np.full(len(queries), -1)
    known = _known_answers(queries, corpus, relevance)
    # The most texts that may have to be left out of a ranking.
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
    # One query at a time: lists of all results would take too much memory.
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
    """Returns {text of a query: texts that are not its negatives}."""
    known: dict[str, set[str]] = {}
    for query, text in zip(relevance.query_rows, relevance.corpus_rows):
        # A question may occur twice with different answers. If questions search
        # for questions, it is also in the corpus.
        question = queries.texts[query]
        known.setdefault(question, {question}).add(corpus.texts[text])
    return known


def _num_repeated(corpus, num_texts):
    """Returns how many copies may come with `num_texts` different texts.

    At most `_MOST_COPIES`, because the results of all queries are in memory.
    """
    # Hashes take less memory than a dictionary of the texts. A collision only
    # makes the number larger.
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
        path: The file, .jsonl or .tsv. It appears only when it is complete.
        triplets: The result of `mine`.
        queries, corpus: The texts.

    Raises:
        ValueError: If there are no triplets, the name has another ending, or a
            text for a .tsv has a tab or a line end.
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
    with atomic.whole_stream(path) as stream:
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
                    f".tsv; use a .jsonl. Received: {messages.shortened(text)}."
                )
        yield "\t".join(row) + "\n"
