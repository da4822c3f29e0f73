"""One door to checkpoints of every form, and tensors in Keras's layout."""

import contextlib
import dataclasses
import math

import numpy as np

from bert_tf import files
from bert_tf.checkpoints.containers import safetensors_folder
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.checkpoints.families import bert

# A configuration may describe so many times what the files hold. Less than
# this, every tensor that is missing is named.
_MOST_TIMES = 2


def open_checkpoint(path, allow_partial=False):
    """Returns a reader of what lies at `path`; a context manager.

    Args:
        path: A folder of Hugging Face's form (ours is one), a folder of
            Google's, or the prefix of a TF1 checkpoint.
        allow_partial: Whether the configuration may describe a model of any
            size. If not a model made of it takes memory and time in
            proportion to the files.

    Returns:
        A `HuggingFaceCheckpoint` or a `GoogleCheckpoint`.

    Raises:
        ValueError: If it is nothing that can be read, or far less than what
            the configuration describes.
    """
    with contextlib.ExitStack() as stack:
        checkpoint = stack.enter_context(_open(path))
        if checkpoint.config is not None and not allow_partial:
            _check_size(checkpoint)
        stack.pop_all()
    return checkpoint


def _open(path):
    path = str(path).rstrip("/")
    if files.exists(f"{path}.index"):
        return tf1_checkpoint.GoogleCheckpoint(path)
    found = files.list_folder(path)
    if {safetensors_folder.WEIGHTS_FILE, safetensors_folder.INDEX_FILE} & set(
        found
    ):
        return safetensors_folder.HuggingFaceCheckpoint(path)
    if any(name.endswith(".index") for name in found):
        return tf1_checkpoint.GoogleCheckpoint(path)
    if set(found) & {
        safetensors_folder.CONFIG_FILE,
        *safetensors_folder.PICKLE_FILES,
    }:
        return safetensors_folder.HuggingFaceCheckpoint(path)
    raise ValueError(
        f"{path}: must be a model folder with "
        f"{safetensors_folder.WEIGHTS_FILE}, a release of Google's with "
        "bert_model.ckpt.index, or the prefix of a TF1 checkpoint. "
        f"Found: {', '.join(found) or 'nothing'}."
    )


def _check_size(checkpoint):
    """Raises `ValueError` where far more is configured than the files hold."""
    config = checkpoint.config
    first = bert.tensor_names(
        dataclasses.replace(config, num_hidden_layers=1), (bert.ENCODER,)
    )
    layer = [name for name in first if name.keras.startswith("layer_0/")]
    num_more = config.num_hidden_layers - 1
    num_tensors = len(first) + num_more * len(layer)
    num_weights = (
        _num_weights(name.shape for name in first)
        + num_more * _num_weights(name.shape for name in layer)
        + (checkpoint.num_labels or 0) * config.hidden_size
    )
    num_stored = len(checkpoint.shapes)
    num_stored_weights = _num_weights(checkpoint.shapes.values())
    if (
        num_tensors > _MOST_TIMES * num_stored
        or num_weights > _MOST_TIMES * num_stored_weights
    ):
        raise ValueError(
            f"{checkpoint.weights_path}: must hold what its configuration "
            f"describes, {num_weights:,} weights in {num_tensors:,} tensors "
            f"(num_hidden_layers={config.num_hidden_layers}, "
            f"hidden_size={config.hidden_size}, "
            f"vocab_size={config.vocab_size}, ...). Received: "
            f"{num_stored_weights:,} in {num_stored:,}."
        )


def _num_weights(shapes):
    return sum(map(math.prod, shapes))


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
        name.keras == bert.POSITION_EMBEDDINGS
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
            for name in bert.tensor_names(checkpoint.config)
            if name.stored_name(checkpoint.file_format) in checkpoint.shapes
            and has_part(checkpoint, name.part)
        }
    )


def has_part(checkpoint, part):
    """Whether a head's tensors, if there, are this part's and no other's.

    Hugging Face and Google call the heads of several models by one name.
    """
    if part not in (
        bert.CLASSIFIER,
        bert.TOKEN_CLASSIFIER,
        bert.MULTIPLE_CHOICE,
    ):
        return True
    return checkpoint.architecture is None or part in checkpoint.parts
