"""Tasks of checkpoints that other libraries tuned, which have no task.json."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Self

from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.tasks.task import Task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Foreign(Task):
    """A task that is found in such checkpoints."""

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
    ) -> Self | None:
        """Returns the task of a checkpoint that another library tuned.

        Args:
            checkpoint: What `reader.open_checkpoint` yielded; it has no
                task.json.
            text_features: Names of the one or two strings, for the families
                that have such a field; empty for "text".

        Returns:
            The task; None if the checkpoint is not of this family, or does
            not show it.

        Raises:
            ValueError: If its config.json does not fit its head.
        """
        del checkpoint, text_features
        return None

    def takes_head_of_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Returns whether a classifier without task.json fits this task.

        Called if the checkpoint has no names of classes that would tell.

        Args:
            checkpoint: What `reader.open_checkpoint` yielded.
        """
        del checkpoint
        return False

    @classmethod
    def checkpoint_fields(
        cls, folder: str, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns fields that a checkpoint says, for a new task.

        Args:
            folder: The checkpoint.
            given: {field: value} of the others, which are left out.

        Raises:
            ValueError: If the checkpoint does not suit the task.
        """
        del folder, given
        return {}

    def with_checkpoint_fields(self, folder: str) -> Self:
        """Returns the task with its unset fields filled in from a checkpoint.

        Args:
            folder: The checkpoint to start from or to evaluate.
        """
        del folder
        return self
