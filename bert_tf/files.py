"""Files on local disks and in object stores (gs://).

TensorFlow is imported only on first use: modules that import this one also run
without it, on other backends of Keras.
"""

import contextlib
import glob
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from bert_tf import messages

# A path on a local disk or in an object store.
AnyPath = str | os.PathLike[str]
# Most bytes of a text file in a model folder. A vocabulary of half a million
# entries has 10 MB.
MAX_FOLDER_TEXT = 1 << 25
# Bytes that are read at once.
_PIECE = 1 << 20
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# JSON may escape half of a surrogate pair, which is no character and cannot be
# encoded in UTF-8.
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def gfile() -> Any:
    """Returns `tf.io.gfile`, which knows object stores."""
    import tensorflow as tf

    return tf.io.gfile


def is_remote(path: AnyPath) -> bool:
    """Returns whether `path` names an object store: gs://, s3:// and so on."""
    return "://" in os.fspath(path)


def exists(path: AnyPath) -> bool:
    if is_remote(path):
        return gfile().exists(path)
    return os.path.exists(path)


def is_folder(path: AnyPath) -> bool:
    if is_remote(path):
        return gfile().isdir(path)
    return os.path.isdir(path)


def size(path: AnyPath) -> int:
    """Returns the size of a file in bytes."""
    if is_remote(path):
        return gfile().stat(path).length
    return os.path.getsize(path)


def list_folder(path: AnyPath) -> list[str]:
    """Returns the names in a folder, sorted; [] if there is no such folder."""
    if not is_folder(path):
        return []
    if is_remote(path):
        return sorted(name.rstrip("/") for name in gfile().listdir(path))
    return sorted(os.listdir(path))


def make_folder(path: AnyPath) -> None:
    """Makes a folder and its parents; it may exist already.

    Raises:
        ValueError: If a file of that name is in the way.
    """
    if is_remote(path):
        gfile().makedirs(path)
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
        if gfile().isdir(path):
            gfile().rmtree(path)
        else:
            gfile().remove(path)
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
        found = gfile().glob(name) if is_remote(name) else glob.glob(name)
        found = [path for path in found if not is_folder(path)]
        if not found:
            raise ValueError(
                f"`{flag}` matches no file. Received: {flag}={name!r}."
            )
        paths += found
    return sorted(paths)


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
    opener = gfile().GFile if is_remote(path) else open
    with opener(path, "rb") as stream:
        if max_bytes is None:
            return stream.read()
        # The size may be wrong: files in /proc report none, and a file may
        # grow. Read in pieces: `read(n)` allocates all n bytes.
        data = bytearray()
        while piece := stream.read(_PIECE):
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
        raise ValueError(
            f"{path}: must be a file, and no folder, pipe or device."
        )


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
                f"Received: {key}={messages.shortened(values[key])}."
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
        gfile().copy(path, local)
        yield local
