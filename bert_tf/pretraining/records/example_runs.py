"""Examples before they are masked: sorted runs on disk, merged by ranges.

Every block of the corpus makes one run: its examples in the order of their
random numbers, with their tokens. The records hold the examples of all runs
in that order, which is a shuffle of the whole corpus. Whoever writes the
records from number m to n reads from every run the stretch that they lie in;
an index tells where.
"""

import dataclasses
import os

import numpy as np

from bert_tf import features
from bert_tf.pretraining.corpus.blocks import write_array

# The order's highest bits: a run has an index entry for each of their values.
_INDEX_BITS = 12
_NUM_BUCKETS = 1 << _INDEX_BITS

# Examples whose tokens are copied together.
_COPY_SIZE = 1 << 16

_ROW = np.dtype(
    [
        ("order", np.uint64),
        ("seeds", np.uint32, 2),
        ("a_length", np.uint32),
        ("b_length", np.uint32),
        ("label", np.uint8),
    ]
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Unmasked examples, in the order of the records.

    Args:
        tokens: int32 [tokens], the segments A and B of each in turn.
        starts: int64 [examples], where each begins in `tokens`.
        a_length: int64 [examples].
        b_length: int64 [examples].
        label: bool [examples], what the objective's label says.
        seeds: int64 [examples, 2], random, of the masking.
    """

    tokens: np.ndarray
    starts: np.ndarray
    a_length: np.ndarray
    b_length: np.ndarray
    label: np.ndarray
    seeds: np.ndarray

    def __len__(self):
        return len(self.starts)

    @property
    def lengths(self):
        """Tokens of each, [CLS] and [SEP]s counted: int64 [examples]."""
        return 2 + self.a_length + self.b_length + (self.b_length > 0)

    def take(self, chosen):
        """Returns those that an index array or slice chooses."""
        return dataclasses.replace(
            self,
            **{
                name: getattr(self, name)[chosen]
                for name in (
                    "starts",
                    "a_length",
                    "b_length",
                    "label",
                    "seeds",
                )
            },
        )


def write_run(corpus, cuts, dtype, path):
    """Writes the examples of a block.

    Args:
        corpus: The block, a `Corpus`.
        cuts: Its `Cuts`, shuffled.
        dtype: Of the token ids.
        path: Three files are made, of this name and a suffix.

    Returns:
        `{"examples", "example_tokens", "random_pairs"}`, numbers.
    """
    rows = np.zeros(len(cuts), _ROW)
    for name in _ROW.names:
        rows[name] = getattr(cuts, name)
    write_array(f"{path}.rows", rows)
    lengths = np.stack([cuts.a_length, cuts.b_length], axis=1)
    starts = np.stack([cuts.a_start, cuts.b_start], axis=1)
    with open(f"{path}.tokens", "wb") as stream:
        for first in range(0, len(cuts), _COPY_SIZE):
            chunk = slice(first, first + _COPY_SIZE)
            places = _ranges(starts[chunk].ravel(), lengths[chunk].ravel())
            stream.write(corpus.tokens[places].astype(dtype).tobytes())
    # Where the rows of each bucket begin, and their tokens.
    edges = np.arange(_NUM_BUCKETS, dtype=np.uint64) << np.uint64(
        64 - _INDEX_BITS
    )
    first_rows = np.append(np.searchsorted(cuts.order, edges), len(cuts))
    token_ends = np.concatenate([[0], np.cumsum(lengths.sum(axis=1))])
    index = np.stack([first_rows, token_ends[first_rows]])
    write_array(f"{path}.index", index.astype(np.int64))
    return {
        "examples": len(cuts),
        # With [CLS] and a [SEP] for each segment.
        "example_tokens": int(
            lengths.sum() + len(cuts) + np.count_nonzero(lengths)
        ),
        "random_pairs": int(cuts.label.sum()),
    }


class Runs:
    """All runs of a corpus, read as one sorted sequence.

    Args:
        paths: As `write_run` got them.
        dtype: Of the token ids.
    """

    def __init__(self, paths, dtype):
        self._paths = paths
        self._dtype = dtype
        # [runs, 2, buckets + 1]: the rows and the tokens before each bucket.
        self._index = np.stack(
            [
                np.fromfile(f"{path}.index", np.int64).reshape(2, -1)
                for path in paths
            ]
        )
        self._examples_before = self._index[:, 0].sum(axis=0)

    def read(self, start, stop):
        """Returns the `Examples` of the numbers from `start` to `stop`."""
        before = self._examples_before
        first = np.searchsorted(before, start, side="right") - 1
        last = max(first, np.searchsorted(before, stop))
        rows, tokens = [], []
        for path, index in zip(self._paths, self._index):
            rows.append(
                _read(f"{path}.rows", _ROW, index[0, first], index[0, last])
            )
            tokens.append(
                _read(
                    f"{path}.tokens",
                    self._dtype,
                    index[1, first],
                    index[1, last],
                )
            )
        skipped = start - before[first]
        merged = merge(rows, tokens)
        return merged.take(slice(skipped, skipped + stop - start))


def read_chunks(path, dtype):
    """Yields (number of the bucket, rows, token ids) of a run, as bytes.

    Args:
        path: As `write_run` got it.
        dtype: Of the token ids.
    """
    index = np.fromfile(f"{path}.index", np.int64).reshape(2, -1)
    for bucket in np.nonzero(np.diff(index[0]))[0].tolist():
        (first_row, last_row), (first, last) = index[:, bucket : bucket + 2]
        yield (
            bucket,
            _read(f"{path}.rows", _ROW, first_row, last_row).tobytes(),
            _read(f"{path}.tokens", dtype, first, last).tobytes(),
        )


def num_rows(rows):
    """Returns of how many examples the rows are, which are bytes."""
    return len(rows) // _ROW.itemsize


def from_bytes(rows, tokens, dtype):
    """Returns the arrays of one that `read_chunks` yields."""
    return np.frombuffer(rows, _ROW), np.frombuffer(tokens, dtype)


def split(rows, tokens, edges):
    """Merges stretches of runs, and cuts them anew.

    Args:
        rows: A list of the rows of each run.
        tokens: A list of their tokens.
        edges: Where to cut the merged rows.

    Returns:
        A list of (rows, token ids), as bytes.
    """
    merged = merge(rows, tokens)
    rows = np.concatenate(rows)
    rows = rows[np.argsort(rows["order"], kind="stable")]
    pieces = []
    for first, last in zip(edges, edges[1:]):
        piece = merged.take(slice(first, last))
        places = _ranges(piece.starts, piece.a_length + piece.b_length)
        found = merged.tokens[places].astype(tokens[0].dtype)
        pieces.append((rows[first:last].tobytes(), found.tobytes()))
    return pieces


def merge(rows, tokens):
    """Returns the `Examples` of stretches of runs, in the records' order.

    Args:
        rows: A list of the rows of each run.
        tokens: A list of their tokens.
    """
    rows = np.concatenate(rows)
    a_length = rows["a_length"].astype(np.int64)
    b_length = rows["b_length"].astype(np.int64)
    lengths = a_length + b_length
    examples = Examples(
        tokens=np.concatenate(tokens).astype(np.int32),
        starts=np.cumsum(lengths) - lengths,
        a_length=a_length,
        b_length=b_length,
        label=rows["label"] > 0,
        seeds=rows["seeds"].astype(np.int64),
    )
    # Stable: should two runs have the same 64 bits, the first comes first.
    return examples.take(np.argsort(rows["order"], kind="stable"))


def pack(examples, max_seq_length, vocabulary):
    """Returns examples as model inputs: [CLS] A [SEP] B [SEP] and padding.

    Args:
        examples: `Examples` that fit; those without a B are [CLS] A [SEP].
        max_seq_length: L.
        vocabulary: A `Vocabulary`.

    Returns:
        `{input_ids, input_mask, segment_ids}`, int32 [examples, L].
    """
    column = np.arange(max_seq_length)
    first_sep = examples.a_length[:, None] + 1
    has_b = examples.b_length[:, None] > 0
    last_sep = first_sep + has_b * (examples.b_length[:, None] + 1)
    is_b = column > first_sep
    # The columns that are no tokens look up anything, and are written over.
    input_ids = examples.tokens.take(
        examples.starts[:, None] + column - 1 - is_b, mode="clip"
    )
    input_ids[:, 0] = vocabulary.cls_id
    input_ids[(column == first_sep) | (column == last_sep)] = vocabulary.sep_id
    is_padding = column > last_sep
    input_ids[is_padding] = vocabulary.pad_id
    return {
        features.INPUT_IDS: input_ids,
        features.INPUT_MASK: (~is_padding).astype(np.int32),
        features.SEGMENT_IDS: (is_b & ~is_padding).astype(np.int32),
    }


def _ranges(starts, lengths):
    """Returns all integers of the ranges, one range after another."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(
        ends[-1] if len(ends) else 0
    )


def _read(path, dtype, first, last):
    size = dtype.itemsize
    with open(path, "rb") as stream:
        data = os.pread(
            stream.fileno(), int(last - first) * size, int(first) * size
        )
    return np.frombuffer(data, dtype)
