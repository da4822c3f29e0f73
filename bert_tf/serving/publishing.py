"""Publishes exports: each version number goes to one exporter only.

A server loads any folder with a number as soon as it exists. On a local disk,
a folder is renamed when it is complete, and the system gives a name only once.
On an object store, files are copied one by one, and anybody can write to a
name. There an exporter first claims the number with an object of its own beside
the versions. It has the number if it then finds no other claim. If two
exporters find each other's claims, neither has it, and both try again.
"""

import contextlib
import errno
import os
import random
import re
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator

from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf.serving import saved_model

_WORK_PREFIX = ".export."
_CLAIM = re.compile(r"\.([0-9]+)\.[0-9a-f]{32}\.claim")
# Exporters that found each other's claims wait for different times.
_MAX_PAUSE_SECONDS = 2.0


def prepare(export_dir: str, other_file: str) -> list[int]:
    """Checks that a folder can take an export, before the model is loaded.

    Args:
        export_dir: The servable's folder.
        other_file: The file that a version of the other format has.

    Returns:
        The existing versions.

    Raises:
        ValueError: If the folder may not be written into, or has versions of
            the other format: a server would take one for the other.
    """
    files.check_may_be_written_into(export_dir)
    for _, name in saved_model.folders(export_dir):
        if files.exists(f"{export_dir}/{name}/{other_file}"):
            raise ValueError(
                "--export_dir must hold versions of one --format only. "
                f"Received: --export_dir={export_dir}, whose version {name} "
                f"has a {other_file}."
            )
    warn_of_leftovers(export_dir)
    return saved_model.versions(export_dir)


@contextlib.contextmanager
def work_folder(export_dir: str) -> Iterator[str]:
    """Yields a local folder to be published, and removes what is left of it."""
    if files.is_remote(export_dir):
        with tempfile.TemporaryDirectory() as folder:
            yield folder
        return
    files.make_folder(export_dir)
    # On the same disk, under a name that is no version number.
    folder = tempfile.mkdtemp(prefix=_WORK_PREFIX, dir=export_dir)
    os.chmod(folder, 0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def warn_of_leftovers(export_dir: str) -> None:
    """Logs the names of folders that killed exporters have left.

    They are not removed: another exporter may be at work there.
    """
    names = files.list_folder(export_dir)
    if files.is_remote(export_dir):
        claimed = _claimed(names)
        leftovers = [
            name
            for number, name in saved_model.folders(export_dir)
            if number not in claimed
            and not files.exists(f"{export_dir}/{name}/{saved_model.FILE}")
        ]
    else:
        leftovers = [name for name in names if name.startswith(_WORK_PREFIX)]
    if leftovers:
        logging.warning(
            "%s: incomplete versions: %s. Exporters that were killed leave "
            "such folders; remove them if no exporter is running.",
            export_dir,
            ", ".join(leftovers),
        )


def publish(folder: str, export_dir: str) -> int:
    """Makes a local folder the next version of a servable.

    Args:
        folder: What `work_folder` yielded, with a SavedModel in it.
        export_dir: The servable's folder.

    Returns:
        Its number, one more than the highest.
    """
    take = _copy if files.is_remote(export_dir) else _rename
    while True:
        number = next_version(export_dir)
        if take(folder, export_dir, number):
            return number


def next_version(export_dir: str) -> int:
    """Returns one more than the highest number that exists or is claimed."""
    claimed = _claimed(files.list_folder(export_dir))
    return max((*saved_model.versions(export_dir), *claimed), default=0) + 1


def _rename(folder, export_dir, number):
    """Renames the folder; returns whether the number was free."""
    try:
        os.rename(folder, f"{export_dir}/{number}")
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def _copy(folder, export_dir, number):
    """Copies the folder; returns whether the number was free."""
    claim = f"{export_dir}/.{number}.{uuid.uuid4().hex}.claim"
    target = f"{export_dir}/{number}"
    atomic.write_text(claim, "")
    try:
        if len(_claims(export_dir, number)) > 1:
            time.sleep(random.uniform(0.0, _MAX_PAUSE_SECONDS))
            return False
        # Another exporter may have finished, and removed its claim.
        if number in saved_model.versions(export_dir):
            return False
        try:
            atomic.copy_folder(folder, target, last=saved_model.FILE)
        except BaseException:
            with contextlib.suppress(Exception):
                files.remove(target)
            raise
    finally:
        # A claim that is left over only costs a number.
        with contextlib.suppress(Exception):
            files.remove(claim)
    return True


def _claimed(names):
    """Returns the numbers of the claims among the names in a folder."""
    return {int(match[1]) for match in map(_CLAIM.fullmatch, names) if match}


def _claims(export_dir, number):
    """Returns the names of the claims to a number."""
    return [
        name
        for name in files.list_folder(export_dir)
        if (match := _CLAIM.fullmatch(name)) and int(match[1]) == number
    ]
