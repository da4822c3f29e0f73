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
# A record's length, the checksum of that, and the checksum of its data.
_FRAME_SIZE = 8 + 4 + 4


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


def find_damage(paths: Sequence[str]) -> tuple[str, int] | None:
    """Returns the path of the first damaged file and its record's number.

    Args:
        paths: Record files, which are read from their beginnings.

    Returns:
        (path, number from 1 on), or None if no file is damaged or the search
        took more than a minute.
    """
    end = time.monotonic() + _SEARCH_SECONDS
    for path in paths:
        number = 1
        try:
            for _ in tf.data.TFRecordDataset(path):
                number += 1
                if time.monotonic() > end:
                    return None
        except tf.errors.DataLossError:
            return path, number
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
    if files.size(path) != num_bytes + num_records * _FRAME_SIZE:
        raise ValueError(f"{BAD_RECORDS} {_damage(path, num_records + 1)}")


def _damage(path, number):
    return (
        f"{path}: record {number} is damaged or cut short. "
        "Make or copy the file again, or leave it out."
    )


def _describe_damage(paths, error):
    found = None
    # A file may have been deleted meanwhile.
    with contextlib.suppress(OSError, tf.errors.OpError):
        found = find_damage(paths)
    if found:
        return _damage(*found)
    where = paths[0] if len(paths) == 1 else "a file"
    return (
        f"{where} is damaged or cut short: "
        f"{reason(error).partition(chr(10))[0]}. "
        "bert_tf.data.inspect_records reads files one by one."
    )
