"""Files that PyTorch itself has written are read bit for bit.

    python -m pytest -m peers tests/checkpoints/test_pytorch_peers.py

The environment is that of test_peers.py.
"""

import json

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.checkpoints.containers.pytorch_file import PytorchFile
from bert_tf.models.pretrainer import BertPretrainer
from references import checkpoints as peer
from support import peers
from support import pytorch_files

pytestmark = pytest.mark.peers

FORMS = pytest.mark.parametrize("is_zip", [1, 0], ids=["zip", "old"])
# Writes a file of tensors of all kinds, and what they hold as .npz.
WRITE = """
import collections, sys
import numpy as np
import torch
path, values, is_zip = sys.argv[1:]
torch.manual_seed(5)
whole = torch.randn(5, 7)
tied = torch.nn.Parameter(torch.randn(3, 4))
kept = torch.nn.Parameter(torch.randn(4))
kept.note = {"of": "whoever", "numbers": [1, 2.5, 2**70, True, None]}
tensors = collections.OrderedDict(
    flags=torch.tensor([True, False, True]),
    whole=whole,
    transposed=whole.t(),
    part=whole[1:4, ::3],
    flipped=whole.flip(0),
    expanded=torch.randn(3, 1).expand(3, 6),
    scalar=torch.tensor(-2.5),
    empty=torch.zeros(0, 3),
    parameter=tied,
    tied=tied,
    noted=kept,
    double=torch.randn(4).double() / 3,
    position_ids=torch.arange(9).expand((1, -1)),
    bytes=torch.arange(4, dtype=torch.uint8),
    short=torch.arange(-2, 2, dtype=torch.int16),
    int=torch.arange(-2, 2, dtype=torch.int32),
    char=torch.arange(-2, 2, dtype=torch.int8),
)
for dtype in (torch.float16, torch.bfloat16):
    name = str(dtype)[6:]
    tensors[name] = torch.randn(6, 5).to(dtype)
    tensors[name + "_part"] = tensors[name].t()[1:, 2:]
    # Every number that there is.
    tensors[name + "_all"] = torch.arange(
        -2**15, 2**15, dtype=torch.int16
    ).view(dtype)
    assert tensors[name + "_all"].shape == (2**16,)
tensors._metadata = collections.OrderedDict({"": {"version": 1}})
torch.save(tensors, path, _use_new_zipfile_serialization=is_zip == "1")
np.savez(values, **{
    name: (
        tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    ).detach().numpy()
    for name, tensor in tensors.items()
})
"""
# Writes the folder of a class of transformers, and the same as safetensors.
SAVE = """
import json, sys
import torch, transformers
architecture, config, folder, safe, is_zip, num_shards = sys.argv[1:]
torch.manual_seed(3)
config = transformers.BertConfig(**json.loads(config))
model = getattr(transformers, architecture)(config)
model.save_pretrained(safe)
model.config.save_pretrained(folder)
state, weight_map = model.state_dict(), {}
for index in range(int(num_shards)):
    name = "pytorch_model.bin"
    if num_shards != "1":
        name = f"pytorch_model-{index + 1:05d}-of-{int(num_shards):05d}.bin"
    part = dict(list(state.items())[index :: int(num_shards)])
    torch.save(
        part, f"{folder}/{name}", _use_new_zipfile_serialization=is_zip == "1"
    )
    weight_map |= dict.fromkeys(part, name)
if num_shards != "1":
    with open(f"{folder}/pytorch_model.bin.index.json", "w") as file:
        json.dump({"metadata": {}, "weight_map": weight_map}, file)
"""
# Reads the files that tests/support/pytorch_files.py has written.
READ = """
import sys
import numpy as np
import torch
for path in sys.argv[1:]:
    tensors = torch.load(path, weights_only=True)
    np.savez(path + ".npz", **{n: t.numpy() for n, t in tensors.items()})
"""
# Writes a file that torch.load(weights_only=False) takes, of one more kind.
OTHERS = """
import sys, torch
path, kind, is_zip = sys.argv[1:]
value = {
    "module": lambda: torch.nn.Linear(2, 3),
    "quantized": lambda: {
        "a": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    },
    "sparse": lambda: {"a": torch.eye(3).to_sparse()},
    "complex": lambda: {"a": torch.ones(3) * 1j},
    "negative": lambda: {"a": (torch.ones(3) * 1j).conj().imag},
    "new dtype": lambda: {"a": torch.ones(3, dtype=torch.uint16)},
    "optimizer": lambda: torch.optim.AdamW(
        [torch.nn.Parameter(torch.ones(3))]
    ).state_dict(),
}[kind]()
torch.save(value, path, _use_new_zipfile_serialization=is_zip == "1")
"""


@FORMS
def test_what_torch_saves_is_read_bit_for_bit(tmp_path, is_zip):
    path, values = tmp_path / "pytorch_model.bin", tmp_path / "values.npz"
    peers.run("-c", WRITE, path, values, is_zip)
    wanted = dict(np.load(values))
    source = PytorchFile(str(path))
    assert list(source.shapes) == list(wanted)
    for name, array in wanted.items():
        found = source.read(name)
        assert (found.shape, found.dtype) == (array.shape, array.dtype)
        assert found.tobytes() == array.tobytes()


def test_torch_reads_what_the_tests_of_its_files_write(tmp_path):
    numbers = np.arange(6, dtype="float32")
    paths = []
    for write in (pytorch_files.write, pytorch_files.write_python_2):
        for is_zip in (True, False):
            paths.append(tmp_path / f"{len(paths)}.bin")
            write(paths[-1], {"a.b": numbers, "c": numbers[2:4]}, is_zip)
    tied = pytorch_files.View(numbers, (3, 2), (1, 3))
    pytorch_files.write(tmp_path / "tied.bin", {"a": tied, "b": tied})
    peers.run("-c", READ, *paths, tmp_path / "tied.bin")
    for path in paths:
        found = dict(np.load(f"{path}.npz"))
        np.testing.assert_array_equal(found["a.b"], numbers)
        np.testing.assert_array_equal(found["c"], numbers[2:4])
    for array in dict(np.load(tmp_path / "tied.bin.npz")).values():
        np.testing.assert_array_equal(array, numbers.reshape(2, 3).T)


@FORMS
@pytest.mark.parametrize("num_shards", [1, 3])
def test_models_are_those_of_safetensors(tmp_path, is_zip, num_shards):
    for name in ("a", "safe"):
        (tmp_path / name).mkdir()
    # Its masked-LM head shares the embeddings.
    peers.run(
        *("-c", SAVE, "BertForPreTraining", json.dumps(peer.CONFIG)),
        *(tmp_path / "a", tmp_path / "safe", is_zip, num_shards),
    )
    wanted = checkpoints.load(tmp_path / "safe", BertPretrainer)
    found = checkpoints.load(tmp_path / "a", BertPretrainer)
    assert found.coverage_report.names("new") == ()
    assert {*found.coverage_report.names("left over")} == {
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    }
    for left, right in zip(found.weights, wanted.weights, strict=True):
        np.testing.assert_array_equal(left, right)


@FORMS
@pytest.mark.parametrize(
    ("kind", "match"),
    [
        ("module", "torch.nn.modules.linear Linear"),
        ("quantized", "torch._utils _rebuild_qtensor"),
        ("sparse", "torch._utils _rebuild_sparse_tensor"),
        ("complex", "torch ComplexFloatStorage"),
        ("negative", "(view of a storage|ComplexFloatStorage)"),
        ("new dtype", "torch._utils _rebuild_tensor_v3"),
        ("optimizer", "(keys of a dictionary|'state' must be a tensor)"),
    ],
)
def test_what_else_torch_saves_is_refused(tmp_path, kind, match, is_zip):
    path = tmp_path / "pytorch_model.bin"
    peers.run("-c", OTHERS, path, kind, is_zip)
    with pytest.raises(ValueError, match=match):
        PytorchFile(str(path))
