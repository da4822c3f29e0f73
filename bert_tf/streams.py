"""Files as streams of bytes: local or remote, and compressed ones."""

import bz2
import codecs
import contextlib
import gzip
import hashlib
import io
import lzma
import os
import threading
import zlib
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from bert_tf import files

_DECOMPRESSORS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": lambda file: io.BufferedReader(_Bz2Bytes(file), _READ_AHEAD),
}
_READ_AHEAD = 1 << 20
# Raised when a compressed file is damaged, cut short or not compressed at all.
DAMAGE_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def is_compressed(path: files.AnyPath) -> bool:
    """Returns whether a file is compressed, by its name."""
    return os.fspath(path).endswith(tuple(_DECOMPRESSORS))


def open_bytes(
    path: files.AnyPath, decompress: bool = True
) -> io.BufferedIOBase:
    """Opens a file for reading bytes, local or not, .gz, .xz and .bz2 too.

    Args:
        path: The file.
        decompress: Whether to decompress a compressed file; reading then raises
            one of `DAMAGE_ERRORS` if it is damaged.
    """
    path = os.fspath(path)
    # Buffered: otherwise each read would be a request to the store.
    stream = (
        io.BufferedReader(_RemoteBytes(path), _READ_AHEAD)
        if files.is_remote(path)
        else None
    )
    for suffix, opener in _DECOMPRESSORS.items():
        if decompress and path.endswith(suffix):
            return opener(stream or path)
    return stream or open(path, "rb")


def lines(
    path: files.AnyPath, keep_ends: bool = False
) -> Iterator[tuple[int, str]]:
    """Yields (number, text) of a file's lines, which are read one by one.

    Lines end at LF: a text may hold U+2028 or a form feed. A byte order mark is
    left out, and .gz, .xz and .bz2 are decompressed.

    Args:
        path: The file.
        keep_ends: Whether lines keep their LF or CR LF.

    Raises:
        ValueError: If the file is missing or damaged, or a line is not UTF-8.
            The message names the file and the line.
    """
    if not files.exists(path) or files.is_folder(path):
        raise ValueError(f"There is no file {path}.")
    number = 0
    try:
        with contextlib.closing(open_bytes(path)) as stream:
            for number, line in enumerate(stream, start=1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if not keep_ends:
                    line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield number, line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 "
            f"(byte {error.object[error.start]:#04x})."
        ) from error
    except DAMAGE_ERRORS as error:
        raise ValueError(f"{path}: damaged after line {number}.") from error


class _RemoteBytes(io.RawIOBase):
    """TensorFlow's reader as a Python stream; it has no `readline(limit)`."""

    def __init__(self, path):
        super().__init__()
        self._file = files.gfile().GFile(path, "rb")

    def readable(self):
        return True

    def seekable(self):
        return True

    def readinto(self, buffer):
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset, whence=os.SEEK_SET):
        if whence == os.SEEK_CUR:
            offset += self._file.tell()
        elif whence == os.SEEK_END:
            offset += self._file.size()
        self._file.seek(offset)
        return offset

    def tell(self):
        return self._file.tell()

    def close(self):
        self._file.close()
        super().close()


class _Bz2Bytes(io.RawIOBase):
    """The contents of a .bz2 file; reading raises `EOFError` if it is damaged.

    bz2's own reader raises an `OSError` then, like a failing disk, but without
    an error number.
    """

    def __init__(self, file):
        super().__init__()
        self._file = bz2.BZ2File(file)

    def readable(self):
        return True

    def seekable(self):
        return self._file.seekable()

    def readinto(self, buffer):
        with _damage_told():
            return self._file.readinto(buffer)

    def seek(self, offset, whence=os.SEEK_SET):
        # Seeking reads up to the offset.
        with _damage_told():
            return self._file.seek(offset, whence)

    def tell(self):
        return self._file.tell()

    def close(self):
        self._file.close()
        super().close()


@contextlib.contextmanager
def _damage_told():
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise EOFError(str(error)) from error
        raise


def sha256(path: files.AnyPath, stop: threading.Event | None = None) -> str:
    """Returns the SHA-256 of a file, not decompressed, in hexadecimal.

    Args:
        path: The file.
        stop: Ends the work once it is set, for a call in a thread, which no
            signal reaches.

    Raises:
        InterruptedError: If `stop` is set.
    """
    digest = hashlib.sha256()
    with open_bytes(path, decompress=False) as stream:
        while block := stream.read(_READ_AHEAD):
            if stop is not None and stop.is_set():
                raise InterruptedError(f"{path}: hashing it was stopped.")
            digest.update(block)
    return digest.hexdigest()
