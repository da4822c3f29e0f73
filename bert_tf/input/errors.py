"""Errors of the input, as messages that a user can act on."""

import contextlib
import re
import time
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import files

# The beginning of errors that are raised while records are read.
BAD_RECORDS = "Bad records:"

# Longest search for the file that a record came from.
_SEARCH_SECONDS = 60.0
# A record is its length, a checksum of the length, the data, and a checksum of
# the data.
_HEADER_SIZE = 8 + 4
_FRAME_SIZE = _HEADER_SIZE + 4
_READ_AHEAD = 1 << 18


@contextlib.contextmanager
def clear_errors(paths: Sequence[str] = ()) -> Iterator[None]:
    """Turns TensorFlow's errors about the input into `ValueError`.

    Args:
        paths: The record files that are read in the block. The message names
            the damaged one, which TensorFlow's does not.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"{BAD_RECORDS} {_describe_damage(paths, error)}"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        for start in (BAD_RECORDS, "Key: "):
            if start in error.message:
                text = error.message[error.message.index(start) :]
                text = text.removeprefix(BAD_RECORDS).strip()
                text = text.split("\n")[0].rstrip("]")
                raise ValueError(f"{BAD_RECORDS} {text}") from error
        raise


def reason(error: Exception) -> str:
    """Returns an error's text without TensorFlow's names of operations."""
    return re.sub(r"^\{\{.*?\}\} | \[Op:.*", "", str(error))


def find_damage(paths: Sequence[str], offset: int) -> tuple[str, int] | None:
    """Returns the path of the damaged file and where its record begins.

    Args:
        paths: Record files.
        offset: Offset of the damage as TensorFlow reports it: the beginning of
            a record, or of its data.

    Returns:
        (path, offset), or None if no file is damaged there or the search took
        more than a minute.
    """
    end = time.monotonic() + _SEARCH_SECONDS
    for path in paths:
        for start in (offset - _HEADER_SIZE, offset):
            if start >= 0 and _has_damaged_data(path, start):
                return path, start
        if time.monotonic() > end:
            return None
    # A damaged header cannot be told from bytes that are no header. To find
    # one, the files are read from their beginnings.
    for path in paths:
        place = 0
        try:
            for record in _records(path, place):
                place += len(record) + _FRAME_SIZE
                if place > offset:
                    break
                if time.monotonic() > end:
                    return None
        except tf.errors.DataLossError:
            if place == offset:
                return path, place
    return None


def check_end(path: str, num_records: int, num_bytes: int) -> None:
    """Checks that a file holds nothing after its records.

    TensorFlow takes a header that is cut short for the end of the file.

    Args:
        path: A TFRecord file that was read to its end.
        num_records: How many records there were.
        num_bytes: How many bytes they have together.

    Raises:
        ValueError: If the file holds more.
    """
    end = num_bytes + num_records * _FRAME_SIZE
    if files.size(path) != end:
        raise ValueError(f"{BAD_RECORDS} {_damage(path, end)}")


def _damage(path, offset):
    return (
        f"{path}: the record at byte {offset} is damaged or cut short. "
        "Make or copy the file again, or leave it out."
    )


def _describe_damage(paths, error):
    match = re.search(r"\w+ record at (\d+)", error.message)
    found = None
    # A file may have been deleted meanwhile.
    with contextlib.suppress(OSError, tf.errors.OpError):
        found = match and find_damage(paths, int(match[1]))
    if found:
        return _damage(*found)
    where = paths[0] if len(paths) == 1 else "a file"
    return (
        f"{where} is damaged or cut short: "
        f"{match[0] if match else reason(error)}. "
        "bert_tf.data.inspect_records reads files one by one."
    )


def _records(path, start):
    """Returns an iterator of a file's records, bytes, from an offset on."""
    records = tf.data.experimental.from_variant(
        tf.raw_ops.TFRecordDatasetV2(
            filenames=[path],
            compression_type="",
            buffer_size=_READ_AHEAD,
            byte_offsets=[start],
        ),
        tf.TensorSpec([], tf.string),
    )
    # tf.data's optimizations do not know `byte_offsets`, and fail.
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return records.with_options(options).as_numpy_iterator()


def _has_damaged_data(path, start):
    """Returns whether there is a record with a good header and bad data."""
    try:
        next(_records(path, start), None)
    except tf.errors.DataLossError as error:
        return not re.search(rf"corrupted record at {start}\b", error.message)
    return False
