"""Batches of examples for training and evaluation.

The order of training examples is a function of (seed, epoch) alone, never of
an iterator's state: a run that stopped goes on at an example's number. A
global batch is the same rows however many replicas or hosts share it.

A source has `num_examples` and two methods, which the loop calls once on each
host: `training_batches(batch_size, start_example, context)`, without end, and
`evaluation_batches(batch_size, max_batches, context)`, where every example
comes once and `example_weights` is 0 on what fills the last batch. `context`
is the `tf.distribute.InputContext` of the host. The datasets yield the batches
of its replicas one after the other, all of one static shape.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.text import dynamic_masking

# Files read at once, taken in turn, and records shuffled together. Files form
# groups and records of a group form blocks, so that a resumed run can skip
# whole groups and blocks.
_GROUP_SIZE = 16
_BLOCK_SIZE = 8192
# Of masks that are chosen here, in evaluation: the same ones each time,
# whatever the run's seed is.
_EVALUATION_SEED = 20181011
# Begins the errors that are raised while records are read.
_BAD_RECORDS = "Bad records:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSource:
    """Examples in TFRecord files.

    Args:
        paths: The files, in an order that does not change.
        spec: {feature name: (dtype, shape)} of the records; int64 becomes
            int32 in the batches.
        limits: {feature name: n}: the values must be in [0, n).
        counts: {path: number of examples}, of the files where it is known.
        mask: None, or `mask(batch, seeds)`, which chooses the predictions of
            records that have none (dynamic masking), or others; seeds int64
            [B, 2] are a function of the run's seed and the example's number
            over all epochs, in evaluation of its number alone.
        seed: Of the order of the training examples, and of their masks.
    """

    paths: tuple
    spec: dict
    limits: dict
    counts: dict = dataclasses.field(default_factory=dict)
    mask: Callable | None = None
    seed: int = 12345

    @functools.cached_property
    def num_examples(self):
        """The number of examples; reads the files whose count is unknown."""
        return sum(self._count(path) for path in self.paths)

    def training_batches(self, batch_size, start_example=0, context=None):
        """Returns a `tf.data.Dataset` without end: {name: [B, ...]}.

        Args:
            batch_size: Examples a step, over all replicas.
            start_example: The number of the first one, counted over all
                epochs from 0.
            context: The host's `tf.distribute.InputContext`.
        """
        num_groups = -(-len(self.paths) // _GROUP_SIZE)
        group, first_block, rest = 0, 0, 0
        if start_example:
            epoch, skipped = divmod(start_example, self.num_examples)
            group = epoch * num_groups
            for sizes in self._group_sizes(epoch):
                if skipped < sizes:
                    break
                skipped -= sizes
                group += 1
            first_block, rest = divmod(skipped, _BLOCK_SIZE)
        first = self._group(
            group // num_groups, group % num_groups, first_block
        )
        records = first.skip(rest).concatenate(
            tf.data.Dataset.range(group + 1, np.iinfo(np.int64).max).flat_map(
                lambda index: self._group(
                    index // num_groups, index % num_groups
                )
            )
        )
        return _training_batches(
            records,
            batch_size,
            start_example,
            context,
            functools.partial(self._make_batch, seed=self.seed),
        )

    def evaluation_batches(self, batch_size, max_batches=None, context=None):
        """Returns a `tf.data.Dataset` of every example once, in order.

        Args:
            batch_size: Examples a step, over all replicas.
            max_batches: If given, stop after so many.
            context: The host's `tf.distribute.InputContext`.
        """
        records = tf.data.TFRecordDataset(list(self.paths))
        return _evaluation_batches(
            records,
            batch_size,
            max_batches,
            context,
            functools.partial(self._make_batch, seed=_EVALUATION_SEED),
        )

    def _count(self, path):
        if path not in self.counts:
            records = tf.data.TFRecordDataset(path)
            self.counts[path] = int(records.reduce(0, lambda n, _: n + 1))
        return self.counts[path]

    def _order(self, epoch):
        return _shuffled(len(self.paths), (self.seed, epoch))

    def _group_sizes(self, epoch):
        order = self._order(epoch).numpy()
        counts = np.array([self._count(self.paths[i]) for i in order])
        starts = range(0, len(counts), _GROUP_SIZE)
        return [counts[i : i + _GROUP_SIZE].sum() for i in starts]

    def _group(self, epoch, group, first_block=0):
        start = group * _GROUP_SIZE
        order = self._order(epoch)[start : start + _GROUP_SIZE]
        records = tf.data.Dataset.from_tensor_slices(
            tf.gather(list(self.paths), order)
        ).interleave(
            tf.data.TFRecordDataset,
            cycle_length=min(_GROUP_SIZE, len(self.paths)),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )

        def shuffle(block, rows):
            order = _shuffled(tf.size(rows), (self.seed, epoch, group, block))
            return tf.gather(rows, order)

        return (
            records.skip(first_block * _BLOCK_SIZE)
            .batch(_BLOCK_SIZE)
            .enumerate(first_block)
            .map(shuffle)
            .unbatch()
        )

    def _make_batch(self, serialized, numbers, seed):
        batch = self._parse(serialized)
        if self.mask is None:
            return batch
        return self.mask(batch, dynamic_masking.example_seeds(seed, numbers))

    def _parse(self, serialized):
        batch = tf.io.parse_example(
            serialized,
            {
                name: tf.io.FixedLenFeature(shape, dtype)
                for name, (dtype, shape) in self.spec.items()
            },
        )
        checks = []
        for name, limit in self.limits.items():
            low = tf.reduce_min(batch[name])
            high = tf.reduce_max(batch[name])
            text = tf.strings.join(
                [
                    f"{_BAD_RECORDS} `{name}` must be in [0, {limit}). "
                    "Received values from ",
                    tf.strings.as_string(low),
                    " to ",
                    tf.strings.as_string(high),
                    ".",
                ]
            )
            is_good = tf.logical_and(low >= 0, high < limit)
            checks.append(tf.debugging.Assert(is_good, [text]))
        with tf.control_dependencies(checks):
            return {
                name: tf.cast(value, tf.int32)
                if value.dtype == tf.int64
                else tf.identity(value)
                for name, value in batch.items()
            }


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArraySource:
    """Examples in memory, as those of a fine-tuning task.

    Args:
        arrays: {name: array or tensor [num_examples, ...]}.
        seed: Of the order of the training examples.
        lengths: None, or int [num_examples]: training batches then hold
            examples of about one length. Each `window_batches` batches of the
            shuffled examples, but never more than an epoch, are sorted by
            length, those of one epoch before those of the next, and their
            batches shuffled again. The order is a function of seed, epoch and
            batch size.
        window_batches: Batches of such a window.
    """

    arrays: dict
    seed: int = 12345
    lengths: np.ndarray | None = None
    window_batches: int = 64

    def __post_init__(self):
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) != 1 or not self.num_examples:
            raise ValueError(
                "`arrays` must hold one or more examples, as many in each. "
                f"Received lengths: {lengths}."
            )

    @property
    def num_examples(self):
        return len(next(iter(self.arrays.values())))

    def training_batches(self, batch_size, start_example=0, context=None):
        """Returns what `RecordSource.training_batches` does."""
        rows = self._shuffled_rows(start_example)
        if self.lengths is not None:
            rows = self._rows_by_length(batch_size, start_example)
        return _training_batches(
            rows, batch_size, start_example, context, self._gather()
        )

    def _shuffled_rows(self, start_example):
        epoch, skipped = divmod(start_example, self.num_examples)

        def rows_of_epoch(epoch):
            return tf.data.Dataset.from_tensor_slices(
                _shuffled(self.num_examples, (self.seed, epoch))
            )

        rows = tf.data.Dataset.range(epoch, np.iinfo(np.int64).max)
        return rows.flat_map(rows_of_epoch).skip(skipped)

    def _rows_by_length(self, batch_size, start_example):
        num_batches = self.num_examples // batch_size
        num_batches = max(1, min(self.window_batches, num_batches))
        size = num_batches * batch_size
        window, skipped = divmod(start_example, size)
        lengths = tf.constant(self.lengths, tf.int64)
        # Beyond all lengths: an epoch's examples come before the next's.
        step = int(np.max(self.lengths)) + 1

        def sort(window, rows):
            epochs = (window * size + tf.range(size, dtype=tf.int64)) // (
                self.num_examples
            )
            keys = epochs * step + tf.gather(lengths, rows)
            rows = tf.gather(rows, tf.argsort(keys, stable=True))
            # Epochs are numbered from 0: this order is none of theirs.
            order = _shuffled(num_batches, (self.seed, -1, window))
            rows = tf.reshape(rows, [num_batches, batch_size])
            return tf.reshape(tf.gather(rows, order), [-1])

        windows = self._shuffled_rows(window * size).batch(size)
        return windows.enumerate(window).map(sort).unbatch().skip(skipped)

    def evaluation_batches(self, batch_size, max_batches=None, context=None):
        """Returns what `RecordSource.evaluation_batches` does."""
        rows = tf.data.Dataset.range(self.num_examples)
        return _evaluation_batches(
            rows, batch_size, max_batches, context, self._gather()
        )

    def _gather(self):
        # Made tensors here: inside the function they would be constants of
        # its graph, which may have 2 GB.
        tensors = {
            name: tf.convert_to_tensor(array)
            for name, array in self.arrays.items()
        }

        def gather(rows, numbers):
            del numbers
            return {
                name: tf.gather(tensor, rows)
                for name, tensor in tensors.items()
            }

        return gather


def example_lengths(source, batch_size=256):
    """Returns the tokens of every example, int32 `[N]`; reads them all.

    Args:
        source: A source of batches with an `input_mask`.
        batch_size: Examples read together.
    """
    counts = source.evaluation_batches(batch_size).map(
        lambda batch: tf.reduce_sum(batch[features.INPUT_MASK], axis=-1)
    )
    counts = np.concatenate(list(counts.as_numpy_iterator()))
    return counts[: source.num_examples]


@contextlib.contextmanager
def clear_errors():
    """Turns TensorFlow's errors about the input into `ValueError`."""
    try:
        yield
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"{_BAD_RECORDS} a file is damaged or cut short: {error.message}"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        for start in (_BAD_RECORDS, "Key: "):
            if start in error.message:
                text = error.message[error.message.index(start) :]
                text = text.removeprefix(_BAD_RECORDS).strip()
                text = text.split("\n")[0].rstrip("]")
                raise ValueError(f"{_BAD_RECORDS} {text}") from error
        raise


def _shuffled(size, numbers):
    """Returns the integers below `size` in an order set by `numbers`."""
    key = tf.stack([tf.cast(numbers[0], tf.int64), tf.zeros((), tf.int64)])
    for number in numbers[1:]:
        key = tf.random.experimental.stateless_fold_in(
            key, tf.cast(number, tf.int64)
        )
    return tf.random.experimental.stateless_shuffle(tf.range(size), key)


def _replica_shape(batch_size, context):
    """Returns (replicas, examples a replica), and this host's replicas."""
    context = context or tf.distribute.InputContext()
    replicas = context.num_replicas_in_sync
    if batch_size % replicas:
        raise ValueError(
            f"The batch size must be a multiple of {replicas}, the number of "
            f"replicas. Received: {batch_size}."
        )
    on_host = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * on_host
    return (replicas, batch_size // replicas), slice(first, first + on_host)


def _training_batches(examples, batch_size, start_example, context, make_batch):
    shape, own = _replica_shape(batch_size, context)
    numbers = start_example + np.arange(batch_size).reshape(shape)

    def own_rows(index, rows):
        return rows[own], index * batch_size + numbers[own]

    return (
        examples.batch(shape[1], drop_remainder=True)
        .batch(shape[0], drop_remainder=True)
        .enumerate()
        .map(own_rows)
        .unbatch()
        .map(make_batch, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )


def _evaluation_batches(examples, batch_size, max_batches, context, make_batch):
    shape, own = _replica_shape(batch_size, context)

    def pad_and_split(index, rows):
        num_rows = tf.shape(rows)[0]
        numbers = index * batch_size + tf.range(num_rows, dtype=tf.int64)
        batch = make_batch(rows, numbers)
        batch[features.EXAMPLE_WEIGHTS] = tf.ones(num_rows)

        def pad(value):
            after = [[0, batch_size - num_rows]]
            value = tf.pad(value, after + [[0, 0]] * (value.shape.rank - 1))
            return tf.reshape(value, [*shape, *value.shape[1:]])[own]

        return tf.nest.map_structure(pad, batch)

    batches = examples.batch(batch_size)
    if max_batches is not None:
        batches = batches.take(max_batches)
    return (
        batches.enumerate()
        .map(pad_and_split)
        .unbatch()
        .prefetch(tf.data.AUTOTUNE)
    )
