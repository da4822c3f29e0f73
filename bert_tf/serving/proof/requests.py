"""Makes the inputs of every signature from texts, as a client would."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row


def make_inputs(
    signature: str, servable: Servable, texts: Sequence[Row]
) -> dict[str, np.ndarray]:
    """Returns the inputs of a signature for a batch: {name: array}.

    Args:
        signature: Its name.
        servable: The `Servable`.
        texts: Rows of one or two strings, bytes.
    """
    form = servable.forms[signature]
    if form.of == signatures.IDS:
        inputs = servable.encode(texts)
        inputs = {name: value.numpy() for name, value in inputs.items()}
        if not form.examples:
            return {
                outside: inputs[name]
                for name, outside in servable.input_names.items()
            }
        rows = _rows_of_ids(inputs)
    else:
        if not form.examples:
            return strings(servable.text_features, texts)
        columns = _columns(servable.text_features, texts)
        rows = (dict(zip(columns, row)) for row in zip(*columns.values()))
    return {form.examples: np.array([_example(row) for row in rows], object)}


def _rows_of_ids(inputs):
    """Yields {name: array} of the rows, without their padding.

    With choices, `[C, L]`, only the padding that all of them have is left out.
    """
    for row, mask in enumerate(inputs[features.INPUT_MASK]):
        length = mask.sum(axis=-1).max()
        yield {
            name: values[row][..., :length].reshape(-1)
            for name, values in inputs.items()
        }


def strings(
    text_features: Sequence[str], texts: Sequence[Row]
) -> dict[str, np.ndarray]:
    """Returns the inputs of a signature that takes strings: {name: array}."""
    names = signatures.input_names(tuple(text_features))
    return {
        names[name]: column
        for name, column in _columns(text_features, texts).items()
    }


def _columns(text_features, texts):
    """Returns {name: array [B], or [B, C] if the name occurs C times}."""
    columns: dict[str, list[np.ndarray]] = {}
    for name, column in zip(text_features, zip(*texts)):
        columns.setdefault(name, []).append(np.array(column, object))
    return {
        name: parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
        for name, parts in columns.items()
    }


def _example(values):
    """Returns a serialized tf.Example with strings or arrays of integers."""
    example = tf.train.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        if isinstance(value, bytes):
            feature.bytes_list.value.append(value)
        elif value.dtype == object:
            feature.bytes_list.value.extend(value)
        else:
            feature.int64_list.value.extend(value.tolist())
    return example.SerializeToString()
