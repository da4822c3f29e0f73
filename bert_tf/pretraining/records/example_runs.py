"""Examples before they are masked: sorted runs on disk, merged by range.

Every block of the corpus makes one run: its examples with their tokens, sorted
by a random number. The records hold the examples of all runs in this order,
which shuffles the whole corpus. To write the records m to n, a task reads the
stretch of every run in which they lie; an index says where that is.
"""

import dataclasses
from collections.abc import Iterator
from collections.abc import Sequence

import numpy as np

from bert_tf import features
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.objectives.cuts import Cuts
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

# Highest bits of the order. The index of a run has an entry for each value.
_INDEX_BITS = 12
_NUM_BUCKETS = 1 << _INDEX_BITS

# Suffixes of the files of a run.
SUFFIXES = ("rows", "tokens", "index")

# Examples whose tokens are copied together.
_COPY_SIZE = 1 << 16

# An example without its tokens, as in the `.rows` file.
_HEADER = np.dtype(
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
        tokens: [tokens], the ids of segments A and B of each example in turn.
        starts: int64 [examples], where each example begins in `tokens`.
        headers: `_HEADER` [examples]: the random order, the seeds of the
            masking, the lengths of A and B, and the objective's label.
    """

    tokens: np.ndarray
    starts: np.ndarray
    headers: np.ndarray

    def __len__(self):
        return len(self.starts)

    def lengths(self, special: SpecialTokens) -> np.ndarray:
        """Returns the lengths with special tokens: int64 [examples].

        Args:
            special: The `SpecialTokens`.
        """
        is_pair = self.headers["b_length"] > 0
        num_special = np.where(is_pair, special.count(2), special.count(1))
        return _num_tokens(self.headers) + num_special

    def take(self, chosen: np.ndarray | slice) -> "Examples":
        """Returns the examples that an index array or slice selects."""
        return Examples(
            tokens=self.tokens,
            starts=self.starts[chosen],
            headers=self.headers[chosen],
        )

    def own_tokens(self) -> np.ndarray:
        """Returns the concatenated tokens of just these examples."""
        return self.tokens[_ranges(self.starts, _num_tokens(self.headers))]


def _num_tokens(headers):
    """Returns the number of tokens in A and B: int64 [examples]."""
    return headers["a_length"].astype(np.int64) + headers["b_length"]


def write_run(
    corpus: blocks.Corpus,
    cuts: Cuts,
    dtype: np.dtype,
    path: str,
    special: SpecialTokens,
) -> dict:
    """Writes the examples of a block.

    Args:
        corpus: The block, a `Corpus`.
        cuts: Its `Cuts`, shuffled.
        dtype: Dtype of the token ids.
        path: Path of the files to write, without their `SUFFIXES`.
        special: The `SpecialTokens`; they count as tokens.

    Returns:
        The counts `{"examples", "example_tokens", "random_pairs"}`.
    """
    headers = np.zeros(len(cuts), _HEADER)
    for name in _HEADER.fields or ():
        headers[name] = getattr(cuts, name)
    blocks.write_array(f"{path}.rows", headers)
    lengths = np.stack([cuts.a_length, cuts.b_length], axis=1)
    starts = np.stack([cuts.a_start, cuts.b_start], axis=1)
    with open(f"{path}.tokens", "wb") as stream:
        for first in range(0, len(cuts), _COPY_SIZE):
            chunk = slice(first, first + _COPY_SIZE)
            places = _ranges(starts[chunk].ravel(), lengths[chunk].ravel())
            stream.write(corpus.tokens[places].astype(dtype).tobytes())
    # Where the examples and the tokens of each bucket begin.
    edges = np.arange(_NUM_BUCKETS, dtype=np.uint64) << np.uint64(
        64 - _INDEX_BITS
    )
    first_examples = np.append(np.searchsorted(cuts.order, edges), len(cuts))
    token_starts = blocks.starts_of(lengths.sum(axis=1))
    index = np.stack([first_examples, token_starts[first_examples]])
    blocks.write_array(f"{path}.index", index.astype(np.int64))
    num_pairs = np.count_nonzero(cuts.b_length)
    num_special = (len(cuts) - num_pairs) * special.count(1)
    num_special += num_pairs * special.count(2)
    return {
        "examples": len(cuts),
        "example_tokens": int(lengths.sum() + num_special),
        "random_pairs": int(cuts.label.sum()),
    }


class Runs:
    """All runs of a corpus, read as one sorted sequence.

    Args:
        paths: The paths that were passed to `write_run`.
        dtype: Dtype of the token ids.
    """

    def __init__(self, paths: list[str], dtype: np.dtype) -> None:
        self._paths = paths
        self._dtype = dtype
        # [buckets + 1]: number of examples of all runs before each. Only this
        # sum is kept: there may be thousands of runs, in every process.
        self._examples_before = np.zeros(_NUM_BUCKETS + 1, np.int64)
        for path in paths:
            self._examples_before += _open_index(path)[0]

    def read(self, first: int, last: int) -> Examples:
        """Returns the examples with the numbers [first, last)."""
        before = self._examples_before
        bucket = np.searchsorted(before, first, side="right") - 1
        end = max(bucket, np.searchsorted(before, last))
        headers, tokens = [], []
        for path in self._paths:
            index = np.array(_open_index(path)[:, [bucket, end]])
            headers.append(_read(f"{path}.rows", _HEADER, *index[0]))
            tokens.append(_read(f"{path}.tokens", self._dtype, *index[1]))
        skipped = first - before[bucket]
        merged = merge(headers, tokens)
        return merged.take(slice(skipped, skipped + last - first))


def read_buckets(
    path: str, dtype: np.dtype
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Yields (number, headers, token ids) of each bucket of a run.

    Args:
        path: The path that was passed to `write_run`.
        dtype: Dtype of the token ids.
    """
    index = np.fromfile(f"{path}.index", np.int64).reshape(2, -1)
    for bucket in np.nonzero(np.diff(index[0]))[0].tolist():
        examples, starts = index[:, bucket : bucket + 2]
        yield (
            bucket,
            _read(f"{path}.rows", _HEADER, *examples),
            _read(f"{path}.tokens", dtype, *starts),
        )


def merge(
    headers: Sequence[np.ndarray], tokens: Sequence[np.ndarray]
) -> Examples:
    """Returns the examples of stretches of runs, in the records' order.

    Args:
        headers: The headers from each run.
        tokens: The token ids from each run.
    """
    headers = np.concatenate(headers)
    lengths = _num_tokens(headers)
    examples = Examples(
        tokens=np.concatenate(tokens),
        starts=np.cumsum(lengths) - lengths,
        headers=headers,
    )
    # Stable: if two runs share all 64 bits, the first run comes first.
    return examples.take(np.argsort(headers["order"], kind="stable"))


def pack(
    examples: Examples, max_seq_length: int, vocabulary: Vocabulary
) -> dict:
    """Returns examples as model inputs: [CLS] A [SEP] B [SEP] and padding.

    The vocabulary defines the special tokens, and how many [SEP] stand between
    A and B.

    Args:
        examples: `Examples` that fit. Without a B they become [CLS] A [SEP].
        max_seq_length: L.
        vocabulary: A `Vocabulary`.

    Returns:
        `{input_ids, input_mask, segment_ids}`, int32 [examples, L].
    """
    special = vocabulary.special
    column = np.arange(max_seq_length)
    a_end = examples.headers["a_length"][:, None].astype(np.int64) + 1
    b_start = a_end + special.num_between
    last_sep = examples.lengths(special)[:, None] - 1
    is_b = column >= b_start
    # Other columns look up arbitrary tokens, and are overwritten below.
    input_ids = examples.tokens.take(
        examples.starts[:, None] + column - 1 - special.num_between * is_b,
        mode="clip",
    ).astype(np.int32)
    input_ids[:, 0] = vocabulary.cls_id
    is_sep = (column >= a_end) & ~is_b | (column == last_sep)
    input_ids[is_sep] = vocabulary.sep_id
    is_padding = column > last_sep
    input_ids[is_padding] = vocabulary.pad_id
    return {
        features.INPUT_IDS: input_ids,
        features.INPUT_MASK: (~is_padding).astype(np.int32),
        features.SEGMENT_IDS: special.second_segment
        * (is_b & ~is_padding).astype(np.int32),
    }


def _ranges(starts, lengths):
    """Returns the integers of all ranges, concatenated."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(
        ends[-1] if len(ends) else 0
    )


def _open_index(path):
    """Returns int64 [2, buckets + 1]: examples and tokens before each bucket.

    It is mapped, so that only what is looked up is read.
    """
    return np.memmap(
        f"{path}.index", np.int64, mode="r", shape=(2, _NUM_BUCKETS + 1)
    )


def _read(path, dtype, first, last):
    return np.fromfile(
        path, dtype, count=last - first, offset=first * dtype.itemsize
    )
