"""Hugging Face's folders: one file of weights, or shards and an index.

The weights are in safetensors files or, without them, in PyTorch's own.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf import streams
from bert_tf.checkpoints import containers
from bert_tf.checkpoints.containers.pytorch_file import PytorchFile
from bert_tf.checkpoints.containers.safetensors_file import SafetensorsFile

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLE_FILE = "pytorch_model.bin"
PICKLE_INDEX_FILE = "pytorch_model.bin.index.json"
SAFETENSORS = (WEIGHTS_FILE, INDEX_FILE)
PICKLES = (PICKLE_FILE, PICKLE_INDEX_FILE)
# The first of them that is there is read, as in transformers.
WEIGHTS_FILES = (*SAFETENSORS, *PICKLES)
# The dtypes that weights may be stored in.
_FLOATS = ("F64", "F32", "F16", "BF16")

_File = SafetensorsFile | PytorchFile


class HuggingFaceFolder:
    """The weights in a folder, read tensor by tensor; see `containers`.

    Args:
        folder: A path, local or remote.
        stack: Closes the files.
        rename: Function of a name in a file; returns the weight's name here,
            or None for a tensor that is not a weight.

    Raises:
        ValueError: If files are missing or corrupt; the message names the
            file.
    """

    file_format = containers.HUGGING_FACE

    def __init__(
        self,
        folder: str,
        stack: contextlib.ExitStack,
        rename: Callable[[str], str | None] = str,
    ) -> None:
        self.folder = folder
        paths = [f"{folder}/{name}" for name in WEIGHTS_FILES]
        path = next(filter(files.exists, paths), None)
        if path is None:
            raise ValueError(
                f"{folder}: must hold weights, as {' or '.join(WEIGHTS_FILES)}."
            )
        self.weights_path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ignored: dict[str, tuple[int, ...]] = {}
        self._stack = stack
        self._rename = rename
        # {name: (open file, its path, name in it)}
        self._sources: dict[str, tuple[_File, str, str]] = {}
        # {path: the file, or its local copy, as it is opened for its tensors}
        self._streams: dict[str, Any] = {}
        for path, expected in self._weight_files():
            self._open_weights(path, expected)

    def find_tied(self, tied: Mapping[str, str]) -> None:
        """Gives weights their names that are there under a copy's alone.

        safetensors' `save_model` keeps one name of a tensor, the first of them
        all in the alphabet.

        Args:
            tied: {name of a copy: name of the same weight}.
        """
        for copy, name in tied.items():
            if copy in self.shapes and name not in self.shapes:
                self.shapes[name] = self.shapes.pop(copy)
                self._sources[name] = self._sources.pop(copy)

    def file_of(self, name: str) -> str:
        """Returns the path of the file that holds the tensor."""
        return self._sources[name][1]

    def weights_sha256(self) -> dict[str, str]:
        """Returns {name of a file: its SHA-256}, of the files that are open."""
        used = {path for _, path, _ in self._sources.values()}
        found = {}
        for path in sorted(used):
            self._streams[path].seek(0)
            digest = hashlib.file_digest(self._streams[path], "sha256")
            found[os.path.basename(path)] = digest.hexdigest()
        return found

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor as it is stored, as a float32 array.

        Raises:
            ValueError: If it cannot be read; names file and tensor.
        """
        source, path, name_in_file = self._sources[name]
        dtype = source.dtype_name(name_in_file)
        if dtype not in _FLOATS:
            raise ValueError(
                f"{path}: the tensor {name_in_file} must be of floating-point "
                f"numbers, {', '.join(_FLOATS)}. Received: {dtype}."
            )
        try:
            return np.asarray(source.read(name_in_file), np.float32)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ValueError(
                f"{path}: cannot read the tensor {name_in_file}: {error}"
            ) from error

    def _weight_files(self):
        """Yields (path, names that the index places in this file)."""
        if not self.weights_path.endswith(".index.json"):
            yield self.weights_path, []
            return
        index = files.read_json(self.weights_path, files.MAX_FOLDER_TEXT)
        weight_map = isinstance(index, dict) and index.get("weight_map")
        if not isinstance(weight_map, dict) or not weight_map:
            raise ValueError(f"{self.weights_path}: has no `weight_map`.")
        shards: dict[str, list[str]] = {}
        for name, shard in weight_map.items():
            if not isinstance(shard, str) or "/" in shard:
                raise ValueError(
                    f"{self.weights_path}: the file of the tensor {name} "
                    "must be one of the folder. "
                    f"Received: {messages.shortened(shard)}."
                )
            shards.setdefault(shard, []).append(name)
        for shard, expected in sorted(shards.items()):
            yield f"{self.folder}/{shard}", expected

    def _open_weights(self, path, expected):
        source = self._open(path)
        for name in expected:
            if name not in source.shapes:
                raise ValueError(
                    f"{path}: the tensor {name} is missing, which the index "
                    "places there."
                )
        for name_in_file, shape in source.shapes.items():
            name = self._rename(name_in_file)
            if name is None:
                self.ignored[name_in_file] = shape
                continue
            if name in self.shapes:
                raise ValueError(
                    f"{path}: the tensor {name_in_file} is there twice, also "
                    f"as {self._sources[name][2]} in {self.file_of(name)}."
                )
            self.shapes[name] = shape
            self._sources[name] = (source, path, name_in_file)

    def _open(self, path):
        local = self._stack.enter_context(files.local_copy(path))
        is_pickle = not path.endswith(".safetensors")
        self._streams[path] = self._stack.enter_context(
            streams.open_bytes(local, decompress=False)
        )
        try:
            if is_pickle:
                return PytorchFile(local)
            return SafetensorsFile(local, self._stack)
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            head = self._streams[path].read(1 << 10)
            files.check_no_lfs_pointer(path, head)
            if is_pickle:
                reason = str(error).removesuffix(".")
                raise ValueError(
                    f"{path}: is damaged or holds more than weights: {reason}. "
                    f"Save the weights as {WEIGHTS_FILE} where the file was "
                    "made."
                ) from error
            raise ValueError(
                f"{path}: is truncated or no safetensors file: {error}"
            ) from error


def write(path: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes a safetensors file; the caller makes sure that it is whole.

    Args:
        path: Path to write, local or remote.
        tensors: {name: array}.

    Raises:
        OSError: E.g. if the disk is full.
    """
    # The writer copies memory in its own order and ignores the strides.
    tensors = {
        name: np.asarray(array, order="C") for name, array in tensors.items()
    }
    with atomic.local_target(path) as local:
        # Some releases of the writer make files that other users cannot read:
        # keep the mode of a new file.
        with open(local, "wb"):
            mode = os.stat(local).st_mode
        try:
            # transformers refuses files that do not say this.
            safetensors.numpy.save_file(
                tensors, local, metadata={"format": "pt"}
            )
        except safetensors.SafetensorError as error:
            # This is how the library reports a full disk.
            raise OSError(f"{path}: cannot be written: {error}") from error
        os.chmod(local, mode)
