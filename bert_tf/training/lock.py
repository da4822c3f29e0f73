"""One program at a time in one folder, on local disks and in object stores.

On a local disk the lock is the system's (flock): it ends with the process,
however that ends, so that none is ever left behind.

An object store has no such lock. There an object tells who holds the folder,
and is written anew every 20 seconds. Who finds it watches it: once it changes,
its writer is alive, and the folder is refused; if it has not changed for 60
seconds, its writer is dead, and the folder is taken. No two clocks are
compared. Should two take the folder in one moment all the same, the one whose
object was written over learns it, and stops before its next checkpoint.
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

from bert_tf import files

NAME = "lock.json"
_BEAT_SECONDS = 20.0
# Three beats that did not come.
_DEAD_SECONDS = 60.0
# Between writing the object and looking whether it still is one's own.
_SETTLE_SECONDS = 2.0

_logger = logging.getLogger(__name__)


class HeldError(ValueError):
    """Another program holds the folder.

    Args:
        path: Of the lock.
        held: What it says.
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
            "end, stop it, or choose another output directory."
        )


@contextlib.contextmanager
def hold(
    folder: files.AnyPath, clock: Any = time
) -> Iterator[Callable[[], None]]:
    """Holds a folder, which is made if it is not there, inside the block.

    Args:
        folder: Path, local or remote.
        clock: Has `monotonic` and `sleep`, by which another holder is watched.

    Yields:
        A function to call before anything is written: it raises `HeldError`
        if the folder was taken by another program meanwhile.

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
        # Of a run that ended before it wrote anything nothing is left.
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
            # Its holder may have removed the file since it was opened.
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
    files.write_text(path, _describe(own))
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
                files.write_text(path, _describe(own))
            except Exception as error:  # The network may come back.
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
        "%s is there (%s); it is watched for %.0f seconds, to see whether its "
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
    _logger.warning("%s: its writer is dead; taken over.", path)


def _describe(owner):
    values = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "owner": owner,
        # Differs at every beat, within one second too.
        "beat": time.monotonic_ns(),
    }
    return json.dumps(values) + "\n"


def _read(path):
    # Here, for its error: a lock on a local disk needs no TensorFlow.
    import tensorflow as tf

    try:
        return files.read_text(path)
    except (ValueError, tf.errors.NotFoundError):
        # There is none, or it was removed in this moment.
        return None


def _is_own(path, own):
    return own in (_read(path) or "")
