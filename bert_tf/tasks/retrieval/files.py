"""Texts to train and evaluate sentence embeddings on, from files and tables.

Pairs and triplets  columns `query` or `anchor`, `positive`, and any number of
                    hard negatives: `negative`, `negative_1`, `negative_2`, ...
Scored pairs        columns `sentence1`, `sentence2` and `score`
NLI                 columns `sentence1` or `premise`, `sentence2` or
                    `hypothesis`, and `gold_label` or `label`: triplets of a
                    premise, what it entails and what contradicts it (Gao et
                    al. 2021, arXiv 2104.08821, section 4.1)
SQuAD               its .json: questions with their paragraphs
Texts               a .txt with a text a line, or a column `text`
"""

import dataclasses
import functools
import re
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf import messages
from bert_tf.tasks import columns
from bert_tf.tasks import tsv
from bert_tf.tasks.retrieval import corpora
from bert_tf.tasks.retrieval import negatives

SCORE_COLUMN = "score"
TEXT_COLUMN = "text"
_FIRST_COLUMNS = ("query", "anchor")
_POSITIVE = "positive"
_SENTENCES = ("sentence1", "sentence2")
_PREMISES = ("sentence1", "premise")
_HYPOTHESES = ("sentence2", "hypothesis")
_LABEL = "label"
_NLI_LABELS = ("gold_label", _LABEL)
_ENTAILMENT, _NEUTRAL, _CONTRADICTION = range(3)
# Hugging Face's numbers. "-" and -1 mean that the annotators did not agree.
_NLI_CLASSES = {
    "entailment": _ENTAILMENT,
    "neutral": _NEUTRAL,
    "contradiction": _CONTRADICTION,
    "0": _ENTAILMENT,
    "1": _NEUTRAL,
    "2": _CONTRADICTION,
    "-": None,
    "-1": None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalExamples:
    """Texts that belong together, perhaps with scores.

    Args:
        texts: The different texts.
        rows: int32 `[N, C]`, indices of texts: the query, its positive and
            its hard negatives.
        labels: float32 `[N]`, human scores, or None.
        is_ranking: Whether the positives must be found among all passages.
        others: int32 `[M]`, indices of more passages among which the positives
            must be found.
        path: Path of the file, or None.
    """

    texts: tuple[str, ...]
    rows: np.ndarray
    labels: np.ndarray | None = None
    is_ranking: bool = False
    others: np.ndarray
    path: str | None = None

    def __len__(self):
        return len(self.rows)

    @functools.cached_property
    def queries(self) -> np.ndarray:
        """The ascending indices of the texts that are queries, int `[Q]`."""
        return np.unique(self.rows[:, 0])

    @functools.cached_property
    def passages(self) -> np.ndarray:
        """The ascending indices of the texts that are passages, int `[P]`."""
        return np.unique([*self.rows[:, 1:].flatten(), *self.others])

    @property
    def pairs(self) -> np.ndarray:
        """int `[N, 2]`: each row's places in `queries` and `passages`."""
        return np.stack(
            [
                np.searchsorted(self.queries, self.rows[:, 0]),
                np.searchsorted(self.passages, self.rows[:, 1]),
            ],
            axis=1,
        )


class _Texts:
    """Numbers different texts."""

    def __init__(self):
        self._numbers = {}

    def number(self, where, name, text):
        """Returns a text's number; errors name `where` and `name`."""
        columns.check_full_text(where, name, text)
        return self._numbers.setdefault(text, len(self._numbers))

    def examples(self, rows, data, others=(), **values):
        return RetrievalExamples(
            texts=tuple(self._numbers),
            rows=np.array(rows, np.int32),
            others=np.array(others, np.int32),
            path=str(data) if columns.is_path(data) else None,
            **values,
        )


def read_texts(
    data: Any, text_columns: Sequence[str] = ()
) -> RetrievalExamples:
    """Reads single texts: each is its own positive.

    Args:
        data: A .txt with a text a line, or a table (see `tasks.columns`).
        text_columns: Name of the table's column, if it is not `text`.

    Raises:
        ValueError: If there are no texts, or one is empty or not a string. The
            message names the place.
    """
    texts, rows, name = _Texts(), [], TEXT_COLUMN
    if not _ends_with(data, ".txt"):
        if len(text_columns) > 1:
            raise ValueError(
                "`text_columns` must be one name if each text is its own "
                f"positive. Received: {', '.join(text_columns)}."
            )
        (name,) = text_columns or (TEXT_COLUMN,)
    for where, text in _single_texts(data, name):
        rows.append([texts.number(where, name, text)] * 2)
    if not rows:
        raise ValueError(f"There are no examples in {columns.title(data)}.")
    return texts.examples(rows, data)


def read_groups(
    data: Any,
    text_columns: Sequence[str] = (),
    is_ranking: bool = False,
    corpus: Iterable[files.AnyPath] = (),
    score_column: str = SCORE_COLUMN,
) -> RetrievalExamples:
    """Reads pairs, triplets, SQuAD's questions, or NLI.

    Args:
        data: A .json of SQuAD, or a table (see `tasks.columns`).
        text_columns: Names of the columns of the query, the positive and hard
            negatives, if they are not the usual ones.
        is_ranking: See `RetrievalExamples`.
        corpus: More files of passages among which the positives must be found:
            SQuAD's, .txt, or tables with a column `text`.
        score_column: Name that a column of human scores would have. Such
            tables are refused.

    Raises:
        ValueError: If the data have another form or have scores, a text is
            empty or not a string, or a negative is the query or the positive.
            The message names the place.
    """
    texts = _Texts()
    if _ends_with(data, ".json"):
        queries, passages, relevance = corpora.read_squad([data])
        rows = [
            [
                texts.number(data, "question", queries.texts[query]),
                texts.number(data, "context", passages.texts[passage]),
            ]
            for query, passage in zip(
                relevance.query_rows, relevance.corpus_rows
            )
        ]
        # Also the passages of unanswerable questions.
        others = [
            texts.number(data, "context", text) for text in passages.texts
        ]
    else:
        rows = _rows_of_table(data, text_columns, texts, score_column)
        others = []
    for path in corpus:
        others += [
            texts.number(where, TEXT_COLUMN, text)
            for where, text in _passages(path)
        ]
    return texts.examples(rows, data, sorted({*others}), is_ranking=is_ranking)


def _rows_of_table(data, text_columns, texts, score_column):
    """Returns the rows of pairs, triplets or NLI."""
    # Called once: a .jsonl is read whole for its names.
    found = columns.names_in(data)
    if not text_columns and (names := _nli_columns(found)) is not None:
        return _nli_rows(data, names, texts)
    if not text_columns:
        _check_has_no_scores(data, found, score_column)
    names = _group_columns(columns.title(data), found, text_columns)
    rows = []
    for where, values in columns.read(data, names):
        row = [
            texts.number(where, name, text) for name, text in zip(names, values)
        ]
        for name, text, value in zip(names[2:], row[2:], values[2:]):
            if text in row[:2]:
                raise ValueError(
                    f"{where}: `{name}` must be neither the query nor its "
                    f"positive. Received: {messages.shortened(value)}."
                )
        rows.append(row)
    return rows


def _check_has_no_scores(data, found, score_column):
    """Raises `ValueError` if a table has a column of scores."""
    for name in (score_column, _LABEL):
        if name in found:
            raise ValueError(
                f"{columns.title(data)}: has scores in the column {name!r}, "
                "but with this loss every second text would be a positive, "
                "whatever its score. To train on scored pairs, use "
                "--loss_name=cosent or cosine with --label_column. If all "
                "pairs are positives, name the columns of texts "
                "(--text_columns, or text_columns of the task). "
                f"Received: the columns {', '.join(found)}."
            )


def read_scored(
    data: Any,
    text_columns: Sequence[str] = (),
    score_column: str | None = SCORE_COLUMN,
    max_score: float = 1.0,
) -> RetrievalExamples:
    """Reads pairs of texts, with or without human scores.

    Args:
        data: A table (see `tasks.columns`).
        text_columns: Names of the two columns of texts, if they are neither
            `sentence1` and `sentence2` nor those of `read_groups`.
        score_column: Name of the column of scores; None not to read them.
        max_score: Divisor of the scores.

    Raises:
        ValueError: If there are no such columns, a text is empty or not a
            string, or a score is not a number. The message names the place.
    """
    names = list(text_columns)
    if not names:
        found = columns.names_in(data)
        names = [*_SENTENCES]
        if {*names} - {*found}:
            names = _group_columns(columns.title(data), found, ())
    if len(names) != 2:
        raise ValueError(
            f"{columns.title(data)}: there must be two columns of texts. "
            f"Received: {', '.join(names)}."
        )
    tsv.check_is_no_text(score_column, names)
    texts, rows, labels = _Texts(), [], []
    scores = [] if score_column is None else [score_column]
    for where, values in columns.read(data, [*names, *scores]):
        rows.append(
            [
                texts.number(where, name, text)
                for name, text in zip(names, values)
            ]
        )
        labels += [
            tsv.parse_score(where, value) / max_score for value in values[2:]
        ]
    return texts.examples(
        rows,
        data,
        labels=None if score_column is None else np.array(labels, np.float32),
    )


def has_scores(data: Any, score_column: str) -> bool:
    """Returns whether the data are a table with a column of scores."""
    return not _ends_with(data, ".json", ".txt") and (
        score_column in columns.names_in(data)
    )


def _ends_with(data, *suffixes):
    return columns.is_path(data) and str(data).lower().endswith(suffixes)


def _group_columns(title, found, text_columns):
    """Returns the columns of the query, the positive and the negatives."""
    names = list(text_columns)
    if not names:
        first = [name for name in _FIRST_COLUMNS if name in found]
        if first and _POSITIVE in found:
            others = negatives.find(title, found)
            names = [first[0], _POSITIVE, *sorted(others, key=_natural)]
        elif not {*_SENTENCES} - {*found}:
            names = [*_SENTENCES]
    if len(names) < 2:
        raise ValueError(
            f"{title}: there must be two columns of texts or more: `query`, "
            "`positive`, and perhaps `negative`. Columns with other names must "
            "be given (--text_columns, or text_columns of the task). "
            f"Received: {messages.shortened(names or found)}."
        )
    return names


def _natural(name):
    """Returns a key that sorts negative_2 before negative_10."""
    digits = re.sub(r"\D", "", name)
    return int(digits or 0), name


def _nli_columns(found):
    """Returns the three columns of NLI, or None for other tables."""
    names = []
    for choices in (_PREMISES, _HYPOTHESES, _NLI_LABELS):
        names += [name for name in choices if name in found][:1]
    return names if len(names) == 3 else None


def _nli_rows(data, names, texts):
    """Returns the triplets of NLI, in the order of their premises."""
    premises: dict[int, dict[int, list[int]]] = {}
    num_undecided = 0
    for where, (premise, hypothesis, label) in columns.read(data, names):
        if str(label) not in _NLI_CLASSES:
            raise ValueError(
                f"{where}: `{names[2]}` must be entailment, neutral or "
                f"contradiction. Received: {messages.shortened(label)}."
            )
        label = _NLI_CLASSES[str(label)]
        if label is None:
            num_undecided += 1
            continue
        if label == _NEUTRAL:
            continue
        number = texts.number(where, names[0], premise)
        own = premises.setdefault(number, {})
        own.setdefault(label, []).append(
            texts.number(where, names[1], hypothesis)
        )
    rows = []
    for premise, own in premises.items():
        positives = own.get(_ENTAILMENT, [])
        # On texts that are also entailments, annotators disagreed.
        others = [
            text
            for text in own.get(_CONTRADICTION, ())
            if text not in (premise, *positives)
        ]
        if others:
            # Each entailment gets one contradiction, in turn.
            rows += [
                [premise, positive, others[index % len(others)]]
                for index, positive in enumerate(positives)
            ]
    if not rows:
        raise ValueError(
            f"{columns.title(data)}: no premise has both an entailment and a "
            "contradiction."
        )
    logging.info(
        "%s: %d triplets of %d premises; left out %d rows without a label.",
        columns.title(data),
        len(rows),
        len(premises),
        num_undecided,
    )
    return rows


def _single_texts(data, name):
    """Yields (where, text) of a .txt's lines, or of a table's column."""
    if _ends_with(data, ".txt"):
        for number, text in tsv.full_lines(data):
            yield f"{data}, line {number}", text
    else:
        for where, (text,) in columns.read(data, [name]):
            yield where, text


def _passages(path):
    """Yields (where, text) of a file of passages."""
    if _ends_with(path, ".json"):
        _, passages, _ = corpora.read_squad([path])
        yield from ((str(path), text) for text in passages.texts)
    elif _ends_with(path, ".jsonl") and corpora.is_corpus(path):
        # Read as in a search, with titles.
        found = corpora.read_corpus(path)
        for name, text in zip(found.ids, found.texts):
            yield f"{path}, id {name}", text
    else:
        yield from _single_texts(path, TEXT_COLUMN)
