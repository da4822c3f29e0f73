"""The manifest of pre-training records: what they are and how they were made.

It is a JSON file for each folder of a set of records, named
`manifest-<name of its first record file>.json` and written when all the record
files there are complete. Usual globs for records (`train-*.tfrecord`) do not
match it, and a folder may hold two sets of records. It holds no time and no
absolute path, so the same input and flags give the same bytes.
"""

import dataclasses
import fnmatch
import hashlib
import json
import logging
import posixpath
from collections.abc import Iterable
from collections.abc import Sequence
from concurrent import futures
from typing import Any
from typing import NamedTuple

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages

_PREFIX = "manifest-"
_SUFFIX = ".json"
# A key of the settings: the vocabulary's file, with its folder if there is one.
VOCAB_FILE = "vocab_file"
_FORMAT = "bert_tf pre-training records"
# Version 2 has the tokenizer. Version 3 is for masks by another rule than
# BERT's, and may have the tokenizer. A manifest that needs neither has version
# 1, so that earlier releases can read it.
_VERSION = 3
MASKING_RULE = "masking_rule"

_logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """Describes the records of one folder.

    Args:
        max_seq_length: L of the records.
        max_predictions_per_seq: P of the records.
        vocab_size: Number of entries of their vocabulary.
        vocab_sha256: `text_sha256` of the vocabulary file's text.
        do_lower_case: Whether the text was lower-cased.
        tokenizer: Description of their tokenizer; None for BERT's.
        settings: Everything else that determines the examples: seed,
            probabilities and so on, by the names of their flags.
        inputs: The text files in order: `{"name", "bytes", "sha256"}` each.
        counts: Totals of the whole set: documents, sentences, examples...
        records: `{file name: {"examples", "bytes"}}` of this folder's files;
            a tf.train.Example that is a row of several examples counts once.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    vocab_size: int
    vocab_sha256: str
    do_lower_case: bool
    settings: dict[str, Any]
    inputs: list[dict[str, Any]]
    counts: dict[str, int]
    records: dict[str, dict[str, int]]
    tokenizer: dict[str, Any] | None = None

    def check_vocabulary(self, path: str, text: str, text_path: str) -> None:
        """Checks that the records were made with a vocabulary.

        Args:
            path: The record file, for the message.
            text: The text of the vocabulary's file.
            text_path: The path of the vocabulary's file, for the message.

        Raises:
            ValueError: If they were made with another vocabulary; the message
                names both.
        """
        if self.vocab_sha256 != text_sha256(text):
            name = self.settings.get(VOCAB_FILE, "one")
            raise ValueError(
                f"{path}: the records were made with another vocabulary: "
                f"{name} of {self.vocab_size:,} entries. Received: "
                f"{text_path} of {text.count(chr(10)):,} entries."
            )

    def to_dict(self) -> dict[str, Any]:
        """Returns {name of an argument: its value}; no tokenizer if None."""
        values = dataclasses.asdict(self)
        if self.tokenizer is None:
            del values["tokenizer"]
        return values


def text_sha256(text: str) -> str:
    """Returns the SHA-256 of a text in UTF-8, as hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def path_beside(record_paths: Sequence[str]) -> str:
    """Returns the path of the manifest of one folder's record files."""
    folder, name = posixpath.split(record_paths[0])
    return posixpath.join(folder, f"{_PREFIX}{name}{_SUFFIX}")


class Records(NamedTuple):
    """Record files.

    Args:
        paths: Their paths.
        manifests: {path: its `Manifest`} of those that have one.
    """

    paths: Sequence[str]
    manifests: dict[str, Manifest]

    def filled(self) -> "Records":
        """Returns the files that hold examples.

        If there are fewer examples than files, the builder leaves some files
        empty, and the manifest says so. If all files are empty, all are
        returned, and their reader reports the problem.
        """
        filled = [
            path
            for path in self.paths
            if path not in self.manifests
            or self.manifests[path].records[posixpath.basename(path)][
                "examples"
            ]
        ]
        paths = filled or self.paths
        found = self.manifests
        return Records(paths, {p: found[p] for p in paths if p in found})


def find_records(patterns: str, flag: str) -> Records:
    """Returns the sorted record files that match comma-separated globs.

    Manifests are left out, which a wide glob such as `records/*` matches, too.
    If only a part of a set matches, a line of the log says so.

    Args:
        patterns, flag: As for `files.expand_globs`.

    Raises:
        ValueError: If a pattern matches no file, or all match only manifests.
            Also if a pattern would match a file that a manifest names, but
            that is not there.
    """
    paths = [
        path
        for path in files.expand_globs(patterns, flag)
        if not _is_name(posixpath.basename(path))
    ]
    if not paths:
        raise ValueError(
            f"`{flag}` must match record files. Received: "
            f"{flag}={patterns!r}, which matches manifests only."
        )
    names_of = _names_of_folders(paths)
    found = _find(paths, names_of)
    _check_none_is_missing(found, names_of, patterns, flag)
    _tell_of_parts(found, flag)
    return Records(paths, found)


def _names_of_folders(paths):
    """Returns {folder: names of its files} of the folders of record files."""
    return {
        folder: files.list_folder(folder or ".")
        for folder in set(map(posixpath.dirname, paths))
    }


def _by_manifest(found):
    """Returns (manifest, its paths) pairs of what `find` returned."""
    paths_of: dict[int, tuple[Manifest, list[str]]] = {}
    for path, manifest in found.items():
        _, paths = paths_of.setdefault(id(manifest), (manifest, []))
        paths.append(path)
    return list(paths_of.values())


def _check_none_is_missing(found, names_of, patterns, flag):
    """Raises `ValueError` if a file is missing that a pattern would match.

    Who wants a part of a set names its files, or gives a narrower glob.

    Args:
        found: As `find` returns it.
        names_of: {folder: names of its files}.
        patterns, flag: As for `find_records`.
    """
    globs = [pattern.strip() for pattern in patterns.split(",")]
    for manifest, (path, *_) in _by_manifest(found):
        folder = posixpath.dirname(path)
        names = {*names_of[folder]}
        wanted = {
            name: each
            for name in manifest.records
            for each in [posixpath.join(folder, name)]
            if any(fnmatch.fnmatchcase(each, pattern) for pattern in globs)
        }
        missing = [
            each
            for name, each in wanted.items()
            if manifest.records[name]["examples"] and name not in names
        ]
        if missing:
            raise ValueError(
                f"{missing[0]} is missing, as the manifest beside it tells: "
                f"{len(missing)} of the {len(wanted)} files of the set that "
                f"match {flag}={patterns!r}. Bring them back, or name the "
                "files to use one by one."
            )


def _tell_of_parts(found, flag):
    """Logs how many records there are of sets that are read in part."""
    # A set in several folders has a manifest in each.
    sets: list[tuple[Manifest, list[int]]] = []
    for manifest, paths in _by_manifest(found):
        whole = dataclasses.replace(manifest, records={})
        numbers = [
            manifest.records[posixpath.basename(path)]["examples"]
            for path in paths
        ]
        for known, others in sets:
            if known == whole:
                others += numbers
                break
        else:
            sets.append((whole, numbers))
    for whole, numbers in sets:
        total = whole.counts.get("records", 0)
        if sum(numbers) < total:
            _logger.info(
                "--%s has %s of the %s records of a set, in %s.",
                flag,
                f"{sum(numbers):,}",
                f"{total:,}",
                messages.counted(len(numbers), "file", "files"),
            )


def _is_name(name):
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def write(manifest: Manifest, path: files.AnyPath) -> None:
    """Writes the whole manifest or nothing."""
    atomic.write_text(path, to_text(manifest))


def to_text(manifest: Manifest) -> str:
    """Returns the text of the manifest's file."""
    version = 1 if manifest.tokenizer is None else 2
    if manifest.settings.get(MASKING_RULE, "bert") != "bert":
        version = 3
    values = {"format": _FORMAT, "version": version} | manifest.to_dict()
    return json.dumps(values, indent=2) + "\n"


def read(path: files.AnyPath) -> Manifest:
    """Reads a manifest.

    Raises:
        ValueError: If the file is missing or is not one of our manifests.
    """
    values = files.read_json(path)
    if not isinstance(values, dict) or values.pop("format", None) != _FORMAT:
        raise ValueError(f"{path}: not a manifest of pre-training records.")
    version = values.pop("version", None)
    if type(version) is not int or not 1 <= version <= _VERSION:
        raise ValueError(
            f"{path}: the manifest's version must be at most {_VERSION}. "
            f"Received: version={messages.shortened(version)}."
        )
    names = {field.name for field in dataclasses.fields(Manifest)}
    if version == 1 or (version > 2 and "tokenizer" not in values):
        names.remove("tokenizer")
    if set(values) != names:
        raise ValueError(
            f"{path}: these keys are missing or unknown: "
            f"{', '.join(sorted(names ^ set(values)))}."
        )
    return Manifest(**values)


def find(record_paths: Iterable[str]) -> dict[str, Manifest]:
    """Returns {record path: its `Manifest`} of the records that have one.

    Records that another program wrote have none and are left out.

    Raises:
        ValueError: If a manifest cannot be read, or a record file does not have
            the size in it: the file was cut short or overwritten.
    """
    record_paths = [*record_paths]
    return _find(record_paths, _names_of_folders(record_paths))


def _find(record_paths, names_of):
    """Returns what `find` does, given {folder: names of its files}."""
    by_folder: dict[str, list[str]] = {}
    for path in record_paths:
        by_folder.setdefault(posixpath.dirname(path), []).append(path)
    sizes_of: dict[str, dict[int, Manifest]] = {}
    for folder, paths in by_folder.items():
        manifests = [
            read(posixpath.join(folder, name))
            for name in names_of[folder]
            if _is_name(name)
        ]
        for path in paths:
            by_size = {
                manifest.records[name]["bytes"]: manifest
                for manifest in manifests
                if (name := posixpath.basename(path)) in manifest.records
            }
            if by_size:
                sizes_of[path] = by_size
    found = {}
    # An object store takes its time to answer, but has many threads.
    with futures.ThreadPoolExecutor(16) as pool:
        sizes = [*pool.map(files.size, sizes_of)]
    for (path, by_size), size in zip(sizes_of.items(), sizes):
        if size not in by_size:
            raise ValueError(
                f"{path} has {size} bytes, but its manifest says "
                f"{', '.join(map(str, by_size))}: the file was cut short "
                "or overwritten. Make the records again."
            )
        found[path] = by_size[size]
    return found
