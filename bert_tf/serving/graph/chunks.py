"""Computes rows a few at a time, rows of similar length together.

A batch is as long as its longest row, and a model's memory grows with rows
times length. In chunks sorted by length, short rows are not padded to the
length of a long one, and any number of rows takes the memory of a few chunks.
Several chunks are computed at once, as TensorFlow makes little use of a second
core within one.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.text import packing

# The fastest of 4, 8, 16 and 32 for a small model on two cores.
CHUNK_SIZE = 8
# Chunk size by number of rows, from 0. Fewer rows than a chunk stay together,
# more are halved, and still more use the last entry. (Looking it up takes fewer
# operations than computing it.)
_ROWS_TOGETHER = [
    *[CHUNK_SIZE] * CHUNK_SIZE,
    *[(rows + 1) // 2 for rows in range(CHUNK_SIZE, 2 * CHUNK_SIZE)],
]
# On two cores, four are as fast as two; servers have more cores.
_NUM_AT_ONCE = 4


def compute_in_order(
    inputs: dict[str, tf.Tensor],
    model: Any,
    sequences_of_row: int = 1,
) -> Any:
    """Computes rows chunk by chunk, neither sorted nor cut.

    They may have any mask, as requests of ids do, and any outputs.

    Args:
        inputs: The model inputs, int32 `[B, L]`, or `[B, C, L]` with choices.
        model: A `TracedModel`.
        sequences_of_row: C; 1 without choices.

    Returns:
        What the model returns for all rows.
    """
    num_rows = tf.shape(inputs[features.INPUT_IDS])[0]
    rows_together = tf.maximum(rows_of_chunk(num_rows) // sequences_of_row, 1)

    def compute_chunk(start):
        limit = start + rows_together
        rows = {name: inputs[name][start:limit] for name in inputs}
        return tf.nest.flatten(model(rows))

    outputs = concat_chunks(
        compute_chunk, num_rows, rows_together, tf.nest.flatten(model.outputs)
    )
    return tf.nest.pack_sequence_as(model.outputs, outputs)


def compute_windows(
    windows: dict[str, tf.Tensor],
    model: Callable[[dict[str, tf.Tensor]], Any],
    pad_outputs: Callable[[Any, tf.Tensor], Callable[..., tf.Tensor]],
    answer_shape: Sequence[int | None],
) -> tf.Tensor:
    """Computes the outputs of windows chunk by chunk.

    Args:
        windows: The model inputs, among others, `[N, max_seq_length]`.
        model: A `TracedModel`.
        pad_outputs: A function from a Keras model and a length L to a function
            that is called like the model, and pads the outputs to L.
        answer_shape: Shape of a row's outputs, `[None, ...]`.

    Returns:
        float32 `[N, L, ...]`, where L is the length of the longest window.
    """
    inputs = packing.trim_padding(windows)
    predict = pad_outputs(
        lambda rows, training: model(rows),
        tf.shape(inputs[features.INPUT_IDS])[1],
    )
    return compute_in_chunks(
        inputs,
        lambda rows: predict(rows, training=False),
        answer_shape,
    )


def compute_in_chunks(
    inputs: dict[str, tf.Tensor],
    compute: Callable[[dict[str, tf.Tensor]], tf.Tensor],
    answer_shape: Sequence[int | None],
) -> tf.Tensor:
    """Computes rows chunk by chunk, with TensorFlow operations.

    The rows are sorted by length, and a chunk is as long as its longest row.
    At least `CHUNK_SIZE` rows make at least two chunks.

    Args:
        inputs: The model inputs, int32 `[B, L]`, padded at the end.
        compute: A function from the inputs of some rows, cut to the longest
            of them, to numbers `[rows, ...]`. All rows get the same shape.
        answer_shape: Shape of a row's answer, with None for unknown sizes.

    Returns:
        float32 `[B, ...]`.
    """
    lengths = tf.reduce_sum(inputs[features.INPUT_MASK], axis=1)
    order = tf.argsort(lengths, stable=True)
    num_rows = tf.size(order)
    rows_together = rows_of_chunk(num_rows)
    lengths = tf.gather(lengths, order)
    # Stacked: three tensors would take three times as many operations.
    stacked = tf.stack([inputs[name] for name in features.MODEL_INPUTS], axis=1)
    stacked = tf.gather(stacked, order)

    def compute_chunk(start):
        limit = start + rows_together
        # At least 1, even without rows: the pooler needs a first position.
        longest = tf.maximum(tf.reduce_max(lengths[start:limit]), 1)
        rows = tf.unstack(
            stacked[start:limit, :, :longest], len(features.MODEL_INPUTS), 1
        )
        rows = dict(zip(features.MODEL_INPUTS, rows, strict=True))
        return [tf.cast(compute(rows), tf.float32)]

    (answers,) = concat_chunks(
        compute_chunk,
        num_rows,
        rows_together,
        [tf.TensorSpec([None, *answer_shape], tf.float32)],
    )
    return tf.gather(answers, tf.argsort(order))


def rows_of_chunk(num_rows: tf.Tensor) -> tf.Tensor:
    """Returns how many rows are computed together."""
    most = len(_ROWS_TOGETHER) - 1
    return tf.gather(_ROWS_TOGETHER, tf.minimum(num_rows, most))


def concat_chunks(
    compute: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    count: tf.Tensor,
    chunk_size: int | tf.Tensor,
    specs: Sequence[tf.TensorSpec],
    num_at_once: int = _NUM_AT_ONCE,
) -> list[tf.Tensor]:
    """Computes rows chunk by chunk and concatenates the results.

    Args:
        compute: A function from the number of a chunk's first row to a list
            of tensors `[rows, ...]`, for `chunk_size` rows or as many as are
            left.
        count: The number of rows.
        chunk_size: The most rows computed together.
        specs: The `tf.TensorSpec` of each tensor.
        num_at_once: The most chunks computed at the same time, threads
            permitting; the memory grows with it.

    Returns:
        A list of tensors `[count, ...]`.
    """
    # At least one chunk, even without rows: it gives the answers their shape.
    num_chunks = tf.maximum(-(-count // chunk_size), 1)

    def compute_chunk(index, *arrays):
        values = compute(index * chunk_size)
        return index + 1, *(
            array.write(index, value)
            for array, value in zip(arrays, values, strict=True)
        )

    _, *arrays = tf.while_loop(
        lambda index, *_: index < num_chunks,
        compute_chunk,
        (
            0,
            *(
                tf.TensorArray(
                    spec.dtype,
                    size=num_chunks,
                    infer_shape=False,
                    element_shape=spec.shape,
                )
                for spec in specs
            ),
        ),
        parallel_iterations=num_at_once,
    )
    values = [array.concat() for array in arrays]
    for value, spec in zip(values, specs):
        value.set_shape(spec.shape)
    return values
