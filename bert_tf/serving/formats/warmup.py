"""Requests that a server sends itself before a version takes traffic.

The first calls of a graph, and the first of every batch size, are slow: it is
optimised and memory is got. TensorFlow Serving replays what it finds in
`assets.extra/tf_serving_warmup_requests`.
"""

from collections.abc import Sequence

import tensorflow as tf

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


def write_requests(
    folder: str, servable: Servable, batch_sizes: Sequence[int], model_name: str
) -> int:
    """Writes one request a signature and batch size into a SavedModel.

    The texts are as long as the model takes them: others are shorter.

    Args:
        folder: A local SavedModel of this library.
        servable: The `Servable` that it was exported from.
        batch_sizes: The server's `allowed_batch_sizes`.
        model_name: The server's name for the model.

    Returns:
        The number of requests.

    Raises:
        ValueError: If a batch size is not positive, there are too many
            requests, or tensorflow-serving-api is not installed.
    """
    if not batch_sizes or any(size < 1 for size in batch_sizes):
        raise ValueError(
            "`batch_sizes` must be positive numbers. "
            f"Received: batch_sizes={list(batch_sizes)}."
        )
    described = saved_model.read_signatures(folder)
    num_requests = len(described) * len(batch_sizes)
    if num_requests > MAX_REQUESTS:
        raise ValueError(
            f"Warm-up requests must be at most {MAX_REQUESTS}. Received: "
            f"{len(described)} signatures, {len(batch_sizes)} batch sizes."
        )
    prediction_log = _messages()
    word = b"the "
    text = word * servable.preprocessor.max_seq_length
    row = (text,) * len(servable.text_features)
    path = f"{folder}/{saved_model.EXTRA_FOLDER}/{FILE}"
    files.make_folder(f"{folder}/{saved_model.EXTRA_FOLDER}")
    with tf.io.TFRecordWriter(path) as writer:
        for name, signature in sorted(described.items()):
            for batch_size in batch_sizes:
                inputs = requests.make_inputs(
                    name, servable, [row] * batch_size
                )
                log = prediction_log()
                request = _request(log, signature.method_name, inputs)
                request.model_spec.name = model_name
                request.model_spec.signature_name = name
                writer.write(log.SerializeToString())
    return num_requests


def _request(log, method_name, inputs):
    """Fills the log's request of that method and returns it."""
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
