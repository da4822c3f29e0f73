"""What a load did with every tensor: the coverage report."""

import dataclasses

LOADED = "loaded"
NEW = "new"
LEFT_OVER = "left over"
STATUSES = (LOADED, NEW, LEFT_OVER)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoverageEntry:
    """One variable of the model, or one tensor of the checkpoint.

    Args:
        status: `LOADED`, `NEW` (in the model, not in the checkpoint) or
            `LEFT_OVER` (in the checkpoint, not in the model).
        name: Path of the variable; of a tensor left over its name in the file.
        shape: Shape of the variable, or of the tensor in the file.
        note: Where the values came from, or why they did not come.
    """

    status: str
    name: str
    shape: tuple[int, ...]
    note: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoverageReport:
    """Every variable loaded or newly made, every tensor left over.

    Args:
        path: The checkpoint.
        entries: One `CoverageEntry` for each.

    `str()` of it is a table.
    """

    path: str
    entries: tuple[CoverageEntry, ...]

    def names(self, status):
        """Returns the names of the entries with that status."""
        return tuple(
            entry.name for entry in self.entries if entry.status == status
        )

    @property
    def summary(self):
        """One line: how many of each, and which parts are new."""
        counts = ", ".join(
            f"{len(self.names(status))} {status}" for status in STATUSES
        )
        return f"{self.path}: {counts}"

    def __str__(self):
        rows = [
            (
                entry.status,
                entry.name,
                "x".join(map(str, entry.shape)) or "scalar",
                entry.note,
            )
            for entry in self.entries
        ]
        rows.insert(0, ("status", "name", "shape", "note"))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = [
            "  ".join(
                [cell.ljust(width) for cell, width in zip(row, widths)]
                + [row[3]]
            ).rstrip()
            for row in rows
        ]
        return "\n".join([*lines, self.summary])
