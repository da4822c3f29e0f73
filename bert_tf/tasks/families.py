"""All families of tasks, and the task that a model folder was tuned to.

The table has a row for each family. A package of your own has its row under the
entry point `bert_tf.families`; docs/adding_a_task.md shows one.
"""

import dataclasses
import importlib
import importlib.metadata
from typing import Any

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.multi_label import MultiLabelTask
from bert_tf.tasks.multiple_choice.task import MultipleChoiceTask
from bert_tf.tasks.question_answering.task import SquadTask
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.tagging.task import TaggingTask
from bert_tf.tasks.task import Task

_ENTRY_POINTS = "bert_tf.families"
_KINDS = "bert_tf.serving.kinds"
_ONNX = "bert_tf.serving.onnx_exporter"
_SHOWN = "bert_tf.playground.answers"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    """One family of tasks, and what the rest of the library has for it.

    What stands above the tasks is named "module:name", and imported by `load`.

    Args:
        task: The class of its tasks, which has its model and reads its files.
        servable: The kind that serves it; None if it cannot be exported.
        program: The program that tunes it; None if it is tuned from Python.
        onnx: What makes its ONNX graph; None if it has none.
        shown: What the playground shows of its answers; None for nothing.
    """

    task: type[Task]
    servable: str | None = None
    program: str | None = None
    onnx: str | None = None
    shown: str | None = None

    def load(self, name: str) -> Any:
        """Returns what a field names, None if it names nothing."""
        named = getattr(self, name)
        if named is None:
            return None
        module, _, attribute = named.partition(":")
        return getattr(importlib.import_module(module), attribute)


# {family in task.json: its row}.
FAMILIES: dict[str, Family] = {
    row.task.family: row
    for row in (
        # Before the classifications, as a reranker is a classifier too.
        Family(
            task=RerankingTask,
            servable=f"{_KINDS}.reranker:Reranker",
            program="bert_tf.run_reranker",
            onnx=f"{_ONNX}:make_classifier",
            shown=f"{_SHOWN}:Ranked",
        ),
        Family(
            task=ClassificationTask,
            servable=f"{_KINDS}.classification:Classification",
            program="bert_tf.run_classifier",
            onnx=f"{_ONNX}:make_classifier",
            shown=f"{_SHOWN}:Classes",
        ),
        Family(
            task=MultiLabelTask,
            servable=f"{_KINDS}.multi_label:MultiLabel",
            onnx=f"{_ONNX}:make_classifier",
            shown=f"{_SHOWN}:Classes",
        ),
        Family(
            task=TaggingTask,
            servable=f"{_KINDS}.tagging:Tagging",
            program="bert_tf.run_tagger",
            onnx=f"{_ONNX}:make_tagger",
            shown=f"{_SHOWN}:Entities",
        ),
        Family(
            task=MultipleChoiceTask,
            servable=f"{_KINDS}.multiple_choice:MultipleChoice",
            program="bert_tf.run_multiple_choice",
            onnx=f"{_ONNX}:make_multiple_choice",
            shown=f"{_SHOWN}:Choices",
        ),
        Family(
            task=RetrievalTask,
            servable=f"{_KINDS}.embedding:Embedding",
            program="bert_tf.run_retrieval",
            onnx=f"{_ONNX}:make_embedding",
            shown=f"{_SHOWN}:Sentences",
        ),
        Family(
            task=SquadTask,
            servable=f"{_KINDS}.question_answering:QuestionAnswering",
            program="bert_tf.run_squad",
            onnx=f"{_ONNX}:make_span_predictor",
            shown=f"{_SHOWN}:Answers",
        ),
    )
}


def find(family: Any) -> Family:
    """Returns the row of a family.

    Args:
        family: Its name in task.json.

    Raises:
        ValueError: If no row, here or of an installed package, has the name.
    """
    if isinstance(family, str):
        if family in FAMILIES:
            return FAMILIES[family]
        for point in importlib.metadata.entry_points(group=_ENTRY_POINTS):
            if point.name == family:
                return point.load()
    raise ValueError(
        f"`family` must be one of {', '.join(FAMILIES)}, or of an installed "
        f"package. Received: family={messages.shortened(family)}."
    )


def of_kind(servable: type) -> Family | None:
    """Returns the row that a kind of servable serves, None if there is none."""
    for row in FAMILIES.values():
        if row.load("servable") is servable:
            return row
    return None


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
    with messages.errors_named(f"{folder}/{model_folder.TASK_FILE}"):
        return find(values.get("family")).task.from_dict(values)


def infer_task(
    checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
) -> Task | None:
    """Returns the task that a checkpoint without task.json shows, or None.

    Args:
        checkpoint, text_features: As in `Foreign.from_checkpoint`.

    Raises:
        ValueError: If its config.json does not fit its head.
    """
    for family in FAMILIES.values():
        if issubclass(family.task, Foreign):
            task = family.task.from_checkpoint(checkpoint, text_features)
            if task is not None:
                return task
    return None


def find_task(
    checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
) -> Task | None:
    """Returns the task that a checkpoint was tuned to; None if unknown.

    Args:
        checkpoint: What `reader.open_checkpoint` yielded.
        text_features: As in `infer_task`.

    Raises:
        ValueError: As in `read_task` and `infer_task`.
    """
    task = read_task(checkpoint.folder)
    return infer_task(checkpoint, text_features) if task is None else task
