"""Texts, queries, and which texts answer them, from files.

BEIR's layout (Thakur et al. 2021, arXiv 2104.08663):

corpus.jsonl     {"_id": "4983", "title": "...", "text": "..."} on each line;
                 the title is optional. "title text" is embedded
queries.jsonl    {"_id": "1", "text": "..."} on each line
qrels/test.tsv   query-id, corpus-id, score: a header, then a pair on each line

SQuAD's files: the questions are the queries, and each is answered by its
paragraph.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Sequence

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf import messages
from bert_tf import progress_bar
from bert_tf.tasks import columns
from bert_tf.tasks import tsv
from bert_tf.tasks.question_answering import files as squad_files

_ID, _TITLE, _TEXT = "_id", "title", "text"
_QUERY, _CORPUS, _SCORE = "query-id", "corpus-id", "score"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Texts:
    """Texts with ids: a corpus, or queries.

    Args:
        ids: N different strings.
        texts: N strings, none of them empty.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __len__(self):
        return len(self.ids)

    @functools.cached_property
    def sha256(self) -> str:
        """The hexadecimal SHA-256 of all ids and texts in their order."""
        digest = hashlib.sha256()
        for pair in zip(self.ids, self.texts):
            for part in pair:
                data = part.encode("utf-8")
                # The length distinguishes "ab", "c" from "a", "bc".
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
        return digest.hexdigest()

    def take(self, rows: Sequence[int] | np.ndarray) -> "Texts":
        """Returns the texts with these indices, in this order."""
        return Texts(
            ids=tuple(self.ids[row] for row in rows),
            texts=tuple(self.texts[row] for row in rows),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relevance:
    """Which texts of a corpus answer which queries.

    Args:
        query_rows: int64 `[P]`, indices of queries, in ascending order.
        corpus_rows: int64 `[P]`, indices of texts. Each pair occurs once.
        grades: float64 `[P]` above 0: how relevant the text is.
    """

    query_rows: np.ndarray
    corpus_rows: np.ndarray
    grades: np.ndarray

    def __len__(self):
        return len(self.query_rows)

    @property
    def queries(self) -> np.ndarray:
        """The indices of the queries with a relevant text, int64."""
        return np.unique(self.query_rows)

    def by_query(self, values: np.ndarray) -> list[np.ndarray]:
        """Splits values of pairs, `[P]`, into an array for each query."""
        starts = np.unique(self.query_rows, return_index=True)[1]
        return np.split(values, starts[1:])


def read_corpus(path: files.AnyPath) -> Texts:
    """Reads a corpus.jsonl, plain or .gz, .xz, .bz2.

    Raises:
        ValueError: If the file is missing, damaged or without texts; or if a
            line is not such an object, repeats an id, or has no text. The
            message names the file and the line.
    """
    return _read_texts(path, _TITLE)


def is_corpus(path: files.AnyPath) -> bool:
    """Returns whether a file of JSON lines has BEIR's ids and texts."""
    _, first = next(columns.json_lines(path), (0, {}))
    return all(isinstance(first.get(name), str) for name in (_ID, _TEXT))


def read_queries(path: files.AnyPath) -> Texts:
    """Reads a queries.jsonl; raises the same errors as `read_corpus`."""
    return _read_texts(path, None)


def _read_texts(path, title_name):
    lines: dict[str, int] = {}
    texts = []
    with progress_bar.track(
        columns.json_lines(path), f"read {path}", unit="line"
    ) as rows:
        for number, row in rows:
            name, text = _read_text(f"{path}, line {number}", row, title_name)
            if name in lines:
                raise ValueError(
                    f"{path}, line {number}: each `{_ID}` must occur once. "
                    f"Received: {messages.shortened(name)}, which is also in "
                    f"line {lines[name]}."
                )
            lines[name] = number
            texts.append(text)
    if not texts:
        raise ValueError(f"{path}: there are no texts in the file.")
    return Texts(ids=tuple(lines), texts=tuple(texts))


def _read_text(where, row, title_name):
    """Returns the id and the text of an object."""
    for name in (_ID, _TEXT):
        if not isinstance(row.get(name), str):
            raise ValueError(
                f"{where}: must have a string `{name}`. "
                f"Received: {name}={messages.shortened(row.get(name))}."
            )
    name, parts = row[_ID], [row[_TEXT]]
    if title_name is not None and row.get(title_name) is not None:
        columns.check_text(where, title_name, row[title_name])
        parts.insert(0, row[title_name])
    text = " ".join(part for part in parts if part.strip())
    if not text:
        raise ValueError(
            f"{where}: the text must not be empty. "
            f"Received: {_ID}={messages.shortened(name)}."
        )
    return name, text


def read_relevance(
    path: files.AnyPath, queries: Texts, corpus: Texts
) -> Relevance:
    """Reads which texts are relevant, from a file like BEIR's qrels.

    Pairs with a score of 0 or less were judged not relevant, and are left out.

    Args:
        path: The file.
        queries: The queries that it names.
        corpus: The texts that it names.

    Raises:
        ValueError: If the file is missing or malformed, has an unknown id,
            repeats a pair, or has no relevant pair. The message names the file
            and the line.
    """
    rows_of = [
        {name: row for row, name in enumerate(texts.ids)}
        for texts in (queries, corpus)
    ]
    table = tsv.TsvFile(
        name=str(path), text_columns=(_QUERY, _CORPUS), label_column=_SCORE
    )
    lines: dict[tuple[int, int], int] = {}
    pairs = []
    for number, names, score in tsv.rows(path, table):
        where = f"{path}, line {number}"
        for title, name, rows in zip(("query", "text"), names, rows_of):
            if name not in rows:
                raise ValueError(
                    f"{where}: there is no {title} with this id. "
                    f"Received: {messages.shortened(name)}."
                )
        pair = (rows_of[0][names[0]], rows_of[1][names[1]])
        if pair in lines:
            raise ValueError(
                f"{where}: each pair must occur once. Received: "
                f"{messages.shortened(names)}, which is also in line "
                f"{lines[pair]}."
            )
        lines[pair] = number
        grade = tsv.parse_score(where, score)
        if grade > 0:
            pairs.append((*pair, grade))
    return _to_relevance(path, pairs)


def read_squad(
    paths: Sequence[files.AnyPath],
) -> tuple[Texts, Texts, Relevance]:
    """Reads SQuAD's files: its own JSON, or tables with its columns.

    Args:
        paths: The first file has the questions. The corpus consists of the
            different paragraphs of all files, in order.

    Returns:
        The queries; the corpus, whose ids count from 0; and the relevance: for
        every answerable question, its paragraph.

    Raises:
        ValueError: See `question_answering.files.read_squad`. Also if a
            question or a paragraph is empty. The message names the file.
    """
    examples = squad_files.read_squad(
        paths[0], version_2_with_negative=True, is_training=False
    )
    texts: dict[str, int] = {}
    for path in paths:
        for text in squad_files.read_paragraphs(path):
            if not text.strip():
                raise ValueError(f"{path}: a paragraph must not be empty.")
            texts.setdefault(text, len(texts))
    pairs = []
    for row, question in enumerate(examples.questions):
        if not question.strip():
            raise ValueError(
                f"{paths[0]}: a question must not be empty. "
                f"Received: id={messages.shortened(examples.ids[row])}."
            )
        if examples.answers is None or examples.answers[row]:
            pairs.append((row, texts[examples.context(row)], 1.0))
    return (
        Texts(ids=examples.ids, texts=examples.questions),
        Texts(ids=tuple(map(str, range(len(texts)))), texts=tuple(texts)),
        _to_relevance(paths[0], pairs),
    )


def _to_relevance(path, pairs):
    if not pairs:
        raise ValueError(f"{path}: no text is relevant to any query.")
    query_rows, corpus_rows, grades = map(np.array, zip(*sorted(pairs)))
    return Relevance(
        query_rows=query_rows, corpus_rows=corpus_rows, grades=grades
    )


def only_judged(
    queries: Texts, relevance: Relevance
) -> tuple[Texts, Relevance]:
    """Leaves out the queries without relevant texts."""
    kept = relevance.queries
    if len(kept) < len(queries):
        logging.info(
            "Queries without a relevant text are left out: %d of %d.",
            len(queries) - len(kept),
            len(queries),
        )
    return queries.take(kept), dataclasses.replace(
        relevance, query_rows=np.searchsorted(kept, relevance.query_rows)
    )
