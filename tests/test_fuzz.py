"""Files that a machine thinks of: `ValueError`, in little time and memory.

BERT_TF_FUZZ=100 tries a hundred times as many. What was found so stands as a
plain test: tests/checkpoints/test_hostile_folders.py and others.
"""

import contextlib
import json
import os
import pathlib
import struct
import tempfile
import time
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import families
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.checkpoints.containers.hugging_face_folder import HuggingFaceFolder
from bert_tf.config import BertConfig
from bert_tf.serving.kinds import opening
from bert_tf.tasks import families as task_families
from bert_tf.tasks import tsv
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification import task as classification
from bert_tf.tasks.multiple_choice import files as multiple_choice_files
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import files as tokenizer_files
from references import checkpoints as peer
from support import pytorch_files

TIMES = int(os.environ.get("BERT_TF_FUZZ", "1"))
# Of one example, a few kilobytes; the machine may be slow.
MOST_SECONDS = 3
MOST_BYTES = 1 << 26

CLASSIFIER = "BertForSequenceClassification"


def fuzz(num_examples, **strategies):
    """Returns a decorator: the same examples every time, and none kept."""

    def decorate(test):
        return settings(
            max_examples=num_examples * TIMES,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )(given(**strategies)(test))

    return decorate


def read(function, *args):
    """Returns what a function does, or None where it raises `ValueError`.

    The error names the file or the folder, which is the first argument.
    """
    tracemalloc.start()
    start = time.process_time()
    try:
        return function(*args)
    except ValueError as error:
        assert len(str(error)) < 10_000
        if isinstance(args[0], (str, os.PathLike)):
            assert os.fspath(args[0]) in str(error)
        # Python's own say so; ours begin with the file.
        assert not isinstance(error, UnicodeError)
        return None
    finally:
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert seconds < MOST_SECONDS
        assert peak < MOST_BYTES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A classifier's folder, and what is put into it is taken away again."""
    path = tmp_path_factory.mktemp("fuzz")
    peer.write_folder(path, CLASSIFIER)
    return path


class Replaced:
    """A file of other bytes, in a context."""

    def __init__(self, path, data):
        self.path = path
        self.data = data

    def __enter__(self):
        self.old = self.path.read_bytes() if self.path.exists() else None
        self.path.write_bytes(self.data)

    def __exit__(self, *exception):
        if self.old is None:
            self.path.unlink()
        else:
            self.path.write_bytes(self.old)


# Values of JSON, some of which no reader expects.
NUMBERS = st.one_of(
    st.integers(-2, 20),
    st.sampled_from([2**31, 2**63, 2**70, -(2**31), 10**400]),
    st.floats(),
)
SCALARS = st.one_of(
    *(st.none(), st.booleans(), NUMBERS),
    st.text(max_size=8),
    st.sampled_from(["\ud800", "x" * 1000, "0", "O", "B-x"]),
)
VALUES = st.one_of(
    SCALARS,
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.text(max_size=4), inner, max_size=3),
        ),
        max_leaves=6,
    ),
)
DEPTHS = st.sampled_from([0, 0, 0, 0, 100, 900, 950, 980, 990, 10_000])


@st.composite
def json_bytes(draw, value):
    """Bytes of a file whose value is damaged in up to three places."""
    value = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(0, 3))):
        value = damaged(draw, value)
    text = json.dumps(value, ensure_ascii=draw(st.booleans()))
    depth = draw(DEPTHS)
    if depth:
        # In the place of some value.
        place = draw(st.integers(0, text.count(":")))
        parts = text.split(":")
        text = ":".join(parts[:place])
        text += ":" * bool(place) + "[" * depth + "]" * depth
        text += "," * bool(parts[place:]) + '"x":'.join(["", *parts[place:]])
    data = text.encode("utf-8", "surrogatepass")
    return damaged_bytes(draw, data)


def damaged(draw, value):
    """Returns the value with one part replaced, removed or added."""
    if isinstance(value, dict) and value and draw(st.integers(0, 9)):
        key = draw(st.sampled_from(sorted(value)))
        value = dict(value)
        what = draw(st.integers(0, 9))
        if what == 0:
            del value[key]
        elif what == 1:
            value[draw(st.text(max_size=4))] = value[key]
        else:
            value[key] = damaged(draw, value[key])
        return value
    if isinstance(value, list) and value and draw(st.integers(0, 9)):
        index = draw(st.integers(0, len(value) - 1))
        value = list(value)
        what = draw(st.integers(0, 9))
        if what == 0:
            del value[index]
        elif what == 1:
            value.append(value[index])
        else:
            value[index] = damaged(draw, value[index])
        return value
    return draw(VALUES)


def damaged_bytes(draw, data):
    """Returns bytes of which some, seldom, are others."""
    if draw(st.integers(0, 4)):
        return data
    start = draw(st.integers(0, len(data)))
    limit = draw(st.integers(start, min(len(data), start + 9)))
    return data[:start] + draw(st.binary(max_size=9)) + data[limit:]


def read_folder(folder):
    """Reads all that a model is made of, but no weights."""
    with reader.open_checkpoint(folder) as checkpoint:
        _ = checkpoint.found_parts
        _ = checkpoint.num_labels, checkpoint.classifier_dropout
        model_folder.check_vocabulary(folder, checkpoint.config)
        config_json.label_names(checkpoint.config_values, folder)
    return checkpoint.config


CONFIG = peer.config_values(CLASSIFIER) | {
    "classifier_dropout": 0.1,
    "hidden_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "num_labels": 4,
    "pruned_heads": {},
}


@fuzz(100, data=json_bytes(CONFIG))
def test_config_json(folder, data):
    with Replaced(folder / "config.json", data):
        config = read(read_folder, str(folder))
        assert config is None or isinstance(config, BertConfig)
        read(opening.open_folder, str(folder))


@fuzz(
    60, data=json_bytes({k: v for k, v in CONFIG.items() if k != "model_type"})
)
def test_bert_config_json(folder, data):
    with Replaced(folder / "bert_config.json", data):
        read(families.read_config, folder / "bert_config.json")


TASKS = (
    {
        "family": "glue",
        "name": "x",
        "kind": "classification",
        "text_features": ["a", "b"],
        "labels": ["0", "1"],
        "metrics": ["accuracy"],
    },
    {"family": "tagging", "scheme": "bio", "labels": ["O", "B-x"]},
    {"family": "multiple_choice", "num_choices": 4},
    {
        "family": "squad",
        "version_2_with_negative": True,
        "doc_stride": 8,
        "max_query_length": 4,
        "n_best_size": 5,
        "max_answer_length": 3,
        "null_score_diff_threshold": 0.5,
    },
)


@fuzz(70, data=st.sampled_from(TASKS).flatmap(json_bytes))
def test_task_json(folder, data):
    with Replaced(folder / "task.json", data):
        read(task_families.read_task, str(folder))


TOKENIZER = {
    "added_tokens": [
        {"id": 0, "content": "[PAD]"},
        {"id": 17, "content": "new"},
    ],
    "normalizer": {
        "type": "BertNormalizer",
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "model": {
        "type": "WordPiece",
        "continuing_subword_prefix": "##",
        "vocab": {token: index for index, token in enumerate(peer.TOKENS)},
    },
}


@fuzz(70, data=json_bytes(TOKENIZER))
def test_tokenizer_json(tmp_path, data):
    with Replaced(tmp_path / "tokenizer.json", data):
        read(tokenizer_files.read_vocabulary, tmp_path)
        read(tokenizer_files.read_settings, tmp_path)


@fuzz(40, data=json_bytes({"do_lower_case": True, "model_max_length": 9}))
def test_tokenizer_config_json(tmp_path, data):
    with Replaced(tmp_path / "tokenizer_config.json", data):
        settings = read(tokenizer_files.read_settings, tmp_path) or {}
        assert settings.get("do_lower_case", True) in (True, False)
        assert int(settings.get("model_max_length", 1)) >= 0


HEADER = {
    "__metadata__": {"format": "pt"},
    "bert.pooler.dense.bias": {
        "dtype": "F32",
        "shape": [2],
        "data_offsets": [0, 8],
    },
    "classifier.weight": {
        "dtype": "BF16",
        "shape": [2, 2],
        "data_offsets": [8, 16],
    },
}


@fuzz(
    120,
    header=json_bytes(HEADER),
    size=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
    num_bytes=st.sampled_from([16, 16, 16, 0, 15, 99]),
)
def test_safetensors(folder, header, size, num_bytes):
    size = len(header) if size is None else size
    data = struct.pack("<Q", size) + header + bytes(num_bytes)
    with (
        Replaced(folder / "model.safetensors", data),
        contextlib.ExitStack() as stack,
    ):
        container = read(HuggingFaceFolder, str(folder), stack)
        for name, shape in container.shapes.items() if container else ():
            array = read(container.read, name)
            assert array is None or array.shape == shape


# What pickles are made of: operations, known and not, and their arguments.
PICKLE_PIECES = st.one_of(
    st.sampled_from(
        [
            *(b"N", b"\x88", b"(", b")", b"t", b"\x85", b"\x86", b"\x87"),
            *(b"}", b"]", b"s", b"u", b"a", b"e", b"R", b"b", b"Q", b"."),
            *(b"q\0", b"h\0", b"r\0\0\0\xff", b"K\x18", b"K\0", b"K\1"),
            *(b"J\xff\xff\xff\x7f", b"X\1\0\0\0a", b"\x8a\x09" + bytes(9)),
            *(b"ccollections\nOrderedDict\n", b"cos\nsystem\n"),
            *(b"ctorch\nFloatStorage\n", b"X\7\0\0\0storage"),
            b"ctorch._utils\n_rebuild_tensor_v2\n",
        ]
    ),
    st.binary(min_size=1, max_size=3),
)


@st.composite
def pytorch_bytes(draw, whole):
    """The bytes of a file of PyTorch's, some of them replaced by others."""
    data = bytearray(draw(st.sampled_from(whole)))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        length = draw(st.sampled_from([0, 0, 1, 1, 2, 4, 8, 99]))
        pieces = draw(st.lists(PICKLE_PIECES, max_size=4))
        piece = b"".join(pieces)
        if draw(st.booleans()):
            # Of the same length: what follows stays where it is.
            length = len(piece)
        data[start : start + length] = piece
    return bytes(data)


def pytorch_files_of(tensors):
    """Returns the bytes of both forms of a file."""
    forms = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "pytorch_model.bin")
        for is_zip in (True, False):
            pytorch_files.write(path, tensors, is_zip)
            forms.append(path.read_bytes())
    return forms


@fuzz(
    300,
    data=pytorch_bytes(
        pytorch_files_of(
            {
                "bert.pooler.dense.bias": np.ones(2, "float32"),
                "classifier.weight": np.ones((3, 2), ml_dtypes.bfloat16),
            }
        )
    ),
)
def test_pytorch_files(folder, data):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.unlink()
    try:
        with (
            Replaced(folder / "pytorch_model.bin", data),
            contextlib.ExitStack() as stack,
        ):
            container = read(HuggingFaceFolder, str(folder), stack)
            for name, shape in container.shapes.items() if container else ():
                array = read(container.read, name)
                assert array is None or array.shape == shape
    finally:
        weights.write_bytes(whole)


@fuzz(40, data=json_bytes({"weight_map": {"a": "x", "b": "y"}}))
def test_index_of_shards(folder, data):
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.unlink()
    try:
        with (
            Replaced(folder / "model.safetensors.index.json", data),
            contextlib.ExitStack() as stack,
        ):
            read(HuggingFaceFolder, str(folder), stack)
    finally:
        weights.write_bytes(whole)


@st.composite
def lines_bytes(draw, lines, pieces):
    """Bytes of a text file, of these lines and of others of these pieces."""
    other = st.lists(st.sampled_from(pieces), max_size=6).map("".join)
    line = st.one_of(st.sampled_from(lines), st.sampled_from(lines), other)
    many = draw(st.lists(line, max_size=12))
    text = draw(st.sampled_from(["\n", "\n", "\n", "\r\n"])).join(many)
    if draw(st.booleans()):
        text = "\n".join([*lines, text])
    data = (text + draw(st.sampled_from(["", "\n"]))).encode("utf-8")
    return damaged_bytes(draw, data)


# What one reader or another has taken for something of its own.
PIECES = [
    *("\t", " ", ",", '"', "\r", "\0", "\x0c", "\ufeff", "\u2028", "\xa0"),
    *("a", "é", "漢", "\u0301", "0", "1", "-1", "nan", "9" * 5000, "##"),
    *("O", "B-x", "I-x", "-DOCSTART-", "#", "[CLS]", "x" * 300),
]


@fuzz(70, data=lines_bytes(list(peer.TOKENS), PIECES))
def test_vocab_txt(tmp_path, data):
    path = tmp_path / "vocab.txt"
    path.write_bytes(data)
    vocabulary = read(vocabulary_lib.load_vocabulary, path)
    if vocabulary is not None:
        read(vocabulary_lib.check_case, vocabulary, True)
        # Each line keeps its number, and what is written is read the same.
        num_lines = data.count(b"\n") + (not data.endswith(b"\n"))
        assert len(vocabulary) == num_lines
        path.write_text(vocabulary.to_text(), "utf-8", newline="")
        again = vocabulary_lib.load_vocabulary(path)
        assert again.tokens == vocabulary.tokens


@fuzz(
    100,
    data=lines_bytes(["sentence\tlabel", "good\t1", "bad\t0"], PIECES),
    name=st.sampled_from(["tsv", "regression", "cola", "sst-2", "mrpc", "qqp"]),
)
def test_tsv(tmp_path, data, name):
    read_table(tmp_path / "train.tsv", data, name)


@fuzz(
    100,
    data=lines_bytes(
        ["sentence,label", "good,1", '"a, ""b""", 0', '"a', 'b",1', ""], PIECES
    ),
    name=st.sampled_from(["tsv", "tsv", "regression", "sst-2"]),
)
def test_csv(tmp_path, data, name):
    read_table(tmp_path / "train.csv", data, name)


def read_table(path, data, name):
    path.write_bytes(data)
    if name == "tsv":
        task = glue_files.tsv_task(("sentence",), "label", labels=("0", "1"))
        read(classification.find_labels, path, "label")
    elif name == "regression":
        task = glue_files.tsv_task(("sentence",), "label")
    else:
        task = glue_files.glue_task(name)
    labels = task.task.labels
    examples = read(tsv.read_tsv, path, task.splits["train"], labels)
    assert examples is None or len(examples) == len(examples.labels) > 0


@fuzz(
    120,
    data=lines_bytes(
        ["-DOCSTART- O", "", "EU B-x", "of\tO", "EU NNP I-x", "# x", "a b"],
        PIECES,
    ),
    columns=st.sampled_from(
        [
            (0, -1),
            (0, -1, False),
            (0, "b", False),
            (-1, 0),
            (1, 2),
            (5, -5),
            ("a", "b"),
        ]
    ),
)
def test_conll(tmp_path, data, columns):
    path = tmp_path / "train.conll"
    path.write_bytes(data)
    examples = read(tagging_files.read_columns, path, *columns)
    if examples is None:
        return
    assert sum(examples.row_lengths) == len(examples.words) > 0
    if examples.tags is not None:
        examples.warn_of_breaches("bio")
        tagging_files.write_predictions(
            tmp_path / "out", examples, examples.tags
        )


SQUAD = {
    "version": "v2.0",
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": "Paris is the  capital of France.",
                    "qas": [
                        {
                            "id": "q0",
                            "question": "What is Paris?",
                            "is_impossible": False,
                            "answers": [
                                {"text": "the capital", "answer_start": 9},
                                {"text": "capital", "answer_start": 14},
                            ],
                        },
                        {
                            "id": "q1",
                            "question": "Who?",
                            "is_impossible": True,
                            "answers": [],
                        },
                    ],
                }
            ],
        }
    ],
}


@fuzz(
    120,
    data=json_bytes(SQUAD),
    may_lack_answer=st.booleans(),
    is_training=st.booleans(),
)
def test_squad_json(tmp_path, data, may_lack_answer, is_training):
    path = tmp_path / "squad.json"
    path.write_bytes(data)
    examples = read(squad_files.read_squad, path, may_lack_answer, is_training)
    for index, start in enumerate(examples.answer_starts if examples else ()):
        answer = examples.context(index)[start : examples.answer_limits[index]]
        assert start == -1 or answer.strip() == answer != ""


@fuzz(
    100,
    data=st.one_of(
        lines_bytes(
            [
                "sent1,sent2,ending0,ending1,label",
                'a,"b, ""c""",d,e,1',
                "x\ta\tb\tc\t1",
                '{"context": "a", "choices": ["b", "c"], "label": 0}',
            ],
            PIECES,
        ),
        json_bytes({"context": "a", "choices": ["b", "c"], "label": 0}),
    ),
    suffix=st.sampled_from([".csv", ".tsv", ".jsonl"]),
    has_labels=st.booleans(),
)
def test_choices(tmp_path, data, suffix, has_labels):
    path = tmp_path / f"train{suffix}"
    path.write_bytes(data)
    examples = read(multiple_choice_files.read_choices, path, has_labels)
    assert examples is None or len(examples) == len(examples.choices) > 0
