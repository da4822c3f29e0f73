"""Model folders made to do harm: one clear error, in little time and memory.

The same with inputs that a machine thinks of: tests/test_fuzz.py.
"""

import json
import struct
import time

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf import files
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.models.encoder import BertEncoder
from bert_tf.serving.kinds import opening
from bert_tf.tasks import task_folder
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import checkpoints as peer

DEEP = "[" * 100_000 + "]" * 100_000
WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path):
    """A folder of a tagger with everything in it."""
    peer.write_folder(
        tmp_path / "model",
        "BertForTokenClassification",
        id2label={"0": "O", "1": "B-x", "2": "I-x", "3": "B-y"},
    )
    return tmp_path / "model"


def rewrite(path, **changes):
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(values | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_hidden_layers": 100_000},
        {"vocab_size": 2**31 - 1},
        {"hidden_size": 3 << 20},
        {"intermediate_size": 2**31 - 1},
        {"max_position_embeddings": 2**31 - 1},
        {"type_vocab_size": 2**31 - 1},
        {"id2label": None, "num_labels": 2**31 - 1},
    ],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda path: checkpoints.load(path, BertEncoder),
        lambda path: starting_point.find(path),
        lambda path: checkpoints.convert(path, path / "out", "google"),
        lambda path: opening.open_folder(path),
    ],
)
def test_a_model_is_not_larger_than_its_file(folder, changes, read):
    rewrite(folder / "config.json", **changes)
    start = time.process_time()
    with pytest.raises(ValueError, match=f"{WEIGHTS}: must hold what its conf"):
        read(folder)
    # The layers alone took half a minute.
    assert time.process_time() - start < 2


def test_a_model_has_not_more_layers_than_its_file(tmp_path):
    # A tensor of no use makes the file large enough for their weights.
    tensors = peer.tensors("BertModel") | {"x": np.zeros(30_000_000, "uint8")}
    peer.write_folder(tmp_path, "BertModel", tensors)
    rewrite(tmp_path / "config.json", num_hidden_layers=30_000)
    with (
        pytest.raises(ValueError, match=r"480,005 tensors.*num_hidden_layers"),
        reader.open_checkpoint(tmp_path),
    ):
        pass


def test_a_smaller_gap_is_told_tensor_by_tensor(folder):
    rewrite(folder / "config.json", num_hidden_layers=3)
    with pytest.raises(ValueError, match=r"layer\.2\.\S+ is missing"):
        checkpoints.load(folder, BertEncoder)
    model = checkpoints.load(folder, BertEncoder, allow_partial=True)
    assert len(model.coverage_report.names("new")) == 16 + 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", 3),
        ("architectures", [["BertModel"]]),
        ("classifier_dropout", "x"),
        ("classifier_dropout", float("nan")),
        ("id2label", ["a", "b"]),
        ("id2label", {"0": ["a"]}),
        ("num_labels", "4"),
        ("layer_norm_eps", float("inf")),
        ("initializer_range", float("nan")),
        ("vocab_size", 10**4000),
        ("layer_norm_eps", 10**4000),
        ("model_type", "x" * 10**6),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_configuration_is_one_short_line(folder, key, value):
    rewrite(folder / "config.json", **{key: value})
    with pytest.raises(ValueError, match=r"config\.json: ") as error:
        checkpoints.load(folder, BertEncoder)
    (line,) = str(error.value).splitlines()
    assert len(line) < 1000 and line.count("config.json") == 1


def test_unknown_keys_are_one_short_line(folder, caplog):
    rewrite(folder / "config.json", **{"x" * 10**6: 0})
    checkpoints.load(folder, BertEncoder)
    (line,) = [each for each in caplog.messages if "nothing reads" in each]
    assert len(line) < 1000 and "\n" not in line


@pytest.mark.parametrize("architecture", ["Sequence", "Token"])
@pytest.mark.parametrize(
    "names",
    [
        *([0, 1, 2, 3], ["a", "", "c", "d"], ["a", "b", "b", "a"]),
        *([None] * 4, list(range(20_000)), ["x" * 10**6, *"xx"]),
        {"1": "a", "2": "b", "3": "c", "4": "d"},
        {f"{index}0": "x" for index in range(20_000)},
    ],
    ids=lambda names: str(names)[:20],
)
def test_wrong_names_of_classes_are_one_short_line(
    tmp_path, architecture, names
):
    if isinstance(names, list):
        names = {str(index): name for index, name in enumerate(names)}
    tensors = peer.tensors(f"BertFor{architecture}Classification") | {
        "classifier.weight": np.zeros([len(names), 12], np.float32),
        "classifier.bias": np.zeros([len(names)], np.float32),
    }
    peer.write_folder(
        tmp_path,
        f"BertFor{architecture}Classification",
        tensors,
        id2label=names,
    )
    with pytest.raises(ValueError, match=r"config\.json") as error:
        opening.open_folder(tmp_path)
    (line,) = str(error.value).splitlines()
    assert len(line) < 1000 and line.count("config.json") == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.json", DEEP),
        ("config.json", '{"vocab_size": 1' + "0" * 5000 + "}"),
        ("task.json", DEEP),
        ("task.json", "[]"),
        ("task.json", '{"family": []}'),
        ("task.json", '{"family": "tagging", "scheme": [], "labels": ["O"]}'),
        ("task.json", '{"family": "tagging", "scheme": "bio", "labels": 5}'),
        ("task.json", '{"family": "multiple_choice", "num_choices": 99999999}'),
        ("tokenizer_config.json", DEEP),
        ("tokenizer_config.json", '{"do_lower_case": "no"}'),
        ("tokenizer_config.json", '{"model_max_length": "9"}'),
        ("tokenizer_config.json", '{"model_max_length": 1e999}'),
    ],
)
def test_a_wrong_text_file_is_named(folder, file, text):
    (folder / file).write_text(text)
    with pytest.raises(ValueError, match=f"{file}: "):
        opening.open_folder(folder)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"added_tokens": 3}, "added_tokens"),
        ({"added_tokens": [{"id": 17}]}, "added_tokens"),
        ({"added_tokens": [{"content": "x", "id": [17]}]}, "the id of each"),
        ({"added_tokens": [{"content": "\ud800", "id": 17}]}, "surrogates"),
    ],
)
def test_a_wrong_tokenizer_is_named(folder, values, match):
    (folder / "vocab.txt").unlink()
    spec = WordpieceSpec(Vocabulary(tokens=peer.TOKENS))
    rewrite(folder / "tokenizer.json", **spec.tokenizer_json | values)
    with pytest.raises(ValueError, match=rf"tokenizer\.json: .*{match}"):
        model_folder.read_vocabulary(folder)


def test_a_task_of_another_form_is_of_another_task(folder):
    rewrite(folder / "task.json", family="tagging", labels=5)
    start = starting_point.find(str(folder))
    task = TaggingTask(scheme="bio", labels=("O", "B-x"))
    assert task_folder.new_model(start, task).num_labels == 2


def test_positions_that_are_none_are_an_error(folder):
    rewrite(folder / "config.json", max_position_embeddings="9")
    with pytest.raises(ValueError, match=r"config\.json: `max_position_embedd"):
        Preprocessor.from_folder(folder)


@pytest.mark.parametrize(
    "file",
    [
        *("config.json", "task.json", "tokenizer_config.json", "vocab.txt"),
        f"{WEIGHTS}.index.json",
    ],
)
def test_text_files_have_a_largest_size(folder, file, monkeypatch):
    if file.startswith(WEIGHTS):
        (folder / WEIGHTS).unlink()
    monkeypatch.setattr(files, "MAX_FOLDER_TEXT", 5000)
    (folder / file).write_bytes(b" " * 5001)
    with pytest.raises(ValueError, match=f"{file}: must hold at most 5,000 by"):
        opening.open_folder(folder)


def write_weights(path, header, data=b"", size=None):
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    size = len(header) if size is None else size
    path.write_bytes(struct.pack("<Q", size) + header + data)


def entry(shape=(1,), offsets=(0, 4), dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    "content",
    [
        {"header": b"{}", "size": 2**63},
        {"header": b"{}", "size": 99},
        {"header": b"\xff\xfe"},
        {"header": DEEP.encode()},
        {"header": {"a": entry(), "b": entry()}, "data": b"0000"},
        {"header": {"a": entry(offsets=(-4, 0))}, "data": b"0000"},
        {"header": {"a": entry(offsets=(4, 0))}, "data": b"0000"},
        {"header": {"a": entry(offsets=(4, 8))}, "data": b"00000000"},
        {"header": {"a": entry(offsets=(0, 2**70))}, "data": b"0000"},
        {"header": {"a": entry(dtype="F99")}, "data": b"0000"},
        {"header": {"a": entry([2**62, 4])}, "data": b"0000"},
        {"header": {"a": entry([-1])}, "data": b"0000"},
        {"header": {"a\nb": entry()}, "data": b"0000"},
        {"header": {"a" * 999: entry()}, "data": b"0000"},
        {
            "header": b"{%b, %b}"
            % ((b'"a": ' + json.dumps(entry()).encode(),) * 2),
            "data": b"0000",
        },
    ],
    ids=lambda content: str(content)[:60],
)
def test_a_wrong_header_of_weights_is_one_short_line(folder, content):
    write_weights(folder / WEIGHTS, **content)
    with pytest.raises(
        ValueError, match=f"{WEIGHTS}: is truncated or "
    ) as error:
        checkpoints.load(folder, BertEncoder)
    (line,) = str(error.value).splitlines()
    assert len(line) < 1000


def test_a_tied_tensor_without_values_is_left_over(tmp_path):
    tensors = peer.tensors("BertModel")
    peer.write_folder(tmp_path, "BertModel", tensors)
    path = tmp_path / WEIGHTS
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["cls.predictions.decoder.weight"] = entry([0, 2**63], (0, 0))
    write_weights(path, header, data[8 + size :])
    encoder = checkpoints.load(tmp_path, BertEncoder)
    left_over = encoder.coverage_report.names("left over")
    assert left_over == ("cls.predictions.decoder.weight",)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a", "a"),
        ("/elsewhere/a", "a"),
        ("../elsewhere/b", "b"),
        ("/elsewhere/c", None),
        ("../c", None),
        ("a*", None),
        ("", None),
    ],
)
def test_the_newest_checkpoint_is_of_the_folder(tmp_path, name, found):
    folder = tmp_path / "run"
    folder.mkdir()
    for path in (folder / "a", folder / "b", tmp_path / "c"):
        path.with_suffix(".index").write_bytes(b"")
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    if found:
        assert tf1_checkpoint.find_prefix(str(folder)) == f"{folder}/{found}"
    else:
        with pytest.raises(ValueError, match=f"{folder}"):
            tf1_checkpoint.find_prefix(str(folder))


@pytest.mark.parametrize("data", [b"\xff", b"x" * 2_000_000, b"{{{"])
def test_a_checkpoint_file_that_is_none_names_its_folder(tmp_path, data):
    for name in "ab":
        (tmp_path / f"{name}.index").write_bytes(b"")
    (tmp_path / "checkpoint").write_bytes(data)
    with pytest.raises(ValueError, match=str(tmp_path)):
        tf1_checkpoint.find_prefix(str(tmp_path))
