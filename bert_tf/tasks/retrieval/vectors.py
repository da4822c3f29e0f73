"""Vectors of many texts, in the files of a folder.

manifest.json                  the model and the texts that they come from
vectors-00000-of-00012.npy     float32 [texts of one file, D], NumPy's format

The texts of a file are embedded by length, and stored in their own order. Files
appear only when they are complete, so a stopped run resumes at the first
missing file. Folders may be remote.
"""

import dataclasses
import json
import os
import re

import numpy as np
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import formats
from bert_tf import messages
from bert_tf import progress_bar
from bert_tf.tasks.features.sentences import Embedder
from bert_tf.tasks.retrieval.corpora import Texts
from bert_tf.training import lock

MANIFEST_FILE = "manifest.json"
# As many as in a block of the search: 12 MB of MiniLM's vectors.
TEXTS_PER_FILE = 8192
# Matches temporary files that a killed run leaves behind.
_LEFTOVER = re.compile(
    rf"\.({re.escape(MANIFEST_FILE)}|vectors-\d+-of-\d+\.npy)\.[0-9a-f]{{8}}"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """What vectors were made from.

    Differences are reported in the order of the fields.

    Args:
        dimension: The size of a vector.
        pooling, is_normalized, include_prompt, max_seq_length, prompt,
            precision: As in the `Embedder`.
        model_sha256: Hash of its weights, configuration and tokenizer.
        num_texts: The number of texts.
        texts_sha256: Hash of the texts and their ids.
        texts_per_file: Vectors in a file; the last one may have fewer.
    """

    dimension: int
    pooling: str
    is_normalized: bool
    include_prompt: bool
    max_seq_length: int
    prompt: str
    precision: str
    model_sha256: str
    num_texts: int
    texts_sha256: str
    texts_per_file: int

    @property
    def num_files(self) -> int:
        return -(-self.num_texts // self.texts_per_file)


def check(folder: files.AnyPath, texts: Texts, embedder: Embedder) -> None:
    """Checks that `compute` will accept a folder; writes nothing.

    Args:
        folder, texts, embedder: See `compute`, also for what is raised.
    """
    _find(str(folder).rstrip("/"), _manifest(texts, embedder))


def _manifest(texts, embedder):
    return Manifest(
        dimension=embedder.dimension,
        pooling=embedder.vectors.pooling,
        is_normalized=embedder.vectors.is_normalized,
        include_prompt=embedder.vectors.include_prompt,
        max_seq_length=embedder.max_seq_length,
        prompt=embedder.prompt,
        precision=embedder.precision,
        model_sha256=embedder.model_sha256,
        num_texts=len(texts),
        texts_sha256=texts.sha256,
        texts_per_file=TEXTS_PER_FILE,
    )


def _find(folder, wanted):
    """Returns the `Manifest` of a folder; None if it has none yet."""
    path = f"{folder}/{MANIFEST_FILE}"
    if files.exists(path):
        return _check(path, wanted)
    if any(
        name != lock.NAME and not _LEFTOVER.fullmatch(name)
        for name in files.list_folder(folder)
    ):
        raise ValueError(
            f"{folder}: must be a folder of vectors, or empty. "
            f"Received: a folder without {MANIFEST_FILE}."
        )
    return None


def compute(
    folder: files.AnyPath,
    texts: Texts,
    embedder: Embedder,
    batch_size: int = 32,
    title: str = "embed",
) -> "Vectors":
    """Computes the vectors of texts, or resumes a stopped run.

    Args:
        folder: A folder for the vectors alone; it is created if missing.
        texts: The texts.
        embedder: The `Embedder` that makes their vectors.
        batch_size: Texts a step.
        title: The title of the progress bar.

    Raises:
        ValueError: If the folder has vectors of another model or of other
            texts; the message names the difference. Also if another process
            computes vectors there.
        OSError: If a file cannot be written. Complete files stay.
    """
    folder = str(folder).rstrip("/")
    wanted = _manifest(texts, embedder)
    manifest = _find(folder, wanted)
    if manifest is not None:
        found = Vectors(folder, manifest)
        missing = found.missing()
        if not missing:
            # Nothing is written: the folder may be read-only.
            _tell_found(found, missing)
            return found
    try:
        with lock.hold(folder) as check_lock:
            return _compute(
                folder, wanted, texts, embedder, batch_size, title, check_lock
            )
    except lock.HeldError as error:
        raise ValueError(
            f"{folder}: {error.holder} is computing vectors there. Run again "
            "when it is done."
        ) from error


def _compute(folder, wanted, texts, embedder, batch_size, title, check_lock):
    """Does the work of `compute` in a locked folder."""
    for name in files.list_folder(folder):
        if _LEFTOVER.fullmatch(name):
            files.remove(f"{folder}/{name}")
    # Another process may have written the manifest in the meantime.
    manifest = _find(folder, wanted)
    if manifest is None:
        manifest = wanted
        values = formats.stamped(dataclasses.asdict(manifest), formats.VECTORS)
        atomic.write_text(
            f"{folder}/{MANIFEST_FILE}", f"{json.dumps(values, indent=2)}\n"
        )
    found = Vectors(folder, manifest)
    missing = found.missing()
    _tell_found(found, missing)
    sizes = [found.size(index) for index in missing]
    num_batches = sum(-(-size // batch_size) for size in sizes)

    def steps():
        for index, size in zip(missing, sizes):
            start = index * manifest.texts_per_file
            part = texts.texts[start : start + size]
            vectors = np.empty((size, manifest.dimension), np.float32)
            for rows, values in embedder.batches(part, batch_size):
                vectors[rows] = values
                yield
            check_lock()
            with atomic.whole_stream(found.path(index), "wb") as stream:
                _save(stream, vectors)

    with progress_bar.track(steps(), title, num_batches) as tracked:
        for _ in tracked:
            pass
    return found


def _tell_found(found, missing):
    num_files = found.manifest.num_files
    num_there = num_files - len(missing)
    if num_there:
        logging.info(
            "%s: %d of %d files exist already.",
            found.folder,
            num_there,
            num_files,
        )


def _save(stream, array):
    """Writes an array like `np.save`, but raises errors.

    `np.save` raises nothing if a full disk cuts off only the end.
    """
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(stream, header)
    stream.write(array.data)


def _check(path, wanted):
    """Returns the manifest of a folder; it must match the wanted one."""
    values = formats.unstamped(path, files.read_object(path), formats.VECTORS)
    names = [field.name for field in dataclasses.fields(Manifest)]
    if {*values} != {*names}:
        raise ValueError(
            f"{path}: must be a manifest of vectors, with "
            f"{', '.join(names)}. Received: {', '.join(values)}."
        )
    for name in names:
        value = getattr(wanted, name)
        # Another release may differ here; its files are just as good.
        if name == "texts_per_file" and type(values[name]) is int:
            continue
        if values[name] != value:
            raise ValueError(
                f"{path}: the vectors are of another model or of other texts: "
                f"`{name}` must be {value!r}. "
                f"Received: {messages.shortened(values[name])}."
            )
    return dataclasses.replace(
        wanted, texts_per_file=max(1, values["texts_per_file"])
    )


class Vectors:
    """The vectors of a folder, read in slices: float32 `[N, D]`.

    The last file read stays in memory.

    Args:
        folder: The folder.
        manifest: The folder's `Manifest`.
    """

    def __init__(self, folder: str, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._read: tuple[int, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.manifest.num_texts, self.manifest.dimension)

    def path(self, index: int) -> str:
        """Returns the path of the file with this number."""
        num_files = self.manifest.num_files
        return f"{self.folder}/vectors-{index:05d}-of-{num_files:05d}.npy"

    def missing(self) -> list[int]:
        """Returns the numbers of the missing files."""
        names = {*files.list_folder(self.folder)}
        return [
            index
            for index in range(self.manifest.num_files)
            if os.path.basename(self.path(index)) not in names
        ]

    def size(self, index: int) -> int:
        """Returns the number of vectors in the file with this number."""
        start = index * self.manifest.texts_per_file
        return min(
            self.manifest.texts_per_file, self.manifest.num_texts - start
        )

    def __getitem__(self, index: slice) -> np.ndarray:
        start, stop, step = index.indices(self.manifest.num_texts)
        assert step == 1, "Vectors are read in their order."
        size = self.manifest.texts_per_file
        parts = [np.zeros((0, self.manifest.dimension), np.float32)]
        for number in range(start // size, -(-max(stop, start) // size)):
            first = number * size
            part = self._file(number)
            parts.append(part[max(0, start - first) : stop - first])
        return np.concatenate(parts)

    def _file(self, number):
        if self._read is None or self._read[0] != number:
            path = self.path(number)
            try:
                with files.local_copy(path) as local:
                    array = np.load(local)
            except (EOFError, OSError, ValueError) as error:
                raise ValueError(f"{path}: damaged: {error}") from error
            wanted = (self.size(number), self.manifest.dimension)
            if array.shape != wanted or array.dtype != np.float32:
                raise ValueError(
                    f"{path}: must hold float32 {wanted}. "
                    f"Received: {array.dtype} {array.shape}."
                )
            self._read = (number, array)
        return self._read[1]
