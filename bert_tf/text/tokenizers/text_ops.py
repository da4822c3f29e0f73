"""tensorflow_text, which is not there on every machine.

Imported where it is used: its 40 libraries take long to load, and training on
records does not need them.
"""

from typing import Any


def tensorflow_text() -> Any:
    """Returns the module `tensorflow_text`.

    Raises:
        ValueError: If it is not installed.
    """
    try:
        import tensorflow_text
    except ImportError as error:
        raise ValueError(
            "This tokenizer needs tensorflow-text, which not every machine "
            "has wheels for. Models take ids without it: "
            "bert_tf.checkpoints.loading.load makes one from a folder. "
            f"Received: {error}."
        ) from error
    return tensorflow_text
