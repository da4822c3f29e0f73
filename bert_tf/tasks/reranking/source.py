"""Batches of queries with texts: raw strings, turned into inputs in tf.data.

Letters: B rows, C texts of a row, L sequence length.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from bert_tf import features
from bert_tf.tasks.multiple_choice.source import RowSource
from bert_tf.tasks.reranking.files import Groups

# Label, and index, of places that pad a row.
NO_TEXT = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingSource(RowSource):
    """Queries with texts.

    The batches are dictionaries of the model inputs, int32 `[B, C, L]`, and of
    `labels`, int32 `[B, C]`, if the examples have any: 1, 0, or -1 where a
    query has fewer texts.

    Args:
        examples: The `Groups`.
        num_negatives: None: each row is a query with one of its texts, in
            their order. Otherwise a row is a query with a text that answers
            it, and up to this many of its texts that do not. They are drawn
            once, by the seed, so they are the same in every epoch.
    """

    examples: Groups
    num_negatives: int | None = None

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        if self.num_negatives is None:
            rows = np.arange(len(self.examples))[:, np.newaxis]
        else:
            rows = self._drawn_rows()
        queries, texts = self.examples.queries, self.examples.texts
        arrays = {
            "contexts": [
                queries[self.examples.group_ids[n]] for n in rows[:, 0]
            ],
            "choices": [
                [texts[n] if n != NO_TEXT else "" for n in row] for row in rows
            ],
        }
        if self.examples.labels is None:
            return arrays
        labels = np.where(rows == NO_TEXT, NO_TEXT, self.examples.labels[rows])
        return arrays | {features.LABELS: labels.astype(np.int32)}

    def _drawn_rows(self):
        """Returns indices of texts, int `[rows, C]`, padded with -1."""
        assert self.examples.labels is not None
        drawn = []
        for group, texts in enumerate(self.examples.rows):
            is_positive = self.examples.labels[texts] == 1
            negatives = texts[~is_positive]
            generator = np.random.default_rng((self.seed, group))
            for positive in texts[is_positive]:
                others = generator.permutation(negatives)[: self.num_negatives]
                drawn.append([positive, *others])
        size = max(map(len, drawn))
        return np.array([row + [NO_TEXT] * (size - len(row)) for row in drawn])
