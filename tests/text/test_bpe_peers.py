"""Byte-level BPE against `tokenizers` and transformers, on much text.

    BERT_TF_TEXT_FILES=wiki.txt.xz:books.txt.xz \
        python -m pytest -m peers tests/text/test_bpe_peers.py

Texts are the first 5 MB of each file, a text a line; the project's documents
where no file is named.
"""

import itertools
import json
import os

import pytest
import tensorflow as tf
import tokenizers

from bert_tf import streams
from bert_tf.text.learners import byte_bpe
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.bpe import BpeSpec
from references import auto_tokenizer as peer
from support import peers
from support.paths import ROOT

pytestmark = pytest.mark.peers

TEXT_FILES = [
    path for path in os.environ.get("BERT_TF_TEXT_FILES", "").split(":") if path
]
NUM_BYTES = 5_000_000
VOCAB_SIZE = 50265
BATCH_SIZE = 2000
WORDS = (
    "the", "The", "cat's", "in", "ing", "It'll", "2021", "naïve", "café",
    "日本語", "のの", "🤗", "Straße", "…", "--", "U.S.", "\xa0",
)  # fmt: skip


def code_points():
    """Returns all code points, assigned or not, in context."""
    characters = [
        chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000
    ]
    return [f"a{c} b 1{c}{c}2  {c}x .{c}" for c in characters]


def read_lines(path):
    """Returns the lines of the first 5 MB of a file."""
    with streams.open_bytes(path) as stream:
        lines = stream.read(NUM_BYTES).decode("utf-8", "ignore").split("\n")
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def spec():
    """Returns a tokenizer with as many entries as RoBERTa's, if text is."""
    if TEXT_FILES:
        lines = map(read_lines, TEXT_FILES)
    else:
        lines = [[" ".join(pair) for pair in itertools.product(WORDS, WORDS)]]
    return byte_bpe.learn(lines, VOCAB_SIZE, TEXT_FILES)


def check_equal(spec, texts):
    """Checks ids, offsets and words of all texts; returns their pieces."""
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
    theirs.encode_special_tokens = True
    tokenizer = spec.make()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(texts):
        ids, offsets = tokenizer.tokenize_with_offsets(texts)
        values = (ids, offsets.starts, offsets.limits)
        return [each.merge_dims(1, 2) for each in values]

    num_pieces = 0
    for first in range(0, len(texts), BATCH_SIZE):
        batch = texts[first : first + BATCH_SIZE]
        values = tokenize(tf.constant([text.encode("utf-8") for text in batch]))
        rows = zip(*(each.to_list() for each in values))
        found = theirs.encode_batch(batch)
        for text, (ids, starts, limits), want in zip(batch, rows, found):
            assert ids == want.ids[1:-1], repr(text)
            offsets = list(zip(starts, limits))
            assert offsets == want.offsets[1:-1], repr(text)
            num_pieces += len(ids)
    return num_pieces


@pytest.mark.parametrize(
    "path", TEXT_FILES or sorted((ROOT / "docs").glob("*.md"))
)
def test_text(spec, path):
    lines = read_lines(path)
    assert check_equal(spec, lines) > len(lines)


@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_every_code_point(spec, add_prefix_space):
    texts = code_points()
    changed = BpeSpec(spec.vocabulary, spec.merges, add_prefix_space)
    assert check_equal(changed, texts) > 10 * len(texts)


def test_words_of_every_code_point(spec):
    # Ids alone would not tell words apart whose bytes are never merged.
    splits = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = spec.make()
    texts = code_points()
    for first in range(0, len(texts), BATCH_SIZE):
        batch = texts[first : first + BATCH_SIZE]
        words = tokenizer.split_words(
            tf.constant([text.encode("utf-8") for text in batch])
        )
        for text, found in zip(batch, words.to_list()):
            want = [
                text[start:limit].encode("utf-8")
                for _, (start, limit) in splits.pre_tokenize_str(text)
            ]
            assert found == want, repr(text)


def ask(folder, texts, path):
    path.write_text(json.dumps(texts), "utf-8")
    return json.loads(peers.run(peer.__file__, folder, path))


@pytest.mark.parametrize("left_out", [(), ("tokenizer.json",)])
@pytest.mark.parametrize("add_prefix_space", [False, True])
def test_transformers_reads_our_folders(
    spec, tmp_path, left_out, add_prefix_space
):
    spec = BpeSpec(spec.vocabulary, spec.merges, add_prefix_space)
    folder = tmp_path / "folder"
    tokenizer_files.write(str(folder), spec)
    for name in left_out:
        (folder / name).unlink()
    texts = [*map(" ".join, itertools.product(WORDS, WORDS)), "", "  x \n\n y"]
    found = ask(folder, texts, tmp_path / "texts.json")
    assert found["class"] == "RobertaTokenizer"
    ids, offsets = spec.make().tokenize_with_offsets(tf.constant(texts))
    assert [row[1:-1] for row in found["ids"]] == (
        ids.merge_dims(1, 2).to_list()
    )
    starts, limits = (
        values.merge_dims(1, 2).to_list()
        for values in (offsets.starts, offsets.limits)
    )
    for row, want in enumerate(found["offsets"]):
        assert [*map(list, zip(starts[row], limits[row]))] == want[1:-1]
    inputs = Preprocessor(spec, 64)(tf.constant(texts))
    for row, want in enumerate(found["ids"]):
        length = len(want)
        assert inputs["input_ids"][row, :length].numpy().tolist() == want
