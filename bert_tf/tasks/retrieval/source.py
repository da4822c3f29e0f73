"""Batches of texts that belong together, and of single texts.

Letters: B examples, P passages of an example, L sequence length.
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

# Most orders that are tried to find an epoch of batches without repeated texts.
_NUM_ORDERS = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class GroupSource(Source):
    """Queries with their passages, for training.

    The batches are dictionaries of the model inputs of queries, int32
    `[B, L]`, and of passages, int32 `[B, P, L']`, with lengths of their own;
    and `labels`, float32 `[B]`, which are 0 if there are none.

    Args:
        preprocessor: The `Preprocessor`.
        query_prompt: A string put before each query.
        passage_prompt: A string put before each passage.
        has_distinct_texts: Whether no text occurs twice in a batch; see
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
        return self._map_to_inputs(
            rows.training_batches(batch_size, start_example, context)
        )

    def check_distinct(self, batch_size: int, num_epochs: float) -> None:
        """Raises `ValueError` unless batches can have distinct texts.

        Args:
            batch_size: Examples in a batch.
            num_epochs: Number of passes over the examples.
        """
        rows = _DistinctRows(
            arrays=self.arrays, seed=self.seed, batch_size=batch_size
        )
        first, num_changes = rows.order_of_epoch(0)
        if num_changes:
            # Then batches of that size may be impossible in another epoch.
            others = range(1, rows.num_epochs(num_epochs))
            with progress_bar.track(others, "order", unit="epoch") as epochs:
                for epoch in epochs:
                    rows.order_of_epoch(epoch)
        num_left_out = rows.num_examples - len({*first})
        if num_left_out >= batch_size:
            logging.warning(
                "%d of %d examples are left out of an epoch, and others are "
                "repeated in it: their texts occur in more examples than there "
                "are batches, and no batch may have a text twice. Smaller "
                "batches leave out fewer.",
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
    """Single texts of a set, the longest first, for evaluation.

    A text that is both a query and a passage occurs twice. The batches are
    dictionaries of the model inputs, int32 `[B, L]`.

    Args:
        preprocessor, query_prompt, passage_prompt: See `GroupSource`.
    """

    examples: RetrievalExamples
    preprocessor: Preprocessor
    query_prompt: str = ""
    passage_prompt: str = ""

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        texts, order = self._texts, self._order
        is_query = np.arange(len(texts)) < len(self.examples.queries)
        return {
            "texts": texts[order].astype(np.int32),
            "is_query": is_query[order],
        }

    @functools.cached_property
    def _order(self):
        # By characters: as good as by tokens, and faster.
        sizes = np.array([len(text) for text in self.examples.texts])
        return np.argsort(-sizes[self._texts], kind="stable")

    @property
    def _texts(self):
        return np.concatenate([self.examples.queries, self.examples.passages])

    def vectors(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vectors of queries, `[Q, D]`, and passages, `[P, D]`.

        Args:
            rows: float `[Q + P, D]`: the model's outputs for the batches.
        """
        ordered = np.empty_like(rows)
        ordered[self._order] = rows
        queries, passages = np.split(ordered, [len(self.examples.queries)])
        return queries, passages

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
    """Returns an epoch of full batches in which no text occurs twice.

    Batches are filled in the given order. A row waits for a later batch if the
    current one already has one of its texts. If no rows that fit are left for
    the last batches, these reuse rows of earlier batches, in turn.

    Args:
        order: The rows of an epoch, shuffled.
        texts: For each row, the indices of its texts.
        batch_size: Rows in a batch.

    Returns:
        The rows of all batches, as many as `order` fills.

    Raises:
        ValueError: If a batch cannot be filled.
    """
    texts_of = [frozenset(row) for row in texts]
    new_rows = iter(order)
    found: list[int] = []
    # Waiting rows by the text that kept them out. At most one row of each text
    # fits into a batch, so many rows with one text take no longer than a few.
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
                "No batch may have a text twice. The training examples fill "
                f"no batch of {batch_size}, but one of about "
                f"{len(batch.rows)}. "
                f"Received: train_batch_size={batch_size}."
            )
        found += batch.rows
    return found


def _add_or_wait(batch, row, waiting):
    text = batch.add(row)
    if text is not None:
        waiting.setdefault(text, collections.deque()).append(row)


class _Batch:
    """A batch of up to `size` rows in which no text occurs twice."""

    def __init__(self, texts_of, size):
        self.rows: list[int] = []
        self._texts_of = texts_of
        self._size = size
        self._used: set[int] = set()

    @property
    def is_full(self):
        return len(self.rows) == self._size

    def add(self, row):
        """Adds a row if it fits. If not, returns a text that it shares."""
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
    """Batches in which no text occurs twice.

    An epoch has as many batches as its examples fill. The remaining examples
    get another chance in the next epoch, which is shuffled anew. The order is a
    function of the seed, the epoch and the batch size.

    Args:
        batch_size: Examples in a batch.
    """

    batch_size: int

    def order_of_epoch(self, epoch: int) -> tuple[np.ndarray, int]:
        """Returns int32 rows of whole batches, and the number of reshuffles.

        Rows are reshuffled if their order does not give such batches.

        Raises:
            ValueError: If none of the orders that are tried does.
        """
        order = batching.shuffled(self.num_examples, (self.seed, epoch))
        return self._distinct(order.numpy(), epoch)

    def num_epochs(self, num_passes: float) -> int:
        """Returns the number of these epochs in so many passes."""
        return math.ceil(num_passes * self.num_examples / self._epoch_size)

    @property
    def _epoch_size(self):
        return self.num_examples // self.batch_size * self.batch_size

    def _shuffled_rows(self, batch_size, start_example):
        del batch_size
        epoch, skipped = divmod(start_example, self._epoch_size)

        @tf.autograph.experimental.do_not_convert
        def rows_of_epoch(epoch):
            order = batching.shuffled(self.num_examples, (self.seed, epoch))
            rows = tf.numpy_function(
                lambda *values: self._distinct(*values)[0],
                [order, epoch],
                tf.int32,
                stateful=False,
            )
            rows.set_shape([self._epoch_size])
            return tf.data.Dataset.from_tensor_slices(rows)

        rows = tf.data.Dataset.range(epoch, np.iinfo(np.int64).max)
        return rows.flat_map(rows_of_epoch).skip(skipped)

    def _distinct(self, order, epoch):
        """Returns the result of `order_of_epoch`, given the shuffled rows."""
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
