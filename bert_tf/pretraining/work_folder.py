"""Folders for what lies between text and records, removed when it is over.

The local builder's is kept for the next start if a run stops; a Beam job's is
new for each. Neither removes what is not its own.
"""

import contextlib
import dataclasses
import glob
import json
import logging
import os
import uuid
from collections import abc

from bert_tf import files
from bert_tf.pretraining.sources.text_files import Part
from bert_tf.text.bad_lines import BadTextError
from bert_tf.training import lock

# What the folder is the work of; it is written first and removed last.
_WORK = "work.json"
# The files that are being made elsewhere, under the names that they have until
# they are whole. From then on some of them may be in their places.
_TEMPORARIES = "temporaries.json"
# The second is an older release's.
_LOCKS = (lock.NAME, "lock")

_logger = logging.getLogger(__name__)


def place(work_dir: str | None, output_path: str) -> str:
    """Returns the builder's folder.

    Args:
        work_dir: The one that is wanted, or None for one beside the records.
        output_path: The first record file.

    Raises:
        ValueError: If the records are remote and there is no `work_dir`.
    """
    if work_dir:
        return work_dir
    output_dir, _, name = output_path.rpartition("/")
    if files.is_remote(output_dir):
        raise ValueError(
            "`work_dir` must name a folder on a local disk, as the records do "
            f"not lie on one: {output_path}."
        )
    return os.path.join(output_dir, f".{name}.work")


def is_publishing(folder: str, work: dict) -> bool:
    """Returns whether an earlier run of a work began to move its files.

    Args:
        folder: The builder's.
        work: As of `local`.
    """
    noted = os.path.join(folder, _TEMPORARIES)
    return os.path.exists(noted) and _read_work(folder) == work


@contextlib.contextmanager
def local(
    work_dir: str,
    work: dict,
    parts: abc.Sequence[Part],
) -> abc.Iterator[str]:
    """Yields the builder's folder, with what is left of an earlier run.

    After another run's work it is empty, but for the parts of the same work
    whose files are the same.

    Args:
        work_dir: The folder.
        work: A dictionary: what must be equal for an earlier run to be one of
            this work.
        parts: The `text_files.Part`s of it.

    Raises:
        ValueError: If the folder is somebody else's.
        OSError: If another process works in it.
    """
    hint = f"(Run again to go on with what is done in {work_dir}.)"
    try:
        # What is removed is removed under the lock.
        with lock.hold(work_dir):
            _prepare(work_dir, work, parts)
            try:
                yield work_dir
            except ValueError as error:
                parts_done = f"{glob.escape(work_dir)}/part-*.json"
                if isinstance(error, BadTextError) and glob.glob(parts_done):
                    raise BadTextError(f"{error} {hint}") from error
                _clear(work_dir)
                raise
            _clear(work_dir)
    except lock.HeldError as error:
        raise OSError(f"Another process is working in {work_dir}.") from error
    except OSError as error:
        files.name_full_disk(error, work_dir)
        raise OSError(f"{error} {hint}") from error
    finally:
        # If there is something in it, it stays.
        with contextlib.suppress(OSError):
            os.rmdir(work_dir)


def note_temporaries(folder: str, paths: list[str]) -> None:
    """Notes files that are about to be made: a killed run leaves them."""
    files.write_text(os.path.join(folder, _TEMPORARIES), json.dumps(paths))


def _prepare(folder, work, parts):
    """Removes what an earlier run left that is no use to this one."""
    # One that was being written when a run was killed is no work yet.
    names = {
        name
        for name in os.listdir(folder)
        if name not in _LOCKS and not name.startswith(f".{_WORK}.")
    }
    told = _read_work(folder)
    if names and told is None:
        # No OSError: to run again would be of no use.
        raise ValueError(
            "`work_dir` must be empty, or of an earlier run. "
            f"Received: work_dir={folder!r}."
        )
    temporaries = os.path.join(folder, _TEMPORARIES)
    if _TEMPORARIES in names:
        for path in files.read_json(temporaries):
            if files.exists(path):
                files.remove(path)
    if told != work:
        kept = _current_parts(folder, parts, told, work) if told else set()
        for name in names - {_WORK}:
            if name.partition(".")[0] not in kept:
                files.remove(os.path.join(folder, name))
        files.write_text(os.path.join(folder, _WORK), json.dumps(work))


def _read_work(folder):
    """Returns what an earlier run wrote, or None if it is none of ours."""
    try:
        told = files.read_json(os.path.join(folder, _WORK))
    except ValueError:
        return None
    if isinstance(told, dict) and told.keys() >= {
        "version",
        "output_paths",
        "inputs",
    }:
        return told
    return None


def _current_parts(folder, parts, told, work):
    """Returns the names of the parts that would be made the same again."""
    if told | {"inputs": None} != work | {"inputs": None}:
        return set()
    # A document that is open at the end of the last file may go on in a new
    # one: then None is no longer None.
    old, new = ([*each["inputs"], None] for each in (told, work))
    names = set()
    for number, part in enumerate(parts):
        name = f"part-{number:06d}"
        path = os.path.join(folder, f"{name}.origin")
        if not os.path.exists(path):
            continue
        origin = files.read_json(path)
        last = origin.pop("last_file")
        if last is None or origin != dataclasses.asdict(part):
            continue
        read = slice(part.file_number, last + 1)
        if old[read] == new[read]:
            names.add(name)
    return names


def _clear(folder):
    """Removes all but the lock; last what tells whose work it was."""
    names = sorted(os.listdir(folder), key=lambda name: name == _WORK)
    for name in names:
        if name != lock.NAME:
            files.remove(os.path.join(folder, name))


@contextlib.contextmanager
def shared(
    work_dir: str | None, output_path: str, is_over: abc.Callable[[], bool]
) -> abc.Iterator[str]:
    """Yields a new folder for a job on other machines.

    Args:
        work_dir: The folder in which it is made, local or remote; what else
            is there stays. None is that of the records.
        output_path: The first record file, which gives it its name.
        is_over: Called at the end: whether the job is. The folder of a job
            that may still be running stays, and a warning tells where it is.
    """
    output_dir, _, name = output_path.rpartition("/")
    folder = os.path.join(
        work_dir or output_dir, f".{name}.{uuid.uuid4().hex[:8]}.work"
    )
    files.make_folder(folder)
    try:
        yield folder
    finally:
        if is_over():
            files.remove(folder)
        else:
            _logger.warning(
                "The job may still be running. It works in %s: remove this "
                "folder when the job is over.",
                folder,
            )
