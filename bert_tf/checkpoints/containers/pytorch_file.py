"""A file of PyTorch's, such as pytorch_model.bin, read without PyTorch.

`torch.save` writes a pickle that describes the tensors, and their bytes beside
it: in a zip archive since PyTorch 1.6, before it one after the other. Only a
dictionary of plain tensors is read, and nothing of the file is run: see
`plain_pickle`.
"""

import dataclasses
import io
import math
import struct
import zipfile
from typing import Any

import numpy as np

from bert_tf import messages
from bert_tf.checkpoints import containers
from bert_tf.checkpoints.containers import plain_pickle
from bert_tf.checkpoints.containers.plain_pickle import Name
from bert_tf.checkpoints.containers.plain_pickle import PlainPickle

# Most bytes of the pickle. A tensor takes about 200.
_MAX_PICKLE = 1 << 20
# {name of a storage's class: (safetensors' name of its dtype, NumPy's)}
_DTYPES = {
    "torch DoubleStorage": ("F64", "<f8"),
    "torch FloatStorage": ("F32", "<f4"),
    "torch HalfStorage": ("F16", "<f2"),
    # NumPy has no bfloat16.
    "torch BFloat16Storage": ("BF16", "<u2"),
    "torch LongStorage": ("I64", "<i8"),
    "torch IntStorage": ("I32", "<i4"),
    "torch ShortStorage": ("I16", "<i2"),
    "torch CharStorage": ("I8", "<i1"),
    "torch ByteStorage": ("U8", "<u1"),
    "torch BoolStorage": ("BOOL", "?"),
}
_MAX_DIMENSIONS = 32
# Tensors may share a storage: tied weights are there two or three times. All
# together, they may hold this many times the bytes of the file.
_MOST_TIMES = 4
_ZIP_START = b"PK\3\4"
# A zip entry's header, up to the lengths of its name and of more fields.
_ENTRY_HEADER = struct.Struct("<4s22xHH")
# The older form begins with the pickle of a number, then this version.
_OLD_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_OLD_VERSION = 1001


@dataclasses.dataclass(frozen=True)
class _Storage:
    """Numbers that one or more tensors are views of."""

    key: str
    class_name: str
    size: int

    @property
    def dtype(self):
        return np.dtype(_DTYPES[self.class_name][1])

    @property
    def num_bytes(self):
        return self.size * self.dtype.itemsize


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """A view of a storage; offset and strides count numbers, not bytes."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PytorchFile:
    """Tensors of a file that is mapped into memory.

    Args:
        path: A local path.

    Attributes:
        shapes: {name: shape}, in the order of the file.

    Raises:
        OSError, ValueError: If it is damaged, or holds anything else than a
            dictionary of tensors.
    """

    def __init__(self, path: str) -> None:
        self._data = np.memmap(path, np.uint8, mode="r")
        # {key of a storage: the storage, and where it begins}
        self._storages: dict[str, _Storage] = {}
        self._starts: dict[str, int] = {}
        if self._bytes(0, len(_ZIP_START)) == _ZIP_START:
            tensors = self._read_zip(path)
        elif self._bytes(0, len(_OLD_START)) == _OLD_START:
            tensors = self._read_old()
        else:
            raise ValueError("it does not begin as torch.save's files do.")
        self._tensors = _checked_tensors(tensors, self._data.size)
        self.shapes = {
            name: tensor.shape for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor in the dtype of the file, bfloat16 as float32.

        It is a read-only view of the file if that is possible.
        """
        tensor = self._tensors[name]
        storage = tensor.storage
        dtype = storage.dtype
        array: np.ndarray
        if 0 in tensor.shape:
            array = np.zeros(tensor.shape, dtype)
        else:
            array = np.ndarray(
                tensor.shape,
                dtype,
                self._data,
                self._starts[storage.key] + tensor.offset * dtype.itemsize,
                [stride * dtype.itemsize for stride in tensor.strides],
            )
        if self.dtype_name(name) == "BF16":
            # The upper half of a float32.
            # A NumPy number: 16 would make int64 of a scalar in NumPy 1.
            bits = np.left_shift(array.astype("<u4"), np.uint32(16))
            return bits.view("<f4")
        # The older form puts tensors anywhere, where TensorFlow reads none.
        return np.require(array, requirements=["ALIGNED"])

    def dtype_name(self, name: str) -> str:
        """Returns safetensors' name of a tensor's dtype, e.g. "F32"."""
        return _DTYPES[self._tensors[name].storage.class_name][0]

    def _bytes(self, start, size):
        return self._data[start : start + size].tobytes()

    def _read_zip(self, path):
        """Returns the value of the pickle in a zip archive."""
        try:
            with zipfile.ZipFile(path) as archive:
                entries = {info.filename: info for info in archive.infolist()}
        except (zipfile.BadZipFile, NotImplementedError) as error:
            raise ValueError(f"its zip archive is damaged: {error}") from error
        folder = next(iter(entries), "").partition("/")[0]
        byte_order = f"{folder}/byteorder"
        if byte_order in entries:
            _check_little_endian(
                self._bytes(*self._place(entries, byte_order)) == b"little"
            )
        start, size = self._place(entries, f"{folder}/data.pkl")
        if size > _MAX_PICKLE:
            raise ValueError(
                f"its pickle must hold at most {_MAX_PICKLE:,} bytes. "
                f"Received: {size:,}."
            )
        value = self._pickle(5).read(io.BytesIO(self._bytes(start, size)))
        for key, storage in self._storages.items():
            name = f"{folder}/data/{key}"
            self._starts[key], size = self._place(entries, name)
            _check_size(storage, size)
        return value

    def _place(self, entries, name):
        """Returns (start, size) of the bytes of a zip entry."""
        if name not in entries:
            raise ValueError(
                f"the entry {messages.shortened(name)} of its zip archive is "
                "missing."
            )
        entry = entries[name]
        size = entry.file_size
        if (
            entry.compress_type != zipfile.ZIP_STORED
            or entry.compress_size != size
        ):
            raise ValueError(
                f"the entry {messages.shortened(name)} of its zip archive is "
                "compressed; torch.save compresses none."
            )
        header = self._bytes(entry.header_offset, _ENTRY_HEADER.size)
        if entry.header_offset >= 0 and len(header) == _ENTRY_HEADER.size:
            mark, *lengths = _ENTRY_HEADER.unpack(header)
            start = entry.header_offset + len(header) + sum(lengths)
            if mark == _ZIP_START and start + size <= self._data.size:
                return start, size
        raise ValueError(
            f"the entry {messages.shortened(name)} of its zip archive is "
            "damaged."
        )

    def _read_old(self):
        """Returns the value of the main pickle of a file in the older form."""
        stream = io.BytesIO(self._bytes(0, _MAX_PICKLE))
        stream.seek(len(_OLD_START))
        plain = PlainPickle()
        version, system = plain.read(stream), plain.read(stream)
        if version != _OLD_VERSION or type(system) is not dict:
            raise ValueError(
                f"its version must be {_OLD_VERSION}. "
                f"Received: {messages.shortened(version)}."
            )
        _check_little_endian(system.get("little_endian") is True)
        value = self._pickle(6).read(stream)
        keys = plain.read(stream)
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise ValueError("its list of storages is damaged.")
        # Each storage follows its size.
        start = stream.tell()
        for key in keys:
            start += 8
            storage = self._storages.get(key)
            if storage is None:
                raise ValueError(
                    f"nothing describes the storage {messages.shortened(key)}."
                )
            size = int.from_bytes(self._bytes(start - 8, 8), "little")
            _check_size(storage, size * storage.dtype.itemsize)
            self._starts[key] = start
            start += storage.num_bytes
        if start > self._data.size or self._starts.keys() != {*self._storages}:
            raise ValueError("some of its tensors are missing.")
        return value

    def _pickle(self, id_length):
        """Returns the reader of a pickle that describes tensors.

        Args:
            id_length: How many values make the persistent id of a storage.
        """

        def find(identifier):
            is_good = (
                type(identifier) is tuple
                and len(identifier) == id_length
                and identifier[0] == "storage"
                and type(identifier[1]) is Name
                and identifier[1] in _DTYPES
                and type(identifier[2]) is str
                and _is_size(identifier[4])
                # Before PyTorch 0.4, a storage could be a view of another.
                and identifier[5:] in ((), (None,))
            )
            if not is_good:
                raise ValueError(
                    "what it refers to must be a plain storage. "
                    f"Received: {messages.shortened(identifier)}."
                )
            _, class_name, key, _, size = identifier[:5]
            storage = _Storage(key, class_name, size)
            if self._storages.setdefault(key, storage) != storage:
                raise ValueError(
                    f"it describes the storage {messages.shortened(key)} in "
                    "two ways."
                )
            return storage

        return PlainPickle(_DTYPES, _CALLS, find)


def _make_dictionary(arguments):
    values: dict[str, Any] = {}
    if not arguments:
        return values
    # Python 2 gives the items here, as pairs in a list.
    items = arguments[0]
    if type(items) is not list or not all(
        type(item) is list and len(item) == 2 for item in items
    ):
        raise ValueError(
            "an OrderedDict must be made of pairs. "
            f"Received: {messages.shortened(arguments)}."
        )
    plain_pickle.fill(values, items)
    # Moved, not copied: a pickle can call this on one list many times.
    items.clear()
    return values


def _make_tensor(arguments):
    # A seventh argument tells that all signs are turned around.
    if len(arguments) == 6:
        storage, offset, shape, strides = arguments[:4]
        if type(storage) is _Storage and _is_view(
            storage.size, offset, shape, strides
        ):
            return _Tensor(storage, offset, shape, strides)
    raise ValueError(
        "a tensor must be a view of a storage. "
        f"Received: {messages.shortened(arguments)}."
    )


def _make_parameter(arguments):
    if not arguments or type(arguments[0]) is not _Tensor:
        raise ValueError(
            "a parameter must be a tensor. "
            f"Received: {messages.shortened(arguments)}."
        )
    return arguments[0]


_CALLS = {
    "collections OrderedDict": _make_dictionary,
    "torch._utils _rebuild_tensor_v2": _make_tensor,
    "torch._utils _rebuild_parameter": _make_parameter,
    "torch._utils _rebuild_parameter_with_state": _make_parameter,
}


def _is_size(value):
    return type(value) is int and 0 <= value < 2**63


def _is_view(size, offset, shape, strides):
    """Whether all numbers of a tensor are within the storage's `size`."""
    if not (
        _is_size(offset)
        and type(shape) is type(strides) is tuple
        and len(shape) == len(strides) <= _MAX_DIMENSIONS
        and all(map(_is_size, shape + strides))
    ):
        return False
    last = sum((n - 1) * stride for n, stride in zip(shape, strides))
    return 0 in shape or offset + last < size


def _check_size(storage, num_bytes):
    if num_bytes != storage.num_bytes:
        raise ValueError(
            f"the storage {messages.shortened(storage.key)} must hold "
            f"{storage.num_bytes:,} bytes. Received: {num_bytes:,}."
        )


def _check_little_endian(is_little_endian):
    if not is_little_endian:
        raise ValueError("its numbers must be little-endian.")


def _checked_tensors(value: Any, num_bytes: int) -> dict[str, _Tensor]:
    """Returns the value of a pickle, which must be a dictionary of tensors.

    Args:
        value: The value.
        num_bytes: The size of the file.
    """
    if type(value) is not dict:
        raise ValueError(
            "it must hold a dictionary of tensors. "
            f"Received: {messages.shortened(value)}."
        )
    total = 0
    for name, tensor in value.items():
        containers.check_name(name)
        if type(tensor) is not _Tensor:
            raise ValueError(
                f"what it holds as {messages.shortened(name)} must be a "
                f"tensor. Received: {messages.shortened(tensor)}."
            )
        total += math.prod(tensor.shape) * tensor.storage.dtype.itemsize
    # A tensor whose strides are 0 may claim any size.
    if total > _MOST_TIMES * num_bytes:
        raise ValueError(
            f"its tensors must hold at most {_MOST_TIMES} times the bytes of "
            f"the file, {num_bytes:,}. Received: {total:,}."
        )
    return value
