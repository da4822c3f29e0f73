"""Pre-training examples as TFRecords of tf.train.Example.

The features are google-research/bert's (`features.pretraining_record`). NumPy
writes the protocol buffers of a whole batch at once: tf.train.Example in Python
makes some 17,500 a second, fewer than the rest of the builder. Every varint is
laid out at its greatest width in a matrix of bytes with a row for each example,
and the unused bytes are then dropped. Protocol buffers leave the order of the
features open; here it is fixed, so equal examples are equal bytes.
"""

import collections
import itertools
import re
import typing
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files

# Tags of length-delimited fields: field number << 3 | 2.
_FIELD_1 = 0x0A
_FIELD_2 = 0x12
# Tag of the list in tf.train.Feature, by dtype.
_LIST_TAGS = {"float32": 0x12, "int64": 0x1A}

_SHARDS = re.compile(r"(.+)@(\d+)")
_MAX_SHARDS = 99_999


def output_paths(names: str) -> list[str]:
    """Returns the record files that `--output_file` names.

    Args:
        names: Comma-separated paths, as in the original. `wiki.tfrecord@4`
            stands for wiki.tfrecord-00000-of-00004 to -00003-of-00004.

    Raises:
        ValueError: If there is no path, a path occurs twice, or one is a
            folder.
    """
    paths = []
    for name in (name.strip() for name in names.split(",")):
        shards = _SHARDS.fullmatch(name)
        if shards and 1 <= int(shards[2]) <= _MAX_SHARDS:
            count = int(shards[2])
            paths += [
                f"{shards[1]}-{index:05d}-of-{count:05d}"
                for index in range(count)
            ]
        elif name and not shards:
            paths.append(name)
        else:
            raise ValueError(
                "`output_file` must name files, comma-separated, or "
                f"name@number_of_files. Received: output_file={names!r}."
            )
    for path, count in collections.Counter(paths).items():
        if count > 1:
            raise ValueError(
                f"`output_file` must name each file once. Received: {path}."
            )
        if files.is_folder(path):
            raise ValueError(
                f"`output_file` must name files. Received: {path}, a folder."
            )
    return paths


def spec_of(lengths: dict[str, int]) -> dict:
    """Returns `features.pretraining_record` for features of these lengths."""
    return features.pretraining_record(
        lengths[features.INPUT_IDS],
        lengths.get(features.MASKED_LM_IDS, 0),
        has_labels=features.NEXT_SENTENCE_LABELS in lengths,
        is_masked=features.MASKED_LM_IDS in lengths,
        max_sequences_per_row=lengths.get(features.FIRST_POSITIONS, 1),
    )


def serialize(examples: dict[str, np.ndarray]) -> list[bytes]:
    """Serializes a batch of examples.

    Args:
        examples: `{name: array}` as in `features.pretraining_record`, with or
            without masks and labels. Each is [B, length] (labels are [B, 1])
            of non-negative integers; the weights are float32.

    Returns:
        A list of B serialized tf.train.Example, as bytes.
    """
    num_examples = len(examples[features.INPUT_IDS])
    record = spec_of(
        {name: values.shape[1] for name, values in examples.items()}
    )
    entries = []
    for name, (dtype, _) in record.items():
        if dtype == "float32":
            values = np.ascontiguousarray(examples[name], "<f4")
            payload = [_all_used(values.view(np.uint8))]
        else:
            payload = [_varints(examples[name])]
        # A tf.train.Feature holds a list, whose packed values are field 1.
        feature = _field(_LIST_TAGS[dtype], _field(_FIELD_1, payload))
        # A map is a repeated message of key (1) and value (2).
        key = np.frombuffer(name.encode("ascii"), np.uint8)
        key = [_all_used(np.tile(key, (num_examples, 1)))]
        entries += _field(
            _FIELD_1, _field(_FIELD_1, key) + _field(_FIELD_2, feature)
        )
    message = _field(_FIELD_1, entries)
    # Adjacent parts of the same kind are cut into rows together.
    columns = []
    for are_all_used, parts in itertools.groupby(
        message, lambda part: part.is_used is None
    ):
        parts = list(parts)
        octets = np.concatenate([part.octets for part in parts], axis=1)
        if not are_all_used:
            octets = octets[
                np.concatenate([part.is_used for part in parts], axis=1)
            ]
        lengths = sum(part.lengths for part in parts)
        ends = np.cumsum(np.broadcast_to(lengths, num_examples)).tolist()
        data = octets.tobytes()
        columns.append(
            [data[start:end] for start, end in zip([0, *ends], ends)]
        )
    return [b"".join(row) for row in zip(*columns)]


def write(path: str, batches: Iterable[list[bytes]]) -> int:
    """Writes a TFRecord file.

    Args:
        path: The file; an existing file is replaced.
        batches: An iterable of lists of serialized examples.

    Returns:
        The number of records.

    Raises:
        OSError: If the file cannot be written, e.g. because the disk is full.
    """
    count = 0
    try:
        with tf.io.TFRecordWriter(path) as writer:
            for batch in batches:
                for record in batch:
                    writer.write(record)
                count += len(batch)
    except tf.errors.OpError as error:
        raise OSError(f"Cannot write {path}: {error.message}") from error
    return count


class _Octets(typing.NamedTuple):
    """A part of the messages of a batch, as rows of bytes.

    Args:
        octets: uint8 [B, width].
        is_used: bool [B, width], which of the bytes are used; None for all.
        lengths: int64 [B], how many are used; or the width, if all are.
    """

    octets: np.ndarray
    is_used: np.ndarray | None
    lengths: np.ndarray | int


def _all_used(octets):
    return _Octets(octets, None, octets.shape[1])


def _field(tag, parts):
    """Returns a message as a field: a tag, the length, and the parts."""
    num_examples = len(parts[0].octets)
    lengths = sum(part.lengths for part in parts)
    lengths = np.broadcast_to(lengths, num_examples)[:, None]
    tags = np.full((num_examples, 1), tag, np.uint8)
    return [_all_used(tags), _varints(lengths), *parts]


def _varints(values):
    """Returns non-negative integers [B, N] as varints.

    A varint has 7 bits a byte, the lowest first; all bytes but the last have
    their highest bit set.
    """
    values = np.asarray(values)
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    if width == 1:
        return _all_used(values.astype(np.uint8))
    octets = np.empty((*values.shape, width), np.uint8)
    is_used = np.ones(octets.shape, bool)
    for place in range(width):
        rest = values >> 7 * place
        octets[..., place] = (rest & 0x7F) | (rest > 0x7F) << 7
        if place:
            is_used[..., place] = rest > 0
    octets, is_used = (
        array.reshape(len(values), -1) for array in (octets, is_used)
    )
    if is_used.all():
        return _all_used(octets)
    return _Octets(octets, is_used, np.count_nonzero(is_used, axis=1))
