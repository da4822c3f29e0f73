"""The answers of a tuned model, in the form that the page shows.

They are those of `bert_tf.serving.kinds`, computed in this process. For each
way to show them, a class tells how many texts it takes, and makes the JSON.
"""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.playground import requests
from bert_tf.serving.kinds.embedding import OUTPUT
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.predictors import Predictor
from bert_tf.tasks import families
from bert_tf.tasks.retrieval import ranking

_STRINGS = tf.TensorSpec([None], tf.string)


class Shown(abc.ABC):
    """The answers of a servable.

    Attributes:
        KIND: The page's name for the way to show them.

    Args:
        servable: The `Servable`.
    """

    KIND = ""

    def __init__(self, servable: Servable) -> None:
        self.servable = servable
        self.task = servable.task
        self._predictor = Predictor(servable)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its texts, in order; the last one may repeat."""
        return self.servable.text_features

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest number of texts."""
        return len(self.names), len(self.names)

    def describe(self) -> dict[str, Any]:
        """Returns what the page has to know, ready for JSON."""
        least, _ = self.bounds
        return {
            "kind": self.KIND,
            "title": self.task.title if self.task else "",
            "text_names": list(self.names),
            "least_texts": least,
        }

    @abc.abstractmethod
    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        """Returns the answer to texts, ready for JSON."""

    def answers_to(
        self, rows: Sequence[Sequence[Any]]
    ) -> dict[str, np.ndarray]:
        """Returns the servable's answers: {name: array `[N, ...]`}.

        Args:
            rows: As in `Predictor.compute`.
        """
        return self._predictor.compute(rows)


def _numbers(values):
    return [float(value) for value in values]


class Classes(Shown):
    """Probabilities of classes, or of independent labels."""

    KIND = "classes"

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        found = self.answers_to([texts])
        classes = zip(self.task.labels, _numbers(found["probabilities"][0]))
        chosen = found.get("is_label")
        if chosen is None:
            label = found["labels"][0].decode()
            chosen = [[name == label for name in self.task.labels]]
        return {
            "classes": [
                {"name": name, "probability": share, "is_chosen": bool(is_it)}
                for (name, share), is_it in zip(classes, chosen[0])
            ],
            "is_cut": bool(found["is_cut"][0]),
        }


class Number(Shown):
    """The number of a regression."""

    KIND = "number"

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        found = self.answers_to([texts])
        return {
            "score": float(found["scores"][0]),
            "is_cut": bool(found["is_cut"][0]),
        }


class Entities(Shown):
    """The entities of a text."""

    KIND = "entities"

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        found = self.answers_to([texts])
        columns = [
            found[name][0].tolist()
            for name in ("labels", "starts", "limits", "scores")
        ]
        count = int(found["num_entities"][0])
        return {
            "text": texts[0],
            "entities": [
                {
                    "label": label.decode(),
                    "start": start,
                    "limit": limit,
                    "score": score,
                }
                for label, start, limit, score in list(zip(*columns))[:count]
            ],
            "is_cut": bool(found["is_cut"][0]),
        }


class Answers(Shown):
    """The answers to a question, quoted from the context."""

    KIND = "answers"

    def __init__(self, servable: Servable) -> None:
        super().__init__(servable)

        @tf.function(autograph=False, input_signature=[_STRINGS])
        def are_questions_cut(questions):
            pieces = servable.preprocessor.tokenizer.tokenize(questions)
            lengths = pieces.merge_dims(1, 2).row_lengths()
            return lengths > self.task.max_query_length

        self._are_questions_cut = are_questions_cut

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        found = self.answers_to([texts])
        columns = [
            found[f"nbest_{name}"][0].tolist()
            for name in ("answers", "starts", "limits", "scores")
        ]

        def entry(text, start, limit, score):
            return {
                "text": text.decode(),
                "start": start,
                "limit": limit,
                "score": score,
            }

        best = [
            found[name][0] for name in ("answers", "starts", "limits", "scores")
        ]
        text, *numbers = best
        answer = {
            "context": texts[1],
            "best": entry(text, *(number.item() for number in numbers)),
            # Missing entries have no probability.
            "answers": [entry(*each) for each in zip(*columns) if each[3] > 0],
            # The servable's own flag is for the context only.
            "is_cut": bool(found["is_cut"][0])
            or bool(self._are_questions_cut(tf.constant(texts[:1]))[0]),
        }
        if "null_odds" in found:
            answer["null_odds"] = float(found["null_odds"][0])
        return answer


class Choices(Shown):
    """The probabilities of choices."""

    KIND = "choices"

    def __init__(self, servable: Servable) -> None:
        super().__init__(servable)

        @tf.function(autograph=False, input_signature=[_STRINGS] * 2)
        def are_cut(contexts, choices):
            return servable.preprocessor.encode_with_is_cut(
                (contexts, choices)
            )[1]

        self._are_cut = are_cut

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        context, *choices = texts
        found = self.answers_to([(context, choices)])
        contexts = tf.constant([context] * len(choices))
        is_cut = self._are_cut(contexts, tf.constant(choices))
        return {
            "choice": int(found["choice"][0]),
            "probabilities": _numbers(found["probabilities"][0]),
            "is_cut": bool(tf.reduce_any(is_cut)),
        }


class Ranked(Shown):
    """Texts in the order in which they answer a query."""

    KIND = "ranked"

    @property
    def bounds(self) -> tuple[int, int]:
        return 2, 1 + requests.MAX_TEXTS

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        query, *others = texts
        found = self.answers_to([(query, text) for text in others])
        scores = _numbers(found["scores"])
        return {
            "scores": scores,
            "probabilities": _numbers(found["probabilities"]),
            "order": np.argsort(-found["scores"], kind="stable").tolist(),
            "is_cut": bool(found["is_cut"].any()),
        }


class Sentences(Shown):
    """The cosines of sentences' vectors."""

    KIND = "sentences"

    @property
    def names(self) -> tuple[str, ...]:
        return ("sentence",)

    @property
    def bounds(self) -> tuple[int, int]:
        return 2, requests.MAX_TEXTS

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "prompt": self.servable.options.prompt,
        }

    def answer(self, texts: Sequence[str]) -> dict[str, Any]:
        found = self.answers_to([(text,) for text in texts])
        vectors, number = found[OUTPUT], len(texts)
        return {
            "cosines": [
                _numbers(ranking.cosines(vectors, np.tile(vector, (number, 1))))
                for vector in vectors
            ],
            "is_cut": bool(found["is_cut"].any()),
        }


def find(servable: Servable) -> Shown | None:
    """Returns how the answers of a servable are shown; None if it has none."""
    row = families.of_kind(type(servable))
    shown = row.load("shown") if row else None
    if shown is Classes and not servable.task.labels:
        shown = Number
    return shown(servable) if shown is not None else None
