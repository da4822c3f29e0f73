"""Small texts, corpora and builds of pre-training data, made by chance."""

import random

import numpy as np

from bert_tf.pretraining import record_set
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.corpus.blocks import Corpus
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.sources import text_files
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

LETTERS = "abcdefghijklm"
VOCABULARY = Vocabulary(
    tokens=(*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS))
)
_num_blocks = blocks.num_blocks


def make_documents(num_documents, seed):
    """Returns documents as lists of sentences: lists of words of letters."""
    rng = random.Random(seed)
    return [
        [
            [
                "".join(rng.choices(LETTERS, k=rng.choice((1, 1, 1, 2, 3))))
                for _ in range(rng.randint(1, 11))
            ]
            for _ in range(rng.randint(1, 14))
        ]
        for _ in range(num_documents)
    ]


def write_text(path, texts):
    """Writes documents, a sentence a line; returns the path as a string."""
    path.write_text(
        "\n\n".join(
            "\n".join(" ".join(sentence) for sentence in document)
            for document in texts
        )
    )
    return str(path)


def make_corpus(num_documents, seed, max_sentences=12, max_tokens=15):
    """Returns a Corpus of documents of random lengths."""
    rng = np.random.default_rng(seed)
    sentences = rng.integers(1, max_sentences + 1, num_documents)
    lengths = rng.integers(1, max_tokens + 1, sentences.sum())
    return Corpus(
        # Each token is its own place: segments tell where they come from.
        tokens=np.arange(lengths.sum(), dtype=np.int32),
        sentence_starts=np.concatenate([[0], np.cumsum(lengths)]),
        document_starts=np.concatenate([[0], np.cumsum(sentences)]),
        document_keys=np.sort(
            rng.choice(2**40, num_documents, replace=False)
        ).astype(np.uint64),
    )


def make_small(monkeypatch, part_bytes=700, range_size=50):
    """Makes many tasks of a small input: parts, blocks, segments, batches."""
    monkeypatch.setattr(text_files, "PART_BYTES", part_bytes)
    monkeypatch.setattr(
        blocks, "num_blocks", lambda tokens: _num_blocks(tokens, 1500)
    )
    monkeypatch.setattr(record_set, "RANGE_SIZE", range_size)


def read_all(*paths):
    """Returns the examples of records, {feature: array}."""
    batches = list(inspection.read([str(path) for path in paths]))
    return {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }


def contents(folder):
    """Returns {name: bytes} of all files, hidden ones too."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}
