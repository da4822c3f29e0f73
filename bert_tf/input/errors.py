"""Errors of the input, told as what the user can do something about."""

import contextlib
import re
import struct
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
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


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
    # Only a damaged header cannot be told from what is no header at all: then
    # the file is gone through from its beginning.
    for find in (_find_damaged_data, _find_damaged_header):
        for path in paths:
            size = files.size(path)
            with files.open_bytes(path, decompress=False) as stream:
                place = find(stream, size, offset, end)
            if place is not None:
                return path, place
            if time.monotonic() > end:
                return None
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
    end = num_bytes + num_records * (_HEADER.size + _CHECKSUM.size)
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


def _find_damaged_data(stream, size, offset, end):
    del end  # Two records are read.
    for start in (offset - _HEADER.size, offset):
        length = _record_length(stream, size, start)
        if length is None:
            continue
        if length > size - start - _HEADER.size - _CHECKSUM.size:
            return start
        data = stream.read(length)
        (checksum,) = _CHECKSUM.unpack(stream.read(_CHECKSUM.size))
        if checksum != _masked_crc32c(data):
            return start
    return None


def _find_damaged_header(stream, size, offset, end):
    start = 0
    while start < min(offset, size) and time.monotonic() < end:
        length = _record_length(stream, size, start)
        if length is None:
            return None
        start += _HEADER.size + length + _CHECKSUM.size
    is_record = start == offset < size
    if is_record and _record_length(stream, size, start) is None:
        return start
    return None


def _record_length(stream, size, start):
    """Returns the length of the record that begins there, or None."""
    if not 0 <= start <= size - _HEADER.size:
        return None
    stream.seek(start)
    header = stream.read(_HEADER.size)
    length, checksum = _HEADER.unpack(header)
    return length if checksum == _masked_crc32c(header[:8]) else None


def _masked_crc32c(data):
    """Returns the checksum that TFRecord files have (CRC-32C, masked)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_of_byte(value):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


_CRC_TABLE = [_crc_of_byte(value) for value in range(256)]
