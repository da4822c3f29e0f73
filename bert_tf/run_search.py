r"""Searches a corpus by text vectors: scores, hits, and hard negatives.

    python -m bert_tf.run_search --model_dir=model --work_dir=vectors \
        --corpus_file=corpus.jsonl --queries_file=queries.jsonl \
        --relevance_file=qrels/test.tsv --do_eval

embeds corpus and queries (BEIR's files) into --work_dir, compares every query
with every text, and prints recall@1, 10 and 100, MRR@10, nDCG@10 and MAP. They
go into eval_results.txt, the scores of every query into query_scores.tsv, and
the worst queries into report.md. With --squad_files=dev.json,train.json, the
paragraph of each question in the first file is searched for among the
paragraphs of all files. --sts_file adds the correlation of similarities with
human scores.

--do_search writes the --top_k texts of every query as lines of JSON. --do_mine
writes triplets to train on: a query, its text, and a text that the model
mistakes for one. --num_negatives, --range_min, --range_max, --absolute_margin,
--relative_margin and --max_score say which texts these are.

The vectors are computed only once: a run that was stopped resumes where it was,
and later runs reuse them.
"""

import json
import os
import shlex
import sys

from absl import flags
from absl import logging

from bert_tf import files
from bert_tf import program
from bert_tf.tasks.features import options as feature_options
from bert_tf.tasks.retrieval import search_options

_MODEL_DIR = flags.DEFINE_string(
    "model_dir",
    None,
    "A model folder of sentence-transformers, bert_tf or Hugging Face, or the "
    "name of a model on the Hub.",
)
_WORK_DIR = flags.DEFINE_string(
    "work_dir",
    None,
    "Folder of the vectors; each model needs its own. Not needed with only "
    "--sts_file.",
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the results. Default: --work_dir."
)
_CORPUS_FILE = flags.DEFINE_string(
    "corpus_file", None, "BEIR's corpus.jsonl: _id, title, text."
)
_QUERIES_FILE = flags.DEFINE_string(
    "queries_file", None, "BEIR's queries.jsonl: _id, text."
)
_RELEVANCE_FILE = flags.DEFINE_string(
    "relevance_file",
    None,
    "BEIR's qrels: query-id, corpus-id, score, with tabs and a header.",
)
_SQUAD_FILES = flags.DEFINE_list(
    "squad_files",
    None,
    "SQuAD's files instead of --corpus_file, --queries_file and "
    "--relevance_file, comma-separated: the questions of the first file, the "
    "paragraphs of all.",
)
_STS_FILE = flags.DEFINE_string(
    "sts_file",
    None,
    "With --do_eval: pairs of texts with scores, .tsv, .csv, .jsonl or "
    ".parquet. --query_prompt is put before the first text and --corpus_prompt "
    "before the second. Default: the folder's default prompt before both.",
)
_STS_TEXT_COLUMNS = flags.DEFINE_list(
    "sts_text_columns", ["sentence1", "sentence2"], "Its two columns of texts."
)
_STS_SCORE_COLUMN = flags.DEFINE_string(
    "sts_score_column", "score", "Its column of scores."
)
_DO_EVAL = flags.DEFINE_bool("do_eval", False, "Whether to score the search.")
_DO_SEARCH = flags.DEFINE_bool(
    "do_search", False, "Whether to write the best texts for every query."
)
_DO_MINE = flags.DEFINE_bool("do_mine", False, "Whether to mine negatives.")
_TOP_K = flags.DEFINE_integer(
    "top_k", 10, "Texts a query for --do_search to write.", lower_bound=1
)
_TRIPLETS_FILE = flags.DEFINE_string(
    "triplets_file",
    None,
    "The .jsonl or .tsv that --do_mine writes. Default: triplets.jsonl in "
    "--output_dir.",
)
_POOLING = flags.DEFINE_enum(
    "pooling",
    None,
    feature_options.POOLING[1:],
    "How vectors of tokens become one. Default: as the folder says, otherwise "
    "their mean.",
)
_NORMALIZE = flags.DEFINE_bool(
    "normalize",
    None,
    "Whether a vector is divided by its length. Default: as the folder says, "
    "otherwise false.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Longest sequence, in word pieces. Default: as the folder says.",
    lower_bound=3,
)
_QUERY_PROMPT = flags.DEFINE_string(
    "query_prompt",
    None,
    "Text to put before a query. Default: the folder's prompt `query`, "
    "otherwise its default prompt.",
)
_CORPUS_PROMPT = flags.DEFINE_string(
    "corpus_prompt",
    None,
    "Text to put before a text of the corpus. Default: the folder's prompt "
    "`document`, `passage` or `corpus`, otherwise its default prompt.",
)
_SIMILARITY = flags.DEFINE_enum(
    "similarity",
    None,
    search_options.SIMILARITIES,
    "How vectors are compared: by their cosine or their dot product. Default: "
    "as the folder says, otherwise the cosine.",
)
_PRECISION = flags.DEFINE_enum(
    "precision",
    "float32",
    search_options.PRECISIONS,
    "Arithmetic of the model; vectors are always float32. On GPUs, float32 is "
    "never computed in TF32.",
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 32, "Texts a step.", lower_bound=1
)
_RULES = program.define_flags(search_options.Rules)


def main(_):
    program.end_at_sigterm()
    logging.set_verbosity(logging.INFO)
    rules = _check_flags()

    from bert_tf.tasks import metrics
    from bert_tf.tasks.retrieval import corpora
    from bert_tf.tasks.retrieval import ranking

    # Read all files first: errors are found before anything is computed.
    queries, corpus, relevance, pairs = None, None, None, None
    if _SQUAD_FILES.value:
        queries, corpus, relevance = corpora.read_squad(_SQUAD_FILES.value)
    elif _CORPUS_FILE.value:
        corpus = corpora.read_corpus(_CORPUS_FILE.value)
        queries = corpora.read_queries(_QUERIES_FILE.value)
        if _RELEVANCE_FILE.value:
            relevance = corpora.read_relevance(
                _RELEVANCE_FILE.value, queries, corpus
            )
    if corpus is not None and _DO_EVAL.value:
        ranking.check_can_rank(
            f"{_CORPUS_FILE.value or _SQUAD_FILES.value[0]}: the texts of the "
            "corpus",
            len(corpus),
        )
    if corpus is not None and _DO_SEARCH.value and _TOP_K.value > len(corpus):
        raise ValueError(
            f"--top_k must be at most {len(corpus)}, the texts of the corpus. "
            f"Received: --top_k={_TOP_K.value}."
        )
    if _STS_FILE.value:
        pairs = corpora.read_scored_pairs(
            _STS_FILE.value, _STS_TEXT_COLUMNS.value, _STS_SCORE_COLUMN.value
        )
        metrics.check_can_correlate(f"{_STS_FILE.value}: the pairs", len(pairs))

    from bert_tf.tasks.features import sentences
    from bert_tf.training import devices

    # The vectors' manifest records their precision, so float32 must not mean
    # TF32. --precision=bfloat16 is there for speed.
    devices.set_arithmetic(tf32=False, deterministic=False)
    embedder = sentences.open_embedder(
        _MODEL_DIR.value,
        pooling=_POOLING.value,
        is_normalized=_NORMALIZE.value,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        dtype={"float32": "float32", "bfloat16": "mixed_bfloat16"}[
            _PRECISION.value
        ],
    )
    similarity = _similarity(embedder)
    # Raises if a file is in the way, before vectors are computed for hours.
    files.make_folder(_output_dir())
    results, worst = {}, None
    if corpus is not None:
        is_judged_only = not _DO_SEARCH.value
        if is_judged_only:
            queries, relevance = corpora.only_judged(queries, relevance)
        own_rows = _find_own_rows(queries, corpus, relevance)
        vectors = _compute(embedder, queries, corpus, is_judged_only)
        if _DO_EVAL.value and relevance is not None:
            results, worst = _evaluate(
                queries, corpus, relevance, *vectors, similarity, own_rows
            )
    if pairs is not None:
        results |= _correlate(pairs, embedder, similarity)
    if _DO_EVAL.value:
        # Before mining, which fails if the rules allow no negative.
        _write_results(results, worst, embedder, similarity)
    if _DO_SEARCH.value:
        _search(queries, corpus, *vectors, similarity, own_rows)
    if _DO_MINE.value:
        _mine(queries, corpus, relevance, *vectors, rules, similarity, own_rows)


def _check_flags():
    """Checks that the flags fit together; returns the rules of mining."""
    program.require(model_dir=_MODEL_DIR.value)
    if not (_DO_EVAL.value or _DO_SEARCH.value or _DO_MINE.value):
        raise ValueError(
            "One of --do_eval, --do_search and --do_mine must be given."
        )
    beir = {
        "corpus_file": _CORPUS_FILE.value,
        "queries_file": _QUERIES_FILE.value,
        "relevance_file": _RELEVANCE_FILE.value,
    }
    if _SQUAD_FILES.value:
        for name, value in beir.items():
            if value:
                raise ValueError(
                    f"--{name} must not be given with --squad_files. "
                    f"Received: --{name}={value}."
                )
    elif any(beir.values()) or _DO_SEARCH.value or _DO_MINE.value:
        if not (_DO_EVAL.value or _DO_MINE.value):
            del beir["relevance_file"]
        program.require(**beir)
    elif not _STS_FILE.value:
        raise ValueError(
            "--do_eval needs --corpus_file, --queries_file and "
            "--relevance_file, or --squad_files, or --sts_file."
        )
    if _SQUAD_FILES.value or any(beir.values()):
        program.require(work_dir=_WORK_DIR.value)
    else:
        # The vectors of pairs are not kept.
        program.require(output_dir=_OUTPUT_DIR.value or _WORK_DIR.value)
    for others, name, is_given in (
        ((_STS_FILE,), "do_eval", _DO_EVAL.value),
        ((_STS_TEXT_COLUMNS, _STS_SCORE_COLUMN), "sts_file", _STS_FILE.value),
        ((_TOP_K,), "do_search", _DO_SEARCH.value),
        ((_TRIPLETS_FILE, *_RULES.values()), "do_mine", _DO_MINE.value),
    ):
        for flag in others:
            if flag.present and not is_given:
                raise ValueError(f"--{flag.name} must be given with --{name}.")
    names = _STS_TEXT_COLUMNS.value
    if len(names) != 2 or names[0] == names[1]:
        raise ValueError(
            "--sts_text_columns must be two names, which differ. Received: "
            f"--sts_text_columns={','.join(names)}."
        )
    search_options.check_triplets_file(_triplets_file())
    _check_written_files(
        [*beir.values(), *(_SQUAD_FILES.value or []), _STS_FILE.value]
    )
    return program.from_flags(search_options.Rules)


def _check_written_files(read):
    """Raises `ValueError` if a written file would replace another file.

    Args:
        read: Values of the flags of input files.
    """
    inputs = [path for path in read if path]
    names = []
    if _DO_SEARCH.value:
        names.append(search_options.HITS_FILE)
    if _DO_EVAL.value:
        names += [
            search_options.RESULTS_FILE,
            search_options.REPORT_FILE,
            search_options.QUERIES_FILE,
        ]
    outputs = [f"{_output_dir()}/{name}" for name in names]
    for name, path in zip(names, outputs):
        files.check_is_no_input(f"output_dir/{name}", [path], inputs)
    if _DO_MINE.value:
        written = [_triplets_file()]
        files.check_is_no_input("triplets_file", written, inputs)
        if os.path.abspath(_triplets_file()) in map(os.path.abspath, outputs):
            raise ValueError(
                "--triplets_file must be another file than those of "
                f"--output_dir: {', '.join(names)}. "
                f"Received: --triplets_file={_triplets_file()}."
            )


def _output_dir():
    return (_OUTPUT_DIR.value or _WORK_DIR.value).rstrip("/")


def _triplets_file():
    return _TRIPLETS_FILE.value or f"{_output_dir()}/triplets.jsonl"


def _compute(embedder, queries, corpus, is_judged_only):
    """Returns the vectors of the queries, an array, and of the corpus."""
    from bert_tf.tasks.retrieval import vectors

    folder = _WORK_DIR.value.rstrip("/")
    prompts = embedder.vectors
    wanted = []
    for name, texts, prompt, default in (
        (
            "judged_queries" if is_judged_only else "queries",
            queries,
            _QUERY_PROMPT.value,
            prompts.query_prompt,
        ),
        ("corpus", corpus, _CORPUS_PROMPT.value, prompts.passage_prompt),
    ):
        if prompt is None:
            prompt = default
        wanted.append((name, texts, embedder.with_prompt(prompt)))
    # Check both before computing either: if the second is refused, no vectors
    # must be left of the first.
    for name, *arguments in wanted:
        vectors.check(f"{folder}/{name}", *arguments)
    computed = [
        vectors.compute(
            f"{folder}/{name}",
            *arguments,
            _BATCH_SIZE.value,
            name.replace("_", " "),
        )
        for name, *arguments in wanted
    ]
    return computed[0][:], computed[1]


def _similarity(embedder):
    """Returns how vectors are compared."""
    similarity = _SIMILARITY.value or embedder.vectors.similarity
    if similarity not in search_options.SIMILARITIES:
        raise ValueError(
            f"{_MODEL_DIR.value}: `similarity_fn_name` must be one of "
            f"{', '.join(search_options.SIMILARITIES)}, or --similarity be "
            f"given. Received: {files.shortened(similarity)}."
        )
    return similarity


def _find_own_rows(queries, corpus, relevance):
    """Returns what `evaluation.find_own_rows` does; all -1 for SQuAD."""
    import numpy as np

    from bert_tf.tasks.retrieval import evaluation

    if _SQUAD_FILES.value:
        # Paragraphs have only numbers as ids, which no question has.
        return np.full(len(queries), -1)
    own_rows = evaluation.find_own_rows(queries, corpus, relevance)
    if num_own := np.count_nonzero(own_rows >= 0):
        logging.info(
            "%s in the corpus under the same id, and not ranked there.",
            files.counted(num_own, "query is", "queries are"),
        )
    return own_rows


def _evaluate(
    queries,
    corpus,
    relevance,
    query_vectors,
    corpus_vectors,
    similarity,
    own_rows,
):
    """Returns the scores, and the table of the worst queries."""
    from bert_tf.tasks.retrieval import evaluation

    found = evaluation.evaluate(
        relevance, query_vectors, corpus_vectors, similarity, own_rows
    )
    path = f"{_output_dir()}/{search_options.QUERIES_FILE}"
    evaluation.write_queries(path, found, queries)
    results = found.results | {"texts": float(len(corpus))}
    return results, evaluation.worst_queries(found, queries, corpus, relevance)


def _correlate(pairs, embedder, similarity):
    """Returns the correlations of scored pairs.

    The folder's prompts for queries and texts are for searches. Without flags,
    both texts of a pair get the folder's default prompt.
    """
    from bert_tf.tasks.retrieval import ranking
    from bert_tf.tasks.retrieval import vectors

    found = [
        vectors.in_memory(
            texts,
            embedder if prompt is None else embedder.with_prompt(prompt),
            _BATCH_SIZE.value,
        )
        for texts, prompt in zip(
            pairs.texts, (_QUERY_PROMPT.value, _CORPUS_PROMPT.value)
        )
    ]
    scores = ranking.pair_similarities(*found, similarity)
    found = ranking.correlations(scores, pairs.labels)
    return {f"sts_{name}": value for name, value in found.items()} | {
        "sts_pairs": float(len(pairs))
    }


def _search(
    queries, corpus, query_vectors, corpus_vectors, similarity, own_rows
):
    from bert_tf.tasks.retrieval import search

    # If a query's own text is left out, one more is needed. If there are no
    # more texts, that query has one hit fewer.
    k = min(_TOP_K.value + bool((own_rows >= 0).any()), len(corpus))
    scores, found = search.top_k(query_vectors, corpus_vectors, k, similarity)
    path = f"{_output_dir()}/{search_options.HITS_FILE}"
    with files.whole_stream(path) as stream:
        for name, text, own, row, row_scores in zip(
            queries.ids, queries.texts, own_rows, found, scores
        ):
            hits = [
                {
                    "id": corpus.ids[index],
                    "score": round(float(score), 6),
                    "text": corpus.texts[index],
                }
                for index, score in zip(row, row_scores)
                if index != own
            ][: _TOP_K.value]
            answer = {"query_id": name, "query": text, "hits": hits}
            stream.write(f"{json.dumps(answer, ensure_ascii=False)}\n")
    print(f"{files.counted(len(queries), 'query', 'queries')} in {path}")


def _mine(queries, corpus, relevance, *arguments):
    """Writes the triplets; `arguments` are the other arguments of `mine`."""
    from bert_tf.tasks.retrieval import mining

    triplets = mining.mine(queries, corpus, relevance, *arguments)
    mining.write(_triplets_file(), triplets, queries, corpus)
    num_served = len({triplet[:2] for triplet in triplets})
    count = files.counted(len(triplets), "triplet", "triplets")
    pairs = files.counted(len(relevance), "pair", "pairs")
    print(f"{count} of {num_served} of {pairs} in {_triplets_file()}")


def _write_results(results, worst, embedder, similarity):
    from bert_tf.tasks.retrieval import evaluation
    from bert_tf.training import evaluation as results_files

    folder = _output_dir()
    path = f"{folder}/{search_options.REPORT_FILE}"
    results_files.write_results(
        f"{folder}/{search_options.RESULTS_FILE}", results
    )
    settings = {
        "model": _MODEL_DIR.value,
        "pooling": embedder.vectors.pooling,
        "normalized": embedder.vectors.is_normalized,
        "dimension": embedder.dimension,
        "max_seq_length": embedder.max_seq_length,
        "precision": _PRECISION.value,
        "similarity": similarity,
    }
    evaluation.write_report(
        path,
        results,
        settings,
        # The command as it was given, so that it can be repeated.
        shlex.join(["python", *sys.orig_argv[1:]]),
        worst,
    )
    for name, value in results.items():
        print(f"{name} = {value:.6g}")
    logging.info("A report is in %s.", path)


if __name__ == "__main__":
    program.run(main)
