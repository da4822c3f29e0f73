"""Google's files: a TF1 checkpoint, bert_config.json, vocab.txt.

    bert_model.ckpt.index                  names and shapes
    bert_model.ckpt.data-00000-of-00001    values
    bert_config.json
    vocab.txt

Beside the weights a checkpoint of a training run holds Adam's moments, under
the weight's name with /adam_m and /adam_v, and the global_step.
"""

import json
import threading

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints.families import bert
from bert_tf.config import BertConfig

CONFIG_FILE = "bert_config.json"
PREFIX = "bert_model.ckpt"
GLOBAL_STEP = "global_step"

# The activations by Google's names, whose "gelu" is the tanh form.
_ACTIVATIONS = {
    "gelu_new": "gelu",
    "linear": "linear",
    "relu": "relu",
    "tanh": "tanh",
}
# What google-research/bert has in its code and not in its configuration.
_LAYER_NORM_EPS = 1e-12
# The reader has other names for some of TensorFlow's errors.
_READER_ERRORS = (
    tf.errors.OpError,
    LookupError,
    RuntimeError,
    ValueError,
)
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# What TF1's Saver keeps beside its checkpoints: their names.
_STATE_FILE = "checkpoint"
_MAX_STATE_BYTES = 1 << 20


class GoogleCheckpoint:
    """A checkpoint of google-research/bert, read tensor by tensor.

    A context manager, with the attributes of `HuggingFaceCheckpoint`.

    Args:
        path: A folder with one checkpoint, or the checkpoint's prefix, e.g.
            "uncased_L-12_H-768_A-12/bert_model.ckpt".

    Attributes:
        config: The `BertConfig` of the file beside it, or None.
        slots: {name: shape} of Adam's moments.

    Raises:
        ValueError: If it is no such checkpoint; the message names the file.
    """

    file_format = bert.GOOGLE
    architecture = None
    parts = (bert.ENCODER, bert.POOLER)
    config_values = None
    classifier_dropout = None

    def __init__(self, path):
        self.path = path
        self.prefix = find_prefix(path)
        self.weights_path = self.slots_path = self.prefix
        self.folder = self.prefix.rpartition("/")[0] or "."
        self.config = None
        for name in (CONFIG_FILE, "config.json"):
            if files.exists(f"{self.folder}/{name}"):
                self.config = BertConfig.from_json(f"{self.folder}/{name}")
                break
        self._lock = threading.Lock()
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
            shapes = self._reader.get_variable_to_shape_map()
            dtypes = self._reader.get_variable_to_dtype_map()
        except _READER_ERRORS as error:
            raise ValueError(
                f"{self.prefix}.index: is truncated or no index of a "
                f"checkpoint: {_first_line(error)}"
            ) from error
        if _OBJECT_GRAPH in shapes:
            raise ValueError(
                f"{self.prefix}: is an object checkpoint of TensorFlow 2, "
                "which holds the state of a training run: no TF1 checkpoint. "
                "Give a model folder."
            )
        self.shapes, self.slots, self.ignored = {}, {}, {}
        self._step_dtype = dtypes.get(GLOBAL_STEP)
        for name in sorted(shapes):
            shape = tuple(shapes[name])
            if name == GLOBAL_STEP:
                self.ignored[name] = shape
            elif name.endswith(bert.SLOTS):
                self.ignored[name] = self.slots[name] = shape
            elif dtypes[name].is_floating:
                self.shapes[name] = shape
            else:
                self.ignored[name] = shape

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    @property
    def global_step(self):
        """The number of training steps, or None if nothing tells it.

        Raises:
            ValueError: If it is none.
        """
        if self._step_dtype is None:
            return None
        shape = self.ignored[GLOBAL_STEP]
        if shape or not self._step_dtype.is_integer:
            raise ValueError(
                f"{self.prefix}: the tensor {GLOBAL_STEP} must be one integer. "
                f"Received: {self._step_dtype.name} {list(shape)}."
            )
        return int(self._read(GLOBAL_STEP))

    @property
    def num_labels(self):
        """Outputs of the classifier, or None without one."""
        return next(iter(self.shapes.get("output_weights", ())), None)

    def file_of(self, name):
        """Returns the prefix: a checkpoint is one logical file."""
        return self.prefix

    def ignored_note(self, name):
        """Returns what one of the `ignored` is."""
        return "the optimizer's" if name in self.slots else "no weight"

    def read(self, name):
        """Returns the tensor as it is stored, as a float32 array.

        Raises:
            ValueError: If it cannot be read; names file and tensor.
        """
        return np.asarray(self._read(name), np.float32)

    def _read(self, name):
        try:
            # TensorFlow's reader has one position in the index for all.
            with self._lock:
                return self._reader.get_tensor(name)
        except _READER_ERRORS as error:
            raise ValueError(
                f"{self.prefix}.data-*: the tensor {name} cannot be read: "
                f"{_first_line(error)}"
            ) from error


def find_prefix(path):
    """Returns the prefix of the checkpoint that `path` names or holds.

    Of several in one folder it is bert_model.ckpt, or else the one that the
    file "checkpoint" calls the newest. Only the end of the path there counts,
    which is another folder's where a training run was moved.

    Raises:
        ValueError: If there is none, or no telling which.
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
            f"{', '.join(found)}. Received: {files.shortened(newest)}."
        )
    return f"{path}/{newest}"


def _newest(folder):
    """Returns the name of the newest checkpoint, or None if nothing tells."""
    path = f"{folder}/{_STATE_FILE}"
    if not files.exists(path):
        return None
    files.read_text(path, _MAX_STATE_BYTES)
    state = tf.train.get_checkpoint_state(folder)
    return state and state.model_checkpoint_path.rpartition("/")[2]


def config_values(config):
    """Returns the contents of bert_config.json, a dictionary.

    Raises:
        ValueError: If google-research/bert cannot compute this model.
    """
    if config.hidden_act not in _ACTIVATIONS:
        raise ValueError(
            "`hidden_act` must be one of "
            f"{', '.join(_ACTIVATIONS)} in Google's files: their gelu is the "
            "tanh form. Received: "
            f"hidden_act={config.hidden_act!r}. Give "
            "--hidden_act=gelu_new to take the model as one of the tanh form: "
            "Google's own releases, as Hugging Face has them, were trained "
            "as such."
        )
    if config.layer_norm_eps != _LAYER_NORM_EPS:
        raise ValueError(
            f"`layer_norm_eps` must be {_LAYER_NORM_EPS} in Google's files. "
            f"Received: layer_norm_eps={config.layer_norm_eps}."
        )
    if config.is_decoder:
        raise ValueError(
            "`is_decoder` must be False in Google's files: they have no "
            "left-to-right models. Received: is_decoder=True."
        )
    values = config.to_dict()
    values["hidden_act"] = _ACTIVATIONS[config.hidden_act]
    del values["model_type"], values["layer_norm_eps"]
    return dict(sorted(values.items()))


def write(folder, tensors, config, vocabulary):
    """Writes a release of Google's form, whole or not at all.

    Args:
        folder: Path of a folder, local or remote, that is empty or not there.
        tensors: {name in the checkpoint: array}.
        config: The `BertConfig`.
        vocabulary: The `Vocabulary`.

    Raises:
        ValueError: If the folder holds something, or Google's files cannot
            express the configuration.
        OSError: If the disk is full, and so on.
    """
    text = json.dumps(config_values(config), indent=2) + "\n"
    with files.whole_folder(folder, last=f"{PREFIX}.index") as temporary:
        files.write_text(f"{temporary}/{CONFIG_FILE}", text)
        files.write_text(f"{temporary}/vocab.txt", vocabulary.to_text())
        try:
            # What TF1's Saver runs in its session.
            tf.raw_ops.SaveV2(
                prefix=f"{temporary}/{PREFIX}",
                tensor_names=list(tensors),
                shape_and_slices=[""] * len(tensors),
                tensors=[tf.constant(array) for array in tensors.values()],
            )
        except tf.errors.OpError as error:
            raise OSError(
                f"{folder}/{PREFIX}: cannot be written: {_first_line(error)}"
            ) from error


def _first_line(error):
    return str(error).strip().split("\n")[0]
