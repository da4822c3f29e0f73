"""Training and evaluation batches of examples in memory.

See `batch_source` for what a source of batches is.
"""

import dataclasses
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import progress_bar
from bert_tf.input import batching
from bert_tf.input.batch_source import BatchSource
from bert_tf.input.batch_source import Context


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraySource:
    """Examples in memory, such as those of a fine-tuning task.

    Args:
        arrays: {name: array or tensor [num_examples, ...]}.
        seed: Seed of the order of the training examples.
        lengths: None, or int [num_examples]: training batches then hold
            examples of similar length. Windows of `window_batches` batches of
            the shuffled examples, but of at most an epoch, are sorted by
            length, and their batches are shuffled again. In a window, the
            examples of one epoch are sorted before those of the next. The order
            is a function of seed, epoch and batch size.
        window_batches: Number of batches in such a window.
        whole_epochs: Whether the last training batch of an epoch is filled up
            with rows whose `example_weights` are 0, and all batches of an epoch
            come before those of the next. If not, batches run on from one epoch
            into the next, and have no weights.
    """

    unit: ClassVar[str] = "examples"

    arrays: Mapping[str, np.ndarray | tf.Tensor]
    seed: int = 12345
    lengths: np.ndarray | None = None
    window_batches: int = 64
    whole_epochs: bool = False

    def __post_init__(self):
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) != 1 or not self.num_examples:
            raise ValueError(
                "`arrays` must all have the same number of examples, one or "
                f"more. Received lengths: {lengths}."
            )

    @property
    def num_examples(self) -> int:
        return len(next(iter(self.arrays.values())))

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the training batches; see `BatchSource`."""
        if self.lengths is None:
            rows = self._shuffled_rows(batch_size, start_example)
        else:
            rows = self._rows_by_length(self.lengths, batch_size, start_example)
        return batching.training_batches(
            [rows],
            batch_size,
            batch_size,
            start_example,
            context,
            self._gather(self.whole_epochs),
        )

    def _num_fillers(self, batch_size):
        """Returns how many rows fill up the last batch of an epoch."""
        return -self.num_examples % batch_size if self.whole_epochs else 0

    def _shuffled_rows(self, batch_size, start_example):
        """Returns the rows in their order; a row that only fills up is ~row."""
        num_fillers = self._num_fillers(batch_size)
        epoch, skipped = divmod(start_example, self.num_examples + num_fillers)

        @tf.autograph.experimental.do_not_convert
        def rows_of_epoch(epoch):
            rows = batching.shuffled(self.num_examples, (self.seed, epoch))
            fillers = tf.repeat(~rows[-1:], num_fillers)
            return tf.data.Dataset.from_tensor_slices(
                tf.concat([rows, fillers], axis=0)
            )

        rows = tf.data.Dataset.range(epoch, np.iinfo(np.int64).max)
        return rows.flat_map(rows_of_epoch).skip(skipped)

    def _rows_by_length(self, lengths, batch_size, start_example):
        epoch_size = self.num_examples + self._num_fillers(batch_size)
        num_batches = epoch_size // batch_size
        num_batches = max(1, min(self.window_batches, num_batches))
        size = num_batches * batch_size
        window, skipped = divmod(start_example, size)
        # Above all lengths: an epoch's examples precede the next's, and what
        # fills up its last batch comes after them.
        longest = int(np.max(lengths)) + 1
        lengths = tf.constant(lengths, tf.int64)

        @tf.autograph.experimental.do_not_convert
        def sort(window, rows):
            places = window * size + tf.range(size, dtype=tf.int64)
            found = tf.gather(lengths, tf.maximum(rows, 0))
            found = tf.where(rows < 0, tf.constant(longest, tf.int64), found)
            keys = places // epoch_size * (longest + 1) + found
            rows = tf.gather(rows, tf.argsort(keys, stable=True))
            # Epochs are numbered from 0, so no epoch has this order.
            order = batching.shuffled(num_batches, (self.seed, -1, window))
            if self.whole_epochs:
                epochs = tf.gather(places[::batch_size] // epoch_size, order)
                order = tf.gather(order, tf.argsort(epochs, stable=True))
            rows = tf.reshape(rows, [num_batches, batch_size])
            return tf.reshape(tf.gather(rows, order), [-1])

        windows = self._shuffled_rows(batch_size, window * size).batch(size)
        return windows.enumerate(window).map(sort).unbatch().skip(skipped)

    def evaluation_batches(
        self, batch_size: int, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the evaluation batches; see `BatchSource`."""
        rows = tf.data.Dataset.range(self.num_examples)
        return batching.evaluation_batches(
            rows, batch_size, context, self._gather()
        )

    def _gather(self, with_weights=False):
        # Converted to tensors here. Inside the function they would be constants
        # of its graph, which is limited to 2 GB.
        tensors = {
            name: tf.convert_to_tensor(array)
            for name, array in self.arrays.items()
        }

        def gather(rows, numbers):
            del numbers
            is_filler = rows < 0
            rows = tf.where(is_filler, ~rows, rows)
            batch = {
                name: tf.gather(tensor, rows)
                for name, tensor in tensors.items()
            }
            if with_weights:
                weights = 1 - tf.cast(is_filler, tf.float32)
                batch[features.EXAMPLE_WEIGHTS] = weights
            return batch

        return gather


def example_lengths(
    source: BatchSource,
    batch_size: int = 256,
    masks: Sequence[str] = (features.INPUT_MASK,),
) -> np.ndarray:
    """Returns the number of tokens of every example, int32 `[N]`.

    Reads all examples. If they have several sequences, the longest one counts.

    Args:
        source: A source of batches with these masks.
        batch_size: Examples read together.
        masks: Names of the masks, `[B, ..., L]`, each with its own L.
    """

    def longest(batch):
        counts = [tf.reduce_sum(batch[name], axis=-1) for name in masks]
        rows = [tf.reshape(each, [tf.shape(each)[0], -1]) for each in counts]
        return tf.reduce_max(tf.concat(rows, axis=1), axis=1)

    counts = source.evaluation_batches(batch_size).map(longest)
    num_batches = math.ceil(source.num_examples / batch_size)
    with progress_bar.track(
        counts.as_numpy_iterator(), "tokenize", num_batches
    ) as tracked:
        return np.concatenate(list(tracked))[: source.num_examples]
