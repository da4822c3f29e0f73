"""Training steps of thousands of texts, with the memory of a few.

Gao et al. 2021 (GradCache, arXiv 2101.06983): all texts are embedded a chunk
at a time, without a gradient. The loss over all vectors gives the gradient of
each. Then each chunk is embedded once more, with the same dropout, and its
gradient is what its vectors' gradient makes of it. The step is that of the
whole batch, for one forward pass more.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_tf.features import Batch


def make_runner(
    chunk_size: int,
) -> Callable[[Any, Callable[[Batch], tf.Tensor], Batch], tf.Tensor]:
    """Returns a `run_in_chunks` of `BertSentenceEncoder`.

    Args:
        chunk_size: Texts of a chunk; their number must be a multiple of it.
    """

    def run(model, embed, inputs):
        return _run_in_chunks(model, embed, inputs, chunk_size)

    return run


def _run_in_chunks(model, embed, inputs, chunk_size):
    """Returns `embed(inputs)`, float32 `[N, D]`, for N a known number."""
    num_texts = next(iter(inputs.values())).shape[0]
    if num_texts is None or num_texts % chunk_size:
        raise ValueError(
            f"`chunk_size` must divide the {num_texts} texts of a replica's "
            f"share of the batch. Received: chunk_size={chunk_size}."
        )
    num_chunks = num_texts // chunk_size
    chunks = {
        name: tf.reshape(
            values,
            [num_chunks, chunk_size]
            + [-1 if size is None else size for size in values.shape[1:]],
        )
        for name, values in inputs.items()
    }
    generators = [
        layer.seed_generator
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.Dropout) and layer.rate > 0
    ]
    # A generator counts its calls in the second number. The first tells the
    # chunk: both passes begin at the same state, and so have the same masks.
    starts = [tf.identity(each.state.value) for each in generators]

    def embed_chunk(number):
        for generator, start in zip(generators, starts):
            offset = tf.stack([tf.cast(number, start.dtype), 0])
            generator.state.assign(start + offset)
        return embed({name: values[number] for name, values in chunks.items()})

    size = model.dense_size or model.config.hidden_size
    _, vectors = tf.while_loop(
        lambda number, _: number < num_chunks,
        lambda number, parts: (
            number + 1,
            parts.write(number, embed_chunk(number)),
        ),
        (
            tf.constant(0),
            tf.TensorArray(
                tf.float32, num_chunks, element_shape=[chunk_size, size]
            ),
        ),
        # One chunk is in memory at a time.
        parallel_iterations=1,
    )
    vectors = tf.stop_gradient(tf.reshape(vectors.stack(), [num_texts, size]))
    variables = model.trainable_variables

    def gradients(upstream):
        upstream = tf.reshape(upstream, [num_chunks, chunk_size, size])

        def add(number, sums):
            with tf.GradientTape() as tape:
                vectors = embed_chunk(number)
            parts = tape.gradient(
                vectors,
                variables,
                upstream[number],
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            return number + 1, [
                total + tf.convert_to_tensor(part)
                for total, part in zip(sums, parts)
            ]

        _, sums = tf.while_loop(
            lambda number, _: number < num_chunks,
            add,
            (
                tf.constant(0),
                [tf.zeros(each.shape, each.dtype) for each in variables],
            ),
            parallel_iterations=1,
        )
        return sums

    # The values stand for the variables, whose gradients are those above.
    @tf.custom_gradient
    def attach(*values):
        del values
        return tf.identity(vectors), gradients

    # Not `value`: under mixed precision that may be one of 16 bits.
    return attach(*(tf.convert_to_tensor(each._value) for each in variables))
