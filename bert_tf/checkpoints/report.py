"""What a load did with every tensor: the coverage report."""

import dataclasses
import re
from collections.abc import Collection
from typing import Any

import keras

from bert_tf.checkpoints import parts

LOADED = "loaded"
NEW = "new"
LEFT_OVER = "left over"
STATUSES = (LOADED, NEW, LEFT_OVER)

_LAYER_NUMBER = re.compile(r"(?<=layer[_.])\d+")


@dataclasses.dataclass(frozen=True)
class CoverageEntry:
    """A variable of the model, or a tensor or another file of the checkpoint.

    Args:
        status: `LOADED`, `NEW` (in the model, not in the checkpoint) or
            `LEFT_OVER` (in the checkpoint, not in the model).
        name: Path of the variable; for a tensor left over, its name in the
            file.
        shape: Shape of the variable, or of the tensor in the file; None for a
            file that is not a tensor.
        note: Where the values came from, or why there are none.
        part: Which of `parts` it belongs to; "" if unknown.
    """

    status: str
    name: str
    shape: tuple[int, ...] | None
    note: str = ""
    part: str = ""


@dataclasses.dataclass(frozen=True)
class CoverageReport:
    """Lists every variable, loaded or new, and every tensor left over.

    Args:
        path: The checkpoint.
        entries: One `CoverageEntry` for each.

    `str(report)` is a table.
    """

    path: str
    entries: tuple[CoverageEntry, ...]

    def names(self, status: str) -> tuple[str, ...]:
        """Returns the names of the entries with that status."""
        return tuple(
            entry.name for entry in self.entries if entry.status == status
        )

    def missing(
        self, model: keras.Model, new_parts: Collection[str] = ()
    ) -> list[str]:
        """Returns the names of trainable weights that were not loaded.

        Args:
            model: The model. A pooler that it does not use is not trainable,
                and does not count.
            new_parts: Names of `parts` that were not to be loaded.
        """
        trained = {variable.path for variable in model.trainable_variables}
        return [
            entry.name
            for entry in self.entries
            if entry.status == NEW
            and entry.part not in new_parts
            and entry.name in trained
        ]

    @property
    def summary(self) -> str:
        """One line: how many of each, and which parts are new or unused."""
        loaded, new, left_over = (
            [entry for entry in self.entries if entry.status == status]
            for status in STATUSES
        )
        return (
            f"{self.path}: loaded {len(loaded)} tensors; "
            f"{len(new)} initialised{_parts_of(new)}; "
            f"{len(left_over)} unused{_parts_of(left_over)}"
        )

    def __str__(self):
        rows = [("status", "name", "shape", "note"), *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join(
                [cell.ljust(width) for cell, width in zip(row, widths)]
                + [row[3]]
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.summary])

    def _rows(self):
        """One row for entries that layers share: "layer_{0-11}/..."."""
        layers: dict[tuple[Any, ...], list[int]] = {}
        for entry in self.entries:
            row = (
                entry.status,
                _LAYER_NUMBER.sub("{}", entry.name),
                _shape_text(entry.shape),
                _LAYER_NUMBER.sub("{}", entry.note),
            )
            layers.setdefault(row, []).extend(
                map(int, _LAYER_NUMBER.findall(entry.name))
            )
        return [
            tuple(cell.replace("{}", _ranges(numbers)) for cell in row)
            for row, numbers in layers.items()
        ]


def _shape_text(shape):
    if shape is None:
        return "file"
    return "x".join(map(str, shape)) or "scalar"


def _parts_of(entries):
    """Returns e.g. " (masked-LM head, pooler)", or "" if unknown."""
    found = sorted({parts.NAMES[entry.part] for entry in entries if entry.part})
    return f" ({', '.join(found)})" if found else ""


def _ranges(numbers):
    """Returns e.g. "3" or "{0-5,7}" for layer numbers."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    text = ",".join(
        str(first) if first == last else f"{first}-{last}"
        for first, last in ranges
    )
    return text if text.isdigit() else "{" + text + "}"
