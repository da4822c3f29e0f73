"""Tokenised documents: written by parts, read by blocks."""

import numpy as np
import pytest

from bert_tf.pretraining.corpus import blocks
from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers.bpe import BpeSpec
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from support.disk import full_disk
from support.pretraining_data import LETTERS
from support.pretraining_data import VOCABULARY


@pytest.fixture(scope="module")
def tokenize():
    return blocks.make_tokenize(WordpieceSpec(VOCABULARY).make())


def nested(block):
    """Returns {key: sentences of tokens}."""
    starts = block.sentence_starts
    sentences = [
        [VOCABULARY.tokens[i] for i in block.tokens[begin:end]]
        for begin, end in zip(starts, starts[1:])
    ]
    return {
        int(key): sentences[begin:end]
        for key, begin, end in zip(
            block.document_keys,
            block.document_starts,
            block.document_starts[1:],
        )
    }


def test_lines_without_tokens_and_empty_documents_are_dropped(
    tmp_path, tokenize
):
    # A zero-width space is no token.
    sentences = [
        (1, "\u200b"),
        (3, "\u200b"),
        (3, "a"),
        (3, "ab"),
        (9, "\u200b"),
    ]
    path = str(tmp_path / "x")
    numbers = blocks.write_part(sentences, tokenize, np.dtype(np.uint16), path)
    assert numbers == {"documents": 1, "sentences": 2, "tokens": 3}
    block = blocks.read_block([path], np.dtype(np.uint16), 0, 1)
    assert nested(block) == {3: [["a"], ["a", "##b"]]}
    assert block.tokens.dtype == np.int32


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_blocks_hold_every_document_once(
    tmp_path, tokenize, monkeypatch, dtype
):
    """Also where a document goes on from batch to batch."""
    monkeypatch.setattr(blocks, "_MAX_BATCH_SENTENCES", 7)
    rng = np.random.default_rng(1)
    paths, texts = [], {}
    for part in range(3):
        sentences = []
        for key in np.unique(rng.integers(1000 * part, 1000 * part + 999, 40)):
            texts[int(key)] = [
                rng.choice(list(LETTERS), rng.integers(1, 9)).tolist()
                for _ in range(rng.integers(1, 18))
            ]
            sentences += [(int(key), " ".join(s)) for s in texts[int(key)]]
        paths.append(str(tmp_path / f"part{part}"))
        numbers = blocks.write_part(
            sentences, tokenize, np.dtype(dtype), paths[-1]
        )
        assert numbers["sentences"] == len(sentences)
    found = {}
    for number in range(5):
        block = blocks.read_block(paths, np.dtype(dtype), number, 5)
        keys = block.document_keys
        assert (np.diff(keys.astype(np.int64)) > 0).all()
        bits = blocks.block_bits(keys)
        assert (bits.astype(np.int64) * 5 >> 32 == number).all()
        assert 5 < len(keys) < 50
        found |= nested(block)
    assert found == texts


def test_a_block_reads_no_more_than_it_needs(tmp_path, tokenize, monkeypatch):
    """Else making the blocks takes blocks x parts files, and their lists."""
    dtype = np.dtype(np.uint16)
    paths = []
    for part in range(30):
        # One part is long.
        count = 5000 if part == 3 else 3
        first = 10000 * part
        sentences = [(first + number, "a") for number in range(count)]
        paths.append(str(tmp_path / f"part{part}"))
        blocks.write_part(sentences, tokenize, dtype, paths[-1])
    bytes_read = 0
    pread = blocks.os.pread

    def counted(descriptor, count, offset):
        nonlocal bytes_read
        bytes_read += count
        return pread(descriptor, count, offset)

    block = blocks.read_block(paths, dtype, 7, 50)
    parts = set(block.document_keys // 10000)
    assert 1 < len(parts) < 10
    for part in set(range(30)) - parts:
        (tmp_path / f"part{part}.tokens").unlink()
    # An array that is mapped, or read by NumPy, is not counted.
    monkeypatch.delattr(np, "fromfile")
    monkeypatch.setattr(blocks.os, "pread", counted)
    again = blocks.read_block(paths, dtype, 7, 50)
    np.testing.assert_array_equal(again.document_keys, block.document_keys)
    np.testing.assert_array_equal(again.tokens, block.tokens)
    # The lists have 220,000.
    assert bytes_read < 20000


def test_tokens_of_small_vocabularies_take_two_bytes():
    assert blocks.token_dtype(1 << 16) == np.uint16
    assert blocks.token_dtype((1 << 16) + 1) == np.int32


def test_full_disk_is_no_silence(tmp_path, tokenize):
    """Of the last file only the end is missing: less than a buffer."""
    sentences = [(number, "a") for number in range(110)]
    path = str(tmp_path / "x")
    dtype = np.dtype(np.uint16)
    blocks.write_part(sentences, tokenize, dtype, path)
    assert (tmp_path / "x.documents").stat().st_size == 110 * 44
    with full_disk(4096), pytest.raises(OSError, match="too large"):
        blocks.write_part(sentences, tokenize, dtype, path)


def test_sentences_are_parted_by_a_space(tmp_path):
    """Byte-level BPE would spell line ends, or join what lines part."""
    vocabulary = Vocabulary(
        tokens=(*ROBERTA.names, *bpe_files.BYTES, "Ġb"),
        special=ROBERTA,
        is_wordpiece=False,
    )
    tokenizer = BpeSpec(vocabulary, (("Ġ", "b"),)).make()
    sentences = [(1, "a b.\n"), (1, "b \r\n"), (1, "a"), (2, "\tb\n")]
    path = str(tmp_path / "x")
    blocks.write_part(
        sentences, blocks.make_tokenize(tokenizer), np.dtype(np.uint16), path
    )
    block = blocks.read_block([path], np.dtype(np.uint16), 0, 1)
    texts = [
        "".join(vocabulary.tokens[i] for i in block.tokens[begin:end])
        for begin, end in zip(block.sentence_starts, block.sentence_starts[1:])
    ]
    assert texts == ["aĠb.", "Ġb", "Ġa", "b"]
