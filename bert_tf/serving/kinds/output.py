"""The answers of a servable, as each kind declares its own.

From what is declared follow the signatures, what the check compares and how,
the columns of the printed table, and the table of outputs in
export/serving/README.md, which a test holds to it.
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
    """What is answered under one name.

    Args:
        name: Its name in the signatures.
        dtype: "string", "int32", "bool" or "float32".
        axes: Names of its axes after that of the batch, with blanks between.
        meaning: A line for people.
        missing: What stands where a row has less than the batch's longest, or
            no answer.
        of_task: Returns whether a model that was tuned to a task has it; None
            where all have.
        of_setting: The setting of the kind with which it is there; None where
            it always is.
        is_of_choice: Whether it is a number that belongs to the strings and
            integers beside it: where another is chosen it is another's.
        heading: Of its column in the printed table; "" for none.
        show: Returns what stands there, of a row's answers {name: value}; None
            for the number.
    """

    name: str
    dtype: str
    axes: str
    meaning: str
    _: dataclasses.KW_ONLY
    missing: Any = None
    of_task: Callable[[Any], bool] | None = None
    of_setting: str | None = None
    is_of_choice: bool = False
    heading: str = ""
    show: Callable[[Mapping[str, Any]], str] | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the check takes no other value, and not one close to it."""
        return self.dtype != "float32"

    def cell(self, answers: Mapping[str, Any]) -> str:
        """Returns what stands in its column, of a row's {name: value}."""
        if self.show is None:
            return f"{answers[self.name]:.4f}"
        return self.show(answers)


IS_CUT = Output(
    *("is_cut", "bool", "", "whether part of the answer may be missing"),
    heading="cut",
    show=lambda answers: "cut" if answers["is_cut"] else "",
)

# A setting of the kinds that read the first tokens of a text, and what they
# answer with it.
COUNT_TOKENS = "count_tokens"
COUNTED = (
    Output(
        *("num_tokens", "int32", ""),
        "with `--count_tokens`: how many tokens were read, [CLS] and [SEP] "
        "among them",
        of_setting=COUNT_TOKENS,
        heading="tokens",
        show=lambda answers: str(answers["num_tokens"]),
    ),
    dataclasses.replace(
        IS_CUT,
        meaning="with `--count_tokens`: whether there is text that was not "
        "read",
        of_setting=COUNT_TOKENS,
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
    """Returns the places of characters, "" of no span."""
    return f"{start}-{limit}" if start >= 0 else ""


def show_vector(vector: np.ndarray) -> str:
    """Returns a vector's first numbers, its size and its length."""
    first = ", ".join(f"{value:.3f}" for value in vector[:3])
    norm = np.linalg.norm(vector)
    return f"[{first}, ...] of {len(vector)}, norm {norm:.3f}"
