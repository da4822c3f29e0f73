"""The identity of a training: what must be the same to resume it."""

import dataclasses
import hashlib
import json
import math
from typing import Any

import numpy as np

from bert_tf import manifest
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.training import checkpointing

# A resumed run may have more epochs than it began with.
EPOCHS = "num_train_epochs"
# Fields of examples that say where they are from, which no model sees.
_OF_THE_FILE = ("path", "lines", "line_indices", "separator", "has_header")


def examples_hash(examples: Any) -> str:
    """Returns the SHA-256 of texts and labels in their order, hexadecimal.

    Args:
        examples: A dataclass of strings, numbers, arrays, and tuples and lists
            of these.
    """

    def plain(value):
        if not isinstance(value, (np.ndarray, np.generic)):
            raise TypeError(f"Examples must not have a {type(value)}.")
        return value.tolist()

    digest = hashlib.sha256()
    for field in dataclasses.fields(examples):
        if field.name not in _OF_THE_FILE:
            values = [field.name, getattr(examples, field.name)]
            digest.update(json.dumps(values, default=plain).encode())
    return digest.hexdigest()


def tokenizer_hash(tokenizer: Spec) -> str:
    """Returns the SHA-256 of a tokenizer, hexadecimal; ignores lower-casing."""
    text = json.dumps(
        [tokenizer.vocabulary.to_text(), tokenizer_files.describe(tokenizer)]
    )
    return manifest.text_sha256(text)


def check_same(
    output_dir: str,
    found: dict[str, Any],
    flags: dict[str, Any],
    others: dict[str, Any],
) -> None:
    """Checks that the training in the output folder is this one.

    Args:
        output_dir: The folder.
        found: What the training there was begun with, {name: value}.
        flags: {name of a flag: JSON-able value}.
        others: {name: JSON-able value} of what no single flag sets.

    Raises:
        ValueError: If it is no fine-tuning, or was begun with different values.
            Only the number of epochs may have been smaller.
    """
    checkpointing.check_kind(output_dir, found, others)
    # As JSON returns them: lists instead of tuples.
    wanted = json.loads(json.dumps(flags | others))
    differences = []
    for name in sorted(found.keys() | wanted.keys()):
        old, new = found.get(name), wanted.get(name)
        is_raised = name == EPOCHS and new > (old or math.inf)
        if old == new or is_raised:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            differences += [
                f"{name}: {key} was {old.get(key)!r} and is {new.get(key)!r}"
                for key in sorted(old.keys() | new.keys())
                if old.get(key) != new.get(key)
            ]
        else:
            flag = name if name in others else f"--{name}"
            differences.append(f"{flag} was {old!r} and is {new!r}")
    if differences:
        raise ValueError(
            f"{output_dir} holds a training that was begun with other "
            f"settings: {'; '.join(differences)}. Give the same settings to "
            "resume it, or another --output_dir to begin anew. "
            f"Only --{EPOCHS} may be raised."
        )
