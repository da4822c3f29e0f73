"""A servable's answers as plain Python values, one function for each kind.

Each takes the answers to one row, {output: value}; the row's texts; and how
many answers are wanted, or None for the best.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.kinds.embedding import OUTPUT
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.kinds.multi_label import MultiLabel
from bert_tf.serving.kinds.multiple_choice import MultipleChoice
from bert_tf.serving.kinds.question_answering import QuestionAnswering
from bert_tf.serving.kinds.reranker import Reranker
from bert_tf.serving.kinds.tagging import Tagging

_Row = Mapping[str, Any]
_Texts = Sequence[Any]


def read_rows(
    servable: Any,
    answers: Mapping[str, np.ndarray],
    rows: Sequence[_Texts],
    top_k: int | None,
) -> list[Any]:
    """Returns the answers to rows of texts.

    Args:
        servable: A `Servable` of a kind that `has_answers`.
        answers: What its `answer_texts` returned.
        rows: The texts.
        top_k: As in `check_top_k`.
    """
    read = _KINDS[_known(type(servable))]
    return [
        read({name: answers[name][index] for name in answers}, texts, top_k)
        for index, texts in enumerate(rows)
    ]


def has_answers(kind: type) -> bool:
    """Returns whether a kind's answers can be read here."""
    return _known(kind) is not None


def check_top_k(servable: Any, top_k: int | None) -> None:
    """Raises `ValueError` if a servable does not have so many answers.

    Args:
        servable: A `Servable`.
        top_k: How many answers to a row are wanted; None for the best.
    """
    if top_k is None:
        return
    is_ranked = isinstance(servable, MultiLabel | FillMask) or (
        isinstance(servable, Classification) and servable.task.labels
    )
    if not is_ranked:
        raise ValueError(
            "`top_k` must be given for labels and masks only. "
            f"Received: top_k={top_k}."
        )
    most = servable.options.top_k
    if top_k < 1 or (most is not None and top_k > most):
        raise ValueError(
            "`top_k` must be 1 or more"
            + (f", and at most the predictor's {most}" if most else "")
            + f". Received: top_k={top_k}."
        )


def _known(kind):
    return next((base for base in kind.__mro__ if base in _KINDS), None)


def _ranked(row):
    """Returns the places of classes, the likeliest first."""
    return np.argsort(-row["probabilities"], kind="stable")


def _entry(row, place):
    return {
        "label": row["classes"][place].decode(),
        "score": float(row["probabilities"][place]),
    }


def _label(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    if "probabilities" not in row:
        return _number(row, texts, top_k)
    entries = [_entry(row, place) for place in _ranked(row)[: top_k or 1]]
    return entries[0] if top_k is None else entries


def _labels(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    places = _ranked(row)[:top_k]
    if top_k is None:
        places = [place for place in places if row["is_label"][place]]
    return [_entry(row, place) for place in places]


def _number(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    return {"score": float(row["scores"])}


def _entities(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    names = ("labels", "starts", "limits", "scores")
    columns = [row[name][: row["num_entities"]].tolist() for name in names]
    return [
        {
            "text": texts[0][start:end],
            "label": label.decode(),
            "start": start,
            "end": end,
            "score": score,
        }
        for label, start, end, score in zip(*columns)
    ]


def _answer(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    if row["starts"] < 0:
        return None
    return {
        "text": row["answers"].decode(),
        "start": int(row["starts"]),
        "end": int(row["limits"]),
        "score": float(row["scores"]),
    }


def _choice(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    _, choices = texts
    number = int(row["choice"])
    return {
        "choice": number,
        "text": choices[number],
        "score": float(row["probabilities"][number]),
    }


def _vector(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    return row[OUTPUT]


def _masks(row: _Row, texts: _Texts, top_k: int | None) -> Any:
    masks = slice(row["num_masks"])
    return [
        [
            {"token": token.decode(), "score": float(score)}
            for token, score in list(zip(tokens, scores))[:top_k]
        ]
        for tokens, scores in zip(row["tokens"][masks], row["scores"][masks])
    ]


_KINDS: dict[type, Callable[[_Row, _Texts, int | None], Any]] = {
    Classification: _label,
    MultiLabel: _labels,
    Tagging: _entities,
    QuestionAnswering: _answer,
    MultipleChoice: _choice,
    Reranker: _number,
    Embedding: _vector,
    FillMask: _masks,
}
