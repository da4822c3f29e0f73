"""Hugging Face's files: config.json, model.safetensors, and its shards."""

import contextlib
import functools
import re

import numpy as np
import safetensors
import safetensors.numpy

from bert_tf import files
from bert_tf.checkpoints.containers import safetensors_file
from bert_tf.checkpoints.families import bert
from bert_tf.config import BertConfig

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
# Ours, if a training run is to be continued elsewhere: Adam's moments.
SLOTS_FILE = "optimizer.safetensors"
GLOBAL_STEP = "global_step"
PICKLE_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")

# What weights may be stored as.
_FLOATS = ("F64", "F32", "F16", "BF16")
# Buffers, not weights: older versions of transformers wrote them.
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
# The same tensor under a second name.
TIED_NAMES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


class HuggingFaceCheckpoint:
    """The weights in a folder, read tensor by tensor. A context manager.

    Args:
        folder: A path, local or remote.

    Attributes:
        path: What was asked for; messages name it.
        folder: Where configuration and vocabulary lie.
        weights_path, slots_path: The files that errors of missing tensors
            name.
        file_format: `names.HUGGING_FACE`.
        config: The `BertConfig`.
        config_values: The whole config.json, a dictionary.
        architecture: A key of `names.ARCHITECTURES`, or None where
            config.json names none of them.
        parts: The parts which that class has; only the encoder if unknown.
        shapes: {name of the table: shape} of what the files hold.
        ignored: {name in the file: shape} of buffers, which are no weights.

    Raises:
        ValueError: If files are missing, corrupt, or only pickles; the
            message names the file.
    """

    file_format = bert.HUGGING_FACE

    def __init__(self, folder):
        self.path = folder
        self.folder = folder
        self.config = BertConfig.from_json(f"{folder}/{CONFIG_FILE}")
        self.config_values = read_config_values(folder)
        architectures = self.config_values.get("architectures") or ()
        self.architecture = next(
            (name for name in architectures if name in bert.ARCHITECTURES),
            None,
        )
        self.parts = bert.ARCHITECTURES.get(self.architecture, (bert.ENCODER,))
        self.shapes = {}
        self.ignored = {}
        self.slots_path = f"{folder}/{SLOTS_FILE}"
        self._stack = contextlib.ExitStack()
        self._sources = {}  # {name: (open file, its path, name in it)}
        try:
            for path, expected in self._weight_files():
                self._open(path, expected)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._stack.close()

    @property
    def num_labels(self):
        """Outputs of the (token) classifier, or None without one."""
        if self.architecture is None:
            return next(iter(self.shapes.get("classifier.weight", ())), None)
        if {bert.CLASSIFIER, bert.TOKEN_CLASSIFIER} & set(self.parts):
            return num_labels(self.config_values)
        return None

    @property
    def classifier_dropout(self):
        """Dropout in front of the classifier."""
        dropout = self.config_values.get("classifier_dropout")
        return self.config.hidden_dropout_prob if dropout is None else dropout

    @property
    def slots(self):
        """{name: shape} of Adam's moments, if the folder holds them."""
        if self._slots_file is None:
            return {}
        shapes = dict(self._slots_file.shapes)
        shapes.pop(GLOBAL_STEP, None)
        return shapes

    @property
    def global_step(self):
        """The number of training steps, or None if nothing tells it.

        Raises:
            ValueError: If it is none.
        """
        source = self._slots_file
        if source is None or GLOBAL_STEP not in source.shapes:
            return None
        shape = source.shapes[GLOBAL_STEP]
        dtype = source.dtype_name(GLOBAL_STEP)
        if shape or dtype != "I64":
            raise ValueError(
                f"{self.slots_path}: the tensor {GLOBAL_STEP} must be one I64. "
                f"Received: {dtype} {list(shape)}."
            )
        return int(source.read(GLOBAL_STEP))

    @functools.cached_property
    def _slots_file(self):
        """The open file of the optimizer, or None.

        It is opened for those who ask only: a model answers without it.
        """
        if not files.exists(self.slots_path):
            return None
        source = self._open_file(self.slots_path)
        for name in source.shapes:
            if name != GLOBAL_STEP and not name.endswith(bert.SLOTS):
                raise ValueError(
                    f"{self.slots_path}: the tensor {name} is none of an "
                    "optimizer's."
                )
            self._sources[name] = (source, self.slots_path, name)
        return source

    def file_of(self, name):
        """Returns the path of the file that holds the tensor."""
        return self._sources[name][1]

    def ignored_note(self, name):
        """Returns what one of the `ignored` is."""
        return "the optimizer's" if name in self.slots else "no weight"

    def read(self, name):
        """Returns the tensor as it is stored, as a float32 array.

        Raises:
            ValueError: If it cannot be read; names file and tensor.
        """
        source, path, name_in_file = self._sources[name]
        dtype = source.dtype_name(name_in_file)
        if dtype not in _FLOATS:
            raise ValueError(
                f"{path}: the tensor {name_in_file} must be of floating-point "
                f"numbers, {', '.join(_FLOATS)}. Received: {dtype}."
            )
        try:
            return np.asarray(source.read(name_in_file), np.float32)
        except (safetensors.SafetensorError, OSError) as error:
            raise ValueError(
                f"{path}: cannot read the tensor {name_in_file}: {error}"
            ) from error

    def _weight_files(self):
        """Yields (path, names it must hold or None)."""
        folder = self.path
        if files.exists(f"{folder}/{WEIGHTS_FILE}"):
            self.weights_path = f"{folder}/{WEIGHTS_FILE}"
            yield self.weights_path, None
        elif files.exists(f"{folder}/{INDEX_FILE}"):
            self.weights_path = f"{folder}/{INDEX_FILE}"
            index = files.read_json(self.weights_path, files.MAX_FOLDER_TEXT)
            weight_map = isinstance(index, dict) and index.get("weight_map")
            if not isinstance(weight_map, dict) or not weight_map:
                raise ValueError(f"{self.weights_path}: has no `weight_map`.")
            shards = {}
            for name, shard in weight_map.items():
                if not isinstance(shard, str) or "/" in shard:
                    raise ValueError(
                        f"{self.weights_path}: the file of the tensor {name} "
                        "must be one of the folder. "
                        f"Received: {files.shortened(shard)}."
                    )
                shards.setdefault(shard, []).append(name)
            for shard, expected in sorted(shards.items()):
                yield f"{folder}/{shard}", expected
        else:
            raise ValueError(_missing_weights(folder, self.architecture))

    def _open(self, path, expected):
        source = self._open_file(path)
        for name in expected or ():
            if name not in source.shapes:
                raise ValueError(
                    f"{path}: the tensor {name} is missing, which the index "
                    "places there."
                )
        for name_in_file, shape in source.shapes.items():
            if name_in_file.removeprefix(bert.HUGGING_FACE_PREFIX) in _BUFFERS:
                self.ignored[name_in_file] = shape
                continue
            name = table_name(name_in_file)
            if name in self.shapes:
                raise ValueError(
                    f"{path}: the tensor {name_in_file} is there twice, also "
                    f"as {self._sources[name][2]} in {self.file_of(name)}."
                )
            self.shapes[name] = shape
            self._sources[name] = (source, path, name_in_file)

    def _open_file(self, path):
        local = self._stack.enter_context(files.local_copy(path))
        try:
            return self._stack.enter_context(
                safetensors_file.SafetensorsFile(local)
            )
        except (safetensors.SafetensorError, OSError, ValueError) as error:
            raise ValueError(
                f"{path}: is truncated or no safetensors file: {error}"
            ) from error


def table_name(name):
    """Returns the name that the table has for a name in a file.

    Old files call the weights of LayerNorm gamma and beta, as Google's do;
    those of a bare BertModel leave out the "bert." prefix.
    """
    name = re.sub(r"\.gamma$", ".weight", name)
    name = re.sub(r"\.beta$", ".bias", name)
    if name.startswith(("embeddings.", "encoder.", "pooler.")):
        name = bert.HUGGING_FACE_PREFIX + name
    return name


def file_name(name, architecture):
    """Returns the name that files of this class have for the table's."""
    if architecture == "BertModel":
        return name.removeprefix(bert.HUGGING_FACE_PREFIX)
    return name


def read_config_values(folder):
    """Returns the contents of a folder's config.json, a dictionary.

    Raises:
        ValueError: If what tells the class, the labels or their layer is of
            another kind than transformers writes; the message names the file.
    """
    path = f"{folder}/{CONFIG_FILE}"
    values = files.read_object(path)
    for key, (is_good, expected) in _CHECKS.items():
        value = values.get(key)
        if value is not None and not is_good(value):
            raise ValueError(
                f"{path}: `{key}` must be {expected}. "
                f"Received: {key}={files.shortened(value)}."
            )
    return values


# {key of config.json: whether a value is good, and what a good one is}
_CHECKS = {
    "architectures": (
        lambda value: (
            isinstance(value, list)
            and all(isinstance(name, str) for name in value)
        ),
        "a list of names",
    ),
    "classifier_dropout": (
        lambda value: type(value) in (int, float) and 0 <= value < 1,
        "a number in [0, 1)",
    ),
    "id2label": (
        lambda value: (
            isinstance(value, dict)
            and not any(
                isinstance(name, (dict, list)) for name in value.values()
            )
        ),
        "an object of names",
    ),
    "num_labels": (
        lambda value: type(value) is int and value > 0,
        "a positive integer",
    ),
}


def num_labels(config_values):
    """Returns the number of labels that a config.json declares."""
    labels = config_values.get("id2label")
    if labels is None:
        # transformers does not write its default.
        return config_values.get("num_labels") or 2
    return len(labels)


def label_names(config_values):
    """Returns the names in the order of their ids, or None without any.

    Raises:
        ValueError: If the ids are not 0, 1, 2, ...
    """
    labels = config_values.get("id2label")
    if labels is None:
        return None
    ids = [str(index) for index in range(len(labels))]
    if labels.keys() != set(ids):
        raise ValueError(
            "`id2label` must have the ids 0, 1, 2, ... Received: "
            f"id2label={files.shortened(labels)}."
        )
    return tuple(labels[label_id] for label_id in ids)


def make_config(
    config, architecture, *, pad_id, num_labels, labels, classifier_dropout
):
    """Returns the contents of config.json, a dictionary.

    Args:
        config: The `BertConfig`.
        architecture: A key of `names.ARCHITECTURES`.
        pad_id: Id of the padding token.
        num_labels: None, or the number of outputs of the (token) classifier.
        labels: None, or their names, in order.
        classifier_dropout: None, or the dropout in front of the classifier.
    """
    values = {"architectures": [architecture]} | config.to_dict()
    values["pad_token_id"] = pad_id
    if num_labels is not None:
        labels = labels or [f"LABEL_{index}" for index in range(num_labels)]
        values["id2label"] = {
            str(index): label for index, label in enumerate(labels)
        }
        values["label2id"] = {
            label: index for index, label in enumerate(labels)
        }
        values["classifier_dropout"] = classifier_dropout
        if (
            num_labels == 1
            and bert.CLASSIFIER in bert.ARCHITECTURES[architecture]
        ):
            values["problem_type"] = "regression"
    return values


def write_weights(path, tensors):
    """Writes a model.safetensors; the caller sees to it being whole.

    Args:
        path: Path to write, local or remote.
        tensors: {name: array}.
    """
    # The writer takes the memory as it lies, whatever the strides say.
    tensors = {
        name: np.asarray(array, order="C") for name, array in tensors.items()
    }
    with files.local_target(path) as local:
        try:
            # transformers refuses files that do not say this.
            safetensors.numpy.save_file(
                tensors, local, metadata={"format": "pt"}
            )
        except safetensors.SafetensorError as error:
            # Its name for a full disk.
            raise OSError(f"{path}: cannot be written: {error}") from error


def _missing_weights(folder, architecture):
    for pickle in PICKLE_FILES:
        if files.exists(f"{folder}/{pickle}"):
            name = architecture or "AutoModel"
            return (
                f"{folder}/{pickle}: pickles of PyTorch can run any code and "
                f"are not read. Convert the folder where transformers and "
                f'torch are installed: python -c "from transformers import '
                f"{name}; {name}.from_pretrained('{folder}')"
                f".save_pretrained('{folder}', safe_serialization=True)\""
            )
    return (
        f"{folder}: has neither {WEIGHTS_FILE} nor {INDEX_FILE}. "
        f"Found: {', '.join(files.list_folder(folder)) or 'nothing'}."
    )
