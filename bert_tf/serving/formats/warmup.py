"""Requests that a server sends itself before a version takes traffic.

The first calls of a graph, and the first with every batch size, are slow:
TensorFlow optimises the graph and allocates memory. TensorFlow Serving replays
the requests in `assets.extra/tf_serving_warmup_requests`.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import files
from bert_tf.serving import saved_model
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.proof import requests

FILE = "tf_serving_warmup_requests"
# TensorFlow Serving refuses to load a version with more.
MAX_REQUESTS = 1000

_CLASSIFY = signatures.METHOD_NAMES[signatures.CLASSIFY]
_REGRESS = signatures.METHOD_NAMES[signatures.REGRESS]


def write_requests(
    folder: str, servable: Servable, batch_sizes: Sequence[int], model_name: str
) -> int:
    """Writes one request per signature and batch size into a SavedModel.

    The texts have the model's maximum length. A model compiled by XLA also
    gets a request for each of its shapes.

    Args:
        folder: A local SavedModel of this library.
        servable: The `Servable` that it was exported from.
        batch_sizes: The server's `allowed_batch_sizes`; may be empty for a
            compiled model.
        model_name: The server's name for the model.

    Returns:
        The number of requests.

    Raises:
        ValueError: If a batch size is not positive, there are too many
            requests, or tensorflow-serving-api is not installed.
        OSError: If writing fails, e.g. on a full disk.
    """
    shapes = compiled_shapes(servable)
    _warn_of_lengths(servable, shapes)
    if not (batch_sizes or shapes) or any(size < 1 for size in batch_sizes):
        raise ValueError(
            "`batch_sizes` must be positive numbers. "
            f"Received: batch_sizes={list(batch_sizes)}."
        )
    described = saved_model.read_signatures(folder)
    num_requests = _check_number(described, shapes, batch_sizes)
    batches = [
        *([row] * size for (size, _), row in shapes.items()),
        *([_longest_row(servable)] * size for size in batch_sizes),
    ]
    prediction_log = _messages()
    path = f"{folder}/{saved_model.EXTRA_FOLDER}/{FILE}"
    files.make_folder(f"{folder}/{saved_model.EXTRA_FOLDER}")
    with (
        files.clear_write_errors(path),
        tf.io.TFRecordWriter(path) as writer,
    ):
        for name, signature in sorted(described.items()):
            for batch in batches:
                inputs = requests.make_inputs(name, servable, batch)
                log = prediction_log()
                request = _request(log, signature.method_name, inputs)
                request.model_spec.name = model_name
                request.model_spec.signature_name = name
                writer.write(log.SerializeToString())
    return num_requests


def check_installed() -> None:
    """Raises `ValueError` unless tensorflow-serving-api is installed."""
    _messages()


def check_number(servable: Servable, batch_sizes: Sequence[int]) -> None:
    """Raises `ValueError` if a SavedModel would have too many requests.

    Args:
        servable, batch_sizes: As in `write_requests`.
    """
    _check_number(servable.forms, compiled_shapes(servable), batch_sizes)


def _check_number(names, shapes, batch_sizes):
    """Returns the number of requests for the signatures of these names."""
    num_batches = len(shapes) + len(batch_sizes)
    if len(names) * num_batches > MAX_REQUESTS:
        raise ValueError(
            f"Warm-up requests must be at most {MAX_REQUESTS}. Received: "
            f"{len(names)} signatures, {num_batches} batches."
        )
    return len(names) * num_batches


def compiled_shapes(servable: Servable) -> dict[tuple[int, int], Row]:
    """Returns {(rows, length): a row of strings} for a compiled model's shapes.

    Empty for a model that is not compiled. Lengths that no row is padded to
    are left out: those shorter than the prompt, and those just above another
    length if the tokenizer splits the word in two.
    """
    options = servable.options
    if not options.is_jit_compiled:
        return {}
    longest = servable.preprocessor.max_seq_length
    rows = [servable.row_of_words(count) for count in range(longest + 1)]
    mask = servable.encode(rows)[features.INPUT_MASK].numpy()
    counts = mask.sum(axis=1)
    found = {}
    below = 0
    for length in options.jit_lengths:
        (fitting,) = np.nonzero((below < counts) & (counts <= length))
        if len(fitting):
            for size in options.jit_batch_sizes:
                found[size, length] = rows[fitting[-1]]
        below = length
    return found


def _warn_of_lengths(servable, shapes):
    """Logs which lengths a compiled model is not warmed up for."""
    warm = {length for _, length in shapes}
    cold = [each for each in servable.options.jit_lengths if each not in warm]
    if cold and servable.options.is_jit_compiled:
        logging.warning(
            "No warm-up request has the length %s: it is compiled at the first "
            "request of that length.",
            " or ".join(map(str, cold)),
        )


def _longest_row(servable):
    count = servable.preprocessor.max_seq_length
    return servable.row_of_words(count * len(servable.text_features))


def _request(log, method_name, inputs):
    """Fills and returns the log's request for a method."""
    if method_name not in (_CLASSIFY, _REGRESS):
        request = log.predict_log.request
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        return request
    is_classify = method_name == _CLASSIFY
    request = (log.classify_log if is_classify else log.regress_log).request
    (examples,) = inputs.values()
    request.input.example_list.examples.extend(
        map(tf.train.Example.FromString, examples)
    )
    return request


def _messages():
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError as error:
        raise ValueError(
            "Warm-up requests need tensorflow-serving-api: pip install "
            f"tensorflow-serving-api. ({error})"
        ) from error
    return prediction_log_pb2.PredictionLog
