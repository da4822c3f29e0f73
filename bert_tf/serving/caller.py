"""Calls a SavedModel in a process that has nothing of this library."""

import contextlib
import pathlib
import subprocess
import sys
import tempfile

import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

# The script's file, not the module: see there.
_SCRIPT = pathlib.Path(__file__).with_name("standalone.py")
_SIGNATURE = "signature"


def call(path, requests, python=None, with_text=True):
    """Returns what `calling` yields, all answers in a list."""
    with calling(path, requests, python, with_text) as (version, answers):
        return version, list(answers)


@contextlib.contextmanager
def calling(path, requests, python=None, with_text=True):
    """Calls signatures, one request after the other.

    Requests and answers lie in files, not in memory.

    Args:
        path: The SavedModel.
        requests: An iterable of (signature, {input: array}).
        python: A Python with tensorflow and tensorflow_text of any release;
            this one if None.
        with_text: Whether tensorflow_text is imported.

    Yields:
        A pair: the version of TensorFlow that answered, and an iterator over
        {output: array}, one a request.

    Raises:
        ValueError: If the process cannot be started, or fails; the message
            has its last words.
    """
    with tempfile.TemporaryDirectory() as folder:
        requests_path = f"{folder}/requests"
        answers_path = f"{folder}/answers"
        with tf.io.TFRecordWriter(requests_path) as writer:
            for signature, inputs in requests:
                writer.write(_encode(inputs | {_SIGNATURE: signature}))
        # -P: without the script's own folder on the path.
        command = [python or sys.executable, "-P", str(_SCRIPT)]
        if not with_text:
            command.append("--without_text")
        try:
            process = subprocess.run(
                [*command, path, requests_path, answers_path],
                capture_output=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise ValueError(
                f"`python` must be a Python that runs. Received: {error}."
            ) from error
        if process.returncode != 0:
            raise ValueError(
                f"{path} could not be loaded and called in a process of its "
                f"own ({command[0]}):\n{_last_words(process.stderr)}"
            )
        version = process.stdout.split()[-1]
        records = tf.data.TFRecordDataset(answers_path)
        yield version, (_decode(record.numpy()) for record in records)


def _encode(tensors):
    example = tf.train.Example()
    for name, value in tensors.items():
        proto = tf.make_tensor_proto(value).SerializeToString()
        example.features.feature[name].bytes_list.value.append(proto)
    return example.SerializeToString()


def _decode(record):
    example = tf.train.Example.FromString(record)
    return {
        name: tf.make_ndarray(
            tensor_pb2.TensorProto.FromString(feature.bytes_list.value[0])
        )
        for name, feature in example.features.feature.items()
    }


def _last_words(text, num_lines=8):
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-num_lines:])
