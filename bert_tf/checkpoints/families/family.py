"""Describes a family of models: plain data and a table of its tensors.

Shapes are those of the Keras variables, whose names all families share.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

from bert_tf.checkpoints.containers import GOOGLE
from bert_tf.checkpoints.parts import ENCODER
from bert_tf.checkpoints.parts import POOLER
from bert_tf.checkpoints.transforms import IDENTITY
from bert_tf.checkpoints.transforms import Transform
from bert_tf.config import BertConfig

# PyTorch's DataParallel puts this before every name.
_WRAPPER = "module."
# Older files have Google's names for the weights of LayerNorm.
_OLD_NAMES = {".gamma": ".weight", ".beta": ".bias"}


@dataclasses.dataclass(frozen=True)
class Stored:
    """The name and the layout of a tensor in files of one format."""

    name: str
    transform: Transform = IDENTITY


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of the model, and how files store it.

    Args:
        part: One of `parts`.
        keras: The end of the Keras variable's path.
        shape: Shape of the Keras variable.
        hugging_face: In a model.safetensors; the name has the `prefix`.
        google: In a TF1 checkpoint; None if the family has none.
        first_row: The row of the first position in the position embeddings;
            None for all other tensors.
    """

    part: str
    keras: str
    shape: tuple[int, ...]
    hugging_face: Stored
    google: Stored | None = None
    first_row: int | None = None

    def stored(self, file_format: str) -> Stored:
        """Returns how files of `GOOGLE` or `HUGGING_FACE` store it.

        Raises:
            ValueError: If the family has no such files.
        """
        stored = self.google if file_format == GOOGLE else self.hugging_face
        if stored is None:
            raise ValueError(f"{self.keras}: is not stored in Google's format.")
        return stored

    def name(self, file_format: str) -> str | None:
        """Returns its name in files of that format, None if it has none."""
        stored = self.google if file_format == GOOGLE else self.hugging_face
        return None if stored is None else stored.name

    def stored_shape(self, file_format: str) -> tuple[int, ...]:
        """Returns the shape in files of that format."""
        return self.stored(file_format).transform.file_shape(self.shape)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """A family of models, and how its files describe them.

    Args:
        model_type: Its name in config.json.
        architectures: {class of transformers: its parts}. Several heads may
            be stored under one name: the class tells which one it is.
        bare_architecture: The class that has no head.
        tensors: Function of a `BertConfig` and the outputs of a (token)
            classifier; yields the `Tensor` of every variable, in order.
        read_config: Function of the contents of a config.json, or of a
            `google_config_file`, a dictionary; returns the `BertConfig`.
            Raises `ValueError` for a value that is not supported.
        write_config: The inverse for config.json.
        known_keys: The keys of config.json that it reads, and others of
            released models that change nothing.
        google_config_file: The file beside a TF1 checkpoint; None if the
            family has none.
        config_of_google: Function of {name: shape} of a TF1 checkpoint without
            that file; returns its configuration, or None if it is of another
            family. None if the family's releases have the file.
        write_google_config: The inverse of `read_config` for that file. Raises
            `ValueError` for what the file cannot express. None if the family
            is never written in Google's format.
        prefix: What Hugging Face's names begin with, except in files of the
            `bare_architecture`.
        bare_names: Beginnings of the names that lack the prefix there.
        buffers: Names, without the prefix, of tensors that are not weights.
        tied: {name: name of the same tensor}; some files hold it twice, or
            only under the first of these names.
        other_nets: {beginning of a name: its net}, if files hold other nets
            besides the model.
        own_dropouts: {part: key of config.json} of heads whose dropout is the
            configuration's `classifier_dropout_prob`. For other heads the key
            is "classifier_dropout".
    """

    model_type: str
    architectures: dict[str, tuple[str, ...]]
    bare_architecture: str
    tensors: Callable[[BertConfig, int], Iterable[Tensor]]
    read_config: Callable[[dict[str, Any]], BertConfig]
    write_config: Callable[[BertConfig], dict[str, Any]]
    known_keys: Collection[str] = ()
    google_config_file: str | None = None
    config_of_google: (
        Callable[[dict[str, tuple[int, ...]]], BertConfig | None] | None
    ) = None
    write_google_config: Callable[[BertConfig], dict[str, Any]] | None = None
    prefix: str = ""
    bare_names: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    tied: dict[str, str] = dataclasses.field(default_factory=dict)
    other_nets: dict[str, str] = dataclasses.field(default_factory=dict)
    own_dropouts: dict[str, str] = dataclasses.field(default_factory=dict)

    def table(
        self,
        config: BertConfig,
        parts: Collection[str] | None = None,
        num_labels: int = 2,
    ) -> tuple[Tensor, ...]:
        """Returns the `Tensor` of every variable of these parts.

        Args:
            config: The `BertConfig` that gives the shapes.
            parts: Some of `parts`, or None for all.
            num_labels: Outputs of the (token) classifier.
        """
        return tuple(
            tensor
            for tensor in self.tensors(config, num_labels)
            if parts is None or tensor.part in parts
        )

    def architecture_of(self, parts: Collection[str]) -> str:
        """Returns the class of transformers for a model with these parts.

        Models for tokens and spans also have a pooler. They do not use it, and
        their class has none.
        """
        if set(parts) == {ENCODER}:
            return self.bare_architecture
        for architecture, its_parts in self.architectures.items():
            if set(its_parts) == set(parts) or (
                POOLER not in its_parts and {*its_parts, POOLER} == set(parts)
            ):
                return architecture
        raise ValueError(
            "No model of Hugging Face has exactly these parts: "
            f"{', '.join(parts)}."
        )

    def table_name(self, name: str) -> str | None:
        """Returns the table's name for a name in a file of Hugging Face's.

        None for a buffer, which is not a weight.
        """
        name = name.removeprefix(_WRAPPER)
        if name.removeprefix(self.prefix) in self.buffers:
            return None
        for old, new in _OLD_NAMES.items():
            if name.endswith(old):
                name = name.removesuffix(old) + new
        if name.startswith(self.bare_names):
            name = self.prefix + name
        return name

    def file_name(self, name: str, architecture: str) -> str:
        """Returns the name in files of a class for a name in the table."""
        if architecture == self.bare_architecture:
            return name.removeprefix(self.prefix)
        return name
