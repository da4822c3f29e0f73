"""TF1 checkpoints, like those of google-research/bert.

    bert_model.ckpt.index                  names and shapes
    bert_model.ckpt.data-00000-of-00001    values

A training run's checkpoint also holds the optimizer's slots, each under its
weight's name and one more, and numbers such as global_step: no weights.
"""

import threading

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf import messages
from bert_tf import streams
from bert_tf.checkpoints import containers

PREFIX = "bert_model.ckpt"

# The reader raises other classes for some of TensorFlow's errors.
_READER_ERRORS = (
    tf.errors.OpError,
    LookupError,
    RuntimeError,
    ValueError,
)
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# TF1's Saver lists its checkpoints in this file.
_STATE_FILE = "checkpoint"
_MAX_STATE_BYTES = 1 << 20


class Tf1Checkpoint:
    """A TF1 checkpoint, read tensor by tensor; see `containers`.

    Args:
        path: A folder with one checkpoint, or the checkpoint's prefix, e.g.
            "uncased_L-12_H-768_A-12/bert_model.ckpt".

    Raises:
        ValueError: If it is not such a checkpoint; the message names the file.
    """

    file_format = containers.GOOGLE

    def __init__(self, path: str) -> None:
        self.prefix = find_prefix(path)
        self.weights_path = self.prefix
        self.folder = self.prefix.rpartition("/")[0] or "."
        self._lock = threading.Lock()
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
            shapes = self._reader.get_variable_to_shape_map()
            dtypes = self._reader.get_variable_to_dtype_map()
        except _READER_ERRORS as error:
            index = f"{self.prefix}.index"
            files.check_no_lfs_pointer(index, files.read_bytes(index))
            raise ValueError(
                f"{index}: is truncated or no index of a "
                f"checkpoint: {_first_line(error)}"
            ) from error
        if _OBJECT_GRAPH in shapes:
            raise ValueError(
                f"{self.prefix}: is not a TF1 checkpoint but an object "
                "checkpoint of TensorFlow 2: the state of a training run. "
                "Give a model folder."
            )
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.ignored: dict[str, tuple[int, ...]] = {}
        for name in sorted(shapes):
            shape = tuple(shapes[name])
            # No weight is a number, such as beta1_power and the loss scale.
            is_weight = dtypes[name].is_floating and shape
            # Sorted: the weight comes before its slots.
            if not is_weight or name.rpartition("/")[0] in self.shapes:
                self.ignored[name] = shape
            else:
                self.shapes[name] = shape

    def file_of(self, name: str) -> str:
        """Returns the prefix: a checkpoint is one logical file."""
        return self.prefix

    def weights_sha256(self) -> dict[str, str]:
        """Returns {name of a numbered file of values: its SHA-256}."""
        start = f"{self.prefix.rpartition('/')[2]}.data-"
        return {
            name: streams.sha256(f"{self.folder}/{name}")
            for name in sorted(files.list_folder(self.folder))
            if name.startswith(start)
        }

    def read(self, name: str) -> np.ndarray:
        """Returns the tensor as it is stored, as a float32 array.

        Raises:
            ValueError: If it cannot be read; names file and tensor.
        """
        try:
            # All threads share the reader's one position in the index.
            with self._lock:
                return np.asarray(self._reader.get_tensor(name), np.float32)
        except _READER_ERRORS as error:
            raise ValueError(
                f"{self.prefix}.data-*: the tensor {name} cannot be read: "
                f"{_first_line(error)}"
            ) from error


def find_prefix(path: str) -> str:
    """Returns the prefix of the checkpoint that `path` names or holds.

    If a folder holds several, this is bert_model.ckpt, or otherwise the one
    that the file "checkpoint" calls the newest. Only the last part of the path
    in that file counts: the rest is out of date if the run was moved.

    Raises:
        ValueError: If there is none, or it is unclear which one is meant.
    """
    if files.exists(f"{path}.index"):
        return path
    found = [
        name.removesuffix(".index")
        for name in files.list_folder(path)
        if name.endswith(".index")
    ]
    if PREFIX in found:
        return f"{path}/{PREFIX}"
    if len(found) == 1:
        return f"{path}/{found[0]}"
    newest = _newest(path) if found else None
    if newest is None:
        raise ValueError(
            f"{path}: must hold one checkpoint, or be the prefix of one. "
            f"Found: {', '.join(found) or 'none'}."
        )
    if newest not in found:
        raise ValueError(
            f"{path}/{_STATE_FILE}: must name a checkpoint of its folder, "
            f"{', '.join(found)}. Received: {messages.shortened(newest)}."
        )
    return f"{path}/{newest}"


def _newest(folder):
    """Returns the name of the newest checkpoint, or None if unknown."""
    path = f"{folder}/{_STATE_FILE}"
    if not files.exists(path):
        return None
    files.read_text(path, _MAX_STATE_BYTES)
    state = tf.train.get_checkpoint_state(folder)
    return state and state.model_checkpoint_path.rpartition("/")[2]


def write(prefix: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes a checkpoint; the caller makes sure that it is whole.

    Args:
        prefix: Where to write, without the .index; local or remote.
        tensors: {name: array}.

    Raises:
        OSError: E.g. if the disk is full.
    """
    try:
        # The operation that TF1's Saver runs in its session.
        tf.raw_ops.SaveV2(
            prefix=prefix,
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=[tf.constant(array) for array in tensors.values()],
        )
    except tf.errors.OpError as error:
        raise OSError(
            f"{prefix}: cannot be written: {_first_line(error)}"
        ) from error


def _first_line(error):
    return str(error).strip().split("\n")[0]
