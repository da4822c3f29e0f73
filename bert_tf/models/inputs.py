"""Checks of what models are called with."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from bert_tf import features
from bert_tf import messages
from bert_tf.config import BertConfig

# Hugging Face's names for inputs.
_NAMES_ELSEWHERE = {
    features.INPUT_MASK: "attention_mask",
    features.SEGMENT_IDS: "token_type_ids",
}


def check_names(inputs: features.Batch, names: Iterable[str]) -> None:
    """Checks that no input is missing.

    Args:
        inputs: Inputs of a model.
        names: Names of the inputs that the model requires.

    Raises:
        ValueError: If one is missing or ragged, or `inputs` is not a
            dictionary.
    """
    check_is_no_text(inputs)
    if not isinstance(inputs, Mapping):
        raise ValueError(
            "`inputs` must be a dictionary with "
            f"{', '.join(names)}. Received: {type(inputs).__name__}."
        )
    missing = [name for name in names if inputs.get(name) is None]
    for name in names:
        # As TensorFlow's have.
        if hasattr(inputs.get(name), "row_splits"):
            raise ValueError(
                f"`{name}` must be dense: `to_tensor()` fills it up with 0. "
                "Received: a ragged tensor."
            )
    if not missing:
        return
    # Many users come from Hugging Face.
    renamed = [
        f"{theirs} is called {name}"
        for name, theirs in _NAMES_ELSEWHERE.items()
        if name in missing and theirs in inputs
    ]
    raise ValueError(
        f"`inputs` must have {', '.join(missing)}"
        f"{''.join(f'; {each} here' for each in renamed)}. "
        f"Received: {', '.join(map(str, inputs)) or 'nothing'}."
    )


def check_axes(inputs: features.Batch, expected: str) -> None:
    """Checks how many axes the ids have.

    Args:
        inputs: Inputs of a model.
        expected: The shape, with a letter per axis, and its meaning.

    Raises:
        ValueError: If there are more or fewer axes.
    """
    shape = inputs[features.INPUT_IDS].shape
    axes, _, _ = expected.partition("]")
    if len(shape) != len(axes.split(",")):
        way_out = ""
        if len(shape) == 1:
            way_out = (
                " Of one text, preprocessor([text]) makes a batch; of one "
                "pair, preprocessor(([first], [second]))."
            )
        raise ValueError(
            f"`{features.INPUT_IDS}` must be of the shape {expected}. "
            f"Received: shape {[*shape]}.{way_out}"
        )


def check_alike(inputs: features.Batch, names: Sequence[str]) -> None:
    """Checks that inputs have one shape.

    Args:
        inputs: A model's.
        names: Those to check, the ids first.

    Raises:
        ValueError: If a size differs where both are known.
    """
    ids, *others = names
    shape = [*inputs[ids].shape]
    for name in others:
        own = [*inputs[name].shape]
        if len(own) != len(shape) or any(
            None not in sizes and sizes[0] != sizes[1]
            for sizes in zip(own, shape)
        ):
            raise ValueError(
                f"`{name}` must be of the shape of `{ids}`, {shape}. "
                f"Received: shape {own}."
            )


def check_positions(
    positions: features.Tensor | int | None,
    first_positions: features.Tensor | None,
) -> None:
    """Checks where an encoder's outputs are wanted.

    Raises:
        ValueError: If it is another number than 0 in rows of several
            sequences, or a negative one.
    """
    if isinstance(positions, int) and not (
        positions == 0 or (positions > 0 and first_positions is None)
    ):
        raise ValueError(
            "`positions` must be None, int32 [B, P], 0 or, without "
            f"`{features.FIRST_POSITIONS}`, a positive number. "
            f"Received: positions={positions}."
        )


def check_bidirectional(config: BertConfig) -> None:
    """Checks that a configuration suits a model of the pooled output.

    Raises:
        ValueError: If the model goes from left to right. Its first token, which
            is pooled, sees nothing but itself.
    """
    if config.is_decoder:
        raise ValueError(
            "`is_decoder` must be False in a model of the pooled output: from "
            "left to right, the first token sees nothing but itself. "
            "Received: is_decoder=True."
        )


def check_is_no_text(inputs: Any) -> None:
    """Checks that a model of ids is not given texts.

    Raises:
        ValueError: If it is.
    """
    if _is_text(inputs):
        raise ValueError(
            "`inputs` must be ids, not texts: preprocessor(texts) makes them, "
            'and preprocessor(keras.Input((), dtype="string")) a model that '
            f"takes texts. Received: {_described(inputs)}."
        )


def check_labels(labels: Any, num_labels: int | None, loss: Any = None) -> None:
    """Checks labels in memory, before Keras takes them.

    Args:
        labels: Anything that `fit` takes as `y`.
        num_labels: The model's number of outputs; None if there is none.
        loss: What `compile` took as `loss`. Only Keras's of numbers of classes
            says that labels are such, and which other one it ignores.

    Raises:
        ValueError: If they are strings, a list of numbers, or beyond the
            classes, which a GPU would not report.
    """
    is_list = isinstance(labels, list) and labels
    if _is_text(labels) or (is_list and isinstance(labels[0], int | float)):
        raise ValueError(
            "`y` must be an array of numbers: np.array(labels), or "
            "np.array([names.index(name) for name in labels]). "
            f"Received: {_described(labels)}."
        )
    is_sparse = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    if num_labels is None or not is_sparse or not hasattr(labels, "__array__"):
        return
    numbers = keras.ops.convert_to_numpy(labels)
    if numbers.dtype.kind in "iu" and numbers.size:
        ignored = loss.get_config().get("ignore_class")
        is_beyond = (numbers >= num_labels) & (numbers != ignored)
        place = np.unravel_index(is_beyond.argmax(), numbers.shape)
        if is_beyond[place]:
            raise ValueError(
                f"`y`, row {place[0] + 1}: must be the number of a class, "
                f"below {num_labels}, the model's num_labels. "
                f"Received: {numbers[place]}."
            )


def check_takes_logits(losses: Any) -> None:
    """Checks that no loss takes the outputs of a model for probabilities.

    Args:
        losses: What `compile` took as `loss`.

    Raises:
        ValueError: If one does.
    """
    for loss in keras.tree.flatten(losses):
        if isinstance(loss, keras.losses.Loss):
            takes_logits = loss.get_config().get("from_logits", True)
        else:
            name = loss if isinstance(loss, str) else ""
            takes_logits = not name.lower().endswith("crossentropy")
        if not takes_logits:
            raise ValueError(
                "`loss` must take logits, which the model returns: "
                "keras.losses.SparseCategoricalCrossentropy(from_logits=True). "
                f"Received: {_described(loss)}, which takes probabilities."
            )


def _is_text(values):
    if isinstance(values, list | tuple):
        first = next(iter(values), None)
        return isinstance(first, str | bytes) or _is_text(first)
    dtype = getattr(values, "dtype", None)
    # NumPy's, TensorFlow's and pandas' are called e.g. str32, string, str.
    name = str(getattr(dtype, "name", dtype))
    return name.startswith(("str", "bytes", "object"))


def _described(value):
    if isinstance(value, str | list | tuple):
        return messages.shortened(value)
    return type(value).__name__
