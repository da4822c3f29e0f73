"""Reads text into documents of tokenised sentences.

The input is google-research/bert's: one sentence a line, a blank line ends a
document, and a new file does not. Lines without a token and documents without
a sentence are dropped.
"""

import contextlib
import dataclasses
import hashlib

import numpy as np
import tensorflow as tf

from bert_tf import files

# A batch for the tokenizer ends at so many lines or bytes.
_MAX_BATCH_LINES = 1024
_MAX_BATCH_BYTES = 1 << 20

# Of a document's 64-bit key, the bits that hold the offset in the file.
_OFFSET_BITS = 44


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Documents of sentences of tokens, in flat arrays.

    Args:
        tokens: int32 [tokens], the ids of all sentences one after another.
        sentence_starts: int64 [sentences + 1], where each sentence begins in
            `tokens`; it ends where the next begins. None is empty.
        document_starts: int64 [documents + 1], where each document begins in
            `sentence_starts`. None is empty.
        document_keys: uint64 [documents], ascending: what all randomness of a
            document is a function of. It is the place of its first line: the
            number of the file, and the offset in bytes within it. So whoever
            reads a part of one file knows the keys of its documents without
            having read what comes before: parallel, resumed and Beam readers
            agree. (The text itself would be no good key: a corpus repeats
            documents, and each copy must get its own pairs and masks.)
        inputs: `{"name", "bytes", "sha256"}` of the files, in order.
    """

    tokens: np.ndarray
    sentence_starts: np.ndarray
    document_starts: np.ndarray
    document_keys: np.ndarray
    inputs: list

    @property
    def num_documents(self):
        return len(self.document_keys)

    @property
    def num_sentences(self):
        return len(self.sentence_starts) - 1


def input_paths(patterns):
    """Returns the files that comma-separated globs name, in that order.

    The order matters, because a document goes on into the next file: globs
    come in the order given, and the files of each glob sorted by name.

    Raises:
        ValueError: If a glob matches no file, or there is none.
    """
    names = [name for name in patterns.split(",") if name.strip()]
    # Keys of a dictionary: each file once, in order.
    paths = {}
    for name in names or [""]:
        paths |= dict.fromkeys(files.expand_globs(name))
    return list(paths)


def read(paths, tokenizer, progress=None):
    """Reads and tokenises the documents of text files.

    Args:
        paths: The files, in order.
        tokenizer: A `WordpieceTokenizer`.
        progress: Called with the number of bytes done, after each batch.

    Returns:
        A `Corpus`.

    Raises:
        ValueError: If a file is empty or not UTF-8 (the message names the
            line), or there is no sentence in any.
    """
    for path in paths:
        if not files.size(path):
            raise ValueError(f"{path} is empty.")
    reader = _Reader(tokenizer, progress)
    for number, path in enumerate(paths):
        reader.read(number, path)
    return reader.finish(paths)


class _Reader:
    """Collects lines into batches, and the tokenised batches into arrays."""

    def __init__(self, tokenizer, progress):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def tokenize(lines):
            pieces = tokenizer.tokenize(lines).merge_dims(1, 2)
            return pieces.flat_values, pieces.row_lengths()

        self._tokenize = tokenize
        self._progress = progress
        self._inputs = []
        self._num_bytes = 0
        # Of the batch that is being filled.
        self._lines = []
        self._line_documents = []
        self._batch_bytes = 0
        # Of the batches that are done.
        self._tokens = []
        self._lengths = []
        self._documents = []
        # One for each document, those that turn out empty included.
        self._keys = []
        self._is_inside_document = False

    def read(self, file_number, path):
        digest = hashlib.sha256()
        offset = 0
        with contextlib.closing(_open(path)) as stream:
            for number, line in enumerate(stream, start=1):
                self._add_line(path, number, line, (file_number, offset))
                digest.update(line)
                offset += len(line)
        self._inputs.append(
            {
                "name": path.rsplit("/", 1)[-1],
                "bytes": offset,
                "sha256": digest.hexdigest(),
            }
        )

    def finish(self, paths):
        self._flush()
        lengths = np.concatenate(self._lengths or [np.zeros(0, np.int64)])
        documents = np.concatenate(self._documents or [np.zeros(0, np.int64)])
        documents = documents[lengths > 0]
        lengths = lengths[lengths > 0]
        if not len(lengths):
            raise ValueError(
                f"There is no sentence in the input: {', '.join(paths)}."
            )
        is_first = np.diff(documents, prepend=-1) > 0
        keys = np.array(self._keys, np.uint64)
        return Corpus(
            tokens=np.concatenate(self._tokens),
            sentence_starts=np.concatenate([[0], np.cumsum(lengths)]),
            document_starts=np.append(np.flatnonzero(is_first), len(lengths)),
            document_keys=keys[documents[is_first]],
            inputs=self._inputs,
        )

    def _add_line(self, path, number, line, place):
        try:
            # Blank is what Python's `strip` makes empty, as in the original:
            # a lone no-break space also ends a document.
            is_blank = not line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: not UTF-8 "
                f"(byte {line[error.start]:#04x})."
            ) from error
        self._num_bytes += len(line)
        if is_blank:
            self._is_inside_document = False
            return
        if not self._is_inside_document:
            file_number, offset = place
            self._keys.append(file_number << _OFFSET_BITS | offset)
            self._is_inside_document = True
        self._lines.append(line)
        self._line_documents.append(len(self._keys) - 1)
        self._batch_bytes += len(line)
        if (
            len(self._lines) >= _MAX_BATCH_LINES
            or self._batch_bytes >= _MAX_BATCH_BYTES
        ):
            self._flush()

    def _flush(self):
        if self._lines:
            tokens, lengths = self._tokenize(tf.constant(self._lines))
            self._tokens.append(tokens.numpy())
            self._lengths.append(lengths.numpy())
            self._documents.append(np.array(self._line_documents))
        self._lines = []
        self._line_documents = []
        self._batch_bytes = 0
        if self._progress:
            self._progress(self._num_bytes)


def _open(path):
    if files.is_remote(path):
        # Its lines are bytes too.
        return tf.io.gfile.GFile(path, "rb")
    return open(path, "rb")
