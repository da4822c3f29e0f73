"""All families of tasks, and the task that a model folder was tuned to."""

from bert_tf import files
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import Task

# {family in task.json: class of the task}.
TASKS: dict[str, type[Task]] = {
    task_class.family: task_class
    for task_class in (
        # Before the classifications, as a reranker is a classifier too.
        RerankingTask,
        ClassificationTask,
        MultiLabelTask,
        TaggingTask,
        MultipleChoiceTask,
        RetrievalTask,
        SquadTask,
    )
}


def read_task(folder: files.AnyPath) -> Task | None:
    """Reads the task in a model folder's task.json; None without the file.

    Args:
        folder: A model folder.

    Raises:
        ValueError: If the file is damaged, or its family is unknown; the
            message names the file.
    """
    values = model_folder.read_task(str(folder))
    if values is None:
        return None
    family = values.get("family")
    with files.errors_named(f"{folder}/{model_folder.TASK_FILE}"):
        if not isinstance(family, str) or family not in TASKS:
            raise ValueError(
                f"`family` must be one of {', '.join(TASKS)}. "
                f"Received: family={files.shortened(family)}."
            )
        return TASKS[family].from_dict(values)


def infer_task(
    checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
) -> Task | None:
    """Returns the task that a checkpoint without task.json shows, or None.

    Args:
        checkpoint, text_features: As in `Task.from_checkpoint`.

    Raises:
        ValueError: If its config.json does not fit its head.
    """
    for task_class in TASKS.values():
        task = task_class.from_checkpoint(checkpoint, text_features)
        if task is not None:
            return task
    return None


def find_task(checkpoint: Checkpoint) -> Task | None:
    """Returns the task that a checkpoint was tuned to; None if unknown.

    Args:
        checkpoint: What `reader.open_checkpoint` yielded.

    Raises:
        ValueError: As in `read_task` and `infer_task`.
    """
    task = read_task(checkpoint.folder)
    return infer_task(checkpoint) if task is None else task
