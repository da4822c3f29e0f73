"""Checks of what models are called with."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

from bert_tf import features
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
        ValueError: If one is missing, or `inputs` is not a dictionary.
    """
    if not isinstance(inputs, Mapping):
        raise ValueError(
            "`inputs` must be a dictionary with "
            f"{', '.join(names)}. Received: {type(inputs).__name__}."
        )
    missing = [name for name in names if inputs.get(name) is None]
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
        raise ValueError(
            f"`{features.INPUT_IDS}` must be of the shape {expected}. "
            f"Received: shape {[*shape]}."
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
