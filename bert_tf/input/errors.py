"""Errors of the input, told as what the user can do something about."""

import contextlib
import re
import time
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf

from bert_tf import files

# Begins the errors that are raised while records are read.
BAD_RECORDS = "Bad records:"

# Longest search for the file that a record came from.
_SEARCH_SECONDS = 60.0
# A record is its length, a checksum of that, the data and a checksum of them.
_HEADER_SIZE = 8 + 4
_FRAME_SIZE = _HEADER_SIZE + 4
_READ_AHEAD = 1 << 18


@contextlib.contextmanager
def clear_errors(paths: Sequence[str] = ()) -> Iterator[None]:
    """Turns TensorFlow's errors about the input into `ValueError`.

    Args:
        paths: The record files that are read in the block. TensorFlow does
            not tell which of them is damaged; this does.
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
        offset: Of the damaged bytes, as TensorFlow tells it: the beginning of
            a record, or of its data.

    Returns:
        (path, offset), or None where no file is damaged there, or a minute
        was not enough to tell.
    """
    end = time.monotonic() + _SEARCH_SECONDS
    for path in paths:
        for start in (offset - _HEADER_SIZE, offset):
            if start >= 0 and _has_damaged_data(path, start):
                return path, start
        if time.monotonic() > end:
            return None
    # Only a damaged header cannot be told from what is no header at all: then
    # the files are gone through from their beginnings.
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
    """Checks that the records of a file are all that it holds.

    TensorFlow takes a header of which the end is missing for the file's end.

    Args:
        path: A TFRecord file that was read to its end.
        num_records: How many records there were.
        num_bytes: How many bytes they have together.

    Raises:
        ValueError: If there is more in it.
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
    # A file may be gone meanwhile.
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
    """Returns the records of a file from a byte on, an iterator of bytes."""
    records = tf.data.experimental.from_variant(
        tf.raw_ops.TFRecordDatasetV2(
            filenames=[path],
            compression_type="",
            buffer_size=_READ_AHEAD,
            byte_offsets=[start],
        ),
        tf.TensorSpec([], tf.string),
    )
    # What rewrites data sets does not know the offsets, and fails.
    options = tf.data.Options()
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    return records.with_options(options).as_numpy_iterator()


def _has_damaged_data(path, start):
    """Returns whether a record with a good header, and bad data, is there."""
    try:
        next(_records(path, start), None)
    except tf.errors.DataLossError as error:
        return not re.search(rf"corrupted record at {start}\b", error.message)
    return False
