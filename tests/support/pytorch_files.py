"""Writes PyTorch's files without PyTorch, right ones and all wrong ones."""

import dataclasses
import json
import struct
import zipfile

import ml_dtypes
import numpy as np
import safetensors.numpy

CLASSES = {
    np.dtype("float64"): "torch DoubleStorage",
    np.dtype("float32"): "torch FloatStorage",
    np.dtype("float16"): "torch HalfStorage",
    np.dtype(ml_dtypes.bfloat16): "torch BFloat16Storage",
    np.dtype("int64"): "torch LongStorage",
    np.dtype("int32"): "torch IntStorage",
    np.dtype("int16"): "torch ShortStorage",
    np.dtype("int8"): "torch CharStorage",
    np.dtype("uint8"): "torch ByteStorage",
    np.dtype("bool"): "torch BoolStorage",
}
MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True}


@dataclasses.dataclass(frozen=True)
class Name:
    """A name of Python's: the module, a space, the name there."""

    name: str


@dataclasses.dataclass(frozen=True)
class Call:
    name: str
    arguments: object


@dataclasses.dataclass(frozen=True)
class Outside:
    """What a persistent id stands for."""

    identifier: object


@dataclasses.dataclass(frozen=True)
class Attributes:
    """A value that gets attributes."""

    value: object
    attributes: object


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """A tensor as a view of an array of one axis, which others may share."""

    storage: np.ndarray
    shape: tuple
    strides: tuple
    offset: int = 0


def dumps(value, memo=None):
    """Returns a pickle of protocol 2, which calls nothing that it names."""
    memo = {} if memo is None else memo
    return b"\x80\x02" + _encode(value, memo) + b"."


def _encode(value, memo):
    def many(values):
        return b"(" + b"".join(_encode(each, memo) for each in values)

    match value:
        case bytes():
            # Operations as they are.
            return value
        case None | True | False:
            return {None: b"N", True: b"\x88", False: b"\x89"}[value]
        case int() if -(2**31) <= value < 2**31:
            return b"J" + struct.pack("<i", value)
        case int():
            data = value.to_bytes(value.bit_length() // 8 + 1, "little")
            return bytes([0x8A, len(data)]) + data
        case Call(name, arguments):
            return many([Name(name), arguments])[1:] + b"R"
        case Outside(identifier):
            return _encode(identifier, memo) + b"Q"
        case Attributes(of, attributes):
            return many([of, attributes])[1:] + b"b"
        case tuple() if len(value) <= 3:
            return (
                many(value)[1:] + [b")", b"\x85", b"\x86", b"\x87"][len(value)]
            )
        case tuple():
            return many(value) + b"t"
        case list():
            return b"]" + many(value) + b"e"
        case dict():
            return (
                b"}"
                + many(each for item in value.items() for each in item)
                + b"u"
            )
    if value in memo:
        return b"h" + bytes([memo[value]])
    if isinstance(value, Name):
        data = f"c{value.name}\n".replace(" ", "\n").encode()
    else:
        text = value.encode("utf-8", "surrogatepass")
        data = b"X" + struct.pack("<I", len(text)) + text
    if len(memo) == 256:
        return data
    memo[value] = len(memo)
    return data + b"q" + bytes([memo[value]])


def storage_id(key, class_name, size, is_zip):
    """Returns the persistent id of a storage."""
    identifier = ("storage", Name(class_name), key, "cpu", size)
    return identifier if is_zip else (*identifier, None)


def tensor(storage, offset, shape, strides):
    """Returns the call that makes a tensor, of an `Outside` storage."""
    hooks = Call("collections OrderedDict", ())
    return Call(
        "torch._utils _rebuild_tensor_v2",
        (storage, offset, tuple(shape), tuple(strides), False, hooks),
    )


def write_pickle(path, pickle, storages=None, is_zip=True):
    """Writes a file of any pickle.

    Args:
        path: The file.
        pickle: The bytes that describe the tensors.
        storages: {key: array of one axis}.
        is_zip: Whether the file is in the form of PyTorch 1.6 and later.
    """
    storages = storages or {}
    if is_zip:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickle)
            archive.writestr("archive/byteorder", "little")
            for key, array in storages.items():
                archive.writestr(f"archive/data/{key}", array.tobytes())
            archive.writestr("archive/version", "3\n")
        return
    parts = [dumps(MAGIC), dumps(1001), dumps(SYSTEM), pickle]
    parts.append(dumps(sorted(storages)))
    for _, array in sorted(storages.items()):
        parts += [struct.pack("<q", array.size), array.tobytes()]
    path.write_bytes(b"".join(parts))


def write(path, tensors, is_zip=True):
    """Writes a file of tensors, as `torch.save` writes a `state_dict`.

    Args:
        path: The file.
        tensors: {name: array or `View`}.
        is_zip: Whether the file is in the form of PyTorch 1.6 and later.
    """
    storages, values = {}, {}
    keys = {}
    for name, view in tensors.items():
        if not isinstance(view, View):
            view = np.asarray(view, order="C")
            strides = [each // view.itemsize for each in view.strides]
            view = View(view.ravel(), view.shape, strides)
        storage = view.storage
        key = keys.setdefault(id(storage), str(len(keys)))
        # Kept, so that no other has its id.
        storages[key] = storage
        outside = Outside(
            storage_id(key, CLASSES[storage.dtype], storage.size, is_zip)
        )
        values[name] = tensor(outside, view.offset, view.shape, view.strides)
    make = Call("collections OrderedDict", ())
    # The operations that fill the dictionary that was made.
    memo = {}
    pickle = b"\x80\x02" + _encode(make, memo)
    pickle += _encode(values, memo).removeprefix(b"}")
    versions = {"_metadata": {"": {"version": 1}}}
    pickle += _encode(versions, memo) + b"b."
    write_pickle(path, pickle, storages, is_zip)


def write_python_2(path, tensors, is_zip=True):
    """Writes a file of arrays of one axis, as from Python 2.

    Its strings are bytes, and a dictionary is made of pairs.
    """

    def short(text):
        return b"U" + bytes([len(text)]) + text.encode()

    pairs = []
    for name, array in tensors.items():
        _, class_name, *_ = storage_id("", CLASSES[array.dtype], 0, is_zip)
        identifier = (short("storage"), class_name, short(name), short("cpu"))
        identifier += (array.size,) if is_zip else (array.size, None)
        pair = [short(name), tensor(Outside(identifier), 0, array.shape, (1,))]
        pairs.append(pair)
    pickle = dumps(Call("collections OrderedDict", (pairs,)))
    write_pickle(path, pickle, tensors, is_zip)


def convert(folder, is_zip=True, num_shards=1):
    """Writes the weights of a folder in PyTorch's form, and removes the others.

    Args:
        folder: A folder with model.safetensors.
        is_zip: Whether the files are in the form of PyTorch 1.6 and later.
        num_shards: Number of files; with more than one there is an index.
    """
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    path.unlink()
    if num_shards == 1:
        write(folder / "pytorch_model.bin", tensors, is_zip)
        return
    weight_map = {}
    for index in range(num_shards):
        name = f"pytorch_model-{index + 1:05d}-of-{num_shards:05d}.bin"
        part = dict(list(tensors.items())[index::num_shards])
        write(folder / name, part, is_zip)
        weight_map |= dict.fromkeys(part, name)
    (folder / "pytorch_model.bin.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
