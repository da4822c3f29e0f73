"""Finds names of classes in data, matches and lists them."""

import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf import messages

_MOST_LISTED = 20
_MAX_SHOWN = 40
_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


def name_of(where: str, label: Any) -> str:
    """Returns the name of a label that is a string or a whole number.

    Args:
        where: The beginning of the message.
        label: A string, an int, or a bool, which counts as 1 or 0.

    Raises:
        ValueError: If it is something else.
    """
    if type(label) not in (str, int, bool):
        raise ValueError(
            f"{where}: the label must be a name or an integer. "
            f"Received: {messages.shortened(label)}."
        )
    return str(int(label)) if isinstance(label, bool) else str(label).strip()


def found(title: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the different names in data, sorted, and logs them.

    Args:
        title: What the data are called.
        names: The names, as often as they occur. If all are whole numbers,
            they are sorted as numbers.
    """
    labels = sorted({*names})
    if all(map(_INTEGER.fullmatch, labels)):
        labels.sort(key=int)
    logging.info("%s: found the labels %s.", title, listed(labels))
    return tuple(labels)


def are_names(labels: Iterable[str]) -> bool:
    """Returns whether labels mean the same in other tasks, as words do.

    Numbers do not: "1" is acceptable in CoLA and positive in SST-2. Nor does
    the output of a regression, which has no labels.
    """
    return any(not _NUMBER.fullmatch(label) for label in labels)


def match(
    names: Sequence[str], labels: Sequence[str], synonyms: Sequence[str] = ()
) -> tuple[int, ...] | None:
    """Finds every class of a task among the names it has elsewhere.

    Names are compared as they are and, if that is not enough, without regard
    to case and surrounding blanks.

    Args:
        names: The classes' names elsewhere, in the order there.
        labels: The task's names, by class id.
        synonyms: Other names, if any, by class id.

    Returns:
        A tuple with the position in `names` of each of the `labels`; None if
        `names` are transformers' LABEL_0, LABEL_1, ..., which say nothing.

    Raises:
        ValueError: If the classes differ; the message lists both.
    """
    for spelled in (str, lambda name: str(name).strip().casefold()):
        found = [spelled(name) for name in names]
        for wanted in ([spelled(name) for name in labels], synonyms):
            if len({*found}) == len(found) and sorted(found) == sorted(wanted):
                return tuple(map(found.index, wanted))
    if found == [f"label_{index}" for index in range(len(labels))]:
        return None
    raise ValueError(
        f"the classes must be {listed(labels)}"
        + (f" or {listed(synonyms)}" if synonyms else "")
        + f", in any order. Received: {listed(names)}."
    )


def listed(names: Iterable[Any]) -> str:
    """Returns names as messages list them: the first ones, long ones cut."""
    names = list(map(str, names))
    shown = [
        name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}..."
        for name in names[:_MOST_LISTED]
    ]
    if len(names) > _MOST_LISTED:
        shown.append(f"... ({len(names):,} in all)")
    return ", ".join(shown)


def log_stripped(where: files.AnyPath, num_stripped: int) -> None:
    """Logs how many labels had blanks around them, if any had."""
    if num_stripped:
        logging.warning(
            "%s: stripped the blanks around %d of the labels.",
            where,
            num_stripped,
        )


def ranked(
    names: Sequence[str], probabilities: np.ndarray
) -> list[dict[str, Any]]:
    """Returns a {"label", "score"} for each class, the likeliest first.

    Args:
        names: The names of the classes.
        probabilities: float32 `[K]`.
    """
    order = np.argsort(-probabilities, kind="stable")
    return [
        {"label": names[place], "score": float(probabilities[place])}
        for place in order
    ]
