"""What a request brings: shapes checked, and long texts cut.

A wrong shape would fail somewhere inside the graph, or be broadcast; a long
text would take the memory and the time of all requests. TensorFlow's
operations, for eager calls and graphs.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bert_tf import features


def checked(values: Any, *checks: tf.Operation | None) -> Any:
    """Returns tensors that are there once assertions hold.

    Args:
        values: A structure of tensors.
        *checks: What `tf.debugging.Assert` returned: called eagerly, None.
    """
    with tf.control_dependencies([each for each in checks if each is not None]):
        return tf.nest.map_structure(tf.identity, values)


def check_shapes(inputs: Any, specs: Any) -> Any:
    """Returns the inputs of a call if their shapes are those of the specs.

    Those of one spec must have one shape, and all must have one batch size.
    What goes on with the inputs must take those returned, as it would
    otherwise run before the check.

    Args:
        inputs: A tensor, or a structure of tensors.
        specs: The same of `tf.TensorSpec`, whose names errors give.

    Raises:
        tf.errors.InvalidArgumentError: If not, when the graph runs.
    """
    specs = tf.nest.flatten(specs)
    # Not an assertion, which TensorFlow removes as its input's shape is known
    # to be right: a caller of the graph may give it another all the same.
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
            # A loaded callable sees the shapes before it runs, and no
            # assertion: there it fails at this operation, of this name.
            name = "_".join(spec.name for spec in specs)
            tensors = tf.unstack(tf.stack(tensors, name=name), len(specs))
    return tf.nest.pack_sequence_as(inputs, tensors)


def check_ids(
    inputs: dict[str, tf.Tensor], sizes: Mapping[str, int], max_length: int
) -> dict[str, tf.Tensor]:
    """Returns the inputs of a model if every id is in its table.

    Not everywhere would TensorFlow say so: Keras counts negative numbers from
    a table's end, a GPU takes zeros for what is beyond it, and XLA the last
    row. What goes on with the inputs must take those returned.

    Args:
        inputs: {name: int32 `[..., L]`}, of one shape.
        sizes: {name: how many values it has, from 0 on}, of those that tables
            are looked up with.
        max_length: The greatest L.

    Raises:
        tf.errors.InvalidArgumentError: If not, when the graph runs; or if L
            is 0.
    """
    values = tf.stack([inputs[name] for name in sizes])
    length = tf.shape(values)[-1]
    # Of no values at all it is the greatest integer, and the least one.
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
    """Returns positions of rows of ids if the rows have them.

    What is beyond a row would be taken from the next one.

    Args:
        positions: int32 `[B, P]`.
        ids: int32 `[B, L]`.

    Raises:
        tf.errors.InvalidArgumentError: If not, when the graph runs; or if
            there are other rows of them.
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
                f"`{name}` must be from 0 on, and less than the ids in a row. "
                "Received:",
                positions,
                length,
            ],
        ),
    )


def take_texts(texts: Any, max_bytes: int) -> Any:
    """Returns what a preprocessor is given of strings `[B]`, or of pairs.

    Args:
        texts: string `[B]`, or a list of two of them, of one batch size.
        max_bytes: As of `cut_texts`.

    Raises:
        tf.errors.InvalidArgumentError: As of `check_shapes`.
    """
    specs = tf.nest.map_structure(
        lambda texts: tf.TensorSpec([None], tf.string, name="texts"), texts
    )
    return tf.nest.map_structure(
        lambda texts: cut_texts(texts, max_bytes)[0],
        check_shapes(texts, specs),
    )


def cut_texts(texts: tf.Tensor, max_bytes: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts the ends off long texts, between two characters.

    Args:
        texts: string, of any shape.
        max_bytes: How many bytes of each stay at most.

    Returns:
        A pair of the same shape: the texts, and bool, which were cut.
    """
    is_cut = tf.strings.length(texts) > max_bytes
    # With the first byte that is too many: all characters but the last of
    # these have room.
    head = tf.strings.substr(texts, 0, max_bytes + 1)
    count = tf.maximum(tf.strings.length(head, unit="UTF8_CHAR") - 1, 0)
    kept = tf.strings.substr(
        head, tf.zeros_like(count), count, unit="UTF8_CHAR"
    )
    return tf.where(is_cut, kept, texts), is_cut
