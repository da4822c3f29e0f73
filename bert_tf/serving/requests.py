"""Texts as the inputs of every signature: what a client would send."""

import numpy as np
import tensorflow as tf

from bert_tf.serving import signatures


def make_inputs(signature, source, texts, has_text):
    """Returns the inputs of a signature for a batch: {name: array}.

    Args:
        signature: Its name, of those in `signatures`.
        source: The model's `Source`.
        texts: Rows of one or two strings, bytes.
        has_text: Whether the SavedModel takes strings, or ids only.
    """
    if signature == signatures.IDS or (
        signature == signatures.DEFAULT and not has_text
    ):
        names = source.servable.input_names
        return {
            names.get(name, name): value.numpy()
            for name, value in _model_inputs(source, texts).items()
        }
    if signature == signatures.DEFAULT:
        return strings(source.text_features, texts)
    is_method = signature in signatures.METHOD_NAMES
    name = signatures.METHOD_INPUT if is_method else signatures.EXAMPLES
    columns = (
        _columns(source.text_features, texts)
        if has_text
        else {
            name: value.numpy()
            for name, value in _model_inputs(source, texts).items()
        }
    )
    examples = [
        _example({key: column[row] for key, column in columns.items()})
        for row in range(len(texts))
    ]
    return {name: np.array(examples, object)}


def _model_inputs(source, texts):
    return source.servable.encode(source.preprocessor, texts)


def strings(text_features, texts):
    """Returns the inputs of a signature of strings: {name: array}."""
    return {
        signatures.input_name(name): column
        for name, column in _columns(text_features, texts).items()
    }


def _columns(text_features, texts):
    """Returns {name: array [B], or [B, C] of a name that is there C times}."""
    columns = {}
    for name, column in zip(text_features, zip(*texts)):
        columns.setdefault(name, []).append(np.array(column, object))
    return {
        name: parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
        for name, parts in columns.items()
    }


def _example(values):
    """Returns a serialized tf.Example of strings or arrays of integers."""
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
