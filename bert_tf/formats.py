"""Versions of files that one release writes and later ones read.

Every kind of file has its own versions. They are stored under the key
"format_version"; a file without one has version 1. A release reads all versions
up to its own. It refuses later versions, because ignoring what it does not know
might give wrong answers. Therefore a version goes up with every key that is
added, renamed or given another meaning, and no reader ignores an unknown key. A
file that needs nothing new is written in the older version, so that earlier
releases can read it. The version in a training's train/model.json holds for the
other files of the training, too.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_tf import messages

KEY = "format_version"

# The latest version of each kind. The records' manifest has separate versions.
# task.json: version 2 may have a temperature or, for vectors, a truncate_dim.
TASK = 2
# train/model.json: version 2 describes a tokenizer that is not BERT's kind.
# Version 3 has a hash of a fine-tuning's examples. Version 4 has hashes of its
# tokenizer, of a teacher's tokenizer and, if epochs are compared, of the
# development sets; its epochs.json may have the step of the model.
TRAINING = 4
# The manifest of an export: version 2 has all options, the hashes of the
# weights and the result of the check. Version 3 has the options under the names
# of their flags, and the family of the task.
EXPORT = 3
# The manifest of vectors in files.
VECTORS = 1

# Metadata of a dataclass's field that is in files only if it is not the
# default, so that files without it are as earlier releases wrote them.
STORED_IF_SET = {"is_stored_if_set": True}


def is_optional(field: dataclasses.Field[Any]) -> bool:
    """Returns whether files may lack a field."""
    return field.metadata.get("is_stored_if_set", False)


def is_stored(field: dataclasses.Field[Any], value: Any) -> bool:
    """Returns whether a file has a field, given the field's value."""
    return not is_optional(field) or value != field.default


def stamped(values: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns the values of a file with the version in front."""
    return {KEY: version} | values


def unstamped(
    path: str | os.PathLike[str], values: Mapping[str, Any], version: int
) -> dict[str, Any]:
    """Checks the version of a file; returns the values without it.

    Args:
        path: The file, for the message.
        values: A dictionary, as the file has it.
        version: The latest version that this release reads.

    Raises:
        ValueError: If the file is of a later version.
    """
    values = dict(values)
    found = values.pop(KEY, 1)
    if type(found) is not int or not 1 <= found <= version:
        raise ValueError(
            f"{path}: `{KEY}` must be at most {version}, the latest that this "
            f"release of bert_tf reads. Received: {messages.shortened(found)}."
        )
    return values
