"""One door to checkpoints of every form, and tensors in Keras's layout."""

import numpy as np

from bert_tf import files
from bert_tf.checkpoints import google
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints import names


def open_checkpoint(path):
    """Returns a reader of what lies at `path`; a context manager.

    Args:
        path: A folder of Hugging Face's form (ours is one), a folder of
            Google's, or the prefix of a TF1 checkpoint.

    Returns:
        A `HuggingFaceCheckpoint` or a `GoogleCheckpoint`.

    Raises:
        ValueError: If it is nothing that can be read.
    """
    path = str(path).rstrip("/")
    if files.exists(f"{path}.index"):
        return google.GoogleCheckpoint(path)
    found = files.list_folder(path)
    if {hugging_face.WEIGHTS_FILE, hugging_face.INDEX_FILE} & set(found):
        return hugging_face.HuggingFaceCheckpoint(path)
    if any(name.endswith(".index") for name in found):
        return google.GoogleCheckpoint(path)
    if set(found) & {hugging_face.CONFIG_FILE, *hugging_face.PICKLE_FILES}:
        return hugging_face.HuggingFaceCheckpoint(path)
    raise ValueError(
        f"{path}: must be a model folder with {hugging_face.WEIGHTS_FILE}, a "
        "release of Google's with bert_model.ckpt.index, or the prefix of a "
        f"TF1 checkpoint. Found: {', '.join(found) or 'nothing'}."
    )


def read_tensor(checkpoint, name, slot=""):
    """Returns a tensor in the layout of its Keras variable.

    Args:
        checkpoint: What `open_checkpoint` returned.
        name: The `TensorName`.
        slot: "" for the weight, or one of `names.SLOTS`.

    Returns:
        A float32 array; a transposed one is a view, its memory is not moved.

    Raises:
        ValueError: If it cannot be read or has a value that is not finite;
            the message names file and tensor.
    """
    stored_name = name.stored_name(checkpoint.file_format) + slot
    array = checkpoint.read(stored_name)
    # A sum is not finite if a value is not; one of finite values seldom is.
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(np.sum(array)) or np.isfinite(array).all()
    if not is_finite:
        raise ValueError(
            f"{checkpoint.file_of(stored_name)}: the tensor {stored_name} "
            "holds values that are not finite."
        )
    return array.T if name.is_transposed(checkpoint.file_format) else array


def extend(array, num_rows):
    """Repeats the rows from the first on, until there are `num_rows`.

    Copies keep what the encoder learned of positions relative to each other,
    but at the seams (Beltagy et al. 2020, Longformer, section 5).
    """
    return np.take(array, np.arange(num_rows) % len(array), axis=0)


def can_extend(name, stored_shape, shape):
    """Whether a stored tensor is the position embeddings of fewer rows."""
    return (
        name.keras == names.POSITION_EMBEDDINGS
        and stored_shape[1:] == shape[1:]
        and stored_shape[0] < shape[0]
    )


def parts_of(checkpoint):
    """Returns the parts of the model that a checkpoint has tensors of.

    Raises:
        ValueError: If it has no configuration.
    """
    if checkpoint.config is None:
        raise ValueError(f"{checkpoint.path}: has no config.json beside it.")
    return sorted(
        {
            name.part
            for name in names.tensor_names(checkpoint.config)
            if name.stored_name(checkpoint.file_format) in checkpoint.shapes
            and has_part(checkpoint, name.part)
        }
    )


def has_part(checkpoint, part):
    """Whether a head's tensors, if there, are this part's and no other's.

    Hugging Face and Google call the heads of several models by one name.
    """
    if part not in (
        names.CLASSIFIER,
        names.TOKEN_CLASSIFIER,
        names.MULTIPLE_CHOICE,
    ):
        return True
    return checkpoint.architecture is None or part in checkpoint.parts
