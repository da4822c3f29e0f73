"""Calls a SavedModel in a process without this library."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from bert_tf import files
from bert_tf.serving.proof.progress import Progress

# Run as a script, never imported; see its docstring.
_SCRIPT = pathlib.Path(__file__).with_name("standalone.py")
_SIGNATURE = "signature"
_POLL_SECONDS = 1.0
# Loading a large model, or answering a large batch, takes a tenth of this.
_TIMEOUT_SECONDS = 600


@contextlib.contextmanager
def calling(
    path: files.AnyPath,
    requests: Iterable[tuple[str, dict[str, Any]]],
    python: str | None = None,
    with_text: bool = True,
    timeout_seconds: float = _TIMEOUT_SECONDS,
) -> Iterator[tuple[str, Iterator[dict[str, np.ndarray]]]]:
    """Calls signatures, one request after the other.

    Requests and answers are kept in files, not in memory.

    Args:
        path: The SavedModel.
        requests: An iterable of (signature, {input: array}).
        python: A Python with tensorflow and tensorflow_text of any release;
            this one if None.
        with_text: Whether tensorflow_text is imported.
        timeout_seconds: The longest wait for an answer. The wait for the first
            one includes the loading of the SavedModel.

    Yields:
        A pair: the version of TensorFlow that answered, and an iterator over
        {output: array}, one per request.

    Raises:
        ValueError: If the process cannot be started, fails or hangs. If it
            fails, the message has its last lines.
    """
    with tempfile.TemporaryDirectory() as folder:
        requests_path = f"{folder}/requests"
        answers_path = f"{folder}/answers"
        with tf.io.TFRecordWriter(requests_path) as writer:
            for signature, inputs in requests:
                writer.write(_encode(inputs | {_SIGNATURE: signature}))
        # -P keeps the script's own folder off the path.
        command = [python or sys.executable, "-P", str(_SCRIPT)]
        if not with_text:
            command.append("--without_text")
        version = _run(
            [*command, path, requests_path, answers_path],
            folder,
            timeout_seconds,
        )
        records = tf.data.TFRecordDataset(answers_path)
        yield version, (_decode(record.numpy()) for record in records)


def _run(command, folder, timeout_seconds):
    """Runs the script and returns the version, which it prints last.

    Args:
        command: Ends with the paths of the SavedModel, the requests and the
            answers.
        folder: Where stdout and stderr are written.
        timeout_seconds: As in `calling`.
    """
    path, _, answers_path = command[-3:]
    words = [pathlib.Path(folder, name) for name in ("stdout", "stderr")]
    with words[0].open("wb") as stdout, words[1].open("wb") as stderr:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                # A group of its own, which includes what a wrapper starts.
                start_new_session=True,
            )
        except OSError as error:
            raise ValueError(
                f"`python` must be a Python that runs. Received: {error}."
            ) from error
        try:
            _wait(process, path, answers_path, timeout_seconds)
        finally:
            is_over = process.poll() is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if not is_over:
        raise ValueError(
            f"{path} must be loaded, and give each answer, within "
            f"{timeout_seconds:g} seconds. Received: no answer "
            f"({command[0]})."
        )
    printed, complaints = (file.read_text(errors="replace") for file in words)
    if process.returncode != 0 or not printed.strip():
        raise ValueError(
            f"{path} could not be loaded and called in a process of its "
            f"own ({command[0]}):\n{_last_words(complaints)}"
        )
    return printed.split()[-1]


def _wait(process, path, answers_path, timeout_seconds):
    """Waits for the process to end, or for its answers to stop coming."""
    progress = Progress()
    num_bytes, since = 0, time.monotonic()
    while True:
        try:
            process.wait(min(_POLL_SECONDS, timeout_seconds))
            return
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        with contextlib.suppress(FileNotFoundError):
            size = os.path.getsize(answers_path)
            if size > num_bytes:
                num_bytes, since = size, now
        progress.note(
            "Calling %s: %.1f MB of answers", path, num_bytes / 1e6, now=now
        )
        if now - since >= timeout_seconds:
            return


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
