"""The options of an export, which the export also records."""

import dataclasses
import numbers
import os
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from bert_tf import files
from bert_tf.tasks.features.options import CLS
from bert_tf.tasks.features.options import MAX
from bert_tf.tasks.features.options import MEAN
from bert_tf.text.tokenizers import added_tokens

# What clients can send: strings, ids and Examples, or ids alone.
TEXT = "text"
IDS = "ids"
CONTENTS = (TEXT, IDS)

# What is served: the task of the model, or a kind that needs no task.
TASK = "task"
RERANKER = "reranker"
TOKEN_EMBEDDINGS = "token_embeddings"
KINDS = (
    TASK,
    "encoder",
    "embedding",
    TOKEN_EMBEDDINGS,
    RERANKER,
    "fill_mask",
    "preprocessor",
)

# Values of the setting `embedding`: how the vector is made.
LAST_FOUR = "last_four"
EMBEDDINGS = (CLS, MEAN, MAX, LAST_FOUR)

# Loading a large model, or answering a large batch, takes a tenth of this.
TIMEOUT_SECONDS = 600

FLOAT32, BFLOAT16 = "float32", "bfloat16"
PRECISIONS = (FLOAT32, BFLOAT16)

# The least values. A sequence has at least [CLS], a piece and [SEP].
_LEAST = {"max_seq_length": 3, "timeout_seconds": 1, "keep_versions": 1}


def _has_type(*types: type) -> Callable[[Any], bool]:
    """Returns a function that tells whether a value is of one of the types."""
    return lambda value: type(value) in types


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    """Returns a function that tells whether a value is a list of a type."""
    return lambda value: (
        isinstance(value, list | tuple)
        and all(type(item) is kind for item in value)
    )


# Checks: a function that tells whether a value is good, and what a good one is.
OBJECT = (_has_type(dict), "a dictionary")
_STRING = (_has_type(str), "a string")
_BOOL = (_has_type(bool), "true or false")
_INTEGER = (_has_type(int), "an integer")
_NUMBER = (_has_type(int, float), "a number")
_INTEGERS = (_is_list_of(int), "a list of integers")
_NAMES = (_is_list_of(str), "a list of names")
# {field of `ExportOptions`: its check}
CHECKS = {
    "settings": OBJECT,
    "bounds": OBJECT,
    "contents": _STRING,
    "kind": _STRING,
    "tokens_in_text": _STRING,
    "precision": _STRING,
    "check_file": _STRING,
    "label_column": _STRING,
    "token_column": _STRING,
    "is_frozen": _BOOL,
    "is_checked": _BOOL,
    "max_seq_length": _INTEGER,
    "keep_versions": _INTEGER,
    "timeout_seconds": _NUMBER,
    "max_accuracy_loss": _NUMBER,
    "warmup_batch_sizes": _INTEGERS,
    "text_features": _NAMES,
}
# {type of a setting's default: the check of its values}
_CHECKS_OF_TYPES = {str: _STRING, bool: _BOOL, int: _INTEGER}


def check_setting(name: str, value: Any, default: Any) -> None:
    """Raises `ValueError` unless a setting is of the type of its default."""
    _check(name, value, _CHECKS_OF_TYPES[type(default)])


def _check(name, value, check):
    is_good, expected = check
    if not is_good(value):
        raise ValueError(
            f"`{name}` must be {expected}. "
            f"Received: {name}={files.shortened(value)}."
        )


def _plain(value):
    """Converts a value for JSON, which has neither NumPy's numbers nor paths.

    A value that cannot be converted is returned as it is.
    """
    if isinstance(value, bool | bytes):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, Iterable):
        return tuple(map(_plain, value))
    return value


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How a model folder becomes a version of a servable.

    Args:
        contents: One of `CONTENTS`: signatures of strings, ids and Examples,
            or of ids only, which load without tensorflow_text.
        kind: One of `KINDS`. If None, the task that the model was tuned to, or
            an encoder if there is none.
        settings: {name: value} of arguments that the kind takes.
        bounds: {name: integer} of the kind's limits for a request; what
            exceeds them is cut.
        max_seq_length: Longest sequence, at least 3; the folder's if None.
        text_features: Names of the one or two input strings if no task.json
            has them; ("text",) if empty.
        tokens_in_text: Which tokens are found in texts, as in `Preprocessor`;
            the folder's choice if None.
        precision: One of `PRECISIONS`: the arithmetic of the model's layers,
            and the form of their weights.
        is_frozen: Whether the SavedModel keeps the weights as constants of the
            graph, which answers faster, instead of variables, which can be
            trained further.
        is_checked: Whether to load the SavedModel in a process of its own
            before it is published, and to compare its answers to the hard texts
            with the trained model's.
        check_file: None, or a file of further texts to compare on; see
            `Servable.read_texts`.
        label_column: Name of the column of labels if the `check_file` is a
            table; the usual one of the task if None. For a tagger, the column
            of tags, by name or by number.
        token_column: For a tagger, likewise the column of words.
        max_accuracy_loss: By how much the task's score on the `check_file` may
            be lower than the trained model's, from 0 to 1; None for no limit.
        timeout_seconds: The check's timeout, at least 1, as in
            `caller.calling`; `TIMEOUT_SECONDS` if None.
        warmup_batch_sizes: Batch sizes that the server warms up with, one
            request per signature; needs tensorflow-serving-api.
        keep_versions: How many versions stay: the one written, and the highest
            of the others; None for all.

    Raises:
        ValueError: If a value has the wrong type, is out of range, or
            conflicts with another.

    Example:

        >>> from bert_tf import ExportOptions
        >>> options = ExportOptions(
        ...     kind="embedding", settings={"normalize": True}, keep_versions=3
        ... )
        >>> options.contents, options.precision
        ('text', 'float32')
    """

    contents: str = TEXT
    kind: str | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    bounds: Mapping[str, int] = dataclasses.field(default_factory=dict)
    max_seq_length: int | None = None
    text_features: tuple[str, ...] = ()
    tokens_in_text: str | None = None
    precision: str = FLOAT32
    is_frozen: bool = False
    is_checked: bool = True
    check_file: str | os.PathLike[str] | None = None
    label_column: str | None = None
    token_column: str | None = None
    max_accuracy_loss: float | None = None
    timeout_seconds: float | None = None
    warmup_batch_sizes: tuple[int, ...] = ()
    keep_versions: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.text_features, (str, bytes)):
            raise ValueError(
                "`text_features` must be a tuple of names. "
                f"Received: text_features={self.text_features!r}."
            )
        for field in dataclasses.fields(self):
            value = _plain(getattr(self, field.name))
            if value is not None or field.default is not None:
                _check(field.name, value, CHECKS[field.name])
            object.__setattr__(self, field.name, value)
        for name, values in (
            ("contents", CONTENTS),
            ("precision", PRECISIONS),
        ):
            value = getattr(self, name)
            if value not in values:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(values)}. "
                    f"Received: {name}={value!r}."
                )
        if self.tokens_in_text is not None:
            added_tokens.check_choice(self.tokens_in_text)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            # With `not`, NaN is refused too.
            if value is not None and not value >= least:
                raise ValueError(
                    f"`{name}` must be at least {least}. "
                    f"Received: {name}={value}."
                )
        for name in ("check_file", "timeout_seconds", "max_accuracy_loss"):
            value = getattr(self, name)
            if value is not None and not self.is_checked:
                raise ValueError(
                    f"`{name}` must not be given without the check. "
                    f"Received: {name}={value}."
                )
        loss = self.max_accuracy_loss
        if loss is not None and not 0 <= loss <= 1:
            raise ValueError(
                "`max_accuracy_loss` must be from 0 to 1. "
                f"Received: max_accuracy_loss={loss}."
            )
        for name in ("label_column", "token_column", "max_accuracy_loss"):
            value = getattr(self, name)
            if value is not None and self.check_file is None:
                raise ValueError(
                    f"`{name}` must be given with a `check_file`. "
                    f"Received: {name}={value!r}, check_file=None."
                )
        if any(size < 1 for size in self.warmup_batch_sizes):
            raise ValueError(
                "`warmup_batch_sizes` must be positive numbers. "
                f"Received: warmup_batch_sizes={self.warmup_batch_sizes}."
            )

    @property
    def dtype(self) -> str | None:
        """The Keras dtype policy of the model; None for its own."""
        return None if self.precision == FLOAT32 else self.precision

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ExportOptions":
        """Returns the options that an export was made with.

        Args:
            values: The export's settings; those of older releases lack some
                fields.
        """
        fields = (field.name for field in dataclasses.fields(cls))
        return cls(**{name: values[name] for name in fields if name in values})
