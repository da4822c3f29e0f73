"""Requests that a server sends itself before a version takes traffic.

The first calls of a graph, and the first with every batch size, are slow:
TensorFlow optimises the graph and allocates memory. TensorFlow Serving replays
the requests in `assets.extra/tf_serving_warmup_requests`.
"""

import tensorflow as tf

from bert_tf import atomic
from bert_tf import files
from bert_tf.serving import saved_model
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.proof import requests

FILE = "tf_serving_warmup_requests"
# TensorFlow Serving refuses to load a version with more.
MAX_REQUESTS = 1000

_CLASSIFY = signatures.METHOD_NAMES[signatures.CLASSIFY]
_REGRESS = signatures.METHOD_NAMES[signatures.REGRESS]


def write_requests(folder: str, servable: Servable, model_name: str) -> int:
    """Writes one request per signature and batch size into a SavedModel.

    The texts have the model's maximum length.

    Args:
        folder: A local SavedModel of this library.
        servable: The `Servable` that it was exported from, with the
            `warmup_batch_sizes`.
        model_name: The server's name for the model.

    Returns:
        The number of requests.

    Raises:
        ValueError: If tensorflow-serving-api is not installed.
        OSError: If writing fails, e.g. on a full disk.
    """
    batch_sizes = servable.options.warmup_batch_sizes
    described = saved_model.read_signatures(folder)
    row = _longest_row(servable)
    prediction_log = _messages()
    path = f"{folder}/{saved_model.EXTRA_FOLDER}/{FILE}"
    files.make_folder(f"{folder}/{saved_model.EXTRA_FOLDER}")
    with (
        atomic.clear_write_errors(path),
        tf.io.TFRecordWriter(path) as writer,
    ):
        for name, signature in sorted(described.items()):
            for size in batch_sizes:
                inputs = requests.make_inputs(name, servable, [row] * size)
                log = prediction_log()
                request = _request(log, signature.method_name, inputs)
                request.model_spec.name = model_name
                request.model_spec.signature_name = name
                writer.write(log.SerializeToString())
    return len(described) * len(batch_sizes)


def check_installed() -> None:
    """Raises `ValueError` unless tensorflow-serving-api is installed."""
    _messages()


def check_number(servable: Servable) -> None:
    """Raises `ValueError` if a SavedModel would have too many requests."""
    batch_sizes = servable.options.warmup_batch_sizes
    num_signatures = len(servable.forms)
    if num_signatures * len(batch_sizes) > MAX_REQUESTS:
        raise ValueError(
            f"Warm-up requests must be at most {MAX_REQUESTS}. Received: "
            f"{num_signatures} signatures, {len(batch_sizes)} batch sizes."
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
