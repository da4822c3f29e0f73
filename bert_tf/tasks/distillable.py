"""Tasks that a student can learn from a teacher that was tuned to them."""

import dataclasses
from typing import Self

from bert_tf import features
from bert_tf.features import Tensor
from bert_tf.models import distillation
from bert_tf.tasks import calibration
from bert_tf.tasks.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillable(Task):
    """A task that can be learned from a teacher.

    Attributes:
        can_be_distilled: Whether it can be, with the values of its fields.
    """

    @property
    def can_be_distilled(self) -> bool:
        return True

    def soft_losses(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        """Returns how far every element is from the teacher's, float32.

        The default is for logits of one choice out of several classes: the
        divergence of the softmax distributions.

        Args:
            logits, teacher_logits: See `Task.losses`.
            temperature: See `distillation.soft_targets`.

        Returns:
            float32, of the shape of `Task.weights`.
        """
        return distillation.soft_targets(logits, teacher_logits, temperature)

    def compared_logits(self, logits: Tensor, batch: features.Batch) -> Tensor:
        """Returns a student's or teacher's logits as `soft_losses` takes them.

        Where logits range over the positions of a row, padding is masked out.

        Args:
            logits: See `Task.losses`.
            batch: The batch that the logits belong to.
        """
        del batch
        return logits

    def for_student(self) -> Self:
        """Returns the task without values fitted to the teacher's weights."""
        return calibration.uncalibrated(self)
