"""The files of a SavedModel: versions, signatures, operations."""

import contextlib
import json
import os
import time
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
from absl import logging
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf import atomic
from bert_tf import files
from bert_tf import formats
from bert_tf import messages
from bert_tf.serving.graph import allowed_ops
from bert_tf.serving.options import ExportOptions

FILE = "saved_model.pb"
# That of a version in ONNX, which is no SavedModel.
ONNX_FILE = "model.onnx"
# Servers read the number of a version as a signed integer of 64 bits.
MAX_VERSION = 2**63 - 1
# Files beside the graph: those that TensorFlow Serving looks for, and ours.
EXTRA_FOLDER = "assets.extra"
SETTINGS_FILE = "bert_tf.json"

_OBJECT = (lambda value: isinstance(value, dict), "a dictionary")
# {key in the exporter's settings file: its check}; the options have their own.
_CHECKS = {
    **dict.fromkeys(("settings", "bounds", "weights_sha256"), _OBJECT),
    "family": (lambda value: isinstance(value, str), "a string"),
}

# Seconds between tries to remove a folder.
_PAUSES = (0.1, 0.5, 1.0, 2.0, 4.0)

# The SavedModel format itself adds a signature for tf.saved_model.load.
_INTERNAL_SIGNATURE_PREFIX = "__saved_model"


def versions(export_dir: str) -> list[int]:
    """Returns the version numbers in a servable's folder, ascending."""
    return sorted({number for number, _ in folders(export_dir)})


def folders(export_dir: str) -> list[tuple[int, str]]:
    """Returns (number, name) of the versions; servers read 0001 as 1."""
    return sorted(
        (int(name), name)
        for name in files.list_folder(export_dir)
        if name.isascii() and name.isdigit() and int(name) <= MAX_VERSION
    )


def prune(
    export_dir: str,
    num_versions: int,
    keep: int,
    among: Collection[int] | None = None,
) -> list[int]:
    """Removes all but the newest versions of a servable.

    Folders with other names and incomplete versions stay.

    Args:
        export_dir: The servable's folder.
        num_versions: How many versions stay.
        keep: The number of a version that stays in any case, and counts.
        among: The versions that may be removed; another exporter may have
            written others since. None for all.

    Returns:
        The numbers of the removed versions. A version that cannot be removed
        in several tries stays, with a warning.
    """
    paths: dict[int, list[str]] = {}
    for number, name in folders(export_dir):
        path = f"{export_dir}/{name}"
        is_old = number != keep and (among is None or number in among)
        if is_old and files.exists(f"{path}/{FILE}"):
            paths.setdefault(number, []).append(path)
    old = sorted(paths)[: max(0, len(paths) - (num_versions - 1))]
    return [
        number for number in old if all(_remove(path) for path in paths[number])
    ]


def _remove(path):
    """Removes a folder, which others may remove too; returns if it is gone."""
    for seconds in (0.0, *_PAUSES):
        time.sleep(seconds)
        # If two remove a folder at once, each finds some files gone.
        with contextlib.suppress(FileNotFoundError, tf.errors.NotFoundError):
            files.remove(path)
        if not files.exists(path):
            return True
    logging.warning(
        "%s is an old version that could not be removed in %d tries; remove it "
        "by hand.",
        path,
        1 + len(_PAUSES),
    )
    return False


def newest(path: files.AnyPath) -> str:
    """Returns the SavedModel at `path`, or the newest version in it.

    Raises:
        ValueError: If there is neither.
    """
    path = os.fspath(path).rstrip("/")
    if files.exists(f"{path}/{FILE}"):
        return path
    for _, name in reversed(folders(path)):
        if files.exists(f"{path}/{name}/{FILE}"):
            return f"{path}/{name}"
    raise ValueError(
        f"{path}: holds neither {FILE} nor a version's folder with one."
    )


def read_settings(folder: files.AnyPath) -> dict[str, Any]:
    """Returns the settings that the exporter recorded, a dictionary.

    Raises:
        ValueError: If the SavedModel is not from this library or from a later
            release with another format, or if the file is damaged; the message
            names the file.
    """
    path = _settings_path(folder)
    values = formats.unstamped(path, files.read_object(path), formats.EXPORT)
    files.checked(path, values, _CHECKS)
    return values


def read_options(folder: files.AnyPath) -> ExportOptions:
    """Returns the `ExportOptions` that an export was made with.

    Raises:
        ValueError: As in `read_settings`.
    """
    settings = read_settings(folder)
    with messages.errors_named(_settings_path(folder)):
        return ExportOptions.from_dict(settings)


def write_settings(folder: files.AnyPath, settings: dict[str, Any]) -> None:
    """Writes what `read_settings` returns into a SavedModel."""
    text = json.dumps(formats.stamped(settings, formats.EXPORT), indent=2)
    atomic.write_text(_settings_path(folder), f"{text}\n")


def _settings_path(folder):
    return f"{folder}/{EXTRA_FOLDER}/{SETTINGS_FILE}"


def read_signatures(folder: files.AnyPath) -> dict[str, Any]:
    """Returns {name: SignatureDef} of what clients can call."""
    signatures = _read(folder).meta_graphs[0].signature_def
    return {
        name: signature
        for name, signature in signatures.items()
        if not name.startswith(_INTERNAL_SIGNATURE_PREFIX)
    }


def describe(tensor_info: Any) -> str:
    """Returns the dtype and shape of a signature's tensor, e.g. int32 [?]."""
    dtype = tf.as_dtype(tensor_info.dtype).name
    sizes = [dimension.size for dimension in tensor_info.tensor_shape.dim]
    shape = ", ".join("?" if size < 0 else str(size) for size in sizes)
    return f"{dtype} [{shape}]"


def set_method_names(
    folder: files.AnyPath, method_names: Mapping[str, str]
) -> None:
    """Sets the methods of signatures; tf.saved_model.save writes predict.

    Args:
        folder: A local SavedModel.
        method_names: {name of a signature: method}; signatures that the
            SavedModel does not have are ignored.
    """
    saved_model = _read(folder)
    signatures = saved_model.meta_graphs[0].signature_def
    for name, method_name in method_names.items():
        if name in signatures:
            signatures[name].method_name = method_name
    atomic.write_bytes(f"{folder}/{FILE}", saved_model.SerializeToString())


def read_ops(folder: files.AnyPath) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the kinds of operations in a SavedModel, also in functions.

    Returns:
        Two tuples of names, sorted: those of tensorflow_text, and all others.
    """
    graph = _read(folder).meta_graphs[0].graph_def
    nodes = [*graph.node]
    for function in graph.library.function:
        nodes.extend(function.node_def)
    names = {node.op for node in nodes}
    # A function call may be a node whose operation is the function's name.
    names -= {function.signature.name for function in graph.library.function}
    text_ops = {name for name in names if name in allowed_ops.TEXT_OPS}
    return tuple(sorted(text_ops)), tuple(sorted(names - text_ops))


def check_ops(folder: files.AnyPath, has_text: bool) -> None:
    """Checks that old servers have all operations of a SavedModel.

    Args:
        folder: The SavedModel.
        has_text: Whether it may hold operations of tensorflow_text.

    Raises:
        ValueError: If it holds other operations; the message names them.
    """
    text_ops, core_ops = read_ops(folder)
    refused = set(core_ops) - allowed_ops.CORE_OPS
    if not has_text:
        refused |= set(text_ops)
    if refused:
        raise ValueError(
            "The exported graph must hold no operations but those of "
            "`allowed_ops`, which servers are known to have. Received: "
            f"{', '.join(sorted(refused))}."
        )


def _read(folder):
    path = f"{os.fspath(folder).rstrip('/')}/{FILE}"
    saved_model = saved_model_pb2.SavedModel()
    try:
        saved_model.ParseFromString(files.read_bytes(path))
    except DecodeError as error:
        raise ValueError(f"{path}: is not a SavedModel: {error}.") from error
    if len(saved_model.meta_graphs) != 1:
        raise ValueError(
            f"{path}: must hold one graph. Received: "
            f"{len(saved_model.meta_graphs)}."
        )
    return saved_model
