"""Class and labels in config.json; `families` reads the architecture."""

from collections.abc import Sequence
from typing import Any

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import families
from bert_tf.checkpoints import parts
from bert_tf.checkpoints.families.family import Family
from bert_tf.config import BertConfig

CONFIG_FILE = "config.json"


def _are_names(value):
    return isinstance(value, list) and all(isinstance(x, str) for x in value)


def _is_fraction(value):
    return type(value) in (int, float) and 0 <= value < 1


def _is_object_of_names(value):
    return isinstance(value, dict) and not any(
        isinstance(name, (dict, list)) for name in value.values()
    )


def _is_positive(value):
    return type(value) is int and value > 0


# {key of config.json: (check of a value, description of a valid one)}
_CHECKS = {
    "architectures": (_are_names, "a list of names"),
    "classifier_dropout": (_is_fraction, "a number in [0, 1)"),
    "id2label": (_is_object_of_names, "an object of names"),
    "num_labels": (_is_positive, "a positive integer"),
}


def is_name(value: Any) -> bool:
    """Returns whether a value can be a class's name, in files and in exports.

    Half a surrogate pair, which Python's strings may have, cannot be written.
    """
    try:
        return isinstance(value, str) and value.encode("utf-8") != b""
    except UnicodeEncodeError:
        return False


def read(folder: str) -> dict[str, Any]:
    """Returns the contents of a folder's config.json, a dictionary.

    Raises:
        ValueError: If the class, the labels or the dropout of their layer has
            a value that transformers never writes; the message names the file.
    """
    path = f"{folder}/{CONFIG_FILE}"
    return files.checked(path, files.read_object(path), _CHECKS)


def num_labels(values: dict[str, Any]) -> int:
    """Returns the number of labels that a config.json declares."""
    labels = values.get("id2label")
    if labels is None:
        # transformers does not write its default of two labels.
        return values.get("num_labels") or 2
    return len(labels)


def label_names(values: dict[str, Any], folder: str) -> tuple[str, ...] | None:
    """Returns the label names in the order of their ids; None without any.

    Raises:
        ValueError: If the ids are not 0, 1, 2, ...; the message names the
            config.json of the folder.
    """
    labels = values.get("id2label")
    if labels is None:
        return None
    ids = [str(index) for index in range(len(labels))]
    if labels.keys() != set(ids):
        raise ValueError(
            f"{folder}/{CONFIG_FILE}: `id2label` must have the ids 0, 1, 2, "
            f"... Received: id2label={messages.shortened(labels)}."
        )
    return tuple(labels[label_id] for label_id in ids)


def name_fields(names: Sequence[str]) -> dict[str, Any]:
    """Returns the config.json entries of label names, given in order."""
    return {
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }


# Values of a classifier's "problem_type", other than one label out of several.
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


def make(
    family: Family,
    config: BertConfig,
    architecture: str,
    *,
    pad_id: int,
    num_labels: int | None,
    labels: Sequence[str] | None,
    classifier_dropout: float | None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """Returns the contents of config.json, a dictionary.

    Args:
        family: The `Family`.
        config: The `BertConfig`.
        architecture: A class of the family.
        pad_id: Id of the padding token.
        num_labels: None, or the number of outputs of the (token) classifier.
        labels: None, or the names of the labels, in order.
        classifier_dropout: None, or the dropout in front of the classifier
            or the multiple-choice head.
        problem_type: transformers' name for the classifier's problem; None
            where the number of outputs implies it.
    """
    values = {"architectures": [architecture]} | families.write_config(config)
    values["pad_token_id"] = pad_id
    its_parts = family.architectures[architecture]
    is_choice = parts.MULTIPLE_CHOICE in its_parts
    if num_labels is not None or (is_choice and classifier_dropout is not None):
        keys = [family.own_dropouts.get(part) for part in its_parts]
        key = next(filter(None, keys), "classifier_dropout")
        values[key] = classifier_dropout
    if num_labels is not None:
        names = labels or [f"LABEL_{index}" for index in range(num_labels)]
        values |= name_fields(names)
        if num_labels == 1 and parts.CLASSIFIER in its_parts:
            problem_type = problem_type or REGRESSION
        if problem_type is not None:
            values["problem_type"] = problem_type
    return values
