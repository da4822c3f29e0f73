"""Opens checkpoints of every format, with tensors in Keras's layout."""

import contextlib
import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import families
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints.containers import hugging_face_folder
from bert_tf.checkpoints.containers.hugging_face_folder import HuggingFaceFolder
from bert_tf.checkpoints.containers.tf1_checkpoint import Tf1Checkpoint
from bert_tf.checkpoints.families.family import Family
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.config import BertConfig

# What PEFT (LoRA and others) writes beside its adapter_model.safetensors.
_PEFT_FILE = "adapter_config.json"
_KERAS_FILE = "tf_model.h5"
_WEIGHTS = {*hugging_face_folder.WEIGHTS_FILES}
# What the Hub calls a model.
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
# What follows the prefix in the names of a TF1 checkpoint's files.
_TF1_SUFFIX = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
# A configuration may describe at most this many times what the files hold. Up
# to that, the error lists the missing tensors instead.
_MOST_TIMES = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A container whose tensors have the names of a family's table.

    Args:
        path: The folder or prefix; messages name it.
        container: The open files; see `containers`.
        family: The `Family`.
        config: The `BertConfig`, or None if unknown.
        parts: The parts whose tensors must be there.
        config_values: The whole config.json; empty for Google's files.
        architecture: A class of the family, or None if unknown.
    """

    path: str
    container: HuggingFaceFolder | Tf1Checkpoint
    family: Family
    config: BertConfig | None
    parts: tuple[str, ...]
    config_values: dict[str, Any] = dataclasses.field(default_factory=dict)
    architecture: str | None = None

    @property
    def file_format(self) -> str:
        """`GOOGLE` or `HUGGING_FACE`."""
        return self.container.file_format

    @property
    def folder(self) -> str:
        """The folder of the configuration and the vocabulary."""
        return self.container.folder

    def weights_sha256(self) -> dict[str, str]:
        """Returns {name of a file of tensors: its SHA-256}."""
        return self.container.weights_sha256()

    @property
    def problem_type(self) -> str | None:
        """config.json's kind of classification; None if it has none."""
        return self.config_values.get("problem_type")

    @property
    def num_labels(self) -> int | None:
        """Outputs of the (token) classifier, or None without one."""
        if self.architecture is not None:
            if not set(parts.CLASSIFIERS) & set(self.parts):
                return None
            return config_json.num_labels(self.config_values)
        if self.config is None:
            return None
        # The head is the same for any number of layers.
        config = _one_layer(self.config)
        # Where classifiers have a hidden layer, the two differ in name.
        kernels = [f"{part}/dense/kernel" for part in parts.CLASSIFIERS]
        for tensor in self.family.table(config, parts.CLASSIFIERS):
            shape = self.shape_of(tensor)
            if shape is not None and tensor.keras in kernels:
                stored = tensor.stored(self.file_format)
                shape = stored.transform.variable_shape(shape)
                return next(reversed(shape), None)
        return None

    @property
    def label_names(self) -> tuple[str, ...]:
        """The classifier's names in config.json, or LABEL_0, ... without any.

        Raises:
            ValueError: If their ids are not 0, 1, ...; the message names the
                file.
        """
        names = config_json.label_names(self.config_values, self.folder)
        ids = range(self.num_labels or 0)
        return names or tuple(f"LABEL_{label}" for label in ids)

    @property
    def classifier_dropout(self) -> float | None:
        """Dropout in front of the checkpoint's own head; None if unknown."""
        heads = (*parts.CLASSIFIERS, parts.MULTIPLE_CHOICE)
        part = next((head for head in heads if head in self.parts), heads[0])
        return self.dropout_of(part)

    def dropout_of(self, part: str) -> float | None:
        """Returns the dropout in front of a head, existing or new.

        Args:
            part: A classifier's head, a token classifier's or multiple choice.

        Returns:
            The dropout that transformers would use; None if unknown.
        """
        if self.config is None or not self.config_values:
            return None
        if part in self.family.own_dropouts:
            return self.config.classifier_dropout_prob
        dropout = self.config_values.get("classifier_dropout")
        return self.config.hidden_dropout_prob if dropout is None else dropout

    @property
    def found_parts(self) -> list[str]:
        """The parts of the model that have tensors in the checkpoint.

        Raises:
            ValueError: If there is no configuration.
        """
        if self.config is None:
            raise ValueError(f"{self.path}: has no config.json beside it.")
        return sorted(
            {
                tensor.part
                for tensor in self.family.table(self.config)
                if self.shape_of(tensor) is not None
                and self.has_part(tensor.part)
            }
        )

    @property
    def missing_heads(self) -> list[str]:
        """The heads of the checkpoint's class that have no tensors.

        Raises:
            ValueError: If there is no configuration.
        """
        heads = set(self.parts) - {parts.ENCODER, parts.POOLER}
        return sorted(heads - {*self.found_parts})

    def shape_of(self, tensor: Tensor) -> tuple[int, ...] | None:
        """Returns the shape in the files, None if the tensor is not there."""
        name = tensor.name(self.file_format)
        return None if name is None else self.container.shapes.get(name)

    def has_part(self, part: str) -> bool:
        """Whether tensors under a head's name, if any, are this part's.

        Several heads share one name. The class tells which head it is, or the
        missing pooler does.
        """
        if part not in parts.OF_ONE_NAME or part in self.parts:
            return True
        has_head = self.architecture or set(parts.OF_ONE_NAME) & set(self.parts)
        return not has_head

    def read(self, tensor: Tensor) -> np.ndarray:
        """Returns a tensor in the layout of its Keras variable.

        Args:
            tensor: An entry of the family's table.

        Returns:
            A float32 array. A transposed one is a view: no memory is moved.

        Raises:
            ValueError: If it cannot be read or has a value that is not
                finite; the message names file and tensor.
        """
        stored = tensor.stored(self.file_format)
        name = stored.name
        array = self.container.read(name)
        # The sum is not finite if any value is not. Sums of finite values
        # overflow so rarely that only then all values are checked.
        with np.errstate(over="ignore", invalid="ignore"):
            is_finite = np.isfinite(np.sum(array)) or np.isfinite(array).all()
        if not is_finite:
            raise ValueError(
                f"{self.container.file_of(name)}: the tensor {name} holds "
                "values that are not finite."
            )
        return stored.transform.to_variable(array)


@contextlib.contextmanager
def open_checkpoint(
    path: str, allow_partial: bool = False
) -> Iterator[Checkpoint]:
    """Yields the `Checkpoint` at `path`; its files are closed afterwards.

    Args:
        path: A folder in Hugging Face's format (ours is one) or in Google's,
            the prefix of a TF1 checkpoint, or a name on the Hub
            (`checkpoints.hub`), whose local copy is opened.
        allow_partial: Whether the configuration may describe a model of any
            size. If not, a model made from it takes memory and time in
            proportion to the files.

    Raises:
        ValueError: If it cannot be read, or holds far less than the
            configuration describes; the message names the file.
    """
    path = hub.local_path(path).rstrip("/")
    with contextlib.ExitStack() as stack:
        checkpoint = _open(path, stack)
        if checkpoint.config is not None and not allow_partial:
            _check_size(checkpoint)
        yield checkpoint


def _open(path, stack):
    if files.exists(f"{path}.index"):
        return _open_google(path)
    found = set(files.list_folder(path))
    has_google = any(name.endswith(".index") for name in found)
    if has_google and not _has_hugging_face(found):
        return _open_google(path)
    if _PEFT_FILE in found:
        raise ValueError(
            f"{path}/{_PEFT_FILE}: belongs to an adapter of PEFT, which "
            "changes the weights of another model. Merge the two where peft is "
            'installed: python -c "from peft import AutoPeftModel; '
            f"AutoPeftModel.from_pretrained('{path}')"
            ".merge_and_unload().save_pretrained('FOLDER')\""
        )
    if found & {config_json.CONFIG_FILE, *_WEIGHTS}:
        return _open_hugging_face(path, stack, found)
    prefix = _TF1_SUFFIX.sub("", path)
    if prefix != path and files.exists(f"{prefix}.index"):
        raise ValueError(
            f"{path}: is only one file of a TF1 checkpoint. Give what the "
            f"names of its files begin with: {prefix}."
        )
    if sentence_files.MODULES_FILE in found:
        # If the weights are in another folder, its error says what to do.
        sentence_files.read_modules(path)
    received = f"Found: {', '.join(sorted(found)) or 'nothing'}."
    if files.exists(path) and not files.is_folder(path):
        received = "Received: a file."
    elif not files.exists(path) and _HUB_NAME.fullmatch(path):
        received += f" A model of the Hugging Face Hub is {hub.PREFIX}{path}."
    raise ValueError(
        f"{path}: must be a model folder with "
        f"{hugging_face_folder.WEIGHTS_FILE} or "
        f"{hugging_face_folder.PICKLE_FILE}, a release of Google's with "
        "bert_model.ckpt.index, or the prefix of a TF1 checkpoint. "
        f"{received}"
    )


def _has_hugging_face(found):
    """Whether a folder beside a TF1 checkpoint's files is Hugging Face's.

    Many releases have all: transformers then reads its own files. But Google's
    configuration tells nothing of a pickle.
    """
    if config_json.CONFIG_FILE in found:
        return bool(_WEIGHTS & found)
    return bool({*hugging_face_folder.SAFETENSORS} & found)


def _open_google(path):
    container = Tf1Checkpoint(path)
    files_of = {each.google_config_file: each for each in families.FAMILIES}
    files_of[config_json.CONFIG_FILE] = families.DEFAULT
    for name, family in files_of.items():
        if name is not None and files.exists(f"{container.folder}/{name}"):
            config = families.read_config(f"{container.folder}/{name}", family)
            break
    else:
        config = families.config_of_google(container.shapes)
    checkpoint = Checkpoint(
        path=path,
        container=container,
        family=families.of_config(config),
        config=config,
        parts=(
            (parts.ENCODER, parts.POOLER)
            if config is None or config.has_pooler
            else (parts.ENCODER,)
        ),
    )
    return dataclasses.replace(checkpoint, parts=_google_parts(checkpoint))


def _google_parts(checkpoint):
    """Returns the parts whose tensors must be in files of Google's format.

    Token classifiers, span models and pure masked-LM models do without a
    pooler. Google's own checkpoints have one, converted ones do not.
    """
    if checkpoint.config is None or parts.POOLER not in checkpoint.parts:
        return checkpoint.parts
    found = {
        tensor.part
        for tensor in checkpoint.family.table(_one_layer(checkpoint.config))
        if checkpoint.shape_of(tensor) is not None
    }
    heads = [parts.SPAN, parts.TOKEN_CLASSIFIER]
    if parts.NEXT_SENTENCE not in found:
        heads.append(parts.MASKED_LM)
    head = next((head for head in heads if head in found), None)
    if parts.POOLER in found or head is None:
        return checkpoint.parts
    return parts.ENCODER, head


def _open_hugging_face(folder, stack, found):
    config = families.read_config(
        f"{folder}/{config_json.CONFIG_FILE}", is_hugging_face=True
    )
    values = config_json.read(folder)
    family = families.of_config(config)
    named = values.get("architectures") or ()
    known = [name for name in named if name in family.architectures]
    architecture = known[0] if known else None
    if architecture is None:
        _check_no_other_family(folder, family, named)
        _check_no_own_code(folder, family, values)
    _check_weights(folder, found, architecture)
    container = HuggingFaceFolder(folder, stack, family.table_name)
    if values.get("tie_word_embeddings") is not False:
        container.find_tied(family.tied)
    _check_not_tensorflow(container, architecture)
    checkpoint = Checkpoint(
        path=folder,
        container=container,
        family=family,
        config=config,
        parts=family.architectures.get(architecture or "", (parts.ENCODER,)),
        config_values=values,
        architecture=architecture,
    )
    pooler = family.table(_one_layer(config), (parts.POOLER,))
    if architecture == family.bare_architecture and all(
        checkpoint.shape_of(tensor) is None for tensor in pooler
    ):
        # transformers' BertModel may be made without a pooler.
        return dataclasses.replace(checkpoint, parts=(parts.ENCODER,))
    return checkpoint


def _one_layer(config):
    """Returns the configuration of the same model with one layer."""
    num_groups = None if config.num_hidden_groups is None else 1
    return dataclasses.replace(
        config, num_hidden_layers=1, num_hidden_groups=num_groups
    )


def _check_no_other_family(folder, family, named):
    """Raises `ValueError` if the class belongs to another family."""
    for other in families.FAMILIES:
        if set(other.architectures) & set(named):
            raise ValueError(
                f"{folder}/{config_json.CONFIG_FILE}: `architectures` must be "
                f"of the family {family.model_type}: one of "
                f"{', '.join(family.architectures)}. "
                f"Received: architectures={messages.shortened(named)}."
            )


def _check_no_own_code(folder, family, values):
    """Raises `ValueError` for a model that its author's code computes."""
    if values.get("auto_map"):
        received = messages.shortened(values.get("architectures"))
        raise ValueError(
            f"{folder}/{config_json.CONFIG_FILE}: `auto_map` names code of the "
            "model's author, which is not run. `architectures` must be one of "
            f"{', '.join(family.architectures)}. "
            f"Received: architectures={received}."
        )


def _check_weights(folder, found, architecture):
    if _WEIGHTS & found:
        return
    if _KERAS_FILE in found:
        command = _conversion(folder, architecture, ", from_tf=True")
        raise _tensorflow_error(f"{folder}/{_KERAS_FILE}", command)
    raise ValueError(
        f"{folder}: has none of "
        f"{', '.join(hugging_face_folder.WEIGHTS_FILES)}. "
        f"Found: {', '.join(sorted(found)) or 'nothing'}."
    )


def _check_not_tensorflow(container, architecture):
    """Raises `ValueError` for weights that a TensorFlow class has saved.

    Their names and layouts differ: no tensor would be found, and with
    `allow_partial` all weights would be new.
    """
    for name in (*container.shapes, *container.ignored):
        if name.endswith(":0"):
            command = _conversion(container.folder, architecture)
            raise _tensorflow_error(
                container.weights_path, command, f", such as {name},"
            )


def _tensorflow_error(path, command, example=""):
    return ValueError(
        f"{path}: weights of transformers' TensorFlow classes{example} are not "
        "read. Convert the folder where transformers 4, torch and tensorflow "
        f"are installed: {command}"
    )


def _conversion(folder, architecture, arguments=""):
    """Returns the command that writes safetensors in PyTorch's layout."""
    name = architecture or "AutoModel"
    return (
        f'python -c "from transformers import {name}; '
        f"{name}.from_pretrained('{folder}'{arguments})"
        f".save_pretrained('{folder}', safe_serialization=True)\""
    )


def _check_size(checkpoint):
    """Raises `ValueError` if the files hold far less than is configured."""
    config = checkpoint.config
    first = checkpoint.family.table(_one_layer(config), (parts.ENCODER,))
    num_tensors = 0
    num_weights = (checkpoint.num_labels or 0) * config.hidden_size
    for tensor in first:
        is_layer = tensor.keras.startswith("layer_0/")
        times = config.num_blocks if is_layer else 1
        num_tensors += times
        num_weights += times * math.prod(tensor.shape)
    stored = [math.prod(x) for x in checkpoint.container.shapes.values()]
    num_stored, num_stored_weights = len(stored), sum(stored)
    if (
        num_tensors > _MOST_TIMES * num_stored
        or num_weights > _MOST_TIMES * num_stored_weights
    ):
        raise ValueError(
            f"{checkpoint.container.weights_path}: must hold what its "
            f"configuration describes, {num_weights:,} weights in "
            f"{num_tensors:,} tensors "
            f"(num_hidden_layers={config.num_hidden_layers}, "
            f"hidden_size={config.hidden_size}, "
            f"vocab_size={config.vocab_size}, ...). Received: "
            f"{num_stored_weights:,} in {num_stored:,}."
        )
