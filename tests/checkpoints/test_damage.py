"""Files cut short, files with a bit turned over: errors that name the file.

Damages of one kind each: tests/test_checkpoints_{google,hugging_face}.py.
"""

import json

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.models.encoder import BertEncoder
from references import checkpoints as peer

HUGGING_FACE = "model.safetensors"
INDEX = "bert_model.ckpt.index"
DATA = "bert_model.ckpt.data-00000-of-00001"
# The weights in a safetensors file have no checksum, its header is read whole.
END_OF_HEADER = 500


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{file: the folder that holds it}."""
    path = tmp_path_factory.mktemp("damage")
    (path / "a").mkdir()
    peer.write_folder(path / "a", "BertModel", hidden_act="gelu_new")
    checkpoints.convert(path / "a", path / "b", "google")
    return {HUGGING_FACE: path / "a", INDEX: path / "b", DATA: path / "b"}


def cut(data, file, generator):
    return data[: generator.integers(len(data))]


def turn_a_bit_over(data, file, generator):
    data = bytearray(data)
    end = END_OF_HEADER if file == HUGGING_FACE else len(data)
    data[generator.integers(end)] ^= 1 << generator.integers(8)
    return bytes(data)


def values(model):
    return [np.asarray(variable) for variable in model.weights]


@pytest.mark.parametrize("file", [HUGGING_FACE, INDEX, DATA])
@pytest.mark.parametrize("damage", [cut, turn_a_bit_over])
def test_damage_is_an_error_that_names_the_folder(folders, file, damage):
    folder = folders[file]
    path = folder / file
    whole = path.read_bytes()
    loaded = checkpoints.load(folder, BertEncoder)
    right = values(loaded)
    model = BertEncoder(loaded.config)
    before = values(model)
    generator = np.random.default_rng(20181011)
    num_errors = 0
    try:
        for _ in range(20):
            path.write_bytes(damage(whole, file, generator))
            try:
                checkpoints.load_weights(folder, model)
            except ValueError as error:
                num_errors += 1
                assert str(folder) in str(error)
                # Values have checksums of their own, seen at each one's turn.
                expected = None if file == DATA else before
                assert file != DATA or "the tensor bert/" in str(error)
            else:
                # A few bytes of an index mean nothing.
                expected = right
            for variable, value in zip(model.weights, expected or ()):
                np.testing.assert_array_equal(variable, value)
            for variable, value in zip(model.weights, before):
                variable.assign(value)
    finally:
        path.write_bytes(whole)
    assert num_errors >= (18 if file == INDEX else 20)


def test_missing_data_is_an_error(folders):
    path = folders[DATA] / DATA
    whole = path.read_bytes()
    path.unlink()
    try:
        with pytest.raises(ValueError, match=str(folders[DATA])):
            checkpoints.load(folders[DATA], BertEncoder)
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("index", "match"),
    [
        ([], "no `weight_map`"),
        ({"weight_map": {}}, "no `weight_map`"),
        ({"weight_map": {"x": 3}}, "tensor x must be one of the folder.*3"),
        ({"weight_map": {"x": "../y"}}, r"tensor x must be .*\.\./y"),
    ],
)
def test_a_wrong_index_is_an_error(tmp_path, index, match):
    peer.write_folder(tmp_path, "BertModel")
    (tmp_path / HUGGING_FACE).unlink()
    (tmp_path / f"{HUGGING_FACE}.index.json").write_text(json.dumps(index))
    with pytest.raises(
        ValueError, match=f"{HUGGING_FACE}.index.json: .*{match}"
    ):
        checkpoints.load(tmp_path, BertEncoder)
