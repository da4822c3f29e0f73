"""Files of feature extraction: lines of text in, vectors out.

jsonl     as in google-research/bert: a line of JSON for each line of text
npz       NumPy arrays of all lines together
tfrecord  a tf.train.Example for each line of text
parquet   a row for each line of text; needs pyarrow

All are written as the vectors are computed. A file appears only when it is
complete.
"""

import codecs
import contextlib
import functools
import importlib.util
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import atomic
from bert_tf import files
from bert_tf import streams
from bert_tf.tasks.features.extraction import Extraction
from bert_tf.tasks.features.extraction import LineFeatures
from bert_tf.tasks.features.options import JSONL
from bert_tf.tasks.features.options import NONE
from bert_tf.tasks.features.options import PARQUET
from bert_tf.tasks.features.options import SEPARATE
from bert_tf.text.vocabulary import Vocabulary

# As in the original: if there are several separators, the last one counts.
_PAIR = re.compile(r"(.*) \|\|\| (.*)")
_DECIMALS = 6
# Numbers in a row group of a parquet file: 32 MB of float32.
_ROW_GROUP = 1 << 23


def read_lines(path: files.AnyPath) -> Iterator[tuple[str, ...]]:
    """Yields a tuple of one or two texts for each line of a file.

    "sentence ||| sentence" is a pair. A blank line is an empty text, as in
    the original, so line numbers stay the same.

    Raises:
        ValueError: If the file is missing, damaged or empty, or a line is not
            UTF-8. The message names the file and the line.
    """
    if not files.exists(path) or files.is_folder(path):
        raise ValueError(f"There is no file {path}.")
    number = 0
    try:
        with contextlib.closing(streams.open_bytes(path)) as stream:
            for line in stream:
                number += 1
                if number == 1:
                    # Not text, but byte-level BPE would make tokens of it.
                    line = line.removeprefix(codecs.BOM_UTF8)
                text = line.decode("utf-8").strip()
                pair = _PAIR.fullmatch(text)
                yield pair.groups() if pair else (text,)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 "
            f"(byte {error.object[error.start]:#04x})."
        ) from error
    except streams.DAMAGE_ERRORS as error:
        raise ValueError(f"{path}: damaged after line {number}.") from error
    if not number:
        raise ValueError(f"{path}: there are no lines in the file.")


def count_lines(path: files.AnyPath) -> int:
    """Returns the number of lines of a file that will be read again.

    Raises:
        ValueError: See `read_lines`. Also if it is a pipe, which cannot be
            read twice.
    """
    is_there = not files.is_remote(path) and os.path.exists(path)
    if is_there and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ValueError(
            f"{path}: must be a file, as it is read twice. Received: a pipe or "
            "a device."
        )
    return sum(1 for _ in read_lines(path))


@contextlib.contextmanager
def open_writer(
    path: str,
    output_format: str,
    extraction: Extraction,
    vocabulary: Vocabulary,
) -> Iterator[Callable[[LineFeatures], Any]]:
    """Yields a function that writes the `LineFeatures` of a line.

    Args:
        path: The file, local or remote. It appears at the end of the block.
        output_format: One of `FORMATS`.
        extraction: The `Extraction` that made the vectors.
        vocabulary: The `Vocabulary` of the tokens.

    Raises:
        ValueError: If the path is a folder, or pyarrow is missing for parquet.
    """
    if files.is_folder(path):
        raise ValueError(
            f"`output_file` must not be a folder. Received: {path}."
        )
    if output_format == PARQUET:
        _check_pyarrow()
    with atomic.whole_file(path) as temporary:
        if output_format == JSONL:
            stream = tf.io.gfile.GFile(temporary, "wb")
            with _written_by(stream, path) as write:
                yield lambda line: write(_to_json(line, extraction, vocabulary))
        else:
            open_local = (
                _parquet_writer if output_format == PARQUET else _npz_writer
            )
            with (
                atomic.local_target(temporary) as local,
                open_local(local, extraction) as write,
            ):
                yield write


@contextlib.contextmanager
def _written_by(stream, path):
    """Yields the `write` of a TensorFlow stream, which is closed at the end.

    Failed writes, as on a full disk, raise `OSError`.
    """

    def call(function, *arguments):
        with atomic.clear_write_errors(path):
            function(*arguments)

    with contextlib.ExitStack() as stack:
        stack.callback(call, stream.close)
        yield functools.partial(call, stream.write)


def _to_json(line, extraction, vocabulary):
    # Gives the same decimals as Python's round(): a float32 times 10^6 is
    # exact in float64.
    values = np.round(line.vectors.astype(np.float64), _DECIMALS).tolist()
    record = {"linex_index": line.index}
    if extraction.pooling != NONE:
        record |= _vectors_as_json(values, extraction)
    else:
        record["features"] = [
            {"token": vocabulary.tokens[token_id]}
            | _vectors_as_json(values_of_token, extraction)
            for token_id, values_of_token in zip(line.token_ids, values)
        ]
    return f"{json.dumps(record)}\n".encode()


def _vectors_as_json(values, extraction):
    if extraction.combine != SEPARATE:
        return {"values": values}
    return {
        "layers": [
            {"index": layer, "values": values_of_layer}
            for layer, values_of_layer in zip(extraction.layers, values)
        ]
    }


@contextlib.contextmanager
def _npz_writer(path, extraction):
    """Yields a function that appends a line to the arrays.

    Their lengths are unknown, so their bytes first go to files beside `path`,
    and at the end into the archive. The arrays are `vectors` `[N, ...]` and
    `layers`, int32 `[K]`. Without pooling, N is the number of tokens in all
    lines, and there are `token_ids`, int32 `[N]`, and `row_splits`, int64
    `[lines + 1]`: line i has the tokens [row_splits[i], row_splits[i + 1]).
    """
    dtypes = {"vectors": "float32", "layers": "int32"}
    if extraction.pooling == NONE:
        dtypes |= {"token_ids": "int32", "row_splits": "int64"}
    shapes: dict[str, tuple[int, ...]] = {}
    with contextlib.ExitStack() as stack:
        folder = os.path.dirname(path) or "."
        opened = {
            name: stack.enter_context(tempfile.TemporaryFile(dir=folder))
            for name in dtypes
        }

        def append(name, array):
            array = np.asarray(array, dtypes[name])
            opened[name].write(array.tobytes())
            length = shapes[name][0] if name in shapes else 0
            shapes[name] = (length + len(array), *array.shape[1:])

        def write(line):
            if extraction.pooling == NONE:
                append("token_ids", line.token_ids)
                append("row_splits", shapes["token_ids"])
                append("vectors", line.vectors)
            else:
                append("vectors", line.vectors[np.newaxis])

        append("layers", extraction.layers)
        if extraction.pooling == NONE:
            append("row_splits", [0])
        yield write
        with zipfile.ZipFile(path, "w") as archive:
            for name, shape in shapes.items():
                opened[name].seek(0)
                with _open_member(archive, name, dtypes[name], shape) as member:
                    shutil.copyfileobj(opened[name], member, 1 << 20)


@contextlib.contextmanager
def _open_member(archive, name, dtype, shape):
    """Yields the stream of an array in the archive, after its header."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array_header_1_0(
            member,
            {
                "descr": np.lib.format.dtype_to_descr(np.dtype(dtype)),
                "fortran_order": False,
                "shape": shape,
            },
        )
        yield member


def _check_pyarrow():
    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            "--format=parquet needs pyarrow: pip install 'bert_tf[parquet]'."
        )


@contextlib.contextmanager
def _parquet_writer(path, extraction):
    """Yields a function that writes a line as a row.

    The columns are `linex_index`, int64; `vectors`, float32; and without
    pooling `token_ids`, a list of int32. A vector is a list of a fixed size.
    Vectors are nested in lists of layers, if these are separate, and without
    pooling in a list of tokens. The file's metadata have the layers,
    comma-separated. Row groups are written as they fill up.
    """
    from pyarrow import parquet

    is_pooled = extraction.pooling != NONE
    metadata = {"layers": ",".join(map(str, extraction.layers))}
    lines: list[LineFeatures] = []
    num_numbers = 0
    with contextlib.ExitStack() as stack:
        writer = None

        def flush():
            nonlocal writer, num_numbers
            table = _to_table(lines, is_pooled, metadata)
            if writer is None:
                writer = stack.enter_context(
                    parquet.ParquetWriter(path, table.schema)
                )
            writer.write_table(table, row_group_size=len(lines))
            lines.clear()
            num_numbers = 0

        def write(line):
            nonlocal num_numbers
            lines.append(line)
            num_numbers += line.vectors.size
            if num_numbers >= _ROW_GROUP:
                flush()

        yield write
        if lines:
            flush()


def _to_table(lines, is_pooled, metadata):
    """Returns an Arrow table of `LineFeatures`."""
    import pyarrow

    # Each is [D] or [K, D], after an axis of tokens without pooling.
    arrays = [line.vectors for line in lines]
    if is_pooled:
        arrays = [array[np.newaxis] for array in arrays]
    joined = np.concatenate(arrays)
    vectors = pyarrow.array(joined.reshape(-1))
    for size in reversed(joined.shape[1:]):
        vectors = pyarrow.FixedSizeListArray.from_arrays(vectors, size)
    index = pyarrow.array([line.index for line in lines], "int64")
    columns = {"linex_index": index, "vectors": vectors}
    if not is_pooled:
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int32)
        ids = np.concatenate([line.token_ids for line in lines])
        for name, values in (
            ("vectors", vectors),
            ("token_ids", pyarrow.array(ids.astype(np.int32))),
        ):
            columns[name] = pyarrow.ListArray.from_arrays(
                pyarrow.array(offsets), values
            )
    return pyarrow.table(columns).replace_schema_metadata(metadata)
