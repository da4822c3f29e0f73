"""A safetensors file whose weights are read without a copy."""

import collections
import contextlib
import json

import numpy as np
import safetensors

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import containers


class SafetensorsFile:
    """Tensors of a file that is mapped into memory.

    Args:
        path: A local path.
        stack: Closes the file.

    Attributes:
        shapes: {name: shape}, in the order of the file.

    Raises:
        safetensors.SafetensorError, OSError, ValueError: If it is damaged.
    """

    def __init__(self, path: str, stack: contextlib.ExitStack) -> None:
        with open(path, "rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
        if size > files.MAX_FOLDER_TEXT:
            raise ValueError(
                f"its header must hold at most {files.MAX_FOLDER_TEXT:,} "
                f"bytes. Received: {size:,}."
            )
        # The library checks the whole header: every tensor begins where
        # another ends and is as long as its shape says, to the file's end.
        # But if a name occurs twice, it takes the last one: see `_unique`.
        self._file = stack.enter_context(
            safetensors.safe_open(path, framework="numpy")
        )
        self._data = np.memmap(path, np.uint8, mode="r")
        self._header = json.loads(
            self._data[8 : 8 + size].tobytes(), object_pairs_hook=_unique
        )
        self._start = 8 + size
        self.shapes = {
            name: tuple(self._header[name]["shape"])
            for name in self._file.offset_keys()
        }

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor in the dtype of the file.

        A float32 tensor is a read-only view of the file.

        Raises:
            safetensors.SafetensorError, OSError: If it cannot be read.
        """
        entry = self._header[name]
        if entry["dtype"] != "F32":
            return self._file.get_tensor(name)
        begin, end = entry["data_offsets"]
        array = self._data[self._start + begin : self._start + end]
        return array.view("<f4").reshape(entry["shape"])

    def dtype_name(self, name: str) -> str:
        """Returns the format's name of a tensor's dtype, e.g. "F32"."""
        return self._header[name]["dtype"]


def _unique(pairs):
    """Returns an object in the header, a dictionary; checks its names."""
    values = dict(pairs)
    if len(values) != len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        name = counts.most_common(1)[0][0]
        raise ValueError(
            f"the name {messages.shortened(name)} is there more than once."
        )
    for name in values:
        containers.check_name(name)
    return values
