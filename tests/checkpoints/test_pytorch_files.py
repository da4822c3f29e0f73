"""pytorch_model.bin: what is read, and what is refused before it can harm."""

import itertools
import re
import struct
import time
import tracemalloc
import zipfile

import ml_dtypes
import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.containers.pytorch_file import PytorchFile
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from references import checkpoints as peer
from support import pytorch_files
from support import sentence_models
from support.pytorch_files import Attributes
from support.pytorch_files import Call
from support.pytorch_files import Name
from support.pytorch_files import Outside
from support.pytorch_files import View

FILE = "pytorch_model.bin"
FORMS = pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "old"])
NUMBERS = np.linspace(-3, 3, 24, dtype="float32")


def values(model):
    return [np.asarray(variable) for variable in model.weights]


@FORMS
@pytest.mark.parametrize("num_shards", [1, 3])
def test_weights_are_those_of_safetensors(tmp_path, is_zip, num_shards):
    peer.write_folder(tmp_path, "BertModel")
    wanted = values(checkpoints.load(tmp_path, BertEncoder))
    pytorch_files.convert(tmp_path, is_zip, num_shards)
    found = values(checkpoints.load(tmp_path, BertEncoder))
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(left, right)


@FORMS
@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", ml_dtypes.bfloat16]
)
def test_views_of_storages_are_read_bit_for_bit(tmp_path, is_zip, dtype):
    numbers = NUMBERS.astype(dtype)
    tensors = {
        # The older form then puts all that follows at an odd place.
        "flags": np.array([True, False, True]),
        "whole": View(numbers, (4, 6), (6, 1)),
        "transposed": View(numbers, (6, 4), (1, 6)),
        "part": View(numbers, (2, 3), (12, 2), 5),
        "expanded": View(numbers, (3, 2), (0, 1), 22),
        "scalar": View(numbers, (), (), 7),
        "empty": View(numbers[:0], (0, 3), (3, 1)),
        "alone": numbers[3:7],
        "position_ids": np.arange(5)[None],
    }
    pytorch_files.write(tmp_path / FILE, tensors, is_zip)
    source = PytorchFile(str(tmp_path / FILE))
    assert list(source.shapes) == list(tensors)
    wanted = {
        **tensors,
        "whole": numbers.reshape(4, 6),
        "transposed": numbers.reshape(4, 6).T,
        "part": numbers[[[5, 7, 9], [17, 19, 21]]],
        "expanded": numbers[[[22, 23]] * 3],
        "scalar": numbers[7],
        "empty": np.zeros((0, 3), dtype),
    }
    for name, array in wanted.items():
        found = source.read(name)
        assert source.shapes[name] == found.shape == array.shape
        assert found.flags.aligned
        if dtype is ml_dtypes.bfloat16 and array.dtype == dtype:
            assert found.dtype == "float32"
            array = array.astype("float32")
        assert found.dtype == array.dtype
        assert found.tobytes() == array.tobytes()
    names = {"flags": "BOOL", "position_ids": "I64"}
    for name in ("flags", "position_ids", "whole"):
        numpy_name = np.dtype(dtype).name
        expected = numpy_name.replace("bfloat", "BF").replace("float", "F")
        assert source.dtype_name(name) == names.get(name, expected)


@FORMS
def test_pickles_of_python_2_are_read(tmp_path, is_zip):
    pytorch_files.write_python_2(tmp_path / FILE, {"a.b": NUMBERS}, is_zip)
    source = PytorchFile(str(tmp_path / FILE))
    assert source.shapes == {"a.b": (24,)}
    np.testing.assert_array_equal(source.read("a.b"), NUMBERS)


def test_tensors_are_read_when_they_are_asked_for(tmp_path):
    size = 1 << 20
    tensors = {
        name: np.full(size, number, "float32")
        for number, name in enumerate("abcd")
    }
    pytorch_files.write(tmp_path / FILE, tensors)
    tracemalloc.start()
    try:
        source = PytorchFile(str(tmp_path / FILE))
        for number, name in enumerate("abcd"):
            assert source.read(name)[-1] == number
        # A copy of one tensor at most: zipfile, unlike PyTorch, aligns none.
        assert tracemalloc.get_traced_memory()[1] < 6 * size
    finally:
        tracemalloc.stop()


@FORMS
def test_buffers_and_tied_weights_are_treated_as_in_safetensors(
    tmp_path, is_zip
):
    peer.write_folder(tmp_path, "BertForMaskedLM")
    tensors = peer.tensors("BertForMaskedLM")
    (tmp_path / "model.safetensors").unlink()
    name = "bert.embeddings.word_embeddings.weight"
    shape = tensors[name].shape
    tensors[name] = View(tensors[name].ravel(), shape, (shape[1], 1))
    copies = {
        "cls.predictions.decoder.weight": tensors[name],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }
    buffer = {"bert.embeddings.position_ids": np.arange(9)[None]}
    pytorch_files.write(tmp_path / FILE, tensors | copies | buffer, is_zip)
    model = checkpoints.load(tmp_path, BertPretrainer)
    report = model.coverage_report
    assert {*report.names("left over")} == {*copies, *buffer}
    np.testing.assert_array_equal(
        model.encoder.embeddings.word_embeddings,
        tensors[name].storage.reshape(shape),
    )


def test_integers_are_no_weights(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    (tmp_path / "model.safetensors").unlink()
    tensors = peer.tensors("BertModel")
    name = "encoder.layer.1.output.dense.bias"
    tensors[name] = tensors[name].astype("int32")
    pytorch_files.write(tmp_path / FILE, tensors)
    match = f"{FILE}: the tensor {name} must be of floating-point.*: I32"
    with pytest.raises(ValueError, match=match):
        checkpoints.load(tmp_path, BertEncoder)


def test_safetensors_are_read_where_both_are(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    (tmp_path / FILE).write_bytes(b"not looked at")
    checkpoints.load(tmp_path, BertEncoder)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=f"{FILE}: is damaged or holds more"):
        checkpoints.load(tmp_path, BertEncoder)


def test_a_release_of_google_and_transformers_is_read_as_transformers_does(
    tmp_path,
):
    peer.write_folder(tmp_path / "a", "BertModel", hidden_act="gelu_new")
    checkpoints.convert(tmp_path / "a", tmp_path / "b", "google")
    pytorch_files.convert(tmp_path / "a")
    (tmp_path / "a" / FILE).rename(tmp_path / "b" / FILE)
    assert checkpoints.load(tmp_path / "b", BertEncoder).config.hidden_act == (
        "gelu_new"
    )
    # Beside config.json the pickle is what transformers reads.
    peer.write_folder(tmp_path / "c", "BertModel", hidden_act="gelu")
    (tmp_path / "c/config.json").rename(tmp_path / "b/config.json")
    assert checkpoints.load(tmp_path / "b", BertEncoder).config.hidden_act == (
        "gelu"
    )


@pytest.mark.parametrize("name", ["training_args.bin", "optimizer.pt"])
def test_other_files_of_pytorch_are_no_weights(tmp_path, name):
    peer.write_folder(tmp_path, "BertModel")
    pytorch_files.convert(tmp_path)
    (tmp_path / FILE).rename(tmp_path / name)
    match = f"has none of model.safetensors, .*{FILE}, .* Found: .*{name}"
    with pytest.raises(ValueError, match=match):
        checkpoints.load(tmp_path, BertEncoder)


@FORMS
def test_dense_layers_of_sentence_models_are_read(tmp_path, is_zip):
    sentence_models.save(tmp_path / "a", sentence_models.VECTORS)
    wanted = sentence_folder.read(tmp_path / "a").dense
    for module in ("2_Dense", "3_Dense"):
        pytorch_files.convert(tmp_path / "a" / module, is_zip)
    found = sentence_folder.read(tmp_path / "a").dense
    for left, right in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(left.kernel, right.kernel)
    # A conversion changes nothing in these files, and keeps those that count.
    (tmp_path / "a/3_Dense/model.safetensors").write_bytes(
        (tmp_path / "a/3_Dense" / FILE).read_bytes()
    )
    with pytest.raises(ValueError, match="no safetensors file"):
        sentence_folder.read(tmp_path / "a")
    (tmp_path / "a/3_Dense/model.safetensors").unlink()
    checkpoints.convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    assert (tmp_path / "b/2_Dense" / FILE).read_bytes() == (
        tmp_path / "a/2_Dense" / FILE
    ).read_bytes()
    (tmp_path / "a/3_Dense" / FILE).unlink()
    with pytest.raises(ValueError, match="3_Dense: must hold weights"):
        sentence_folder.read(tmp_path / "a")


def refused(path):
    """Returns why a file is refused, which must be told soon, in one line."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(ValueError) as error:
            PytorchFile(str(path))
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    # A megabyte of operations at most; the machine may be slow.
    assert time.process_time() - start < 10
    assert peak < 100 << 20
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def outside(is_zip, size=24, class_name="torch FloatStorage", key="0"):
    return Outside(pytorch_files.storage_id(key, class_name, size, is_zip))


# {what it does: (a pickle's value, what the message names)}
HOSTILE = {
    "system": (Call("posix system", ("touch x",)), "'posix system'"),
    "os": (Call("os system", ("touch x",)), "'os system'"),
    "eval": (Call("builtins eval", ("1",)), "'builtins eval'"),
    "python2": (Call("__builtin__ eval", ("1",)), "'__builtin__ eval'"),
    "getattr": (
        Call("builtins getattr", (Name("torch FloatStorage"), "x")),
        "'builtins getattr'",
    ),
    "dots": (
        Call("collections OrderedDict.__init__.__globals__", ()),
        "OrderedDict.__init__",
    ),
    "load": (
        Call("torch.storage _load_from_bytes", ("x",)),
        "'torch.storage _load_from_bytes'",
    ),
    "call a type": (Call("torch FloatStorage", (5,)), "'torch FloatStorage'"),
    "call a string": (b"X\1\0\0\0a)R", "calls 'a'"),
    "no tuple": (b"ccollections\nOrderedDict\n]R", "must be a tuple"),
    "arguments": (Call("collections OrderedDict", ({},)), "made of pairs"),
    "no pairs": (
        Call("collections OrderedDict", ([["a", 1, 2]],)),
        "made of pairs",
    ),
    "a pair twice": (
        Call("collections OrderedDict", ([["a", 1], ["a", 1]],)),
        "'a' is there more than once",
    ),
    "inst": (b"(iposix\nsystem\n", "INST"),
    "obj": (b"(cposix\nsystem\no", "'posix system'"),
    "obj of a type": (b"(ctorch\nFloatStorage\no", "OBJ"),
    "newobj": (b"ctorch\nFloatStorage\n)\x81", "NEWOBJ"),
    "newobj_ex": (b"ctorch\nFloatStorage\n)}\x92", "NEWOBJ_EX"),
    "stack_global": (b"\x8c\5posix\x8c\6system\x93", "SHORT_BINUNICODE"),
    "ext1": (b"\x82\1", "EXT1"),
    "ext2": (b"\x83\1\0", "EXT2"),
    "ext4": (b"\x84\1\0\0\0", "EXT4"),
    "persid": (b"Pstorage\n", "PERSID"),
    "bytearray8": (b"\x96" + b"\xff" * 7 + b"\0", "BYTEARRAY8"),
    "binunicode8": (b"\x8d" + b"\xff" * 7 + b"\0", "BINUNICODE8"),
    "long4": (b"\x8b\xff\xff\xff\x7f", "LONG4"),
    "attributes": (
        Attributes(Name("torch FloatStorage"), {"x": 1}),
        "the pickle is damaged",
    ),
    "keys": ({(1, 2): 3}, r"must be strings. Received: \(1, 2\)"),
    "twice": (b"}X\1\0\0\0aNsX\1\0\0\0aNs", "'a' is there more than once"),
    "no dictionary": (["a"], "must hold a dictionary of tensors"),
    "no tensor": ({"a": 5}, "holds as 'a' must be a tensor. Received: 5"),
    "lost value": (b"h\5", "the pickle is damaged"),
    "lost mark": (b"t", "the pickle is damaged"),
    "lost list": (b"NNa", "the pickle is damaged"),
    "nothing": (b"", "the pickle is damaged"),
    "quantized": (
        Call("torch._utils _rebuild_qtensor", ()),
        "torch._utils _rebuild_qtensor",
    ),
    "parameter": (
        {"a": Call("torch._utils _rebuild_parameter", (3, True, None))},
        "a parameter must be a tensor",
    ),
}


@FORMS
@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_more_than_weights_is_refused_by_name(tmp_path, case, is_zip):
    value, match = HOSTILE[case]
    pickle = pytorch_files.dumps(value)
    pytorch_files.write_pickle(tmp_path / FILE, pickle, is_zip=is_zip)
    assert re.search(match, refused(tmp_path / FILE))


@FORMS
@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"size": 25}, "must hold 100 bytes. Received: 96"),
        ({"size": 2**60}, "must hold .* bytes. Received: 96"),
        ({"size": 2**70}, "plain storage"),
        ({"size": -24}, "plain storage"),
        ({"size": True}, "plain storage"),
        (
            {"class_name": "torch DoubleStorage"},
            "(192 bytes|are missing)",
        ),
        ({"class_name": "collections OrderedDict"}, "plain storage"),
        ({"key": "9"}, "(missing|describes)"),
        ({"key": "../data.pkl"}, "(missing|describes)"),
        ({"key": 0}, "plain storage"),
        ({"offset": 1}, "must be a view"),
        ({"offset": -1}, "must be a view"),
        ({"offset": 2**80}, "must be a view"),
        ({"shape": (25,)}, "must be a view"),
        ({"shape": (-1,)}, "must be a view"),
        ({"shape": (24, 1)}, "must be a view"),
        ({"shape": (1,) * 33, "strides": (1,) * 33}, "must be a view"),
        ({"shape": (2**62, 4), "strides": (1, 1)}, "must be a view"),
        ({"shape": (True,)}, "must be a view"),
        ({"shape": ("24",)}, "must be a view"),
        ({"strides": (-1,)}, "must be a view"),
        ({"strides": (2,)}, "must be a view"),
        # What strides of 0 may claim is bounded too.
        ({"shape": (2**62,), "strides": (0,)}, "at most 4 times the bytes"),
        ({"shape": (2**20,), "strides": (0,)}, "at most 4 times the bytes"),
    ],
)
def test_sizes_that_lie_are_refused(tmp_path, change, match, is_zip):
    arguments = {"offset": 0, "shape": (24,), "strides": (1,)}
    of_storage = {key: change[key] for key in change if key not in arguments}
    arguments |= {key: change[key] for key in change if key in arguments}
    value = {
        "a": pytorch_files.tensor(outside(is_zip, **of_storage), **arguments)
    }
    pytorch_files.write_pickle(
        tmp_path / FILE, pytorch_files.dumps(value), {"0": NUMBERS}, is_zip
    )
    assert re.search(match, refused(tmp_path / FILE))


@pytest.mark.parametrize(
    "identifier",
    [
        "0",
        ("storage",),
        ("module", Name("torch FloatStorage"), "0", "cpu", 24),
        ("storage", "torch FloatStorage", "0", "cpu", 24),
        # Of the older form, and a view of another storage there.
        ("storage", Name("torch FloatStorage"), "0", "cpu", 24, None),
        ("storage", Name("torch FloatStorage"), "0", "cpu", 24, ("1", 0, 2)),
    ],
)
def test_persistent_ids_of_another_form_are_refused(tmp_path, identifier):
    value = {"a": pytorch_files.tensor(Outside(identifier), 0, (24,), (1,))}
    pickle = pytorch_files.dumps(value)
    pytorch_files.write_pickle(tmp_path / FILE, pickle, {"0": NUMBERS})
    assert "must be a plain storage" in refused(tmp_path / FILE)


@FORMS
def test_a_storage_of_two_forms_is_refused(tmp_path, is_zip):
    value = {
        name: pytorch_files.tensor(
            outside(is_zip, class_name=f"torch {kind}Storage"), 0, (24,), (1,)
        )
        for name, kind in {"a": "Float", "b": "Int"}.items()
    }
    pytorch_files.write_pickle(
        tmp_path / FILE, pytorch_files.dumps(value), {"0": NUMBERS}, is_zip
    )
    assert "in two ways" in refused(tmp_path / FILE)


@FORMS
@pytest.mark.parametrize("name", ["a\nb", "a" * 257, "\ud800"])
def test_names_that_are_no_names_are_refused(tmp_path, is_zip, name):
    pytorch_files.write(tmp_path / FILE, {name: NUMBERS}, is_zip)
    assert "256 printable characters" in refused(tmp_path / FILE)


@FORMS
def test_every_truncation_is_an_error(tmp_path, is_zip):
    path = tmp_path / FILE
    pytorch_files.write(path, {"a": NUMBERS, "b": NUMBERS[:3]}, is_zip)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError):
            PytorchFile(str(path))


def test_a_full_pickle_costs_little(tmp_path):
    most = 1 << 20
    for operation in (b"}", b"("):
        pickle = b"\x80\x02" + operation * (most - 3) + b"."
        pytorch_files.write_pickle(tmp_path / FILE, pickle)
        refused(tmp_path / FILE)
    pytorch_files.write_pickle(tmp_path / FILE, bytes(most + 1))
    assert "must hold at most 1,048,576 bytes" in refused(tmp_path / FILE)


def test_values_in_values_cost_little(tmp_path):
    # Tuples of a tuple twice, a thousand times: to print or hash one is to
    # visit 2**1000 values.
    nested = b"N" + b"q\0h\0\x86" * 1000
    for operations in (
        nested,
        b"}" + nested + b"Ns",
        b"}X\1\0\0\0a" + nested + b"s",
        nested + b"Q",
        b"ctorch._utils\n_rebuild_tensor_v2\n" + nested + b"R",
        b"ctorch._utils\n_rebuild_parameter\n" + nested + b"R",
    ):
        pickle = pytorch_files.dumps(operations)
        pytorch_files.write_pickle(tmp_path / FILE, pickle)
        refused(tmp_path / FILE)
    # A dictionary of ten thousand items, made ten thousand times.
    pairs = [[f"{number:x}", None] for number in range(10_000)]
    once = pytorch_files.dumps(pairs)[2:-1]
    name = b"ccollections\nOrderedDict\n"
    pickle = b"\x80\x02" + once + b"\x85r\0\1\0\0" + name + b"r\1\1\0\0"
    pickle += b"j\1\1\0\0j\0\1\0\0R" * 10_000 + b"."
    pytorch_files.write_pickle(tmp_path / FILE, pickle)
    refused(tmp_path / FILE)
    # A memo of any number has one entry.
    pickle = pytorch_files.dumps(b"}r\xff\xff\xff\xff")
    pytorch_files.write_pickle(tmp_path / FILE, pickle)
    assert PytorchFile(str(tmp_path / FILE)).shapes == {}


def test_compressed_entries_are_refused(tmp_path):
    pickle = pytorch_files.dumps(
        {"a": pytorch_files.tensor(outside(True), 0, (24,), (1,))}
    )
    bomb = bytes(1 << 27)
    for name in ("data.pkl", "data/0"):
        with zipfile.ZipFile(tmp_path / FILE, "w") as archive:
            kinds = {name: zipfile.ZIP_DEFLATED}
            contents = {"data.pkl": pickle, "data/0": bytes(96)} | {name: bomb}
            for entry, content in contents.items():
                archive.writestr(f"archive/{entry}", content, kinds.get(entry))
        assert f"archive/{name}" in refused(tmp_path / FILE)
        assert "compressed" in refused(tmp_path / FILE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        # In the directory: sizes, and where an entry begins.
        *itertools.product([20, 24, 42], [2**31, 2**32 - 2, 2**16]),
        (42, 1),
    ],
)
def test_entries_outside_the_file_are_refused(tmp_path, field, value):
    path = tmp_path / FILE
    pytorch_files.write(path, {"a": NUMBERS})
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\1\2", data.index(b"PK\1\2") + 1)
    place = data.index(b"archive/data/0", place) - 46
    struct.pack_into("<I", data, place + field, value)
    path.write_bytes(data)
    refused(path)


def test_numbers_of_the_other_byte_order_are_refused(tmp_path):
    path = tmp_path / FILE
    pytorch_files.write(path, {"a": NUMBERS})
    path.write_bytes(path.read_bytes().replace(b"little", b"bigger"))
    assert "must be little-endian" in refused(path)
    pytorch_files.write(path, {"a": NUMBERS}, is_zip=False)
    path.write_bytes(
        path.read_bytes().replace(b"endian\x71\1\x88", b"endian\x71\1\x89")
    )
    assert "must be little-endian" in refused(path)
