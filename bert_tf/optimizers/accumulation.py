"""Sums over a batch that is processed in parts, one after the other."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def sum_over_parts(
    run_part: Callable[[dict[str, Any]], Any],
    batch: Mapping[str, Any],
    num_parts: int,
) -> Any:
    """Sums what a function returns for the parts of a batch.

    A loop in the graph processes the parts. It needs the memory of one part's
    activations, and of one sum.

    Args:
        run_part: `run_part(part)` -> a nest of float tensors whose shapes do
            not depend on the values; `tf.IndexedSlices` may be among them.
        batch: {name: tensor [B, ...]}, or dictionaries of these, such as the
            labels of a model with several outputs. Shapes must be static,
            except for one axis after the first.
        num_parts: Number of parts, of B / num_parts rows each.

    Returns:
        The nest of the sums, as dense tensors.

    Raises:
        ValueError: If `num_parts` does not divide B.
    """
    num_rows = tf.nest.flatten(batch)[0].shape[0]
    if num_rows % num_parts:
        raise ValueError(
            f"`num_parts` must divide the {num_rows} rows of the batch. "
            f"Received: num_parts={num_parts}."
        )

    # Reshaped, not sliced, so that the shape of a part is static. Only the
    # length of trimmed batches is not.
    def divided(rows):
        sizes = [-1 if size is None else size for size in rows.shape[1:]]
        return tf.reshape(rows, [num_parts, num_rows // num_parts, *sizes])

    parts = tf.nest.map_structure(divided, dict(batch))

    # A function of its own, so that it is traced once, and so that the shapes
    # of its results are known before the loop is made.
    @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.int32)])
    def run_number(number):
        results = run_part(
            tf.nest.map_structure(lambda rows: rows[number], parts)
        )
        return tf.nest.map_structure(tf.convert_to_tensor, results)

    zeros = tf.nest.map_structure(
        lambda spec: tf.zeros(spec.shape, spec.dtype),
        run_number.get_concrete_function().structured_outputs,
    )
    _, sums = tf.while_loop(
        lambda number, _: number < num_parts,
        lambda number, sums: (
            number + 1,
            tf.nest.map_structure(tf.add, sums, run_number(number)),
        ),
        (tf.constant(0), zeros),
        parallel_iterations=1,
    )
    return sums
