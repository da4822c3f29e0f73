"""Vectors of lines: against NumPy over one line at a time, and from files."""

import dataclasses
import json
import os

import numpy as np
import pytest
from pyarrow import parquet

from bert_tf import checkpoints
from bert_tf.models.encoder import BertEncoder
from bert_tf.tasks.features import extraction as feature_extraction
from bert_tf.tasks.features import files as feature_files
from bert_tf.tasks.features import options
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.tasks.features.extraction import LineFeatures
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.training import strategy as strategies
from support import serving_models
from support.disk import full_disk

PROGRAM = "bert_tf.extract_features"
LINES = [
    ("the fox",),
    ("quick", "lorem the"),
    ("",),
    ("we are too many letters",),
    ("é 我",),
    ("a", "b"),
]
# Of each line, what the tokenizer and the packing make of it at length 11.
TOKENS = [
    "[CLS] the f ##o ##x [SEP]",
    "[CLS] quick [SEP] lorem the [SEP]",
    "[CLS] [SEP]",
    "[CLS] w ##e a ##r ##e t ##o ##o m [SEP]",
    "[CLS] e 我 [SEP]",
    "[CLS] a [SEP] b [SEP]",
]


@pytest.fixture(scope="module")
def encoder():
    return checkpoints.load(serving_models.model_dir("encoder"), BertEncoder)


@pytest.fixture(scope="module")
def preprocessor():
    return Preprocessor.from_folder(serving_models.model_dir("encoder"), 11)


def tokens_of(line):
    return [serving_models.VOCABULARY.tokens[index] for index in line.token_ids]


def layers_of_one(encoder, line):
    """Returns the blocks' outputs of a line alone: float32 [K, T, D]."""
    ids = np.array([line.token_ids])
    sep_id = serving_models.VOCABULARY.sep_id
    segments = np.cumsum(ids == sep_id, axis=1) - (ids == sep_id) > 0
    outputs = encoder(
        {
            "input_ids": ids,
            "input_mask": np.ones_like(ids),
            "segment_ids": segments.astype("int32"),
        }
    )
    return np.stack([value[0] for value in outputs["encoder_outputs"]])


def wanted_vectors(encoder, line, extraction):
    wanted = layers_of_one(encoder, line)[list(extraction.layers)]
    if extraction.combine == "concatenate":
        wanted = np.concatenate(wanted, axis=-1)
    elif extraction.combine == "mean":
        wanted = wanted.mean(axis=0)
    else:
        wanted = wanted.transpose(1, 0, 2)
    if extraction.pooling == "cls":
        wanted = wanted[0]
    elif extraction.pooling == "mean":
        wanted = wanted.mean(axis=0)
    if extraction.normalize:
        wanted = wanted / np.linalg.norm(wanted, axis=-1, keepdims=True)
    return wanted


@pytest.mark.parametrize(
    "extraction",
    [
        Extraction(layers=(-1, 0)),
        Extraction(layers=(0, -1), combine="concatenate", normalize=True),
        Extraction(layers=(0, 1), pooling="cls"),
    ],
    ids=str,
)
def test_vectors_are_those_of_each_line_alone(
    encoder, preprocessor, extraction
):
    extractor = feature_extraction.Extractor(
        encoder, preprocessor, extraction, strategies.make_strategy()
    )
    found = list(extractor(LINES, batch_size=4))
    assert [line.index for line in found] == list(range(6))
    assert [" ".join(tokens_of(line)) for line in found] == TOKENS
    assert [line.is_cut for line in found] == [False] * 3 + [True] + [False] * 2
    for line in found:
        wanted = wanted_vectors(encoder, line, extraction)
        assert line.vectors.dtype == np.float32
        assert line.vectors.shape == wanted.shape
        np.testing.assert_allclose(line.vectors, wanted, atol=1e-5)


def test_a_book_is_not_tokenized_to_its_end(encoder, preprocessor):
    extractor = feature_extraction.Extractor(
        encoder,
        preprocessor,
        Extraction(layers=(0,)),
        strategies.make_strategy(),
    )
    lines = [("a" + " " * 2**20 + "b",), ("a", "b" + " " * 2**20 + "a")]
    found = list(extractor(lines, batch_size=2))
    assert [" ".join(tokens_of(line)) for line in found] == [
        "[CLS] a [SEP]",
        "[CLS] a [SEP] b [SEP]",
    ]
    assert [line.is_cut for line in found] == [True, True]


def test_numbers_that_are_none_are_refused(encoder, preprocessor):
    broken = BertEncoder(encoder.config)
    broken.set_weights(encoder.get_weights())
    # Of the second position alone: each line but the empty one has it.
    table = np.array(broken.embeddings.position_embeddings)
    table[3] = np.nan
    broken.embeddings.position_embeddings.assign(table)
    extractor = feature_extraction.Extractor(
        broken,
        preprocessor,
        Extraction(layers=(0,)),
        strategies.make_strategy(),
    )
    with pytest.raises(ValueError, match="infinity or NaN for line 1."):
        list(extractor(LINES, batch_size=4))


def test_mirrored_devices_give_the_same(encoder, preprocessor):
    extraction = Extraction(
        layers=(0, 1), combine="mean", pooling="mean", normalize=True
    )
    strategy = strategies.make_strategy("mirrored", num_cpu_devices=2)
    with strategy.scope():
        copy = BertEncoder(encoder.config)
    checkpoints.load_weights(serving_models.model_dir("encoder"), copy)
    mirrored = feature_extraction.Extractor(
        copy, preprocessor, extraction, strategy
    )
    lines = LINES[:5]
    found = list(mirrored(lines, 4))
    assert [" ".join(tokens_of(line)) for line in found] == TOKENS[:5]
    for line in found:
        wanted = wanted_vectors(encoder, line, extraction)
        np.testing.assert_allclose(line.vectors, wanted, atol=1e-5)
    with pytest.raises(ValueError, match="multiple of 2.*batch_size=3"):
        list(mirrored(lines, 3))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"layers": ()}, "`layers` must name a layer"),
        ({"combine": "sum"}, "`combine` must be one of separate"),
        ({"pooling": "sum"}, "`pooling` must be one of none, cls, mean, max"),
    ],
)
def test_wrong_extractions(arguments, message):
    with pytest.raises(ValueError, match=message):
        Extraction(**arguments)


@pytest.mark.parametrize("layer", [2, -3])
def test_layers_that_the_model_does_not_have(layer):
    with pytest.raises(ValueError, match=rf"from -2 to 1.*Received: {layer}\."):
        Extraction(layers=(0, layer)).check_layers(2)


def test_lines_are_read_as_the_original_reads_them(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(
        "\ufeffa\tb ||| c\r\n\n ||| d \nx ||| y ||| z\n p|||q\u2028r".encode()
    )
    assert list(feature_files.read_lines(path)) == [
        ("a\tb", "c"),
        ("",),
        ("||| d",),
        ("x ||| y", "z"),
        ("p|||q\u2028r",),
    ]
    assert feature_files.count_lines(path) == 5


def test_bad_input_files(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"good\nb\xffd\n")
    with pytest.raises(ValueError, match=r"lines, line 2: not UTF-8 .*0xff"):
        feature_files.count_lines(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="there are no lines"):
        feature_files.count_lines(path)
    with pytest.raises(ValueError, match="There is no file"):
        feature_files.count_lines(tmp_path / "none")
    # Counted, it would be empty.
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="must be a file, as it is read twice"):
        feature_files.count_lines(tmp_path / "pipe")
    path = tmp_path / "lines.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(ValueError, match="damaged"):
        feature_files.count_lines(path)


# Three lines of [CLS] and [SEP], in two layers of size 3.
CLS_ID = serving_models.VOCABULARY.cls_id
SEP_ID = serving_models.VOCABULARY.sep_id
WRITTEN = [
    LineFeatures(
        index=index,
        token_ids=np.array([CLS_ID, SEP_ID], "int32"),
        vectors=np.arange(12, dtype="float32").reshape(2, 2, 3) / 3 - index,
        is_cut=False,
    )
    for index in range(3)
]


def write(path, output_format, lines, extraction=None, **arguments):
    with feature_files.open_writer(
        str(path),
        output_format,
        extraction or Extraction(layers=(-1, 0)),
        serving_models.VOCABULARY,
        **arguments,
    ) as write_line:
        for line in lines:
            write_line(line)


@pytest.mark.parametrize("output_format", ["jsonl", "npz"])
def test_a_full_disk_is_told_with_the_file(tmp_path, output_format):
    path = tmp_path / "out"
    with full_disk(300), pytest.raises(OSError, match=str(path)):
        write(path, output_format, WRITTEN)
    assert list(tmp_path.iterdir()) == []


def test_jsonl_is_the_originals_byte_by_byte(tmp_path):
    path = tmp_path / "out.jsonl"
    write(path, "jsonl", WRITTEN[1:2])
    # Written by hand from google-research/bert's extract_features.py.
    assert path.read_text() == (
        '{"linex_index": 1, "features": ['
        '{"token": "[CLS]", "layers": ['
        '{"index": -1, "values": [-1.0, -0.666667, -0.333333]}, '
        '{"index": 0, "values": [0.0, 0.333333, 0.666667]}]}, '
        '{"token": "[SEP]", "layers": ['
        '{"index": -1, "values": [1.0, 1.333333, 1.666667]}, '
        '{"index": 0, "values": [2.0, 2.333333, 2.666667]}]}]}\n'
    )


def test_rounding_is_that_of_each_number():
    generator = np.random.default_rng(7)
    # Ties in the seventh decimal are among the multiples of 2^-7.
    values = np.concatenate(
        [
            generator.normal(size=2000).astype("float32"),
            np.arange(-900, 900, dtype="float32") / 128,
        ]
    )
    line = LineFeatures(
        index=0,
        token_ids=np.array([CLS_ID]),
        vectors=values[np.newaxis],
        is_cut=False,
    )
    text = feature_files._to_json(
        line, Extraction(combine="mean"), serving_models.VOCABULARY
    )
    found = json.loads(text)["features"][0]["values"]
    assert found == [round(float(value), 6) for value in values]


def test_jsonl_of_one_vector_a_line(tmp_path):
    path = tmp_path / "out.jsonl"
    line = LineFeatures(
        index=4,
        token_ids=WRITTEN[0].token_ids,
        vectors=np.array([0.25, -1], "float32"),
        is_cut=False,
    )
    extraction = Extraction(layers=(0,), combine="mean", pooling="cls")
    write(path, "jsonl", [line], extraction)
    assert path.read_text() == '{"linex_index": 4, "values": [0.25, -1.0]}\n'


def test_npz_gives_back_what_was_written(tmp_path):
    write(tmp_path / "out.npz", "npz", WRITTEN)
    with np.load(tmp_path / "out.npz") as arrays:
        assert set(arrays) == {"vectors", "layers", "token_ids", "row_splits"}
        np.testing.assert_array_equal(arrays["layers"], [-1, 0])
        np.testing.assert_array_equal(arrays["row_splits"], [0, 2, 4, 6])
        np.testing.assert_array_equal(arrays["token_ids"], [CLS_ID, SEP_ID] * 3)
        assert arrays["vectors"].dtype == "float32"
        vectors = arrays["vectors"]
    np.testing.assert_array_equal(
        vectors, np.concatenate([line.vectors for line in WRITTEN])
    )


@pytest.mark.parametrize("rows_a_group", [1, 3])
def test_parquet_gives_back_what_was_written(
    tmp_path, rows_a_group, monkeypatch
):
    # A row of it is of 12 numbers.
    monkeypatch.setattr(feature_files, "_ROW_GROUP", 12 * rows_a_group)
    path = tmp_path / "out.parquet"
    write(path, "parquet", WRITTEN)
    file = parquet.ParquetFile(path)
    assert file.num_row_groups == 3 // rows_a_group
    assert file.schema_arrow.metadata[b"layers"] == b"-1,0"
    table = file.read()
    assert table.column_names == ["linex_index", "vectors", "token_ids"]
    for line, row in zip(WRITTEN, table.to_pylist(), strict=True):
        assert row["linex_index"] == line.index
        assert row["token_ids"] == line.token_ids.tolist()
        np.testing.assert_array_equal(
            np.array(row["vectors"], "float32"), line.vectors
        )
    # One vector a line, as a search engine takes them.
    lines = [
        dataclasses.replace(line, vectors=line.vectors[0, 0])
        for line in WRITTEN
    ]
    extraction = Extraction(layers=(0,), combine="mean", pooling="cls")
    write(path, "parquet", lines, extraction)
    table = parquet.read_table(path)
    assert table.column_names == ["linex_index", "vectors"]
    flat = table["vectors"].combine_chunks().flatten().to_numpy()
    assert flat.dtype == "float32"
    np.testing.assert_array_equal(
        flat.reshape(3, -1), [line.vectors for line in lines]
    )


@pytest.mark.parametrize("output_format", options.FORMATS)
def test_a_writer_that_fails_leaves_nothing(tmp_path, output_format):
    def lines():
        yield WRITTEN[0]
        raise OSError("No space left on device")

    with pytest.raises(OSError, match="No space"):
        write(tmp_path / "out", output_format, lines())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, arguments, message",
    [
        ("", {}, "`output_file` must not be a folder"),
    ],
)
def test_wrong_output(tmp_path, name, arguments, message):
    arguments = {"output_format": "jsonl", "lines": []} | arguments
    with pytest.raises(ValueError, match=message):
        write(tmp_path / name, **arguments)
    assert list(tmp_path.iterdir()) == []


def test_program_writes_the_lines_in_order_and_counts_the_cut(
    run_program, tmp_path, encoder
):
    (tmp_path / "in.txt").write_text("the ||| fox\n\nlorem ipsum dolor\n")
    process = run_program(
        PROGRAM,
        f"--input_file={tmp_path}/in.txt",
        f"--output_file={tmp_path}/out.jsonl",
        f"--init_checkpoint={serving_models.model_dir('encoder')}",
        "--max_seq_length=9",
        "--batch_size=2",
        "--layers=-1,0",
    )
    lines = [
        json.loads(line)
        for line in (tmp_path / "out.jsonl").read_text().splitlines()
    ]
    assert [line["linex_index"] for line in lines] == [0, 1, 2]
    tokens = [[part["token"] for part in line["features"]] for line in lines]
    assert tokens[0] == ["[CLS]", "the", "[SEP]", "f", "##o", "##x", "[SEP]"]
    assert tokens[1] == ["[CLS]", "[SEP]"]
    assert len(tokens[2]) == 9
    assert "Lines cut to --max_seq_length=9: 1 of 3." in process.stderr
    wanted = layers_of_one(
        encoder,
        LineFeatures(
            index=0,
            token_ids=[serving_models.VOCABULARY.index(t) for t in tokens[0]],
            vectors=None,
            is_cut=False,
        ),
    )
    for token, part in enumerate(lines[0]["features"]):
        assert [layer["index"] for layer in part["layers"]] == [-1, 0]
        for layer in part["layers"]:
            np.testing.assert_allclose(
                layer["values"], wanted[layer["index"], token], atol=1e-5
            )
