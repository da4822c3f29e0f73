"""Batches of texts that belong together, and of all texts one by one.

Letters: B examples, P passages an example, L sequence length.
"""

import collections
import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import progress_bar
from bert_tf.features import Batch
from bert_tf.input import array_source
from bert_tf.input import batching
from bert_tf.input.batch_source import Context
from bert_tf.tasks.retrieval.files import RetrievalExamples
from bert_tf.tasks.source import Source
from bert_tf.text.preprocessor import Preprocessor

# Orders that are tried until an epoch's batches have no text twice.
_NUM_ORDERS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupSource(Source):
    """Queries with their passages, to train on.

    The batches are dictionaries of the queries' model inputs, int32 `[B, L]`,
    those of the passages, int32 `[B, P, L']`, each of its own length, and
    `labels` float32 `[B]`, 0 where there are none.

    Args:
        preprocessor: The `Preprocessor`.
        query_prompt: What stands before each query.
        passage_prompt: What stands before each passage.
        has_distinct_texts: Whether no text is twice in a batch; see
            `distinct_order`.
    """

    examples: RetrievalExamples
    preprocessor: Preprocessor
    query_prompt: str = ""
    passage_prompt: str = ""
    has_distinct_texts: bool = False

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        labels = self.examples.labels
        if labels is None:
            labels = np.zeros(len(self.examples), np.float32)
        return {"rows": self.examples.rows, features.LABELS: labels}

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        masks = features.INPUT_MASK, features.PASSAGE_MASK
        return array_source.example_lengths(self, masks=masks)

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        if not self.has_distinct_texts:
            return super().training_batches(batch_size, start_example, context)
        rows = _DistinctRows(
            arrays=self.arrays, seed=self.seed, batch_size=batch_size
        )
        return self._made(
            rows.training_batches(batch_size, start_example, context)
        )

    def check_distinct(self, batch_size: int, num_epochs: float) -> None:
        """Raises `ValueError` unless there are batches of distinct texts.

        Args:
            batch_size: Of the batches.
            num_epochs: Times that the examples are gone through.
        """
        rows = _DistinctRows(
            arrays=self.arrays, seed=self.seed, batch_size=batch_size
        )
        first, num_changes = rows.order_of_epoch(0)
        if num_changes:
            # Then another epoch may make no batch of that size at all.
            others = range(1, rows.num_epochs(num_epochs))
            with progress_bar.track(others, "order", unit="epoch") as epochs:
                for epoch in epochs:
                    rows.order_of_epoch(epoch)
        num_left_out = rows.num_examples - len({*first})
        if num_left_out >= batch_size:
            logging.warning(
                "%d of %d examples are left out of an epoch, and others are in "
                "it again: their texts are in more examples than there are "
                "batches, none of which has a text twice. Smaller batches "
                "leave out fewer.",
                num_left_out,
                rows.num_examples,
            )

    def input_maker(self) -> Callable[[Batch], Batch]:
        texts = tf.constant(self.examples.texts)
        num_passages = self.examples.rows.shape[1] - 1
        length = None if self.is_trimmed else self.preprocessor.max_seq_length

        def inputs_of(prompt, rows):
            return self._trim(
                self.preprocessor(_prompted(prompt, tf.gather(texts, rows)))
            )

        def make(batch):
            rows = batch.pop("rows")
            inputs = inputs_of(self.query_prompt, rows[:, 0])
            passages = inputs_of(
                self.passage_prompt, tf.reshape(rows[:, 1:], [-1])
            )
            for name, own in zip(
                features.MODEL_INPUTS, features.PASSAGE_INPUTS
            ):
                values = passages[name]
                inputs[own] = tf.reshape(
                    values, [-1, num_passages, tf.shape(values)[1]]
                )
                inputs[own].set_shape([rows.shape[0], num_passages, length])
            return inputs | batch

        return make


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleSource(Source):
    """All texts of a set by themselves, the longest first, to evaluate on.

    A text that is a query and a passage is there twice. The batches are
    dictionaries of the model inputs, int32 `[B, L]`.

    Args:
        preprocessor, query_prompt, passage_prompt: As of `GroupSource`.
    """

    examples: RetrievalExamples
    preprocessor: Preprocessor
    query_prompt: str = ""
    passage_prompt: str = ""

    @functools.cached_property
    def queries(self) -> np.ndarray:
        """int `[Q]`: the indices of the texts that are queries, rising."""
        return np.unique(self.examples.rows[:, 0])

    @functools.cached_property
    def passages(self) -> np.ndarray:
        """int `[P]`: the indices of those that are passages, rising."""
        rows = self.examples.rows[:, 1:]
        return np.unique([*rows.flatten(), *self.examples.others])

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        texts = np.concatenate([self.queries, self.passages])
        is_query = np.arange(len(texts)) < len(self.queries)
        order = self._order
        return {
            "texts": texts[order].astype(np.int32),
            "is_query": is_query[order],
        }

    @functools.cached_property
    def _order(self):
        # As good as by tokens, and sooner known.
        sizes = np.array([len(text) for text in self.examples.texts])
        texts = np.concatenate([self.queries, self.passages])
        return np.argsort(-sizes[texts], kind="stable")

    def vectors(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns float `[Q, D]` of the queries and `[P, D]` of the passages.

        Args:
            rows: float `[Q + P, D]`: what the model answers to the batches.
        """
        ordered = np.empty_like(rows)
        ordered[self._order] = rows
        return ordered[: len(self.queries)], ordered[len(self.queries) :]

    def input_maker(self) -> Callable[[Batch], Batch]:
        texts = tf.constant(self.examples.texts)

        def make(batch):
            found = tf.gather(texts, batch.pop("texts"))
            is_query = batch.pop("is_query")
            found = tf.where(
                is_query,
                _prompted(self.query_prompt, found),
                _prompted(self.passage_prompt, found),
            )
            return self._trim(self.preprocessor(found)) | batch

        return make


def _prompted(prompt, texts):
    return tf.strings.join([prompt, texts]) if prompt else texts


def distinct_order(
    order: Sequence[int], texts: Sequence[Sequence[int]], batch_size: int
) -> list[int]:
    """Returns an epoch of full batches in none of which a text is twice.

    The batches are filled in the given order. A row one of whose texts is in
    the batch already waits for a later one. The last batches may lack rows that
    fit: they take some that earlier batches had, these in turn.

    Args:
        order: The rows of an epoch, shuffled.
        texts: Of each row the indices of its texts.
        batch_size: Rows of a batch.

    Returns:
        Rows, of all whole batches that `order` makes.

    Raises:
        ValueError: If a batch cannot be filled.
    """
    texts_of = [frozenset(row) for row in texts]
    new_rows = iter(order)
    found: list[int] = []
    # By a text that was in a batch already: of these rows one fits at most,
    # so that many of one text cost no more time than a few.
    waiting: dict[int, collections.deque[int]] = {}
    place = 0
    for _ in range(len(order) // batch_size):
        batch = _Batch(texts_of, batch_size)
        for text in [*waiting]:
            if batch.is_full:
                break
            row = waiting[text].popleft()
            if not waiting[text]:
                del waiting[text]
            _add_or_wait(batch, row, waiting)
        while not batch.is_full and (row := next(new_rows, None)) is not None:
            _add_or_wait(batch, row, waiting)
        for _ in found:
            if batch.is_full:
                break
            batch.add(found[place])
            place = (place + 1) % len(found)
        for row in order if not batch.is_full else ():
            batch.add(row)
        if not batch.is_full:
            raise ValueError(
                "A batch must have no text twice: the training examples make "
                f"none of {batch_size}, but of about {len(batch.rows)}. "
                f"Received: train_batch_size={batch_size}."
            )
        found += batch.rows
    return found


def _add_or_wait(batch, row, waiting):
    text = batch.add(row)
    if text is not None:
        waiting.setdefault(text, collections.deque()).append(row)


class _Batch:
    """Rows without a text twice, up to a number of them."""

    def __init__(self, texts_of, size):
        self.rows: list[int] = []
        self._texts_of = texts_of
        self._size = size
        self._used: set[int] = set()

    @property
    def is_full(self):
        return len(self.rows) == self._size

    def add(self, row):
        """Adds a row if it fits; else returns a text that is there already."""
        if self.is_full:
            return None
        texts = self._texts_of[row]
        for text in texts:
            if text in self._used:
                return text
        self.rows.append(row)
        self._used |= texts
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _DistinctRows(array_source.ArraySource):
    """Batches in none of which a text is twice.

    An epoch is as many batches as its examples fill: the rest of them are in
    another order in the next. The order is a function of seed, epoch and batch
    size.

    Args:
        batch_size: Of the batches.
    """

    batch_size: int

    def order_of_epoch(self, epoch: int) -> tuple[np.ndarray, int]:
        """Returns int32 rows, of whole batches, and how often they changed.

        Rows whose order makes no such batches are put in another.

        Raises:
            ValueError: If no order that is tried does.
        """
        order = batching.shuffled(self.num_examples, (self.seed, epoch))
        return self._distinct(order.numpy(), epoch)

    def num_epochs(self, num_passes: float) -> int:
        """Returns how many of its epochs so many of all examples are."""
        return math.ceil(num_passes * self.num_examples / self._epoch_size)

    @property
    def _epoch_size(self):
        return self.num_examples // self.batch_size * self.batch_size

    def _shuffled_rows(self, start_example):
        epoch, skipped = divmod(start_example, self._epoch_size)

        @tf.autograph.experimental.do_not_convert
        def rows_of_epoch(epoch):
            order = batching.shuffled(self.num_examples, (self.seed, epoch))
            rows = tf.numpy_function(
                lambda *told: self._distinct(*told)[0],
                [order, epoch],
                tf.int32,
                stateful=False,
            )
            rows.set_shape([self._epoch_size])
            return tf.data.Dataset.from_tensor_slices(rows)

        rows = tf.data.Dataset.range(epoch, np.iinfo(np.int64).max)
        return rows.flat_map(rows_of_epoch).skip(skipped)

    def _distinct(self, order, epoch):
        """Returns what `order_of_epoch` does, of its shuffled rows."""
        rows = np.asarray(self.arrays["rows"]).tolist()
        for num_changes in itertools.count():
            try:
                found = distinct_order(order.tolist(), rows, self.batch_size)
                break
            except ValueError:
                if num_changes + 1 == _NUM_ORDERS:
                    raise
            key = (self.seed, int(epoch), num_changes + 1)
            order = np.random.default_rng(key).permutation(order)
        return np.array(found, np.int32), num_changes
