"""Folders for intermediate files, removed when the records are made.

The local builder keeps its folder if a run stops, and the next run resumes
there. A Beam job gets a new folder. Neither removes files of others.
"""

import contextlib
import dataclasses
import glob
import json
import logging
import os
import uuid
from collections import abc

from bert_tf import atomic
from bert_tf import files
from bert_tf.pretraining.sources.text_files import Part
from bert_tf.text.bad_lines import BadTextError
from bert_tf.training import lock

# What the folder belongs to. It is written first and removed last.
_WORK = "work.json"
# Temporary names of the output files. Once this file exists, some of them may
# already have been moved to their final places.
_TEMPORARIES = "temporaries.json"
# The second name was used by an older release.
_LOCKS = (lock.NAME, "lock")

_logger = logging.getLogger(__name__)


def place(work_dir: str | None, output_path: str) -> str:
    """Returns the builder's folder.

    Args:
        work_dir: The folder that the user named; None for one beside the
            records.
        output_path: The first record file.

    Raises:
        ValueError: If the records are remote and there is no `work_dir`.
    """
    if work_dir:
        return work_dir
    output_dir, _, name = output_path.rpartition("/")
    if files.is_remote(output_dir):
        raise ValueError(
            "`work_dir` must name a folder on a local disk, because the "
            f"records are not on one: {output_path}."
        )
    return os.path.join(output_dir, f".{name}.work")


def is_publishing(folder: str, work: dict) -> bool:
    """Returns whether an earlier run of this work began to move its files.

    Args:
        folder: The builder's folder.
        work: See `local`.
    """
    noted = os.path.join(folder, _TEMPORARIES)
    return os.path.exists(noted) and _read_work(folder) == work


@contextlib.contextmanager
def local(
    work_dir: str,
    work: dict,
    parts: abc.Sequence[Part],
) -> abc.Iterator[str]:
    """Yields the builder's folder, with the files of an earlier run.

    Files of another work are removed. If only its input files differ, the
    parts that would be the same again are kept.

    Args:
        work_dir: The folder.
        work: A dictionary that identifies the work. A run resumes an earlier
            one if theirs are equal.
        parts: The `text_files.Part`s of the work.

    Raises:
        ValueError: If the folder holds files of anything else.
        OSError: If another process works in it.
    """
    hint = f"(Run again to resume from {work_dir}.)"
    try:
        # Files are only removed under the lock.
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
        atomic.name_full_disk(error, work_dir)
        if not os.path.isdir(work_dir):
            raise
        raise OSError(f"{error} {hint}") from error
    finally:
        # A folder that is not empty stays.
        with contextlib.suppress(OSError):
            os.rmdir(work_dir)


def note_temporaries(folder: str, paths: list[str]) -> None:
    """Notes files about to be made, as a killed run leaves them behind."""
    atomic.write_text(os.path.join(folder, _TEMPORARIES), json.dumps(paths))


def _prepare(folder, work, parts):
    """Removes files of an earlier run that this one cannot use."""
    # A `_WORK` that a killed run was still writing does not count.
    names = {
        name
        for name in os.listdir(folder)
        if name not in _LOCKS and not name.startswith(f".{_WORK}.")
    }
    earlier = _read_work(folder)
    if names and earlier is None:
        # Not an OSError: running again would not help.
        raise ValueError(
            "`work_dir` must be empty, or hold the work of an earlier run. "
            f"Received: work_dir={folder!r}."
        )
    temporaries = os.path.join(folder, _TEMPORARIES)
    if _TEMPORARIES in names:
        for path in files.read_json(temporaries):
            if files.exists(path):
                files.remove(path)
    if earlier != work:
        kept = (
            _current_parts(folder, parts, earlier, work) if earlier else set()
        )
        for name in names - {_WORK}:
            if name.partition(".")[0] not in kept:
                files.remove(os.path.join(folder, name))
        atomic.write_text(os.path.join(folder, _WORK), json.dumps(work))


def _read_work(folder):
    """Returns the work that an earlier run wrote; None if there is none."""
    try:
        earlier = files.read_json(os.path.join(folder, _WORK))
    except ValueError:
        return None
    if isinstance(earlier, dict) and earlier.keys() >= {
        "version",
        "output_paths",
        "inputs",
    }:
        return earlier
    return None


def _current_parts(folder, parts, earlier, work):
    """Returns the names of the parts that would come out the same again."""
    if earlier | {"inputs": None} != work | {"inputs": None}:
        return set()
    # A document that is open at the end of the last file may continue in a
    # new file. The None after the last file then differs.
    old, new = ([*each["inputs"], None] for each in (earlier, work))
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
    """Removes everything but the lock; the file `_WORK` goes last."""
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
        work_dir: The parent of the new folder, local or remote; None for the
            folder of the records. Other files there stay.
        output_path: The first record file; the folder is named after it.
        is_over: Called at the end; returns whether the job is over. If it may
            still be running, the folder stays and a warning names it.
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
