"""Writes files and folders as a whole, or not at all."""

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

from bert_tf import files

# A full disk, an exhausted quota, or a file that is too large.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# See `is_temporary`.
_TEMPORARY_FILE = re.compile(r"\.+[A-Za-z_]+(\.[a-z]+)+(\.[0-9a-f]{8})+")


def write_text(path: files.AnyPath, text: str) -> None:
    """Writes the whole file or nothing."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: files.AnyPath, data: bytes) -> None:
    """Writes the whole file or nothing."""
    with whole_file(path) as temporary:
        if files.is_remote(temporary):
            with files.gfile().GFile(temporary, "wb") as stream:
                stream.write(data)
        else:
            with open(temporary, "wb") as stream:
                stream.write(data)


@contextlib.contextmanager
def whole_file(path: files.AnyPath) -> Iterator[str]:
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
        files.make_folder(parent)
    random = uuid.uuid4().hex[:8]
    temporary = f"{path[: len(path) - len(name)]}.{name}.{random}"
    try:
        yield temporary
        if files.is_remote(path):
            files.gfile().rename(temporary, path, overwrite=True)
        else:
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())
            os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(Exception):
            files.remove(temporary)
        if isinstance(error, OSError):
            name_full_disk(error, path)
        raise


def name_full_disk(error: OSError, path: files.AnyPath) -> None:
    """Sets the file name of a full disk's error if it has none."""
    if error.errno in _FULL and not error.filename:
        error.filename = os.fspath(path)


def check_may_be_replaced(path: files.AnyPath) -> None:
    """Raises `ValueError` if `path` is no file that may be replaced.

    `whole_file` checks this, too. Long work checks it before it begins.
    """
    path = os.fspath(path)
    if files.is_remote(path):
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
    name: str, paths: Iterable[files.AnyPath], inputs: Iterable[files.AnyPath]
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
        if files.is_remote(path) or not os.path.exists(path):
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
def clear_write_errors(place: files.AnyPath) -> Iterator[None]:
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
def whole_stream(path: files.AnyPath, mode: str = "w") -> Iterator[Any]:
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
def whole_folder(path: files.AnyPath, last: str | None = None) -> Iterator[str]:
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
    if (files.exists(path) and not files.is_folder(path)) or files.list_folder(
        path
    ):
        raise ValueError(f"{path} is there already and is not empty.")
    if files.is_remote(path):
        with tempfile.TemporaryDirectory() as temporary:
            yield temporary
            copy_folder(temporary, path, last)
        return
    parent = os.path.dirname(path) or "."
    files.make_folder(parent)
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
        files.gfile().makedirs(destination.rsplit("/", 1)[0])
        files.gfile().copy(
            os.path.join(source, name), destination, overwrite=True
        )


@contextlib.contextmanager
def local_target(path: files.AnyPath) -> Iterator[str]:
    """Yields a local path to write; the file is then copied to `path`.

    For libraries that only write to local disks. If `path` is local, it is
    yielded itself.
    """
    path = os.fspath(path)
    if not files.is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, path.rsplit("/", 1)[-1])
        yield local
        files.gfile().copy(local, path, overwrite=True)
