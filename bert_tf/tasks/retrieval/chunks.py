"""Training steps of thousands of texts, with the memory of a few.

Gao et al. 2021 (GradCache, arXiv 2101.06983): all texts are embedded a chunk
at a time, without gradients. The loss over all vectors gives the gradient of
each vector. Then each chunk is embedded again, with the same dropout, and the
gradients of its vectors are propagated back. The step equals that of the whole
batch, at the cost of one more forward pass.
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
        chunk_size: Texts in a chunk; must divide the number of texts.
    """

    def run(model, embed, inputs):
        return _run_in_chunks(model, embed, inputs, chunk_size)

    return run


def _run_in_chunks(model, embed, inputs, chunk_size):
    """Returns `embed(inputs)`, float32 `[N, D]`; N must be static."""
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
    # The state's second number counts the generator's calls; the first gets the
    # number of the chunk added. Both passes of a chunk start from the same
    # state, so their dropout masks are equal.
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
        # Only one chunk is in memory at a time.
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

    # The arguments stand for the variables, which get the gradients above.
    @tf.custom_gradient
    def attach(*values):
        del values
        return tf.identity(vectors), gradients

    # Not `value`, which may be 16-bit under mixed precision.
    return attach(*(tf.convert_to_tensor(each._value) for each in variables))
