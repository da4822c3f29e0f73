"""The identity of a training: what must be the same to resume it."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import TypeAlias

import numpy as np
from absl import logging

from bert_tf import manifest
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.source import is_dev
from bert_tf.tasks.task import Task
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.training import checkpointing
from bert_tf.training import settings as settings_lib
from bert_tf.tuning.config import FineTuningConfig

# A resumed run may have more epochs than it began with.
EPOCHS = "num_train_epochs"
# A fact: each epoch has its own last batch.
WHOLE_EPOCHS = "whole_epochs"
# Fields of examples that say where they are from, which no model sees.
_FILE_FIELDS = ("path", "lines", "line_indices", "separator", "has_header")

# {name: function that returns a hash}. Hashing large sets takes a while, so
# only what is needed is hashed.
Hashes: TypeAlias = Mapping[str, Callable[[], str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingIdentity:
    """What a training and a run that resumes it must have in common.

    Args:
        flags: {name of a flag: JSON-able value}.
        others: {name: JSON-able value} of what no single flag sets.
        hashes: The `Hashes` of what is too long to keep.
        compares_epochs: Whether epochs are compared by their scores.
    """

    flags: Mapping[str, Any]
    others: Mapping[str, Any]
    hashes: Hashes
    compares_epochs: bool

    def describe(
        self, output_dir: str, found: dict[str, Any] | None
    ) -> dict[str, Any]:
        """Returns the description of the training, {name: JSON-able value}.

        Args:
            output_dir: The output folder.
            found: What the training there was begun with, {name: value}; None
                if there is none.

        Raises:
            ValueError: As for `check_same`.
        """
        # Older releases did not write these; then they are not compared.
        names = self._new_hashes() if found is None else found
        flags = dict(self.flags)
        others = dict(self.others) | {
            name: make() for name, make in self.hashes.items() if name in names
        }
        if found is not None:
            check_same(output_dir, found, flags, others)
        return flags | others

    def _new_hashes(self):
        """Returns the names of the hashes that a new training keeps."""
        names = set(self.hashes)
        # Scores on different examples cannot be compared.
        if not self.compares_epochs:
            names.discard(checkpointing.DEV_EXAMPLES)
        return names


def identify(
    config: FineTuningConfig,
    start: StartingPoint,
    task: Task,
    sources: Mapping[str, Any],
    *,
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    hashes: Hashes,
) -> TrainingIdentity:
    """Returns the `TrainingIdentity` of a fine-tuning.

    Args:
        config: The `FineTuningConfig`.
        start: The `StartingPoint`.
        task: The `Task`.
        sources: {split: `Source`}.
        settings: More flags, {name: JSON-able value}.
        facts: More of what no single flag sets, {name: JSON-able value}.
        hashes: More `Hashes`.
    """
    source = sources[TRAIN]
    return TrainingIdentity(
        flags={
            "init_checkpoint": start.init_checkpoint,
            "do_lower_case": start.tokenizer.do_lower_case,
            **config.training_settings(),
            **settings,
        },
        others={
            "config": start.config.to_dict(),
            "task": task.to_dict(),
            "num_train_examples": source.num_examples,
            "num_epoch_examples": task.num_epoch_examples(source),
            **facts,
        },
        hashes={
            checkpointing.EXAMPLES: lambda: examples_hash(source.examples),
            checkpointing.TOKENIZER_HASH: lambda: tokenizer_hash(
                start.tokenizer
            ),
            **hashes,
            checkpointing.DEV_EXAMPLES: lambda: _dev_hash(sources),
        },
        compares_epochs=config.compares_epochs,
    )


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
    encoder = json.JSONEncoder(default=plain)
    for field in dataclasses.fields(examples):
        if field.name not in _FILE_FIELDS:
            values = [field.name, getattr(examples, field.name)]
            # Piece by piece: all at once would be copies of all examples.
            for piece in encoder.iterencode(values):
                digest.update(piece.encode())
    return digest.hexdigest()


def _dev_hash(sources):
    """Returns the SHA-256 of the development sets, hexadecimal."""
    hashes = {
        split: examples_hash(source.examples)
        for split, source in sources.items()
        if is_dev(split)
    }
    return manifest.text_sha256(json.dumps(hashes, sort_keys=True))


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
    is_raised = wanted.get(EPOCHS, 0) > (found.get(EPOCHS) or math.inf)
    differences = settings_lib.differences(
        found,
        wanted,
        exempt=(EPOCHS,) if is_raised else (),
        flags=(found.keys() | wanted.keys()) - others.keys(),
    )
    if differences:
        raise ValueError(
            f"{output_dir} holds a training that was begun with other "
            f"settings: {'; '.join(differences)}. Give the same settings to "
            "resume it, or another --output_dir to begin anew. "
            f"Only --{EPOCHS} may be raised."
        )


def warn_of_more_epochs(
    before: float, now: float, step: int, num_train_steps: int
) -> None:
    """Warns if a resumed training has more epochs than it began with.

    Args:
        before, now: The numbers of epochs.
        step: The step at which the training is resumed.
        num_train_steps: The number of steps now.
    """
    if before == now:
        return
    logging.warning(
        "--num_train_epochs was %g before and is %g now: from step %d on, the "
        "learning rate follows the schedule of %d steps. The weights will not "
        "be those of a training begun with %g epochs.",
        before,
        now,
        step,
        num_train_steps,
        now,
    )
