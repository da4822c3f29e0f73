"""Containers of named tensors: Hugging Face's folders, and TF1 checkpoints.

They know nothing of models. Each has these attributes:

    file_format     GOOGLE or HUGGING_FACE: whose names the tensors have
    folder          the folder of configuration and vocabulary
    weights_path    the file that errors about missing weights name
    shapes          {name: shape} of the weights
    ignored         {name: shape} of tensors that are not weights
    file_of(name)   the path of the file that holds a tensor
    read(name)      a tensor as it is stored, a float32 array
"""

from bert_tf import messages

GOOGLE = "google"
HUGGING_FACE = "hugging_face"
# Hugging Face's format with our task.json.
BERT_TF = "bert_tf"
# What a checkpoint can be converted to.
FORMATS = (GOOGLE, HUGGING_FACE, BERT_TF)

_MAX_NAME = 256


def check_name(name: str) -> None:
    """Raises `ValueError` if a file's name of a tensor is unfit for messages.

    Args:
        name: The name.
    """
    if len(name) > _MAX_NAME or not name.isprintable():
        raise ValueError(
            f"a name must be of at most {_MAX_NAME} printable characters. "
            f"Received: {messages.shortened(name)}."
        )
