"""Searches with MiniLM against sentence-transformers, query by query.

BERT_TF_SQUAD_FILES, separated by colons, are SQuAD's files: the questions of
the first look for their paragraphs among those of all. Without it the texts are
made up.
"""

import itertools
import json
import os

import numpy as np
import pytest

from bert_tf.tasks.features import sentences
from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval import evaluation
from references import sentence_search as peer
from support import peers

pytestmark = pytest.mark.peers

_NAMES = ("Anna", "Berlin", "Otto", "Oslo", "Paris", "Siemens", "Texas", "Ural")
_THINGS = (
    "river",
    "price",
    "garden",
    "train",
    "book",
    "winter",
    "market",
    "bed",
)


def made_up():
    """Returns (queries, corpus, relevance), of which some are hard."""
    pairs = list(itertools.product(_NAMES, _THINGS))
    corpus = corpora.Texts(
        ids=tuple(f"{name} {thing}" for name, thing in pairs),
        texts=tuple(
            f"The {thing} of {name} was old. " * (1 + n % 5)
            for n, (name, thing) in enumerate(pairs)
        ),
    )
    queries = corpora.Texts(
        ids=corpus.ids,
        texts=tuple(f"Which {thing} has {name}?" for name, thing in pairs),
    )
    rows = np.arange(len(pairs))
    relevance = corpora.Relevance(
        # Two texts each.
        query_rows=np.repeat(rows, 2),
        corpus_rows=np.stack([rows, (rows + 1) % len(rows)], axis=1).ravel(),
        grades=np.ones(2 * len(rows)),
    )
    return queries, corpus, relevance


def test_scores_of_every_query_are_sentence_transformers(tmp_path):
    paths = [
        p for p in os.environ.get("BERT_TF_SQUAD_FILES", "").split(":") if p
    ]
    found = corpora.read_squad(paths) if paths else made_up()
    queries, corpus, relevance = found
    queries, relevance = corpora.only_judged(queries, relevance)
    relevant = zip(queries.ids, relevance.by_query(relevance.corpus_rows))
    sets = {
        "queries": dict(zip(queries.ids, queries.texts)),
        "corpus": dict(zip(corpus.ids, corpus.texts)),
        "relevant": {
            name: [corpus.ids[row] for row in rows] for name, rows in relevant
        },
    }
    (tmp_path / "sets.json").write_text(json.dumps(sets), "utf-8")
    printed = peers.run(
        peer.__file__, peers.minilm(), tmp_path / "sets.json", tmp_path
    )
    wanted = json.loads(printed.splitlines()[-1])

    embedder = sentences.open_embedder(peers.minilm())
    vectors = [embedder(texts.texts) for texts in (queries, corpus)]
    for values, name in zip(vectors, ("queries", "corpus")):
        np.testing.assert_allclose(
            values, np.load(tmp_path / f"{name}.npy"), atol=1e-5
        )
    scores = evaluation.evaluate(relevance, *vectors).scores
    assert set(scores) == set(wanted)
    for name, values in scores.items():
        np.testing.assert_allclose(values, wanted[name], atol=1e-9)
    print(evaluation.evaluate(relevance, *vectors).results)
