"""Checks the tensors of a request, and cuts long texts.

A wrong shape would fail somewhere inside the graph, or be broadcast. A long
text would take memory and time from all requests. Everything here is made of
TensorFlow operations and works eagerly and in graphs.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features
from bert_tf.text.tokenizers import utf_8


def checked(values: Any, *checks: tf.Operation | None) -> Any:
    """Returns tensors that are only available once assertions hold.

    Args:
        values: A structure of tensors.
        *checks: What `tf.debugging.Assert` returned, which is None if eager.
    """
    with tf.control_dependencies([each for each in checks if each is not None]):
        return tf.nest.map_structure(tf.identity, values)


def check_shapes(inputs: Any, specs: Any) -> Any:
    """Returns the inputs of a call if their shapes match the specs.

    All inputs must have the same batch size, and the same shape if their specs
    do. Use the returned inputs: operations on the original ones may run before
    the check.

    Args:
        inputs: A tensor, or a structure of tensors.
        specs: The same structure of `tf.TensorSpec`; errors give their names.

    Raises:
        tf.errors.InvalidArgumentError: If a shape does not match, when the
            graph runs.
    """
    specs = tf.nest.flatten(specs)
    # Not an assertion: TensorFlow would remove it, as the static shape is known
    # to be right, but a caller of the graph may still pass another.
    tensors = [
        tf.ensure_shape(tensor, spec.shape, name=spec.name)
        for tensor, spec in zip(tf.nest.flatten(inputs), specs, strict=True)
    ]
    if len(tensors) > 1:
        is_alike = all(spec.shape == specs[0].shape for spec in specs)
        shapes = [tf.shape(tensor) for tensor in tensors]
        compared = shapes if is_alike else [shape[:1] for shape in shapes]
        names = ", ".join(f"`{spec.name}`" for spec in specs)
        check = tf.debugging.Assert(
            tf.reduce_all(tf.equal(tf.stack(compared), compared[0])),
            [
                f"{names} must have one {'shape' if is_alike else 'batch size'}"
                ". Received: shapes",
                *shapes,
            ],
        )
        tensors = checked(tensors, check)
        if is_alike:
            # A loaded callable checks shapes before it runs any assertion. It
            # fails at this operation, whose name tells the inputs.
            name = "_".join(spec.name for spec in specs)
            tensors = tf.unstack(tf.stack(tensors, name=name), len(specs))
    return tf.nest.pack_sequence_as(inputs, tensors)


def check_ids(
    inputs: dict[str, tf.Tensor], sizes: Mapping[str, int], max_length: int
) -> dict[str, tf.Tensor]:
    """Returns the inputs of a model if every id is in its table.

    TensorFlow does not always report a wrong id: Keras counts negative numbers
    from a table's end, a GPU returns zeros for ids beyond it, and XLA the last
    row. Use the returned inputs.

    Args:
        inputs: {name: int32 `[..., L]`}, all of one shape.
        sizes: {name: number of rows in its table}, for the inputs that are
            looked up in one.
        max_length: The greatest L.

    Raises:
        tf.errors.InvalidArgumentError: If an id is not in its table, or L is
            0 or too large, when the graph runs.
    """
    values = tf.stack([inputs[name] for name in sizes])
    length = tf.shape(values)[-1]
    # Without values, these are the greatest integer and the least one.
    axes = list(range(1, len(values.shape)))
    least, most = (
        reduce(values, axis=axes) for reduce in (tf.reduce_min, tf.reduce_max)
    )
    return checked(
        dict(inputs),
        tf.debugging.Assert(
            (length > 0) & (length <= max_length),
            [
                f"Ids must be at least one and at most {max_length} in a row. "
                "Received:",
                length,
            ],
        ),
        tf.debugging.Assert(
            tf.reduce_all((least >= 0) & (most < [*sizes.values()])),
            [
                " and ".join(
                    f"`{name}` must be from 0 to {size - 1}"
                    for name, size in sizes.items()
                )
                + ". Received: least and greatest",
                least,
                most,
            ],
        ),
    )


def check_positions(positions: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns positions in rows of ids if they are within the rows.

    A position beyond a row would read from the next one.

    Args:
        positions: int32 `[B, P]`.
        ids: int32 `[B, L]`.

    Raises:
        tf.errors.InvalidArgumentError: If a position is out of range, or the
            batch sizes differ, when the graph runs.
    """
    name = features.MASKED_LM_POSITIONS
    num_rows, length = tf.unstack(tf.shape(ids))
    return checked(
        positions,
        tf.debugging.Assert(
            tf.equal(tf.shape(positions)[0], num_rows),
            [
                f"`{name}` must have the batch size of the ids. Received: "
                "shapes",
                tf.shape(positions),
                tf.shape(ids),
            ],
        ),
        tf.debugging.Assert(
            tf.reduce_all((positions >= 0) & (positions < length)),
            [
                f"`{name}` must be at least 0 and less than the number of ids "
                "in a row. Received:",
                positions,
                length,
            ],
        ),
    )


def take_texts(texts: Any, max_bytes: int) -> Any:
    """Checks and cuts texts, or pairs of texts, for a preprocessor.

    Args:
        texts: string `[B]`, or a list of two of them, of one batch size.
        max_bytes: As in `utf_8.cut_texts`.

    Raises:
        tf.errors.InvalidArgumentError: As in `check_shapes`.
    """
    specs = tf.nest.map_structure(
        lambda texts: tf.TensorSpec([None], tf.string, name="texts"), texts
    )
    return tf.nest.map_structure(
        lambda texts: utf_8.cut_texts(texts, max_bytes)[0],
        check_shapes(texts, specs),
    )
