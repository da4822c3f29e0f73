"""The outputs of a servable, as each kind declares its own.

The declarations determine the signatures, what the check compares and how, and
the columns of the printed table. A test compares them with the table of outputs
in export/serving/README.md.
"""

import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import numpy as np

# The axis of a sequence's positions, as long as the batch's longest one.
LENGTH = "length"
_TEXT_WIDTH = 60


@dataclasses.dataclass(frozen=True)
class Output:
    """An output of signatures.

    Args:
        name: Its name in the signatures.
        dtype: "string", "int32", "bool" or "float32".
        axes: Names of its axes after that of the batch, separated by blanks.
        meaning: A description of one line.
        missing: The value where a row is shorter than the batch's longest, or
            has no answer.
        of_task: Returns whether a model that was tuned to a task has it; None
            if all models have it.
        of_option: The option that turns it on; None if it is always
            there.
        is_of_choice: Whether it is a number that belongs to the strings and
            integers beside it, and changes when others are chosen.
        heading: The heading of its column in the printed table; "" for no
            column.
        show: Returns the column's text for a row's answers {name: value}; None
            to print the number.
    """

    name: str
    dtype: str
    axes: str
    meaning: str
    _: dataclasses.KW_ONLY
    missing: Any = None
    of_task: Callable[[Any], bool] | None = None
    of_option: str | None = None
    is_of_choice: bool = False
    heading: str = ""
    show: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the check accepts only the same value, not a close one."""
        return self.dtype != "float32"

    def cell(self, answers: Mapping[str, Any]) -> str:
        """Returns its column's text for a row's answers {name: value}."""
        if self.show is None:
            return f"{answers[self.name]:.4f}"
        return self.show(answers)


IS_CUT = Output(
    name="is_cut",
    dtype="bool",
    axes="",
    meaning="whether part of the answer may be missing",
    heading="cut",
    show=lambda answers: "cut" if answers["is_cut"] else "",
)

# An option of the kinds that read the first tokens of a text, and the outputs
# that it adds.
COUNT_TOKENS = "count_tokens"
COUNTED = (
    Output(
        name="num_tokens",
        dtype="int32",
        axes="",
        meaning="with `--count_tokens`: how many tokens were read, [CLS] and "
        "[SEP] among them",
        of_option=COUNT_TOKENS,
        heading="tokens",
        show=lambda answers: str(answers["num_tokens"]),
    ),
    dataclasses.replace(
        IS_CUT,
        meaning="with `--count_tokens`: whether there is text that was not "
        "read",
        of_option=COUNT_TOKENS,
    ),
)


def show_text(*strings: bytes) -> str:
    """Returns strings for a cell of a table: in one line, shortened."""
    text = " | ".join(string.decode("utf-8", "replace") for string in strings)
    text = " ".join(text.split())
    if len(text) > _TEXT_WIDTH:
        text = text[: _TEXT_WIDTH - 3] + "..."
    return text


def show_span(start: int, limit: int) -> str:
    """Returns a span of characters as text, "" if there is none."""
    return f"{start}-{limit}" if start >= 0 else ""


def show_vector(vector: np.ndarray) -> str:
    """Returns a vector's first numbers, its size and its length."""
    first = ", ".join(f"{value:.3f}" for value in vector[:3])
    norm = np.linalg.norm(vector)
    return f"[{first}, ...] of {len(vector)}, norm {norm:.3f}"
