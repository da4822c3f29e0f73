"""Plans what happens to every tensor: loaded, new, or left over.

A plan is made from a table and a checkpoint, before any value is read. Loading
follows it to fill variables, a conversion to write another file.
"""

import dataclasses
from collections.abc import Collection

import numpy as np

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
        tensor: The table's entry, or None for a tensor that is left over.
        name: The table's name in files of the checkpoint's format.
        found: Shape in the checkpoint, or None if it is not there.
        status: `report.LOADED`, `NEW` or `LEFT_OVER`.
        note: Where the values come from, or why there are none.
        part: Which of `parts` it belongs to; "" if unknown.
        problem: None, or the error unless `allow_partial` is set.
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
    """Plans what happens to the tensors of a table and of a checkpoint.

    Args:
        checkpoint: What `reader.open_checkpoint` yielded.
        tensors: The tensors that are wanted.
        config: The configuration of the model that they belong to.
        promised: Parts whose tensors must be there. Any other part may be
            missing, but only as a whole.
        extend_positions: Whether the checkpoint may have fewer positions,
            which are then repeated.
        new_parts: Parts that are newly initialised even if the checkpoint has
            them.

    Returns:
        A `Step` for each of the tensors, in order, and for each weight of the
        checkpoint that none of them uses.
    """
    used, must, wanted = set(), set(promised), set()
    for tensor in tensors:
        name = tensor.name(checkpoint.file_format)
        if tensor.part in new_parts:
            continue
        wanted.add(tensor.part)
        if checkpoint.has_part(tensor.part):
            used.add(name)
        if name in checkpoint.container.shapes:
            must.add(tensor.part)
    return [
        *(
            Step(tensor, "", None, report.NEW, "not to be loaded", tensor.part)
            if tensor.part in new_parts
            else step_of(checkpoint, tensor, extend_positions, must)
            for tensor in tensors
        ),
        *_left_over(checkpoint, used, config, wanted),
        *_missing_decoder(checkpoint, wanted),
    ]


def step_of(
    checkpoint: Checkpoint,
    tensor: Tensor,
    extend_positions: bool,
    must: Collection[str] = (),
) -> Step:
    """Plans one `Tensor`, like `make`; the parts in `must` must be there."""
    name = tensor.name(checkpoint.file_format)
    if name is None:
        note = "not stored in this format"
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
    """Raises one `ValueError` with the first problems, if there are any."""
    lines = [step.problem for step in steps if step.problem is not None]
    if not lines:
        return
    if len(lines) > _MAX_PROBLEMS:
        lines[_MAX_PROBLEMS:] = [f"... and {len(lines) - _MAX_PROBLEMS} more."]
    lines.append("Set `allow_partial` to load only what fits.")
    raise ValueError("\n".join(lines))


def read(checkpoint: Checkpoint, tensor: Tensor) -> np.ndarray:
    """Returns a tensor that fits, like `Checkpoint.read`.

    Position embeddings are repeated, from the first position on, until there
    are as many as wanted. Except at the seams, copies keep what the encoder
    learned of positions relative to each other (Beltagy et al. 2020,
    Longformer, section 5).

    Raises:
        ValueError: If it cannot be read.
    """
    array = checkpoint.read(tensor)
    if array.shape == tensor.shape:
        return array
    first = tensor.first_row
    assert first is not None
    new = np.arange(tensor.shape[0] - first) % (len(array) - first)
    return np.concatenate([array[:first], array[first:][new]])


def ignored(name: str, shape: tuple[int, ...]) -> report.CoverageEntry:
    """Returns the report's entry for a tensor that is not a weight."""
    note = "the optimizer's" if "/" in name else "no weight"
    return report.CoverageEntry(report.LEFT_OVER, name, shape, note)


def _can_extend(tensor, found, wanted):
    """Whether a tensor is the position embeddings, found with fewer rows."""
    return (
        tensor.first_row is not None
        and found[1:] == wanted[1:]
        and tensor.first_row < found[0] < wanted[0]
    )


def _left_over(checkpoint, used, config, wanted):
    # Heads that share a name are told apart by the checkpoint's class. Without
    # a class they are taken for a classifier's.
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
    others, tied = checkpoint.family.other_nets, checkpoint.family.tied
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
        elif name in tied and parts.MASKED_LM not in wanted:
            note = f"{parts.MASKED_LM}: not in the model"
        elif name in tied and _is_tied(checkpoint, name):
            note = f"the same as {tied[name]}"
        elif name in tied:
            note = "of an untied decoder"
            problem = (
                f"{checkpoint.container.file_of(name)}: the tensor {name} "
                f"must equal {tied[name]}: a masked-LM head with an untied "
                "decoder is not supported, but the encoder without it is."
            )
        else:
            note = "of no model with this configuration"
            problem = (
                f"{checkpoint.container.file_of(name)}: the tensor {name} "
                f"{list(shape)} has no place in the model."
            )
        part = parts.MASKED_LM if name in tied else known.get(name, "")
        yield Step(None, name, shape, report.LEFT_OVER, note, part, problem)


def _missing_decoder(checkpoint, wanted):
    """Yields a step if the masked-LM head's own decoder should be there."""
    is_untied = checkpoint.config_values.get("tie_word_embeddings") is False
    if not is_untied or parts.MASKED_LM not in wanted:
        return
    for name, original in checkpoint.family.tied.items():
        if (
            original.endswith("_embeddings.weight")
            and name not in checkpoint.container.shapes
        ):
            note = "the untied decoder is missing"
            problem = (
                f"{checkpoint.container.weights_path}: the tensor {name} is "
                "missing, the untied decoder that `tie_word_embeddings` of "
                "config.json, false, announces."
            )
            yield Step(
                *(None, name, (), report.LEFT_OVER, note),
                *(parts.MASKED_LM, problem),
            )


def _is_tied(checkpoint, name):
    """Whether a tensor is the second copy of one that the table names.

    BERT's masked-LM head uses the word embeddings as weights; some files hold
    them twice.
    """
    container = checkpoint.container
    original = checkpoint.family.tied[name]
    if container.shapes[name] != container.shapes.get(original):
        return False
    return np.array_equal(container.read(name), container.read(original))
