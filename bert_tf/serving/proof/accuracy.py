"""Measures what an export costs in score on a development set."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from absl import logging

from bert_tf.serving.graph.signatures import DEFAULT
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.servable import Servable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Accuracy:
    """The scores of a trained model and of its export.

    Args:
        metric: The score's name.
        num_texts: The number of texts that were scored.
        trained: The trained model's score, at most 1.
        served: The export's score.
    """

    metric: str
    num_texts: int
    trained: float
    served: float

    @property
    def loss(self) -> float:
        """By how much the export's score is lower; negative if it is higher."""
        return self.trained - self.served

    def __str__(self):
        return (
            f"{self.metric} on {self.num_texts} labelled texts: trained "
            f"{self.trained:.4f}, served {self.served:.4f}, lost "
            f"{self.loss:.4f}"
        )

    def exceeds(self, most: float | None) -> bool:
        """Returns whether the loss exceeds `most`; None means no limit.

        Raises:
            ValueError: If there is a limit but the trained model scores 0: the
                file does not fit its task.
        """
        if most is None:
            return False
        if self.trained == 0:
            raise ValueError(
                "--max_accuracy_loss must be given with a file on which the "
                f"trained model scores more than 0. Received: {self}."
            )
        # The margin is for the rounding of the subtraction. With `not`, NaN
        # exceeds every limit.
        return not self.loss <= most + 1e-9


class Scorer:
    """Collects the answers that a `DevSet` scores.

    The texts of the `DevSet` are the last ones of those that are compared.

    Args:
        dev_set: The `DevSet`.
    """

    def __init__(self, dev_set: DevSet) -> None:
        self._dev_set = dev_set
        self._trained: dict[str, list[Any]] = {}
        self._served: dict[str, list[Any]] = {}

    def add(
        self,
        trained: Mapping[str, np.ndarray],
        served: Mapping[str, np.ndarray],
    ) -> None:
        """Keeps the answers to a batch, {output: array [B, ...]}.

        An export that lacks one of the outputs gets no score.
        """
        for kept, answers in (
            (self._trained, trained),
            (self._served, served),
        ):
            for name in self._dev_set.outputs:
                kept.setdefault(name, []).extend(answers.get(name, ()))

    def accuracy(self) -> Accuracy:
        """Returns the `Accuracy` of all answers that were kept."""
        scores = [
            self._dev_set.score(
                {
                    name: rows[-self._dev_set.num_texts :]
                    for name, rows in kept.items()
                }
            )
            for kept in (self._trained, self._served)
        ]
        return Accuracy(
            metric=self._dev_set.metric,
            num_texts=self._dev_set.num_texts,
            trained=scores[0],
            served=scores[1],
        )


def read_dev_set(servable: Servable, signature: str = DEFAULT) -> DevSet | None:
    """Returns the `DevSet` of the check file, or None if there is no score.

    Call it after `Servable.read_texts`, which logs what is odd about the rows.
    Without `label_column` and `max_accuracy_loss`, the score is only shown, and
    labels that cannot be read are only logged.

    Args:
        servable: What is exported.
        signature: The signature whose answers are scored.

    Raises:
        ValueError: If a score is needed and there is none.
    """
    options = servable.options
    path = options.eval_file
    if path is None:
        return None
    is_needed = options.max_accuracy_loss is not None or options.label_column
    try:
        dev_set = servable.read_dev_set(path, options.label_column)
    except ValueError as error:
        if is_needed:
            raise
        logging.warning("No score is computed: %s", error)
        return None
    names = {output.name for output in servable.outputs[signature]}
    if dev_set is not None and names.issuperset(dev_set.outputs):
        return dev_set
    if is_needed:
        raise ValueError(
            "--max_accuracy_loss and --label_column must be given with a file "
            "of labelled texts, and for answers that the labels can score. "
            f"Received: {path}, for {', '.join(sorted(names))}."
        )
    return None
