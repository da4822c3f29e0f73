"""Training and evaluation batches of the examples in TFRecord files."""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf import messages
from bert_tf import progress_bar
from bert_tf.features import Batch
from bert_tf.features import RecordSpec
from bert_tf.input import batching
from bert_tf.input import errors
from bert_tf.input.batch_source import Context
from bert_tf.input.errors import BAD_RECORDS
from bert_tf.manifest import Manifest
from bert_tf.text import dynamic_masking

# How many files are read in turn, and how many records are shuffled together.
# Files form groups, and the records of a group form blocks, so that a resumed
# run can skip whole groups and blocks.
_GROUP_SIZE = 16
_BLOCK_SIZE = 8192
# Read-ahead for a file in an object store, where every read is a request.
# TensorFlow's default of 256 KiB is only some hundred records.
_REMOTE_BUFFER_BYTES = 8 * 2**20
# For masks that are chosen here in evaluation: the same ones each time,
# whatever the run's seed is.
_EVALUATION_SEED = 20181011


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordSource:
    """Examples in TFRecord files.

    Args:
        paths: The files, in an order that does not change.
        spec: {feature name: (dtype, shape)} of the records; int64 becomes
            int32 in the batches.
        limits: {feature name: n}: the values must be in [0, n).
        counts: {path: number of examples}, for the files where it is known.
        mask: None, or `mask(batch, seeds)`, which chooses the predictions of
            records that have none (dynamic masking), or replaces them. In
            training the seeds, int64 [B, 2], are a function of the run's seed
            and the example's number over all epochs; in evaluation, of its
            number alone.
        seed: Seed of the order of the training examples, and of their masks.
        num_shares: Number of parts of a training batch. Each part has its own
            share of every epoch's records, so that a host reads only the shares
            of its parts. All shares together have each record once per epoch.
            The batches depend on this number, but not on that of the hosts.
            None: as many as there are hosts. 1: every host reads all files,
            and takes its part of each batch.
        services: Addresses of the tf.data services that make the training
            batches; see `input.data_service`.
        digest: Tells records apart by file names, sizes and first records. It
            does not change when the folder is moved.
        manifests: The manifests of the records, each once.
    """

    unit: ClassVar[str] = "examples"

    paths: tuple[str, ...]
    spec: RecordSpec
    limits: dict[str, int]
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    mask: Callable[[Batch, tf.Tensor], dict[str, tf.Tensor]] | None = None
    seed: int = 12345
    num_shares: int | None = None
    services: tuple[str, ...] = ()
    digest: str = ""
    manifests: tuple[Manifest, ...] = ()

    @functools.cached_property
    def num_examples(self) -> int:
        """The number of examples; reads the files whose count is unknown."""
        unknown = [path for path in self.paths if path not in self.counts]
        with progress_bar.track(
            unknown, "count the examples", len(unknown), "file"
        ) as paths:
            for path in paths:
                self._count(path)
        return sum(self.counts[path] for path in self.paths)

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """{feature name: its shape in a batch, without the batch's axis}."""
        if self.mask is None:
            return {name: shape for name, (_, shape) in self.spec.items()}
        # Only tracing a mask shows which features it returns.
        batch = self.evaluation_batches(1).element_spec
        return {name: tuple(spec.shape[1:]) for name, spec in batch.items()}

    def training_batches(
        self, batch_size: int, start_example: int = 0, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the training batches; see `BatchSource`."""
        context = context or tf.distribute.InputContext()
        num_shares = self.check_shares(batch_size, context.num_input_pipelines)
        own = range(num_shares)
        if num_shares > 1:
            on_host = num_shares // context.num_input_pipelines
            first = context.input_pipeline_id * on_host
            own = range(first, first + on_host)
        return batching.training_batches(
            [self._share(number, num_shares, start_example) for number in own],
            batch_size // num_shares,
            batch_size,
            start_example,
            context,
            functools.partial(self._make_batch, seed=self.seed),
            self.services,
        )

    def evaluation_batches(
        self, batch_size: int, context: Context = None
    ) -> tf.data.Dataset:
        """Returns the evaluation batches; see `BatchSource`."""
        records = self._read(list(self.paths))
        return batching.evaluation_batches(
            records,
            batch_size,
            context,
            functools.partial(self._make_batch, seed=_EVALUATION_SEED),
        )

    def _read(self, paths):
        """Returns the serialized records of a file, or of several."""
        is_remote = any(files.is_remote(path) for path in self.paths)
        return tf.data.TFRecordDataset(
            paths, buffer_size=_REMOTE_BUFFER_BYTES if is_remote else None
        )

    def _count(self, path):
        if path not in self.counts:
            records = self._read(path)
            with errors.clear_errors([path]):
                count, size = records.reduce((np.int64(0),) * 2, _add_record)
            errors.check_end(path, int(count), int(size))
            self.counts[path] = int(count)
        return self.counts[path]

    def check_shares(self, batch_size: int, num_hosts: int) -> int:
        """Returns the number of shares of a training batch.

        Args:
            batch_size: The batch's examples, over all replicas.
            num_hosts: Number of machines that read the input.

        Raises:
            ValueError: If the hosts, files or batch do not fit that number.
        """
        num_shares = self.num_shares or num_hosts
        if num_shares > 1 and num_shares % num_hosts:
            raise ValueError(
                "`num_shares` must be 1 or a multiple of the number of "
                f"hosts. Received: num_shares={num_shares}, {num_hosts} "
                "hosts."
            )
        if num_shares > len(self.paths):
            raise ValueError(
                "There must be at least as many record files as there are "
                "hosts. Received: "
                f"{messages.counted(len(self.paths), 'file', 'files')} for "
                f"{num_shares}. Make more "
                "files: create_pretraining_data "
                f"--output_file=records@{num_shares}."
            )
        if batch_size % num_shares:
            raise ValueError(
                f"The batch size must be a multiple of {num_shares}, the "
                f"number of input shares. Received: {batch_size}."
            )
        return num_shares

    def _share(self, number, num_shares, start_example):
        """Returns a share's serialized records, without end."""
        # Shares consume one example each in turn, lower numbers first.
        consumed = (start_example + number) // num_shares
        epoch, group, block, rest = 0, 0, 0, 0
        if consumed:
            epoch = (consumed + 1) * num_shares - number - 1
            epoch //= self.num_examples
            rest = consumed
            rest -= (epoch * self.num_examples + number) // num_shares
            for size in self._group_sizes(epoch, number, num_shares):
                if rest < size:
                    break
                rest -= size
                group += 1
            block, rest = divmod(rest, _BLOCK_SIZE)

        # If a share has fewer files, its last groups are empty.
        num_groups = -(-len(self.paths) // _GROUP_SIZE)

        @tf.autograph.experimental.do_not_convert
        def records(index, block=0):
            epoch, group = index // num_groups, index % num_groups
            key = [self.seed, epoch, group]
            if num_shares > 1:
                key += [num_shares, number]
            share = self._files(epoch, number, num_shares)
            own = slice(group * _GROUP_SIZE, (group + 1) * _GROUP_SIZE)
            parts = tuple(values[own] for values in share)
            return _shuffled_records(parts, self._read, key, block)

        index = epoch * num_groups + group
        later = tf.data.Dataset.range(index + 1, np.iinfo(np.int64).max)
        return (
            records(index, block)
            .skip(rest)
            .concatenate(later.flat_map(records))
        )

    def _group_sizes(self, epoch, number, num_shares):
        paths, _, counts = (
            values.numpy() for values in self._files(epoch, number, num_shares)
        )
        if num_shares == 1:
            counts = [self._count(path.decode()) for path in paths]
        starts = range(0, len(counts), _GROUP_SIZE)
        return [int(sum(counts[i : i + _GROUP_SIZE])) for i in starts]

    def _files(self, epoch, number, num_shares):
        """Returns the files of a share of an epoch.

        The records of an epoch, file by file in its order, are cut into
        consecutive shares. Their sizes differ by one at most, and so do their
        sums over any number of epochs.

        Returns:
            Three tensors [F]: the paths; int64, the number of each file's first
            record in the share; int64, how many of its records are in the
            share, -1 for all.
        """
        order = batching.shuffled(len(self.paths), (self.seed, epoch))
        paths = tf.gather(list(self.paths), order)
        if num_shares == 1:
            # Records are not counted, which may require reading them all.
            zeros = tf.zeros_like(order, tf.int64)
            return paths, zeros, zeros - 1
        num_examples = self.num_examples  # Counts what is not counted yet.
        counts = tf.gather(
            tf.constant([self.counts[path] for path in self.paths], tf.int64),
            order,
        )
        # What each share consumed before this epoch, and before the next.
        places = tf.cast(epoch, tf.int64) + tf.constant([[0], [1]], tf.int64)
        consumed = (
            places * num_examples + tf.range(num_shares, dtype=tf.int64)
        ) // num_shares
        sizes = consumed[1] - consumed[0]
        start = tf.reduce_sum(sizes[:number])
        before = tf.cumsum(counts, exclusive=True)
        first = tf.clip_by_value(start - before, 0, counts)
        last = tf.clip_by_value(start + sizes[number] - before, 0, counts)
        is_own = last > first
        return tuple(
            tf.boolean_mask(values, is_own)
            for values in (paths, first, last - first)
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
            text = tf.strings.format(
                f"{BAD_RECORDS} `{name}` must be in [0, {limit}). "
                "Received values from {} to {}.",
                (low, high),
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


@tf.autograph.experimental.do_not_convert
def _add_record(found, record):
    """Adds a record to the (number, bytes) of those before it."""
    count, size = found
    return count + 1, size + tf.cast(tf.strings.length(record), tf.int64)


def _shuffled_records(parts, read, key, first_block):
    """Returns the records of a group of files, shuffled in blocks.

    Args:
        parts: (paths, firsts, counts), as returned by `RecordSource._files`.
        read: Function of a path that returns a dataset of its records.
        key: Integers that set the order.
        first_block: The number of the first block.
    """
    records = tf.data.Dataset.from_tensor_slices(parts).interleave(
        lambda path, first, count: read(path).skip(first).take(count),
        cycle_length=_GROUP_SIZE,
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )

    @tf.autograph.experimental.do_not_convert
    def shuffle(block, rows):
        order = batching.shuffled(tf.size(rows), (*key, block))
        return tf.gather(rows, order)

    return (
        records.skip(first_block * _BLOCK_SIZE)
        .batch(_BLOCK_SIZE)
        .enumerate(first_block)
        .map(shuffle)
        # The next block is read while batches are made of this one.
        .prefetch(1)
        .unbatch()
    )
