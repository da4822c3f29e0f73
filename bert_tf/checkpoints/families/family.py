"""What a family of models is made of: a plain description, and its table.

Shapes are those of the Keras variables, whose names every family shares.
"""

import dataclasses
import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

from bert_tf.checkpoints.containers import GOOGLE
from bert_tf.checkpoints.parts import POOLER
from bert_tf.checkpoints.transforms import IDENTITY
from bert_tf.checkpoints.transforms import Transform
from bert_tf.config import BertConfig


@dataclasses.dataclass(frozen=True)
class Stored:
    """What a tensor is called in files of one format, and how it lies there."""

    name: str
    transform: Transform = IDENTITY


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor:
    """A tensor of the model and where it is in files.

    Args:
        part: One of `parts`.
        keras: The end of the Keras variable's path.
        shape: Shape of the Keras variable.
        hugging_face: In a model.safetensors; the name has the `prefix`.
        google: In a TF1 checkpoint; None in a family that has none.
        first_row: Of the position embeddings, the row of the first position;
            None of all other tensors.
    """

    part: str
    keras: str
    shape: tuple[int, ...]
    hugging_face: Stored
    google: Stored | None = None
    first_row: int | None = None

    def stored(self, file_format: str) -> Stored:
        """Returns what it is in files of `GOOGLE` or `HUGGING_FACE`.

        Raises:
            ValueError: If the family has no such files.
        """
        stored = self.google if file_format == GOOGLE else self.hugging_face
        if stored is None:
            raise ValueError(f"{self.keras}: is in no files of Google's form.")
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
    """A family of models, as its files have it.

    Args:
        model_type: What its config.json says that it is.
        architectures: {class of transformers: its parts}. Several heads may
            be stored under one name: the class tells which one it is.
        bare_architecture: The class without a head.
        tensors: Function of a `BertConfig` and the outputs of a (token)
            classifier; yields the `Tensor` of every variable, in order.
        read_config: Function of the contents of a config.json, or of a
            `google_config_file`, a dictionary; returns the `BertConfig`.
            Raises `ValueError` for a key or a value that it does not know.
        write_config: The inverse for config.json.
        google_config_file: The file beside a TF1 checkpoint; None in a family
            that has none.
        write_google_config: The inverse for it. Raises `ValueError` for what
            it cannot express.
        prefix: What Hugging Face's names begin with, but in files of the
            `bare_architecture`.
        bare_names: Beginnings of the names that lack the prefix there.
        old_names: {pattern: replacement} of what older files call otherwise.
        buffers: Names, without the prefix, of what is no weight.
        tied: {name: name of the same tensor}; some files hold it twice.
        own_dropouts: {part: key of config.json} of heads in front of which
            there is a dropout that is a field of the family's configuration,
            `classifier_dropout_prob`. Of others the key is
            "classifier_dropout".
    """

    model_type: str
    architectures: dict[str, tuple[str, ...]]
    bare_architecture: str
    tensors: Callable[[BertConfig, int], Iterable[Tensor]]
    read_config: Callable[[dict[str, Any]], BertConfig]
    write_config: Callable[[BertConfig], dict[str, Any]]
    google_config_file: str | None = None
    write_google_config: Callable[[BertConfig], dict[str, Any]] | None = None
    prefix: str = ""
    bare_names: tuple[str, ...] = ()
    old_names: dict[str, str] = dataclasses.field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    tied: dict[str, str] = dataclasses.field(default_factory=dict)
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

        Models for tokens and spans also have a pooler, which they do not use
        and their class does not have.
        """
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
        """Returns the table's name for one in a file of Hugging Face's.

        None for a buffer, which is no weight.
        """
        if name.removeprefix(self.prefix) in self.buffers:
            return None
        for pattern, replacement in self.old_names.items():
            name = re.sub(pattern, replacement, name)
        if name.startswith(self.bare_names):
            name = self.prefix + name
        return name

    def file_name(self, name: str, architecture: str) -> str:
        """Returns the name that files of this class have for the table's."""
        if architecture == self.bare_architecture:
            return name.removeprefix(self.prefix)
        return name
