"""Versions of files that one release writes and later ones read.

Every kind of file counts its own versions. They stand under the key
"format_version"; files from before there was one are of version 1. A release
reads all versions up to its own, and refuses later ones by name: what it does
not know in them it might answer wrongly without. So a version goes up with
every key that is added, renamed or given another meaning; no reader passes
over a key that it does not know. A file that needs none of what a version added
is written in the version before, for earlier releases. A training's other files
are read by the version in its train/model.json.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf import files

KEY = "format_version"

# By kind; the records' manifest has a version of its own.
# Version 2 may have a temperature or, of vectors, a truncate_dim.
TASK = 2
# Version 2 describes the tokenizer, of another kind than BERT's; version 3 has
# a hash of the examples of a fine-tuning; version 4 one of its tokenizer, of a
# teacher's and, where epochs are compared, one of the development sets; its
# epochs.json may have the step of the model.
TRAINING = 4
# Version 2 has all options, the hashes of the weights and the check's result.
EXPORT = 2
# The manifest of vectors in files.
VECTORS = 1


def stamped(values: dict[str, Any], version: int) -> dict[str, Any]:
    """Returns the values of a file with their version before them."""
    return {KEY: version} | values


def unstamped(
    path: files.AnyPath, values: Mapping[str, Any], version: int
) -> dict[str, Any]:
    """Returns the values of a file without their version, which is checked.

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
            f"release of bert_tf reads. Received: {files.shortened(found)}."
        )
    return values
