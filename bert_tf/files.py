"""Files on local disks and in object stores (gs://).

TensorFlow is imported only on first use: `config` imports this module, and the
models, which import `config`, run without TensorFlow on other Keras backends.
"""

import bz2
import contextlib
import errno
import glob
import gzip
import hashlib
import io
import json
import lzma
import math
import os
import re
import reprlib
import shutil
import stat
import tempfile
import threading
import uuid
import zlib
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

# A path on a local disk or in an object store.
AnyPath = str | os.PathLike[str]

_DECOMPRESSORS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": lambda file: io.BufferedReader(_Bz2Bytes(file), _READ_AHEAD),
}
_READ_AHEAD = 1 << 20
# Most bytes of a text file in a model folder. A vocabulary of half a million
# entries has 10 MB.
MAX_FOLDER_TEXT = 1 << 25
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# A full disk, an exhausted quota, or a file that is too large.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# JSON may escape half of a surrogate pair, which is no character and cannot be
# encoded in UTF-8.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
# See `is_temporary`.
_TEMPORARY_FILE = re.compile(r"\.+[A-Za-z_]+(\.[a-z]+)+(\.[0-9a-f]{8})+")
# How messages show received values.
_SHOWN = reprlib.Repr()
_SHOWN.maxlist = 20
_SHOWN.maxlevel = 3
_SHOWN.maxstring = 60
_MAX_SHOWN = 200
# Raised when a compressed file is damaged, cut short or not compressed at all.
DAMAGE_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def _gfile():
    import tensorflow as tf

    return tf.io.gfile


def is_remote(path: AnyPath) -> bool:
    """Returns whether `path` names an object store: gs://, s3:// and so on."""
    return "://" in os.fspath(path)


def exists(path: AnyPath) -> bool:
    if is_remote(path):
        return _gfile().exists(path)
    return os.path.exists(path)


def is_folder(path: AnyPath) -> bool:
    if is_remote(path):
        return _gfile().isdir(path)
    return os.path.isdir(path)


def size(path: AnyPath) -> int:
    """Returns the size of a file in bytes."""
    if is_remote(path):
        return _gfile().stat(path).length
    return os.path.getsize(path)


def list_folder(path: AnyPath) -> list[str]:
    """Returns the names in a folder, sorted; [] if there is no such folder."""
    if not is_folder(path):
        return []
    if is_remote(path):
        return sorted(name.rstrip("/") for name in _gfile().listdir(path))
    return sorted(os.listdir(path))


def make_folder(path: AnyPath) -> None:
    """Makes a folder and its parents; it may exist already.

    Raises:
        ValueError: If a file of that name is in the way.
    """
    if is_remote(path):
        _gfile().makedirs(path)
        return
    try:
        os.makedirs(path, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise _in_the_way(path) from error


def check_may_be_written_into(path: AnyPath) -> None:
    """Checks that files can be written into a folder; makes nothing.

    Long work checks this before it begins. The folder may be yet to be made.
    Object stores are not checked.

    Raises:
        ValueError: If a file is in the way, or the user may not write there.
    """
    if is_remote(path):
        return
    found = os.fspath(path)
    while not os.path.lexists(found):
        found = os.path.dirname(found) or "."
    if not os.path.isdir(found):
        raise _in_the_way(path)
    if not os.access(found, os.W_OK | os.X_OK):
        raise ValueError(
            f"{path} must be a folder to write into. Received: a path where "
            f"{found} may not be written."
        )


def _in_the_way(path):
    return ValueError(f"{path} must be a folder, but a file is in the way.")


def remove(path: AnyPath) -> None:
    """Removes a file, or a folder with all its contents."""
    if is_remote(path):
        if _gfile().isdir(path):
            _gfile().rmtree(path)
        else:
            _gfile().remove(path)
    elif os.path.isdir(path):
        shutil.rmtree(path)
    else:
        os.remove(path)


def expand_globs(patterns: str, flag: str = "input_file") -> list[str]:
    """Returns the sorted paths that match comma-separated globs.

    A file that two of the patterns match is there twice, as with
    google-research/bert's flags.

    Args:
        patterns: E.g. `"wiki-*.txt,gs://bucket/books-*.txt"`.
        flag: The flag or argument that the patterns come from, for errors.

    Raises:
        ValueError: If a pattern matches no file, or all are empty.
    """
    paths: list[str] = []
    names = [name.strip() for name in patterns.split(",") if name.strip()]
    if not names:
        raise ValueError(f"`{flag}` must name at least one file. Received: ''.")
    for name in names:
        found = _gfile().glob(name) if is_remote(name) else glob.glob(name)
        found = [path for path in found if not is_folder(path)]
        if not found:
            raise ValueError(
                f"`{flag}` matches no file. Received: {flag}={name!r}."
            )
        paths += found
    return sorted(paths)


def is_compressed(path: AnyPath) -> bool:
    """Returns whether a file is compressed, by its name."""
    return os.fspath(path).endswith(tuple(_DECOMPRESSORS))


def open_bytes(path: AnyPath, decompress: bool = True) -> io.BufferedIOBase:
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
        if is_remote(path)
        else None
    )
    for suffix, opener in _DECOMPRESSORS.items():
        if decompress and path.endswith(suffix):
            return opener(stream or path)
    return stream or open(path, "rb")


class _RemoteBytes(io.RawIOBase):
    """TensorFlow's reader as a Python stream; it has no `readline(limit)`."""

    def __init__(self, path):
        super().__init__()
        self._file = _gfile().GFile(path, "rb")

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


def sha256(path: AnyPath, stop: threading.Event | None = None) -> str:
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


def read_bytes(path: AnyPath, max_bytes: int | None = None) -> bytes:
    """Reads a whole file.

    Raises:
        ValueError: If there is no such file. With `max_bytes`, also if it is
            larger, a pipe, a device or a pointer of Git LFS. The message
            names the path.
    """
    if not exists(path) or is_folder(path):
        raise ValueError(f"There is no file {path}.")
    if max_bytes is not None:
        _check_regular(path)
        if size(path) > max_bytes:
            raise ValueError(
                f"{path}: must hold at most {max_bytes:,} bytes. "
                f"Received: {size(path):,}."
            )
    opener = _gfile().GFile if is_remote(path) else open
    with opener(path, "rb") as stream:
        if max_bytes is None:
            return stream.read()
        # The size may be wrong: files in /proc report none, and a file may
        # grow. Read in pieces: `read(n)` allocates all n bytes.
        data = bytearray()
        while piece := stream.read(_READ_AHEAD):
            data += piece
            if len(data) > max_bytes:
                raise ValueError(
                    f"{path}: must hold at most {max_bytes:,} bytes."
                )
    check_no_lfs_pointer(path, data)
    return bytes(data)


def check_no_lfs_pointer(path: AnyPath, data: bytes | bytearray) -> None:
    """Raises `ValueError` if a file is only Git LFS's note of where it is.

    Args:
        path: The file.
        data: Its contents, or how they begin.
    """
    if data.startswith(_LFS_POINTER):
        raise ValueError(
            f"{path}: is a pointer of Git LFS, not the file itself. Run "
            "`git lfs pull` in its folder."
        )


def _check_regular(path):
    """Raises `ValueError` if reading might wait or go on forever."""
    if not is_remote(path) and not os.path.isfile(path):
        raise ValueError(f"{path}: must be a file, and no pipe or device.")


def read_text(path: AnyPath, max_bytes: int | None = None) -> str:
    """Reads UTF-8 text, line ends untouched.

    Raises:
        ValueError: As for `read_bytes`, or if the file is not UTF-8; the
            message names the line of the first bad byte.
    """
    data = read_bytes(path, max_bytes)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path}, line {line}: not UTF-8 (byte {data[error.start]:#04x})."
        ) from error


def read_json(path: AnyPath, max_bytes: int | None = None) -> Any:
    """Returns the value in a JSON file, which may begin with a byte order mark.

    Raises:
        ValueError: As for `read_text` and `parse_json`.
    """
    # Editors on Windows write the mark.
    return parse_json(read_text(path, max_bytes).removeprefix("\ufeff"), path)


def read_object(path: AnyPath) -> dict[str, Any]:
    """Returns the contents of a JSON file of a model folder, a dictionary.

    Raises:
        ValueError: If it is missing, damaged, too large or no JSON object; the
            message names the path.
    """
    values = read_json(path, MAX_FOLDER_TEXT)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must be a JSON object.")
    return values


def checked(
    path: AnyPath,
    values: dict[str, Any],
    checks: Mapping[str, tuple[Callable[[Any], bool], str]],
) -> dict[str, Any]:
    """Checks values of a JSON file; returns them without nulls of these keys.

    Args:
        path: The file, for the message.
        values: Its contents.
        checks: {key: (function that returns whether a value is valid,
            description of a valid value)}. A key may be missing; null means
            the same.

    Raises:
        ValueError: If a value is invalid; the message names file and key.
    """
    values = dict(values)
    for key, (is_good, expected) in checks.items():
        if values.get(key) is None:
            values.pop(key, None)
        elif not is_good(values[key]):
            raise ValueError(
                f"{path}: `{key}` must be {expected}. "
                f"Received: {key}={shortened(values[key])}."
            )
    return values


def check_path(name: str, value: Any) -> None:
    """Raises `ValueError` if an argument is no path.

    Args:
        name: Name of the argument.
        value: Value of the argument.
    """
    if not isinstance(value, str | os.PathLike):
        raise ValueError(
            f"`{name}` must be a path. Received: {type(value).__name__}."
        )
    if not os.fspath(value):
        raise ValueError(f"`{name}` must be a path. Received: {value!r}.")


@contextlib.contextmanager
def errors_named(place: AnyPath) -> Iterator[None]:
    """Puts `place` before the messages of the block's `ValueError`s."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def parse_json(text: str, place: AnyPath) -> Any:
    """Returns the value of JSON text; errors begin with its `place`.

    Raises:
        ValueError: If it is not JSON, is nested too deeply, or has a number
            or a string that Python cannot represent.
    """
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError(f"{place}: JSON is nested too deeply.") from None
    except ValueError as error:
        raise ValueError(f"{place}: not JSON: {error}") from error
    return value


def to_json(value: Any) -> str:
    """Returns the text of a JSON file, indented, its characters unescaped."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def with_nulls(value: Any) -> Any:
    """Returns a value with None for every NaN, which JSON does not have.

    Args:
        value: Dictionaries and lists of what JSON has, and NaN.
    """
    if isinstance(value, dict):
        return {name: with_nulls(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(with_nulls, value))
    return None if isinstance(value, float) and math.isnan(value) else value


def shortened(value: object) -> str:
    """Returns a value as messages show it: on one line, cut if it is long."""
    text = _SHOWN.repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def counted(number: int, one: str, more: str, separator: str = "") -> str:
    """Returns a number with a word for one or for more: "1 row".

    Args:
        number: The number.
        one: What follows 1.
        more: What follows any other number.
        separator: Separator of thousands, "," or none.
    """
    return f"{number:{separator}} {one if number == 1 else more}"


def write_text(path: AnyPath, text: str) -> None:
    """Writes the whole file or nothing."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: AnyPath, data: bytes) -> None:
    """Writes the whole file or nothing."""
    with whole_file(path) as temporary:
        if is_remote(temporary):
            with _gfile().GFile(temporary, "wb") as stream:
                stream.write(data)
        else:
            with open(temporary, "wb") as stream:
                stream.write(data)


@contextlib.contextmanager
def whole_file(path: AnyPath) -> Iterator[str]:
    """Yields a temporary path beside `path`, which is renamed to it at the end.

    If the block raises, the temporary file is removed and the file at `path`
    stays as it was. If the error is an `OSError` of a full disk that names no
    file, it then names `path`.

    Raises:
        ValueError: If `path` is a device, a pipe or /dev/stdout: the rename
            would replace it by a file.
    """
    path = os.fspath(path)
    check_may_be_replaced(path)
    parent, name = path.rsplit("/", 1) if "/" in path else ("", path)
    if parent:
        make_folder(parent)
    random = uuid.uuid4().hex[:8]
    temporary = f"{path[: len(path) - len(name)]}.{name}.{random}"
    try:
        yield temporary
        if is_remote(path):
            _gfile().rename(temporary, path, overwrite=True)
        else:
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())
            os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(Exception):
            remove(temporary)
        if isinstance(error, OSError):
            name_full_disk(error, path)
        raise


def name_full_disk(error: OSError, path: AnyPath) -> None:
    """Sets the file name of a full disk's error if it has none."""
    if error.errno in _FULL and not error.filename:
        error.filename = os.fspath(path)


def check_may_be_replaced(path: AnyPath) -> None:
    """Raises `ValueError` if `path` is no file that may be replaced.

    `whole_file` checks this, too. Long work checks it before it begins.
    """
    path = os.fspath(path)
    if is_remote(path):
        return
    # /dev/stdout is a link into /proc, which leads on to whatever is open.
    folder = os.path.realpath(os.path.dirname(path) or ".")
    link = os.readlink(path) if os.path.islink(path) else ""
    is_open_one = f"{folder}/".startswith("/proc/") or link.startswith("/proc/")
    mode = os.stat(path).st_mode if os.path.exists(path) else 0
    is_file = not mode or stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    if is_open_one or not is_file:
        raise ValueError(
            f"{path}: must be a file to write. Received: a device, a pipe, or "
            "what a process has open."
        )


def check_is_no_input(
    name: str, paths: Iterable[AnyPath], inputs: Iterable[AnyPath]
) -> None:
    """Checks that output files may be written and are no input files.

    Args:
        name: Name of the argument that gives the output files.
        paths: The output files.
        inputs: The input files.

    Raises:
        ValueError: If an output file is an input file, even by another name, or
            is a device or a pipe.
    """

    def identity(path):
        if is_remote(path) or not os.path.exists(path):
            return os.fspath(path)
        found = os.stat(path)
        return found.st_dev, found.st_ino

    read = {identity(path): path for path in inputs}
    for path in paths:
        check_may_be_replaced(path)
        if (same := read.get(identity(path))) is not None:
            raise ValueError(
                f"`{name}` is also one of the input files: {same}."
            )


@contextlib.contextmanager
def clear_write_errors(place: AnyPath) -> Iterator[None]:
    """Turns errors of TensorFlow's writes in the block into an `OSError`.

    TensorFlow raises its own kind of error for a full disk.

    Args:
        place: What is written, e.g. its path; the message begins with it.
    """
    import tensorflow as tf

    try:
        yield
    except (tf.errors.InvalidArgumentError, tf.errors.InternalError):
        raise
    except tf.errors.OpError as error:
        # "Resource exhausted" may also mean memory.
        if "OOM when allocating" in error.message:
            raise
        reason = error.message.partition("\n")[0]
        raise OSError(f"{place} cannot be written: {reason}") from error


@contextlib.contextmanager
def whole_stream(path: AnyPath, mode: str = "w") -> Iterator[Any]:
    """Yields a stream to write the file step by step; see `whole_file`.

    Args:
        path: The file, local or remote.
        mode: "w" for text, which is UTF-8 with line ends as they are, or "wb".
    """
    encoding, newline = (None, None) if "b" in mode else ("utf-8", "")
    with (
        whole_file(path) as temporary,
        local_target(temporary) as local,
        open(local, mode, encoding=encoding, newline=newline) as stream,
    ):
        yield stream


@contextlib.contextmanager
def whole_folder(path: AnyPath, last: str | None = None) -> Iterator[str]:
    """Yields a temporary folder whose contents become the folder `path`.

    Args:
        path: The folder to make; it must not exist or be empty.
        last: Name of the file that makes the folder valid for its readers.
            Object stores cannot rename folders, so there the files are copied
            one by one, and this one last.

    Raises:
        ValueError: If `path` exists already and is not empty.
    """
    path = os.fspath(path).rstrip("/")
    if (exists(path) and not is_folder(path)) or list_folder(path):
        raise ValueError(f"{path} is there already and is not empty.")
    if is_remote(path):
        with tempfile.TemporaryDirectory() as temporary:
            yield temporary
            copy_folder(temporary, path, last)
        return
    parent = os.path.dirname(path) or "."
    make_folder(parent)
    temporary = tempfile.mkdtemp(
        prefix=f".{os.path.basename(path)}.", dir=parent
    )
    os.chmod(temporary, 0o755)
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def is_temporary(name: str, folders: Collection[str] = ()) -> bool:
    """Returns whether a name is one of `whole_file`'s temporary names.

    That of a temporary file's temporary file is one, too. Only those of names
    of letters with an extension count: others may be a user's, such as
    .backup.20261127.

    Args:
        name: A name in a folder.
        folders: Names of folders; `whole_folder`'s temporary names for them
            count, too.
    """
    return bool(_TEMPORARY_FILE.fullmatch(name)) or any(
        re.fullmatch(rf"\.{re.escape(folder)}\.[a-z0-9_]{{8}}", name)
        for folder in folders
    )


def copy_folder(source: str, target: str, last: str | None) -> None:
    """Copies a local folder's files into an object store, `last` at the end."""
    names = [
        os.path.relpath(os.path.join(folder, name), source)
        for folder, _, in_folder in os.walk(source)
        for name in in_folder
    ]
    for name in sorted(names, key=lambda name: (name == last, name)):
        destination = f"{target}/{name}"
        _gfile().makedirs(destination.rsplit("/", 1)[0])
        _gfile().copy(os.path.join(source, name), destination, overwrite=True)


@contextlib.contextmanager
def local_copy(path: AnyPath) -> Iterator[str]:
    """Yields a local path with the file's bytes, e.g. for memory-mapping."""
    path = os.fspath(path)
    if not exists(path):
        raise ValueError(f"There is no file {path}.")
    _check_regular(path)
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, path.rsplit("/", 1)[-1])
        _gfile().copy(path, local)
        yield local


@contextlib.contextmanager
def local_target(path: AnyPath) -> Iterator[str]:
    """Yields a local path to write; the file is then copied to `path`.

    For libraries that only write to local disks. If `path` is local, it is
    yielded itself.
    """
    path = os.fspath(path)
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, path.rsplit("/", 1)[-1])
        yield local
        _gfile().copy(local, path, overwrite=True)
