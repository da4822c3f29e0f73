"""Errors of the input, told as what the user can do something about."""

import contextlib

import tensorflow as tf

# Begins the errors that are raised while records are read.
BAD_RECORDS = "Bad records:"


@contextlib.contextmanager
def clear_errors():
    """Turns TensorFlow's errors about the input into `ValueError`."""
    try:
        yield
    except tf.errors.DataLossError as error:
        raise ValueError(
            f"{BAD_RECORDS} a file is damaged or cut short: {error.message}"
        ) from error
    except tf.errors.InvalidArgumentError as error:
        for start in (BAD_RECORDS, "Key: "):
            if start in error.message:
                text = error.message[error.message.index(start) :]
                text = text.removeprefix(BAD_RECORDS).strip()
                text = text.split("\n")[0].rstrip("]")
                raise ValueError(f"{BAD_RECORDS} {text}") from error
        raise
