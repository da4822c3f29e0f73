"""Orders that are functions of numbers, and batches shared among replicas.

No function of the input pipelines has Python control flow on tensors, so none
needs AutoGraph, which would take longer than the tracing itself.
"""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.input import data_service
from bert_tf.input.batch_source import Context


def shuffled(
    size: int | tf.Tensor, numbers: Sequence[int | tf.Tensor]
) -> tf.Tensor:
    """Returns the integers below `size` in an order set by `numbers`."""
    key = tf.stack([tf.cast(numbers[0], tf.int64), tf.zeros((), tf.int64)])
    for number in numbers[1:]:
        key = tf.random.experimental.stateless_fold_in(
            key, tf.cast(number, tf.int64)
        )
    return tf.random.experimental.stateless_shuffle(tf.range(size), key)


def _replica_shape(batch_size, context):
    """Returns (replicas, examples per replica), and this host's replicas."""
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


def training_batches(
    parts: Sequence[tf.data.Dataset],
    part_size: int,
    batch_size: int,
    start_example: int,
    context: Context,
    make_batch: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]],
    services: Sequence[str] = (),
) -> tf.data.Dataset:
    """Returns the training batches of a host's replicas, without end.

    Args:
        parts: Datasets with a scalar per example, one dataset for each part of
            a batch: either for all parts, in order, or for those of this host's
            replicas.
        part_size: Examples per part.
        batch_size: Examples of all parts, over all replicas.
        start_example: The number of the first example.
        context: The host's `Context`.
        make_batch: `make_batch(rows, numbers)` -> a batch, made from a
            replica's scalars and the numbers of its examples, int64, both
            `[B]`.
        services: Addresses of tf.data services that make the batches.
    """
    shape, own = _replica_shape(batch_size, context)
    numbers = start_example + np.arange(batch_size).reshape(shape)[own]
    has_all = len(parts) * part_size == batch_size

    @tf.autograph.experimental.do_not_convert
    def own_rows(index, *rows):
        rows = tf.reshape(tf.concat(rows, axis=0), [-1, shape[1]])
        return rows[own] if has_all else rows, index * batch_size + numbers

    parts = [part.batch(part_size, drop_remainder=True) for part in parts]
    steps = tf.data.Dataset.zip(tf.data.Dataset.counter(), *parts)

    def make_batches(steps):
        rows = steps.map(own_rows).unbatch()
        return rows.map(
            tf.autograph.experimental.do_not_convert(make_batch),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    if services:
        batches = data_service.distribute(
            steps, make_batches, services, len(numbers)
        )
    else:
        batches = make_batches(steps)
    return (
        # Otherwise several workers ask each other before every step whether
        # there is another batch, and of which size, and lose static shapes.
        batches.apply(
            tf.data.experimental.assert_cardinality(
                tf.data.experimental.INFINITE_CARDINALITY
            )
        ).prefetch(tf.data.AUTOTUNE)
    )


def evaluation_batches(
    examples: tf.data.Dataset,
    batch_size: int,
    context: Context,
    make_batch: Callable[[tf.Tensor, tf.Tensor], dict[str, tf.Tensor]],
) -> tf.data.Dataset:
    """Returns the batches of a host's replicas, every example once.

    Args:
        examples: A dataset with a scalar per example.
        batch_size, context, make_batch: As in `training_batches`.
    """
    shape, own = _replica_shape(batch_size, context)

    @tf.autograph.experimental.do_not_convert
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

    return (
        examples.batch(batch_size)
        .enumerate()
        .map(pad_and_split)
        .unbatch()
        .prefetch(tf.data.AUTOTUNE)
    )
