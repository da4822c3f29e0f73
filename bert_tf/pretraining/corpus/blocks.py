"""Tokenised documents: written part by part, read block by block.

A block is a fixed subset of the corpus, chosen by a hash of the documents'
keys (`block_bits`). Its examples depend on nothing outside the block, so a
parallel run, a resumed run and a cluster all make the same ones. A corpus of
up to `BLOCK_TOKENS` is one block. In a larger corpus each block is a random
sample of thousands of documents. Each part lists its documents sorted by that
hash, so the documents of a block are adjacent in the list.
"""

import bisect
import dataclasses
import os
from collections import abc

import numpy as np
import tensorflow as tf

from bert_tf.pretraining import draws
from bert_tf.text.tokenizers.tokenizer import Tokenizer

# Tokens of a block, about 13 MB of English. A block and its pairs of ten
# passes take some 250 MB of memory.
BLOCK_TOKENS = 3 << 20
# Suffixes of the files of a part.
SUFFIXES = ("tokens", "lengths", "documents")

# A batch for the tokenizer ends when it reaches either limit.
_MAX_BATCH_SENTENCES = 1024
_MAX_BATCH_CHARACTERS = 1 << 20
# Stripped from both ends of a sentence.
_WHITE_SPACE = " \t\r\n"

# An entry in a part's list of documents: where its tokens and sentences are.
_ENTRY = np.dtype(
    [
        ("bits", np.uint32),
        ("key", np.uint64),
        ("first_token", np.int64),
        ("num_tokens", np.int64),
        ("first_sentence", np.int64),
        ("num_sentences", np.int64),
    ]
)
_LENGTH = np.dtype(np.uint32)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Documents of sentences of tokens, in flat arrays.

    Args:
        tokens: int32 [tokens], the ids of all sentences one after another.
        sentence_starts: int64 [sentences + 1], where each sentence begins in
            `tokens`; it ends where the next begins. No sentence is empty.
        document_starts: int64 [documents + 1], where each document begins in
            `sentence_starts`. No document is empty.
        document_keys: uint64 [documents], ascending (`text_files.Reader`).
    """

    tokens: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    document_keys: np.ndarray

    @property
    def num_documents(self) -> int:
        return len(self.document_keys)


def num_blocks(num_tokens: int, block_tokens: int = BLOCK_TOKENS) -> int:
    """Returns the number of blocks that a corpus is divided into."""
    return max(1, -(-num_tokens // block_tokens))


def block_bits(document_keys: np.ndarray) -> np.ndarray:
    """Returns the bits that choose each document's block: uint32 [documents].

    They are a hash of the document's key, so a reader of any part of the
    input knows them.
    """
    bits = draws.draw(draws.BLOCK, 0, document_keys)
    return bits[0].astype(np.uint32)


def block_range(block: int, num_blocks: int) -> tuple[int, int]:
    """Returns the range [first, last) of the bits that belong to a block.

    Args:
        block: The number of the block.
        num_blocks: The number of blocks.
    """
    first, last = (
        -(-(number << 32) // num_blocks) for number in (block, block + 1)
    )
    return first, last


def block_of(bits: int, num_blocks: int) -> int:
    """Returns the number of the block that bits belong to (`block_range`)."""
    return bits * num_blocks >> 32


def starts_of(lengths: abc.Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the start of each item and the end of the last: int64 [N + 1]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the dtype of token ids in files."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


def write_array(path: str, array: np.ndarray) -> None:
    """Writes an array to a file that `np.fromfile` can read.

    Raises:
        OSError: If the array cannot be written whole. `array.tofile` raises
            nothing if a full disk cuts off only the end.
    """
    with open(path, "wb") as stream:
        stream.write(array.tobytes())


def make_tokenize(tokenizer: Tokenizer) -> abc.Callable:
    """Returns a function from a list of sentences to (ids, lengths)."""

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string)],
        # There is no Python control flow to convert, and converting is slow.
        autograph=False,
    )
    def graph(sentences):
        pieces = tokenizer.tokenize(sentences).merge_dims(1, 2)
        return pieces.flat_values, pieces.row_lengths()

    def tokenize(sentences):
        with tf.device("CPU:0"):
            tokens, lengths = graph(tf.constant(sentences))
        return tokens.numpy(), lengths.numpy()

    return tokenize


def write_part(
    sentences: abc.Iterable[tuple[int, str]],
    tokenize: abc.Callable,
    dtype: np.dtype,
    path: str,
) -> dict:
    """Writes tokenised documents; sentences without a token are dropped.

    Args:
        sentences: An iterable of (document key, sentence), keys ascending.
        tokenize: As `make_tokenize` returns it.
        dtype: Dtype of the token ids.
        path: Path of the files to write, without their `SUFFIXES`.

    Returns:
        The counts `{"documents", "sentences", "tokens"}`.
    """
    none = np.zeros(0, np.int64)
    found = [(none.astype(np.uint64), none, none)]
    with (
        open(f"{path}.tokens", "wb") as tokens_file,
        open(f"{path}.lengths", "wb") as lengths_file,
    ):
        for keys, batch in batches(sentences):
            tokens, lengths = tokenize(batch)
            has_tokens = lengths > 0
            lengths = lengths[has_tokens]
            tokens_file.write(tokens.astype(dtype).tobytes())
            lengths_file.write(lengths.astype(_LENGTH).tobytes())
            keys = np.array(keys, np.uint64)[has_tokens]
            found.append(_sum_by_key(keys, lengths, np.ones_like(lengths)))
    # A document may continue from one batch into the next.
    keys, *sums = _sum_by_key(*map(np.concatenate, zip(*found)))
    entries = np.zeros(len(keys), _ENTRY)
    entries["key"] = keys
    entries["bits"] = block_bits(keys)
    for name, counts in zip(("token", "sentence"), sums):
        entries[f"num_{name}s"] = counts
        entries[f"first_{name}"] = np.cumsum(counts) - counts
    order = np.argsort(entries["bits"], kind="stable")
    write_array(f"{path}.documents", entries[order])
    return {
        "documents": len(entries),
        "sentences": int(entries["num_sentences"].sum()),
        "tokens": int(entries["num_tokens"].sum()),
    }


def _sum_by_key(keys, *counts):
    """Returns the unique keys, ascending, and the sums of their counts."""
    keys, first = np.unique(keys, return_index=True)
    return keys, *(np.add.reduceat(each, first) for each in counts)


def read_block(
    paths: list[str], dtype: np.dtype, block: int, num_blocks: int
) -> Corpus:
    """Reads the documents of one block.

    Args:
        paths: The paths of the parts, as passed to `write_part`.
        dtype: Dtype of the token ids in the files.
        block: The number of the block.
        num_blocks: The number of blocks.

    Returns:
        A `Corpus`, possibly without documents.
    """
    keys, tokens, lengths = [], [], []
    first, last = block_range(block, num_blocks)
    for path in paths:
        found = np.sort(_find_entries(path, first, last), order="key")
        # With many small files, most parts hold nothing of this block.
        if not len(found):
            continue
        keys.append(found["key"])
        for document in _read_entries(path, found, dtype):
            tokens.append(document[0])
            lengths.append(document[1])
    all_keys = np.concatenate(keys or [np.zeros(0, np.uint64)])
    return assemble(all_keys, tokens, lengths, dtype)


def read_documents(path: str, dtype: np.dtype) -> abc.Iterator[tuple]:
    """Yields (block bits, key, token ids, lengths) of a part's documents.

    Args:
        path: The path that was passed to `write_part`.
        dtype: Dtype of the token ids in the files.
    """
    entries = np.fromfile(f"{path}.documents", _ENTRY)
    for entry, document in zip(entries, _read_entries(path, entries, dtype)):
        yield int(entry["bits"]), int(entry["key"]), *document


def _find_entries(path, first, last):
    """Returns the entries of a part's list with bits in [first, last).

    A binary search: reading the whole list for every block would be slow.
    """
    with open(f"{path}.documents", "rb") as stream:

        def bits_of(number):
            return _read_slice(stream, _ENTRY, number, 1)["bits"].item()

        size = os.fstat(stream.fileno()).st_size
        numbers = range(size // _ENTRY.itemsize)
        begin = bisect.bisect_left(numbers, first, key=bits_of)
        end = bisect.bisect_left(numbers, last, begin, key=bits_of)
        return _read_slice(stream, _ENTRY, begin, end - begin)


def _read_entries(path, entries, dtype):
    """Yields (token ids, lengths of the sentences) of listed documents."""
    with (
        open(f"{path}.tokens", "rb") as tokens_file,
        open(f"{path}.lengths", "rb") as lengths_file,
    ):
        for _, _, token, num_tokens, sentence, num_sentences in entries:
            yield (
                _read_slice(tokens_file, dtype, token, num_tokens),
                _read_slice(lengths_file, _LENGTH, sentence, num_sentences),
            )


def assemble(
    keys: abc.Sequence[int] | np.ndarray,
    tokens: list[np.ndarray],
    lengths: list[np.ndarray],
    dtype: np.dtype,
) -> Corpus:
    """Returns the `Corpus` of documents.

    Args:
        keys: uint64 [documents], ascending.
        tokens: The token ids of each document.
        lengths: The sentence lengths of each document.
        dtype: Dtype of the token ids.
    """
    num_sentences = [len(each) for each in lengths]
    lengths = np.concatenate(lengths or [np.zeros(0, _LENGTH)])
    return Corpus(
        tokens=np.concatenate(tokens or [np.zeros(0, dtype)]).astype(np.int32),
        sentence_starts=starts_of(lengths),
        document_starts=starts_of(num_sentences),
        document_keys=np.asarray(keys, np.uint64),
    )


def batches(
    sentences: abc.Iterable[tuple[int, str]],
) -> abc.Iterator[tuple[list[int], list[str]]]:
    """Yields (keys, sentences): lists for one call of the tokenizer.

    Any white space between two sentences of a document becomes one space
    before the second, whether they are lines or parts of a paragraph.
    It matters to byte-level BPE, but not to other tokenizers.
    """
    keys: list[int] = []
    batch: list[str] = []
    size = 0
    last_key = None
    for key, sentence in sentences:
        sentence = sentence.strip(_WHITE_SPACE)
        if key == last_key:
            sentence = f" {sentence}"
        last_key = key
        keys.append(key)
        batch.append(sentence)
        size += len(sentence)
        if len(batch) >= _MAX_BATCH_SENTENCES or size >= _MAX_BATCH_CHARACTERS:
            yield keys, batch
            keys, batch, size = [], [], 0
    if batch:
        yield keys, batch


def _read_slice(stream, dtype, first, count):
    """Reads `count` elements from number `first` of an array in a file."""
    size = dtype.itemsize
    data = os.pread(stream.fileno(), int(count) * size, int(first) * size)
    return np.frombuffer(data, dtype)
