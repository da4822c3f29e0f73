"""What becomes of every tensor: loaded, new, or left over.

A plan is made of a table and a checkpoint, before any value is read. Loading
fills variables by it, converting another file.
"""

import dataclasses
from collections.abc import Collection

import numpy as np

from bert_tf.checkpoints import containers
from bert_tf.checkpoints import families
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import report
from bert_tf.checkpoints.families.family import Tensor
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig

_MAX_PROBLEMS = 10


@dataclasses.dataclass(frozen=True)
class Step:
    """One tensor of the table, or one of the checkpoint that is left over.

    Args:
        tensor: The line of the table, or None of one that is left over.
        name: The table's name in files of the checkpoint's format.
        found: Shape in the checkpoint, or None if it is not there.
        status: `report.LOADED`, `NEW` or `LEFT_OVER`.
        note: Where the values come from, or why they do not.
        part: Which of `parts` it belongs to; "" where nothing tells.
        problem: None, or why only `allow_partial` goes on.
    """

    tensor: Tensor | None
    name: str
    found: tuple[int, ...] | None
    status: str
    note: str
    part: str
    problem: str | None = None


def make(
    checkpoint: Checkpoint,
    tensors: Collection[Tensor],
    config: BertConfig,
    promised: Collection[str],
    extend_positions: bool,
    new_parts: Collection[str] = (),
) -> list[Step]:
    """Plans what becomes of the tensors of a table and of a checkpoint.

    Args:
        checkpoint: What `reader.open_checkpoint` returned.
        tensors: Those that are wanted.
        config: The configuration of which the tensors are.
        promised: Parts whose tensors must be there. Those of another part may
            be missing, but together.
        extend_positions: Whether the checkpoint may have fewer positions;
            they are repeated.
        new_parts: Parts that are newly made, whatever the checkpoint has.

    Returns:
        A `Step` of each of the tensors, in order, and of each weight of the
        checkpoint that none of them takes.
    """
    used, must = set(), set(promised)
    for tensor in tensors:
        name = tensor.name(checkpoint.file_format)
        if tensor.part in new_parts:
            continue
        if checkpoint.has_part(tensor.part):
            used.add(name)
        if name in checkpoint.container.shapes:
            must.add(tensor.part)
    return [
        *(
            Step(tensor, "", None, report.NEW, "begun anew", tensor.part)
            if tensor.part in new_parts
            else step_of(checkpoint, tensor, extend_positions, must)
            for tensor in tensors
        ),
        *_left_over(checkpoint, used, config),
    ]


def step_of(
    checkpoint: Checkpoint,
    tensor: Tensor,
    extend_positions: bool,
    must: Collection[str] = (),
) -> Step:
    """Plans one `Tensor`, as `make`; those of the parts `must` be there."""
    name = tensor.name(checkpoint.file_format)
    if name is None:
        note = "in no file of this form"
        return Step(tensor, "", None, report.NEW, note, tensor.part)
    found = checkpoint.container.shapes.get(name)
    wanted = tensor.stored_shape(checkpoint.file_format)
    status, note, problem = report.LOADED, name, None
    if not checkpoint.has_part(tensor.part):
        status, note = report.NEW, f"not in {checkpoint.architecture}"
        found = None
    elif found is None:
        status, note = report.NEW, "not in the checkpoint"
        if tensor.part in must:
            problem = (
                f"{checkpoint.container.weights_path}: the tensor {name} is "
                "missing."
            )
    elif found != wanted:
        if extend_positions and _can_extend(tensor, found, wanted):
            note += f", repeated from {found[0]} rows"
        else:
            status = report.NEW
            note = f"{name} has the shape {list(found)}"
            problem = (
                f"{checkpoint.container.file_of(name)}: the tensor {name} "
                f"must have the shape {list(wanted)}. Received: {list(found)}."
            )
    return Step(tensor, name, found, status, note, tensor.part, problem)


def check(steps: list[Step]) -> None:
    """Raises one `ValueError` that tells the first problems, if any."""
    lines = [step.problem for step in steps if step.problem is not None]
    if not lines:
        return
    if len(lines) > _MAX_PROBLEMS:
        lines[_MAX_PROBLEMS:] = [f"... and {len(lines) - _MAX_PROBLEMS} more."]
    lines.append("`allow_partial` takes what does fit all the same.")
    raise ValueError("\n".join(lines))


def read(checkpoint: Checkpoint, tensor: Tensor, slot: str = "") -> np.ndarray:
    """Returns a tensor that fits, as `Checkpoint.read`.

    Of position embeddings the rows are repeated from the first position on,
    until there are as many as are wanted. Copies keep what the encoder learned
    of positions relative to each other, but at the seams (Beltagy et al. 2020,
    Longformer, section 5).

    Raises:
        ValueError: If it cannot be read, or a moment does not fit its weight.
    """
    array = checkpoint.read(tensor, slot)
    if array.shape == tensor.shape:
        return array
    if _can_extend(tensor, array.shape, tensor.shape):
        first = tensor.first_row
        assert first is not None
        new = np.arange(tensor.shape[0] - first) % (len(array) - first)
        return np.concatenate([array[:first], array[first:][new]])
    name = tensor.stored(checkpoint.file_format).name + slot
    raise ValueError(
        f"{checkpoint.container.file_of(name)}: the tensor {name} must have "
        f"the shape of its weight, {list(tensor.shape)}. "
        f"Received: {list(array.shape)}."
    )


def ignored(name: str, shape: tuple[int, ...]) -> report.CoverageEntry:
    """Returns the report's entry of a tensor that is no weight."""
    # Its name tells: to look for it would open the optimizer's file.
    is_slot = name.endswith(containers.SLOTS)
    note = "the optimizer's" if is_slot else "no weight"
    return report.CoverageEntry(report.LEFT_OVER, name, shape, note)


def _can_extend(tensor, found, wanted):
    """Whether a tensor is the position embeddings, found with fewer rows."""
    return (
        tensor.first_row is not None
        and found[1:] == wanted[1:]
        and tensor.first_row < found[0] < wanted[0]
    )


def _left_over(checkpoint, used, config):
    # Heads of one name are told apart where the checkpoint says its class. Else
    # they are taken for a classifier's, as a conversion takes them.
    known = {
        tensor.name(checkpoint.file_format): tensor.part
        for tensor in sorted(
            families.of_config(config).table(config),
            key=lambda tensor: (
                checkpoint.has_part(tensor.part),
                tensor.part == parts.CLASSIFIER,
            ),
        )
    }
    others = checkpoint.family.other_nets
    for name, shape in checkpoint.container.shapes.items():
        if name in used:
            continue
        problem = None
        if name in known:
            note = f"{known[name]}: not in the model"
        elif name.startswith(tuple(others)):
            note = next(
                f"of {others[start]}"
                for start in others
                if name.startswith(start)
            )
        elif _is_tied(checkpoint, name):
            note = f"the same as {checkpoint.family.tied[name]}"
        else:
            note = "of no model with this configuration"
            problem = (
                f"{checkpoint.container.file_of(name)}: the tensor {name} "
                f"{list(shape)} has no place in the model."
            )
        part = known.get(name, "")
        yield Step(None, name, shape, report.LEFT_OVER, note, part, problem)


def _is_tied(checkpoint, name):
    """Whether a tensor is there a second time, under the table's name.

    BERT's masked-LM head has the word embeddings for weights; some files
    hold them twice. Where the two differ, the model is none of BERT's.
    """
    container = checkpoint.container
    original = checkpoint.family.tied.get(name)
    if container.shapes[name] != container.shapes.get(original):
        return False
    return np.array_equal(container.read(name), container.read(original))
