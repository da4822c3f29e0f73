"""What a run was begun with, compared with what it is resumed with.

Its settings may change and are kept beside its checkpoints, in settings.json: a
list of {"from_step", "settings"}. A checkpoint was made with the settings of
the last entry whose step is before its own. A folder of an older release has no
such file; its runs resume without a comparison.
"""

import json
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages

_FILE = "settings.json"

# How the best model is found. It changes nothing in the training.
EVALUATION = "evaluation"

ATTENTION_MASKS = "attention_masks"
# Those of releases that did not store them, and of short rows.
MASKS_OF_ALL_QUERIES = "one for all queries"

# What follows if one of these settings differs.
_CONSEQUENCES = (
    (
        {
            "learning_rate",
            "learning_rate_decay",
            "learning_rate_drop",
            "num_decay_steps",
            "num_train_steps",
            "num_warmup_steps",
        },
        "The learning rate follows the new schedule from step {step} on.",
    ),
    (
        {"input_shares", "random_seed", "records"},
        "From number {example} on, the examples come in another order: some of "
        "this epoch may come twice, others not at all.",
    ),
    (
        {"train_batch_size"},
        "Reading continues at example {example}, in batches of the new size.",
    ),
    (
        {EVALUATION},
        "Earlier evaluations are not compared with new ones: the next one "
        "replaces the best model so far.",
    ),
)


def records_of(folder: str) -> set[str]:
    """Returns what stands for each set of records that a run has read.

    Args:
        folder: Path of the run's checkpoints. If it has no settings, there are
            none.
    """
    path = f"{folder}/{_FILE}"
    entries = files.read_json(path) if files.exists(path) else []
    return {
        records
        for entry in entries
        for records in entry["settings"].get("records", [])
    }


class RunSettings:
    """The settings of a run, and those that its checkpoints were made with.

    Args:
        folder: Path of the checkpoints.
        settings: A JSON-able dictionary; if it is empty, nothing is kept. A
            list has one value for each phase of the run, in order.

    Attributes:
        values: These settings, as they come back from JSON.
    """

    def __init__(self, folder: str, settings: Mapping[str, Any]) -> None:
        self._path = f"{folder}/{_FILE}"
        # As they come back from the file: tuples are lists there.
        self.values: dict[str, Any] = json.loads(json.dumps(settings))
        self._first_step = 0
        self._entries: list[dict[str, Any]] = []
        self._is_written = False

    def find(self, step: int) -> None:
        """Reads the settings that the checkpoint of this step was made with.

        Raises:
            ValueError: If the file is damaged.
        """
        self._first_step, self._entries, self._is_written = step, [], False
        if not self.values or not files.exists(self._path):
            return
        try:
            for entry in files.read_json(self._path):
                if entry["from_step"] < step:
                    dict(entry["settings"])
                    self._entries.append(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self._path}: not the settings of a run. Remove the file to "
                "resume without a comparison."
            ) from error

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Returns {name: (old, new)} of the settings that have changed.

        Another setting that only one side has comes from another release and
        is left out. So is a list that has only become longer.
        """
        old = (
            _with_masks(self._entries[-1]["settings"]) if self._entries else {}
        )
        return {
            name: (old[name], value)
            for name, value in self.values.items()
            if name in old and not _extends(value, old[name])
        }

    @property
    def since(self) -> int:
        """The step since which the run has had these settings."""
        if self._entries and self._entries[-1]["settings"] == self.values:
            return self._entries[-1]["from_step"]
        return self._first_step

    def of_step(self, step: int) -> tuple[int, dict[str, Any]]:
        """Returns the settings that a step was made with, and since when.

        The step from which the run was resumed has those of the run before.

        Returns:
            (first step, settings).
        """
        if step <= self._first_step and self._entries:
            entry = self._entries[-1]
            return entry["from_step"], entry["settings"]
        return self.since, self.values

    def write(self) -> None:
        """Writes the file; call it before the first checkpoint of the run."""
        if not self.values or self._is_written:
            return
        entry = {"from_step": self._first_step, "settings": self.values}
        if not self._entries or self._entries[-1]["settings"] != self.values:
            self._entries.append(entry)
        text = json.dumps(self._entries, indent=2) + "\n"
        atomic.write_text(self._path, text)
        self._is_written = True


def _with_masks(settings):
    """Returns settings with the masks of releases that did not store them."""
    masks: Any = MASKS_OF_ALL_QUERIES
    if isinstance(settings.get("train_batch_size"), list):
        masks = [masks] * len(settings["train_batch_size"])
    return {ATTENTION_MASKS: masks} | settings


def _extends(value, old):
    if isinstance(value, list) and isinstance(old, list):
        return value[: len(old)] == old
    return value == old


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    exempt: Collection[str] = (),
    flags: Collection[str] = (),
) -> list[str]:
    """Returns what differs between two descriptions of a training.

    Args:
        old: What the training was begun with, {name: JSON-able value}.
        new: What it would be resumed with.
        exempt: Names whose values may differ.
        flags: Names of flags, which are written as such.

    Returns:
        Texts such as "--train_batch_size was 4 and is 2", by name. Of
        dictionaries they name the keys that differ.
    """
    texts = []
    for name in sorted((old.keys() | new.keys()) - set(exempt)):
        before, now = old.get(name), new.get(name)
        if before == now:
            continue
        if isinstance(before, dict) and isinstance(now, dict):
            texts += [f"{name}: {text}" for text in differences(before, now)]
            continue
        # What only one side has may be long, e.g. ELECTRA's generator.
        show = repr if name in old and name in new else messages.shortened
        flag = f"--{name}" if name in flags else name
        texts.append(f"{flag} was {show(before)} and is {show(now)}")
    return texts


def _text(value):
    """Returns e.g. "8", or "8, 4" for two phases."""
    values = value if isinstance(value, list) else [value]
    return ", ".join(map(str, values)) or "none"


def are_meant(changes: Mapping[str, tuple[Any, Any]]) -> bool:
    """Returns whether only the run's length or its evaluation has changed."""
    return changes.keys() <= {"num_train_steps", EVALUATION}


def describe(
    changes: Mapping[str, tuple[Any, Any]], step: int, example: int
) -> str:
    """Returns what has changed and what follows from it, for the log.

    Args:
        changes: Not empty, as `RunSettings.changes` returns them.
        step: Number of the step from which the run is resumed.
        example: Number of its first example.
    """
    message = "; ".join(
        f"{name} {_text(old)} -> {_text(new)}"
        for name, (old, new) in changes.items()
    )
    sentences = [f"Resuming from step {step} with other settings: {message}."]
    if not are_meant(changes):
        sentences.append("The run no longer equals an uninterrupted one.")
    sentences += [
        text.format(step=step, example=example)
        for names, text in _CONSEQUENCES
        if names & changes.keys()
    ]
    return " ".join(sentences)
