"""One program at a time in a folder, on local disks and in object stores.

On a local disk the lock is the system's (flock). It ends with the process,
however the process ends, so no stale lock is left behind.

An object store has no such lock. There an object says who holds the folder; its
writer rewrites it every 20 seconds. A program that finds the object watches it.
If it changes, its writer is alive and the folder is refused. If it does not
change for 60 seconds, its writer is dead and the folder is taken over. No two
clocks are compared. If two programs take the folder at the same moment, the one
whose object was overwritten notices and stops before its next checkpoint.
"""

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

from bert_tf import atomic
from bert_tf import files

_logger = logging.getLogger(__name__)

NAME = "lock.json"
_BEAT_SECONDS = 20.0
# Three missed beats.
_DEAD_SECONDS = 60.0
# Wait between writing the object and checking that it is still our own.
_SETTLE_SECONDS = 2.0


class HeldError(ValueError):
    """Another program holds the folder.

    Args:
        path: Path of the lock.
        held: Contents of the lock; None if it cannot be read.
    """

    def __init__(self, path: str, held: str | None) -> None:
        try:
            values = json.loads(held or "")
            self.holder = f"process {values['pid']} on {values['host']}"
        except (ValueError, KeyError, TypeError):
            self.holder = "another program"
        folder = os.path.dirname(os.path.dirname(path))
        super().__init__(
            f"{folder} is in use: {self.holder} trains there. Wait for its "
            "end, stop it, or choose another output folder."
        )


@contextlib.contextmanager
def hold(
    folder: files.AnyPath, clock: Any = time
) -> Iterator[Callable[[], None]]:
    """Holds a folder inside the block, and makes it if it does not exist.

    Args:
        folder: Path, local or remote.
        clock: Has `monotonic` and `sleep`, used to watch another holder.

    Yields:
        A function to call before anything is written. It raises `HeldError`
        if another program has taken the folder in the meantime.

    Raises:
        HeldError: If another program holds the folder.
    """
    folder = str(folder).rstrip("/")
    if files.is_remote(folder):
        with _hold_object(f"{folder}/{NAME}", clock) as check:
            yield check
        return
    made = [
        path
        for path in (folder, os.path.dirname(folder))
        if not files.exists(path)
    ]
    files.make_folder(folder)
    try:
        with _hold_file(f"{folder}/{NAME}") as check:
            yield check
    finally:
        # A run that ended before it wrote anything leaves no empty folders.
        with contextlib.suppress(OSError):
            for path in made:
                os.rmdir(path)


@contextlib.contextmanager
def _hold_file(path):
    descriptor = _open_locked(path)
    try:
        os.ftruncate(descriptor, 0)
        os.write(descriptor, _describe("").encode())
        yield lambda: None
    finally:
        with contextlib.suppress(OSError):
            os.remove(path)
        os.close(descriptor)


def _open_locked(path):
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder may have removed the file since we opened it.
            if os.path.exists(path) and os.path.samestat(
                os.fstat(descriptor), os.stat(path)
            ):
                return descriptor
        except BlockingIOError as error:
            held = os.read(descriptor, 1000).decode("utf-8", "replace")
            os.close(descriptor)
            raise HeldError(path, held) from error
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


@contextlib.contextmanager
def _hold_object(path, clock):
    own = uuid.uuid4().hex
    found = _read(path)
    if found is not None:
        _wait_until_dead(path, found, clock)
    atomic.write_text(path, _describe(own))
    clock.sleep(_SETTLE_SECONDS)
    lost = threading.Event()
    stop = threading.Event()

    def check():
        if lost.is_set() or not _is_own(path, own):
            lost.set()
            raise HeldError(path, _read(path))

    def beat():
        while not stop.wait(_BEAT_SECONDS):
            try:
                if not _is_own(path, own):
                    lost.set()
                    return
                atomic.write_text(path, _describe(own))
            except Exception as error:  # The network may recover.
                _logger.warning("%s cannot be written: %s", path, error)

    check()
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield check
    finally:
        stop.set()
        thread.join()
        with contextlib.suppress(Exception):
            if _is_own(path, own):
                files.remove(path)


def _wait_until_dead(path, found, clock):
    """Returns when the object's writer is dead; raises if it is alive."""
    _logger.warning(
        "%s exists (%s); watching it for %.0f seconds to see whether its "
        "writer is alive.",
        path,
        found.strip(),
        _DEAD_SECONDS,
    )
    end = clock.monotonic() + _DEAD_SECONDS
    while clock.monotonic() < end:
        clock.sleep(_BEAT_SECONDS / 10)
        now = _read(path)
        if now is None:
            return
        if now != found:
            raise HeldError(path, now)
    _logger.warning("%s: its writer is dead; taking over.", path)


def _describe(owner):
    values = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "owner": owner,
        # Differs at every beat, even within one second.
        "beat": time.monotonic_ns(),
    }
    return json.dumps(values) + "\n"


def _read(path):
    # Imported here for its error: a lock on a local disk needs no TensorFlow.
    import tensorflow as tf

    try:
        return files.read_text(path)
    except (ValueError, tf.errors.NotFoundError):
        # There is no such object, or it has just been removed.
        return None


def _is_own(path, own):
    return own in (_read(path) or "")
