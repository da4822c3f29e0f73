r"""Files of multiple-choice questions, told apart by the ends of their names.

    .csv    SWAG's: a header with sent1, sent2, ending0, ending1, ... and label;
            the context is sent1, a choice is sent2 with an ending
    .tsv    CODAH's: category, beginning, its choices, and the number of the
            right one, without header and without quoting
    .jsonl  {"context": "...", "choices": ["...", "..."], "label": 0} a line

Labels count from 0. A file to predict needs none: SWAG's then has no column
`label`, CODAH's an empty last field, and an object no key "label".
"""

import dataclasses

import numpy as np

from bert_tf import files
from bert_tf.tasks import class_names
from bert_tf.tasks import tsv

# How SWAG's endings are called: with a number from 0 at the end.
_ENDING = "ending"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceExamples:
    """Contexts with choices.

    Args:
        contexts: N strings.
        choices: N rows of C strings.
        labels: int32 `[N]`, numbers of the right choices, or None.
    """

    contexts: tuple[str, ...]
    choices: tuple[tuple[str, ...], ...]
    labels: np.ndarray | None

    def __len__(self):
        return len(self.contexts)

    @property
    def num_choices(self):
        """C."""
        return len(self.choices[0])


def read_choices(path, has_labels=True, num_choices=None):
    """Reads a file of one of the three forms.

    Args:
        path: The file.
        has_labels: Whether the labels are read; if not they may be missing.
        num_choices: How many choices each row must have; as many as the first
            one if None.

    Returns:
        `ChoiceExamples`.

    Raises:
        ValueError: If the file is missing, of no known form or without
            examples, a row has another number of choices, or its label is
            none of them. The message names file and line.
    """
    path = str(path)
    read_rows = next(
        (
            reader
            for suffix, reader in _READERS.items()
            if path.endswith(suffix)
        ),
        None,
    )
    if read_rows is None:
        raise ValueError(
            f"{path}: the name must end with {', '.join(_READERS)}."
        )
    contexts, choices, labels = [], [], []
    num_stripped = 0
    for line, context, choices_of_row, label in read_rows(path):
        where = f"{path}, line {line}"
        num_choices = num_choices or len(choices_of_row)
        if len(choices_of_row) != num_choices or num_choices < 2:
            wanted = num_choices if num_choices > 1 else "two or more"
            raise ValueError(
                f"{where}: a row must have {wanted} choices. "
                f"Received: {len(choices_of_row)}."
            )
        contexts.append(context)
        choices.append(tuple(choices_of_row))
        if has_labels:
            if isinstance(label, str):
                num_stripped += label != label.strip()
                label = label.strip()
            labels.append(_parse_label(where, label, num_choices))
    if not contexts:
        raise ValueError(f"{path}: there are no examples in the file.")
    class_names.log_stripped(path, num_stripped)
    return ChoiceExamples(
        contexts=tuple(contexts),
        choices=tuple(choices),
        labels=np.array(labels, np.int32) if has_labels else None,
    )


def write_predictions(path, answers):
    """Writes a TSV with a header: every example's choice and probabilities.

    Args:
        path: The file, written whole or not at all.
        answers: {name: array}, of `MultipleChoiceTask.decode`.
    """
    probabilities = answers["probabilities"]
    header = [
        "choice",
        *(f"probability_{index}" for index in range(probabilities.shape[1])),
    ]
    rows = [header] + [
        [str(choice), *map(str, row)]
        for choice, row in zip(answers["choice"], probabilities)
    ]
    files.write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def _swag_rows(path):
    """Yields (line number, context, choices, label or None)."""
    rows = tsv.csv_rows(path)
    _, header = next(rows, (1, []))
    columns = {}
    for index, name in enumerate(header):
        columns.setdefault(name, index)
    endings = []
    while f"{_ENDING}{len(endings)}" in columns:
        endings.append(columns[f"{_ENDING}{len(endings)}"])
    for name in ("sent1", "sent2", f"{_ENDING}0"):
        if name not in columns:
            raise ValueError(
                f"{path}, line 1: the header must have a column {name!r}. "
                f"Received: {files.shortened(header)}."
            )
    first, second = columns["sent1"], columns["sent2"]
    label = columns.get("label")
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: a row must have "
                f"{len(header)} columns. Received: {len(row)}."
            )
        yield (
            line,
            row[first],
            [f"{row[second]} {row[ending]}".strip() for ending in endings],
            None if label is None else row[label],
        )


def _codah_rows(path):
    for line, text in tsv.full_lines(path):
        fields = text.split("\t")
        if len(fields) < 3:
            raise ValueError(
                f"{path}, line {line}: a row must have a category, a "
                "beginning, its choices and a label. "
                f"Received: {len(fields)} columns."
            )
        yield line, fields[1], fields[2:-1], fields[-1]


def _json_rows(path):
    for line, text in tsv.full_lines(path):
        where = f"{path}, line {line}"
        row = files.parse_json(text, where)
        is_good = (
            isinstance(row, dict)
            and isinstance(row.get("context"), str)
            and isinstance(row.get("choices"), list)
            and all(isinstance(choice, str) for choice in row["choices"])
        )
        if not is_good:
            raise ValueError(
                f"{where}: must be an object with a string `context` and a "
                f"list of strings `choices`. Received: {text[:60]}"
            )
        yield line, row["context"], row["choices"], row.get("label")


def _parse_label(where, label, num_choices):
    try:
        number = int(label)
    except (OverflowError, TypeError, ValueError):
        number = -1
    # JSON's true and 1.5 are no numbers of choices.
    if not 0 <= number < num_choices or str(label) != str(number):
        raise ValueError(
            f"{where}: the label must be a choice's number, from 0 to "
            f"{num_choices - 1}. Received: {files.shortened(label)}."
        )
    return number


_READERS = {".csv": _swag_rows, ".tsv": _codah_rows, ".jsonl": _json_rows}
SUFFIXES = tuple(_READERS)
