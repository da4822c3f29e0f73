"""A safetensors file, whose weights are read without a copy of them."""

import json

import numpy as np
import safetensors


class SafetensorsFile:
    """Tensors of a file that is mapped into memory. A context manager.

    Args:
        path: A local path.

    Attributes:
        shapes: {name: shape}, in the order of the file.

    Raises:
        safetensors.SafetensorError, OSError: If it is damaged.
    """

    def __init__(self, path):
        # The library checks all of the header: every tensor begins where
        # another ends and is as long as its shape says, to the file's end.
        self._file = safetensors.safe_open(path, framework="numpy")
        self._data = np.memmap(path, np.uint8, mode="r")
        size = int(self._data[:8].view("<u8")[0])
        self._header = json.loads(self._data[8 : 8 + size].tobytes())
        self._start = 8 + size
        self.shapes = {
            name: tuple(self._header[name]["shape"])
            for name in self._file.offset_keys()
        }

    def __enter__(self):
        self._file.__enter__()
        return self

    def __exit__(self, *exception):
        self._file.__exit__(*exception)

    def read(self, name):
        """Returns a tensor in the type of the file.

        One of float32 is a view of the file, which cannot be written to.

        Raises:
            safetensors.SafetensorError, OSError: If it cannot be read.
        """
        entry = self._header[name]
        if entry["dtype"] != "F32":
            return self._file.get_tensor(name)
        begin, end = entry["data_offsets"]
        array = self._data[self._start + begin : self._start + end]
        return array.view("<f4").reshape(entry["shape"])

    def dtype_name(self, name):
        """Returns the format's name of a tensor's type, e.g. "F32"."""
        return self._header[name]["dtype"]
