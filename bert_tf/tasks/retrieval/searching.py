"""A search from files to files: scores, hits, and hard negatives."""

import json
import shlex
import sys
from typing import NamedTuple

import numpy as np
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf.tasks.features import sentences
from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval import evaluation
from bert_tf.tasks.retrieval import mining
from bert_tf.tasks.retrieval import ranking
from bert_tf.tasks.retrieval import search
from bert_tf.tasks.retrieval import search_options
from bert_tf.tasks.retrieval import vectors
from bert_tf.tasks.retrieval.search_options import SearchOptions
from bert_tf.training import devices
from bert_tf.training import evaluation as results_files


class _Compared(NamedTuple):
    """Queries and a corpus, as vectors.

    Args:
        queries, corpus: The `corpora.Texts`.
        relevance: The `corpora.Relevance`, or None.
        query_vectors, corpus_vectors: Their vectors.
        similarity: How these are compared.
        own_rows: See `evaluation.find_own_rows`; all -1 for SQuAD.
    """

    queries: corpora.Texts
    corpus: corpora.Texts
    relevance: corpora.Relevance | None
    query_vectors: np.ndarray
    corpus_vectors: search.Rows
    similarity: str
    own_rows: np.ndarray


def run(options: SearchOptions) -> None:
    """Embeds texts, and scores, searches and mines as the options say.

    Raises:
        ValueError: If a file is damaged, or the options do not suit the files
            or the model; the message names the place.
    """
    # Read all files first: errors are found before anything is computed.
    texts = _read_texts(options)
    # The vectors' manifest records their precision, so float32 must not mean
    # TF32. --precision=bfloat16 is there for speed.
    devices.set_arithmetic(tf32=False, deterministic=False)
    is_exact = options.precision == "float32"
    embedder = sentences.open_embedder(
        str(options.model_dir),
        pooling=options.pooling,
        normalize=options.normalize,
        max_seq_length=options.max_seq_length,
        dtype="float32" if is_exact else "mixed_bfloat16",
    )
    similarity = _similarity(options, embedder)
    # Raises if a file is in the way, before vectors are computed for hours.
    files.make_folder(options.results_dir)
    compared = _compare(options, embedder, similarity, *texts)
    if options.do_eval:
        # Before mining, which fails if the rules allow no negative.
        _evaluate(options, embedder, compared)
    if options.do_search:
        _search(options, compared)
    if options.do_mine:
        _mine(options, compared)


def _read_texts(options):
    """Returns queries, corpus and relevance, which may be None."""
    relevance = None
    if options.squad_files:
        queries, corpus, relevance = corpora.read_squad(options.squad_files)
    else:
        corpus = corpora.read_corpus(options.corpus_file)
        queries = corpora.read_queries(options.queries_file)
        if options.relevance_file:
            relevance = corpora.read_relevance(
                options.relevance_file, queries, corpus
            )
    if options.do_eval:
        path = options.corpus_file or options.squad_files[0]
        ranking.check_can_rank(f"{path}: the texts of the corpus", len(corpus))
    if options.do_search and options.top_k > len(corpus):
        raise ValueError(
            f"--top_k must be at most {len(corpus)}, the texts of the corpus. "
            f"Received: --top_k={options.top_k}."
        )
    return queries, corpus, relevance


def _similarity(options, embedder):
    """Returns how vectors are compared."""
    known = search_options.SIMILARITIES
    similarity = embedder.vectors.similarity
    if similarity not in known:
        raise ValueError(
            f"{options.model_dir}: `similarity_fn_name` must be one of "
            f"{', '.join(known)}. Received: {messages.shortened(similarity)}."
        )
    return similarity


def _compare(options, embedder, similarity, queries, corpus, relevance):
    """Returns the `_Compared` texts."""
    if not options.do_search:
        queries, relevance = corpora.only_judged(queries, relevance)
    if options.squad_files:
        # Paragraphs have only numbers as ids, which no question has.
        own_rows = np.full(len(queries), -1)
    else:
        own_rows = evaluation.find_own_rows(queries, corpus, relevance)
    if num_own := int(np.count_nonzero(own_rows >= 0)):
        logging.info(
            "%s in the corpus under the same id, and not ranked there.",
            messages.counted(num_own, "query is", "queries are"),
        )
    query_vectors, corpus_vectors = _compute(options, embedder, queries, corpus)
    return _Compared(
        queries,
        corpus,
        relevance,
        query_vectors,
        corpus_vectors,
        similarity,
        own_rows,
    )


def _compute(options, embedder, queries, corpus):
    """Returns the vectors of the queries, an array, and of the corpus."""
    stored = embedder.vectors
    wanted = []
    for name, texts, prompt, default in (
        (
            "queries" if options.do_search else "judged_queries",
            queries,
            options.query_prompt,
            stored.query_prompt,
        ),
        ("corpus", corpus, options.passage_prompt, stored.passage_prompt),
    ):
        folder = f"{options.work_dir.rstrip('/')}/{name}"
        prompt = default if prompt is None else prompt
        wanted.append((folder, texts, embedder.with_prompt(prompt), name))
    # Check both before computing either: if the second is refused, no vectors
    # must be left of the first.
    for folder, texts, prompted, _ in wanted:
        vectors.check(folder, texts, prompted)
    queries, corpus = (
        vectors.compute(
            folder, texts, prompted, options.batch_size, name.replace("_", " ")
        )
        for folder, texts, prompted, name in wanted
    )
    return queries[:], corpus


def _evaluate(options, embedder, compared):
    """Writes and prints the scores and their report."""
    folder = options.results_dir
    queries, corpus, relevance, *others = compared
    found = evaluation.evaluate(relevance, *others)
    path = f"{folder}/{search_options.QUERIES_FILE}"
    evaluation.write_queries(path, found, queries)
    results = found.results | {"texts": float(len(corpus))}
    titles = [*map(": ".join, zip(queries.ids, queries.texts))]
    worst = evaluation.worst_queries(found, titles, corpus.texts)
    results_files.write_results(
        f"{folder}/{search_options.RESULTS_FILE}", results
    )
    path = f"{folder}/{search_options.REPORT_FILE}"
    settings = {
        "model": options.model_dir,
        "pooling": embedder.vectors.pooling,
        "normalized": embedder.vectors.is_normalized,
        "dimension": embedder.dimension,
        "max_seq_length": embedder.max_seq_length,
        "precision": options.precision,
        "similarity": compared.similarity,
    }
    # The command as it was given, so that it can be repeated.
    command = shlex.join(["python", *sys.orig_argv[1:]])
    evaluation.write_report(path, results, settings, command, worst)
    for name, value in results.items():
        print(f"{name} = {value:.6g}")
    logging.info("A report is in %s.", path)


def _search(options, compared):
    """Writes the best texts of every query as lines of JSON."""
    queries, corpus = compared.queries, compared.corpus
    # If a query's own text is left out, one more is needed. If there are no
    # more texts, that query has one hit fewer.
    has_own = bool((compared.own_rows >= 0).any())
    scores, found = search.top_k(
        compared.query_vectors,
        compared.corpus_vectors,
        min(options.top_k + has_own, len(corpus)),
        compared.similarity,
    )
    path = f"{options.results_dir}/{search_options.HITS_FILE}"
    with atomic.whole_stream(path) as stream:
        for name, text, own, row, row_scores in zip(
            queries.ids, queries.texts, compared.own_rows, found, scores
        ):
            hits = [
                {
                    "id": corpus.ids[index],
                    "score": round(float(score), 6),
                    "text": corpus.texts[index],
                }
                for index, score in zip(row, row_scores)
                if index != own
            ][: options.top_k]
            answer = {"query_id": name, "query": text, "hits": hits}
            stream.write(f"{json.dumps(answer, ensure_ascii=False)}\n")
    print(f"{messages.counted(len(queries), 'query', 'queries')} in {path}")


def _mine(options, compared):
    """Writes triplets to train on."""
    queries, corpus, relevance = compared[:3]
    triplets = mining.mine(
        queries,
        corpus,
        relevance,
        compared.query_vectors,
        compared.corpus_vectors,
        options,
        compared.similarity,
        compared.own_rows,
    )
    mining.write(options.triplets_path, triplets, queries, corpus)
    num_served = len({triplet[:2] for triplet in triplets})
    count = messages.counted(len(triplets), "triplet", "triplets")
    pairs = messages.counted(len(relevance), "pair", "pairs")
    print(f"{count} of {num_served} of {pairs} in {options.triplets_path}")
