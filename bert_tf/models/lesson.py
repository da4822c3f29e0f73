"""What a student learns from its teacher: losses by name and weight."""

import dataclasses
import math
from collections.abc import Mapping

from bert_tf.config import BertConfig

SOFT_TARGETS = "soft_targets"
MASKED_LM = "masked_lm"
LABELS = "labels"
COSINE = "cosine"
HIDDEN = "hidden"
ATTENTION = "attention"
RELATIONS = "relations"

# Losses on what the two encoders compute inside.
OF_STATES = (COSINE, HIDDEN)
OF_HEADS = (ATTENTION, RELATIONS)
OF_ENCODERS = (*OF_STATES, *OF_HEADS)
# Losses on pre-training records, and on the examples of a task.
ON_RECORDS = (SOFT_TARGETS, MASKED_LM, *OF_ENCODERS)
ON_TASKS = (SOFT_TARGETS, LABELS, *OF_ENCODERS)
# Those of DistilBERT (Sanh et al. 2019); for tasks, the first of them and the
# loss on the labels.
DEFAULT_ON_RECORDS = f"{SOFT_TARGETS}:5,{MASKED_LM}:2,{COSINE}:1"
DEFAULT_ON_TASKS = f"{SOFT_TARGETS}:1,{LABELS}:1"

SOFT_POSITIONS = ("all", "masked")


def parse_losses(text: str, known: tuple[str, ...]) -> dict[str, float]:
    """Parses e.g. "soft_targets:5,masked_lm:2,cosine"; the default weight is 1.

    Args:
        text: Names and weights.
        known: The allowed names.

    Returns:
        {name: weight}.

    Raises:
        ValueError: If a name is unknown or given twice, or a weight is not
            positive.
    """
    losses: dict[str, float] = {}
    for part in text.split(","):
        name, _, number = part.strip().partition(":")
        if name not in known or name in losses:
            raise ValueError(
                "`losses` must be different names from "
                f"{', '.join(known)}, each with a weight as in name:0.5. "
                f"Received: {name!r} in losses={text!r}."
            )
        try:
            weight = float(number or 1)
        except ValueError:
            weight = math.nan
        if not 0 < weight < math.inf:
            raise ValueError(
                "The weight of a loss must be a positive number. "
                f"Received: {part!r} in losses={text!r}."
            )
        losses[name] = weight
    return losses


def parse_layers(text: str, name: str) -> tuple[int, ...]:
    """Parses e.g. "0,2,4": numbers of layers, counted from 0.

    Raises:
        ValueError: If it is anything else. The message has the name.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(
            f"`{name}` must be layer numbers, counted from 0 and separated by "
            f"commas. Received: {name}={text!r}."
        )
    return tuple(map(int, parts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lesson:
    """Losses by name and weight, and their settings.

    `models.distillation` has their formulas.

    Args:
        losses: {name: weight}.
        temperature: Divisor of both models' logits in soft targets. Their loss
            is multiplied by its square.
        soft_positions: For records: whether soft targets are those of "all"
            tokens or only of the "masked" ones.
        relation_heads: How many parts queries, keys and values are split into
            for relations; None for as many as the teacher has heads.

    Raises:
        ValueError: If a value is out of its range.
    """

    losses: Mapping[str, float]
    temperature: float = 2.0
    soft_positions: str = "all"
    relation_heads: int | None = None

    def __post_init__(self):
        if not 0 < self.temperature < math.inf:
            raise ValueError(
                "`temperature` must be positive. "
                f"Received: temperature={self.temperature}."
            )
        if self.soft_positions not in SOFT_POSITIONS:
            raise ValueError(
                f"`soft_positions` must be one of {', '.join(SOFT_POSITIONS)}."
                f" Received: soft_positions={self.soft_positions!r}."
            )
        if self.relation_heads is not None and self.relation_heads < 1:
            raise ValueError(
                "`relation_heads` must be positive. "
                f"Received: relation_heads={self.relation_heads}."
            )
        if self.relation_heads is not None and not self.has(RELATIONS):
            raise ValueError(
                f"`relation_heads` must be given with the loss {RELATIONS}. "
                f"Received: losses={', '.join(self.losses)}."
            )

    def has(self, *names: str) -> bool:
        """Returns whether any of the losses is among these."""
        return any(name in self.losses for name in names)

    @property
    def asks_teacher(self) -> bool:
        """Whether any of the losses needs the teacher's outputs."""
        return self.has(SOFT_TARGETS, *OF_ENCODERS)

    def to_dict(self) -> dict[str, object]:
        """Returns {name: value} of the settings that affect the weights."""
        values = {
            "losses": dict(self.losses),
            "temperature": self.temperature,
            "soft_positions": self.soft_positions,
            "relation_heads": self.relation_heads,
        }
        return {name: v for name, v in values.items() if v is not None}

    def for_models(self, student: BertConfig, teacher: BertConfig) -> "Lesson":
        """Returns the lesson with defaults filled in from the two models.

        Raises:
            ValueError: If a loss is not possible with these two.
        """
        layers = student.num_hidden_layers
        if self.has(HIDDEN, ATTENTION) and layers > teacher.num_hidden_layers:
            raise ValueError(
                "The student must have no more layers than its teacher for the "
                f"losses {HIDDEN} and {ATTENTION}. Received: "
                f"num_hidden_layers={layers} in the student, "
                f"{teacher.num_hidden_layers} in the teacher."
            )
        if self.has(ATTENTION) and (
            student.num_attention_heads != teacher.num_attention_heads
        ):
            raise ValueError(
                f"The student must have the teacher's number of heads for the "
                f"loss {ATTENTION}; {RELATIONS} does without. "
                "Received: num_attention_heads="
                f"{student.num_attention_heads} in the student, "
                f"{teacher.num_attention_heads} in the teacher."
            )
        relation_heads = None
        if self.has(RELATIONS):
            relation_heads = self.relation_heads or teacher.num_attention_heads
            sizes = student.hidden_size, teacher.hidden_size
            if any(size % relation_heads for size in sizes):
                raise ValueError(
                    "`relation_heads` must divide the student's hidden size, "
                    f"{sizes[0]}, and the teacher's, {sizes[1]}. "
                    f"Received: relation_heads={relation_heads}."
                )
        if self.has(*OF_ENCODERS):
            check_direction(student, teacher)
        return dataclasses.replace(self, relation_heads=relation_heads)

    def has_projection(self, student: BertConfig, teacher: BertConfig) -> bool:
        """Returns whether the student's states are projected to a new width."""
        return (
            self.has(*OF_STATES) and student.hidden_size != teacher.hidden_size
        )


def taught_layers(num_layers: int, num_teacher_layers: int) -> list[int]:
    """Returns which layer of the teacher each of the student's learns from.

    The teacher is cut into as many equal parts, and the last layer of each is
    taken, as in TinyBERT. Layers are counted from 0.
    """
    return [
        (index + 1) * num_teacher_layers // num_layers - 1
        for index in range(num_layers)
    ]


def check_direction(student: BertConfig, teacher: BertConfig) -> None:
    """Checks that both models look at the same tokens.

    Raises:
        ValueError: If one goes from left to right and the other does not.
    """
    if student.is_decoder != teacher.is_decoder:
        raise ValueError(
            "Student and teacher must both go from left to right, or "
            f"neither. Received: is_decoder={student.is_decoder} in the "
            f"student, {teacher.is_decoder} in the teacher."
        )


def check_layers(
    name: str, layers: tuple[int, ...], teacher: BertConfig
) -> None:
    """Checks that the teacher has these layers.

    Raises:
        ValueError: If it does not. The message has the setting's name.
    """
    number = teacher.num_hidden_layers
    if not layers or any(not 0 <= layer < number for layer in layers):
        raise ValueError(
            f"`{name}` must be layers of the teacher, 0 to {number - 1}. "
            f"Received: {name}={_listed(layers)}."
        )


def _listed(layers):
    return ",".join(map(str, layers))
