"""Reads SQuAD's questions from JSON or tables, and writes answers as JSON."""

import dataclasses
import json
from typing import Any

import numpy as np
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf.tasks import columns

# Warnings about single questions; any more are only counted.
_MAX_WARNINGS = 5
# An answer is searched for in whole words, but in no more than this many
# characters to either side: text without white space is one long word.
_MAX_WORD = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadExamples:
    """Questions about texts.

    Args:
        ids: N different ids.
        questions: N strings.
        contexts: The different texts.
        context_indices: int32 `[N]`: which text each question is about.
        answer_starts: int32 `[N]`: the character where the answer to learn
            begins, or -1 if there is none.
        answer_limits: int32 `[N]`: the character after its last one, or -1.
        answers: For each question its right answers, empty if it has none;
            None if the file does not have answers to all questions.
    """

    ids: tuple[str, ...]
    questions: tuple[str, ...]
    contexts: tuple[str, ...]
    context_indices: np.ndarray
    answer_starts: np.ndarray
    answer_limits: np.ndarray
    answers: tuple[tuple[str, ...], ...] | None

    def __len__(self):
        return len(self.ids)

    def context(self, index: int) -> str:
        """Returns the text that a question is about."""
        return self.contexts[self.context_indices[index]]

    def check_scorable(self, title: str, version_2_with_negative: bool) -> None:
        """Checks that answers to these questions can be scored.

        Args:
            title: The beginning of the message: where the questions come from.
            version_2_with_negative: Whether questions may have no answer.

        Raises:
            ValueError: If the answers are not known, or a question has none
                without `version_2_with_negative`.
        """
        if self.answers is None:
            raise ValueError(
                f"{title}: has questions without answers, which cannot be "
                "scored."
            )
        num_empty = self.answers.count(())
        if num_empty and not version_2_with_negative:
            name = self.ids[self.answers.index(())]
            raise ValueError(
                f"{title}: {num_empty:,} of {len(self):,} questions have no "
                f"answer; the first has the id {messages.shortened(name)}. If "
                "this is SQuAD 2.0, --version_2_with_negative must be given "
                "(from Python, version_2_with_negative=True)."
            )


def read_squad(
    data: Any,
    version_2_with_negative: bool,
    is_training: bool,
    verbose_logging: bool = False,
    answers_column: str | None = "answers",
) -> SquadExamples:
    """Reads SQuAD 1.1 or 2.0: its JSON, or a table (see `tasks.columns`).

    A table has the columns of Hugging Face's `squad` and `squad_v2`: strings
    `id`, `context` and `question`, and `answers`, each an object with lists
    `text` and `answer_start`, empty where the question has no answer.

    In training, an answer that is not where the file says is looked for in the
    words at that place. If it is not found, the question is left out, with a
    warning, as in google-research/bert.

    Differs from BERT: of several answers the first is learned, whereas the
    original refuses the file.

    Args:
        data: The path of a file, or a table.
        version_2_with_negative: Whether questions may have no answer.
        is_training: Whether the answers are to be learned.
        verbose_logging: Whether to warn of every question left out, instead
            of only the first few and their number.
        answers_column: Name of a table's column of answers; None to read no
            answers.

    Returns:
        `SquadExamples`.

    Raises:
        ValueError: If a file is missing, not JSON or not of this form, has no
            question or has an id twice, or if an answer is missing in
            training. The message names the file and the path in it, or the row
            and the column.
    """
    title = columns.title(data)
    if columns.may_have_lists(data):
        questions = _rows(data, answers_column)
    else:
        questions = _questions(files.read_json(data))
    try:
        return _Reader(
            title, version_2_with_negative, is_training, verbose_logging
        ).read(questions)
    except _FormError as error:
        raise ValueError(f"{title}: {error}") from None


def read_paragraphs(data: Any) -> tuple[str, ...]:
    """Reads the paragraphs of SQuAD's files, even those without questions.

    Args:
        data: See `read_squad`.

    Returns:
        The different texts, in their order.

    Raises:
        ValueError: If a file is missing or not of this form; the message names
            the file and the path in it, or the row and the column.
    """
    title = columns.title(data)
    if columns.may_have_lists(data):
        texts = [context for _, _, context in _rows(data, None)]
        return tuple(dict.fromkeys(texts))
    try:
        paragraphs = _paragraphs(files.read_json(data))
        texts = [
            _get(paragraph, "context", str, place)
            for paragraph, place in paragraphs
        ]
    except _FormError as error:
        raise ValueError(f"{title}: {error}") from None
    return tuple(dict.fromkeys(texts))


def write_json(path: files.AnyPath, value: Any) -> None:
    """Writes JSON as google-research/bert does, whole or not at all.

    Raises:
        ValueError: If a number is not finite, which JSON cannot express.
    """
    try:
        text = json.dumps(value, indent=4, allow_nan=False)
    except ValueError:
        raise ValueError(
            f"{path}: scores must be finite numbers. Received others: the "
            "model's weights may have diverged."
        ) from None
    atomic.write_text(path, f"{text}\n")


class _FormError(Exception):
    """Something in the file is missing or of the wrong kind."""


class _Reader:
    def __init__(self, title, may_lack_answer, is_training, verbose_logging):
        self._title = title
        self._may_lack_answer = may_lack_answer
        self._is_training = is_training
        self._max_warnings = np.inf if verbose_logging else _MAX_WARNINGS
        self._num_left_out = 0
        self._contexts = {}
        self._rows = {}
        self._has_answers = True

    def read(self, questions):
        for question, place, context in questions:
            index = self._contexts.setdefault(context, len(self._contexts))
            self._add(question, place, context, index)
        if self._num_left_out:
            logging.warning(
                "%s: left out %d of the questions: their answers are not in "
                "the text.",
                self._title,
                self._num_left_out,
            )
        if not self._rows:
            raise _FormError("there is no question in it.")
        columns = list(zip(*self._rows.values()))
        questions, indices, starts, limits, answers = columns
        return SquadExamples(
            ids=tuple(self._rows),
            questions=questions,
            contexts=tuple(self._contexts),
            context_indices=np.array(indices, np.int32),
            answer_starts=np.array(starts, np.int32),
            answer_limits=np.array(limits, np.int32),
            answers=answers if self._has_answers else None,
        )

    def _add(self, question, place, context, index):
        name = _get(question, "id", str, place)
        text = _get(question, "question", str, place)
        if name in self._rows:
            raise _FormError(
                f"{place}.id must be unique. "
                f"Received: id={messages.shortened(name)}."
            )
        is_impossible = (
            self._may_lack_answer
            and "is_impossible" in question
            and _get(question, "is_impossible", bool, place)
        )
        answers = []
        if "answers" in question or (self._is_training and not is_impossible):
            answers = [
                (
                    _get(answer, "text", str, place_of),
                    _get(answer, "answer_start", int, place_of),
                )
                for answer, place_of in _items(question, "answers", place)
            ]
        elif not is_impossible:
            self._has_answers = False
        span = (-1, -1)
        if self._is_training and not is_impossible:
            if not answers:
                raise _FormError(
                    f"{place}.answers must have an answer in training"
                    + (
                        "."
                        if self._may_lack_answer
                        else ", except with version_2_with_negative."
                    )
                )
            span = _find_answer(context, *answers[0])
            if span is None:
                self._leave_out(name, answers[0][0], place)
                return
        gold = () if is_impossible else tuple(answer for answer, _ in answers)
        self._rows[name] = (text, index, *span, gold)

    def _leave_out(self, name, answer, place):
        self._num_left_out += 1
        if self._num_left_out <= self._max_warnings:
            logging.warning(
                "%s: %s (id %s): could not find the answer %s in the text.",
                self._title,
                place,
                messages.shortened(name),
                messages.shortened(answer),
            )


def _questions(content):
    """Yields (question, its path in the file, context) of SQuAD's JSON."""
    for paragraph, place in _paragraphs(content):
        context = _get(paragraph, "context", str, place)
        for question, place_of in _items(paragraph, "qas", place):
            yield question, place_of, context


def _paragraphs(content):
    """Returns (paragraph, its path in the file) of all of SQuAD's JSON."""
    # A list, so that all paragraphs are checked before any question.
    return [
        item
        for entry, place in _items(content, "data", "")
        for item in _items(entry, "paragraphs", place)
    ]


def _rows(table, answers_column):
    """Yields (question as in SQuAD's JSON, name of the row, context)."""
    title = columns.title(table)
    texts = ("id", "context", "question")
    names = [*texts, *([] if answers_column is None else [answers_column])]
    for where, values in columns.read(table, names):
        for name, text in zip(texts, values):
            columns.check_text(where, name, text)
        name, context, text, *answers = values
        question = {"id": name, "question": text}
        if answers:
            pairs = _pairs(where, answers_column, *answers)
            question["answers"] = [
                {"text": text, "answer_start": start} for text, start in pairs
            ]
            question["is_impossible"] = not pairs
        # Messages about the question begin with the file's name anyway.
        yield question, where.removeprefix(f"{title}, "), context


def _pairs(where, name, answers):
    """Returns (text, start) of each of a row's answers."""
    parts: list[Any] = [
        answers.get(part) if isinstance(answers, dict) else None
        for part in ("text", "answer_start")
    ]
    if not all(isinstance(part, list) for part in parts) or len(
        parts[0]
    ) != len(parts[1]):
        raise ValueError(
            f"{where}: `{name}` must be an object with lists `text` and "
            "`answer_start` of one length. "
            f"Received: {messages.shortened(answers)}."
        )
    return list(zip(*parts))


def _find_answer(context, answer, start):
    """Returns (start, limit) of an answer in the text, or None.

    If it is not at `start`, the words there, between white space, are searched.
    If they have it only with other white space, the span is all of these words.
    """
    limit = start + len(answer)
    words = answer.split()
    if start < 0 or limit > len(context) or not words:
        return None
    if context[start:limit] == answer:
        return start, limit
    first = max(0, start - _MAX_WORD)
    last = min(len(context), limit + _MAX_WORD)
    while start > first and not context[start - 1].isspace():
        start -= 1
    while limit < last and not context[limit].isspace():
        limit += 1
    place = context.find(answer, start, limit)
    if place >= 0:
        return place, place + len(answer)
    found = context[start:limit]
    if " ".join(words) not in " ".join(found.split()):
        return None
    return start + len(found) - len(found.lstrip()), start + len(found.rstrip())


def _items(value, key, place):
    """Returns (entry, its path in the file) for all entries of a list."""
    items = _get(value, key, list, place)
    path = f"{place}.{key}" if place else key
    return [(item, f"{path}[{index}]") for index, item in enumerate(items)]


_KINDS = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "a list",
}


def _get(value, key, kind, place):
    if not isinstance(value, dict):
        raise _FormError(
            f"{place or 'the top level'} must be an object. "
            f"Received: {messages.shortened(value)}."
        )
    path = f"{place}.{key}" if place else key
    if key not in value:
        raise _FormError(f"{path} is missing.")
    if type(value[key]) is not kind:
        raise _FormError(
            f"{path} must be {_KINDS[kind]}. "
            f"Received: {messages.shortened(value[key])}."
        )
    return value[key]
