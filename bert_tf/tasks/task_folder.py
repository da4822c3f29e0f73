"""Makes a task's models, and reads the task of a tuned model's folder."""

from typing import Any
from typing import TypeVar

import keras
from absl import logging
from keras import ops

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import hub
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import sentence_model
from bert_tf.checkpoints import variables
from bert_tf.checkpoints.starting_point import StartingPoint
from bert_tf.tasks import class_names
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.task import Task

AnyTask = TypeVar("AnyTask", bound=Task)


def new_model(start: StartingPoint, task: Task, **options: Any) -> keras.Model:
    """Makes a model to be fine-tuned.

    It keeps the checkpoint's head if that was tuned to such a task with the
    same classes; its outputs are put in the task's order. Otherwise the head
    is new, and the log says why.

    Args:
        start: A `StartingPoint`.
        task: A `Task`.
        **options: As in `Task.make_model`.
    """
    model = task.make_model(start.config, **options)
    if start.init_checkpoint is None:
        return model
    checkpoint = hub.local_path(start.init_checkpoint)
    heads = {tensor.part for tensor in variables.match(model)}
    heads -= {parts.ENCODER, parts.POOLER}
    with reader.open_checkpoint(checkpoint, start.allow_partial) as opened:
        loading.set_dropout(model, start.config, opened)
        reason = heads and _why_no_head(opened, task, model, heads)
    loading.load_weights(
        checkpoint,
        model,
        allow_partial=start.allow_partial,
        extend_positions=start.extend_positions,
        new_parts=heads if reason else (),
    )
    sentence_model.load_dense(model, checkpoint, may_be_new=True)
    if not heads:
        return model
    if reason:
        logging.info("%s: starting with a new head: %s.", checkpoint, reason)
    else:
        logging.info("%s: starting with the checkpoint's head.", checkpoint)
        _put_in_order(model, output_order(checkpoint, task))
    return model


def _why_no_head(checkpoint, task, model, heads):
    """Returns why a checkpoint's head does not fit a task, None if it does."""
    if checkpoint.config is None or not heads <= {*checkpoint.found_parts}:
        return "the checkpoint has none for such a task"
    if checkpoint.architecture is None and heads & {*parts.OF_ONE_NAME}:
        return "nothing says what the checkpoint's head is for"
    stored = model_folder.read_task(checkpoint.path)
    if stored is not None:
        if not task.takes_head_of(stored):
            return "the checkpoint's head was tuned to another task"
    elif parts.CLASSIFIER in heads:
        is_multi_label, is_wanted = (
            problem_type == config_json.MULTI_LABEL
            for problem_type in (checkpoint.problem_type, task.problem_type)
        )
        if is_multi_label != is_wanted:
            return "the checkpoint's head is for another kind of classification"
        names = config_json.label_names(
            checkpoint.config_values, checkpoint.path
        )
        is_named = task.labels and class_names.are_names(names or ())
        is_known = isinstance(task, Foreign) and task.takes_head_of_checkpoint(
            checkpoint
        )
        if not (is_named or is_known):
            return "nothing says what the outputs of its head mean"
    num_labels = getattr(model, "num_labels", None)
    if num_labels not in (None, checkpoint.num_labels):
        return "the checkpoint's head has another number of classes"
    try:
        order = output_order(checkpoint.path, task)
    except ValueError:
        return "the checkpoint's head has other classes"
    if task.labels and order is None:
        return "nothing names the classes of its head"
    return None


def tuned_model(
    start: StartingPoint, task: Task, **options: Any
) -> keras.Model:
    """Makes a model with all of the checkpoint's weights, head included.

    Its outputs are put in the order of the task's labels. If the folder does
    not name its classes, they are assumed to have this order already, with a
    warning.

    Args:
        start, task, **options: See `new_model`; there must be a checkpoint.

    Raises:
        ValueError: If the checkpoint has no such head, or its head has other
            classes.
    """
    assert start.init_checkpoint is not None
    checkpoint = hub.local_path(start.init_checkpoint)
    model = task.make_model(start.config, **options)
    with reader.open_checkpoint(checkpoint, start.allow_partial) as opened:
        loading.set_dropout(model, start.config, opened)
    coverage = loading.load_weights(
        checkpoint, model, allow_partial=start.allow_partial
    )
    missing = coverage.missing(model)
    if missing:
        raise ValueError(
            f"{checkpoint}: is not tuned to a task of the "
            f"family {task.family!r}; it has no {', '.join(missing)}."
        )
    sentence_model.load_dense(model, checkpoint, may_be_new=False)
    order = output_order(checkpoint, task)
    names = ", ".join(task.labels)
    if order is None and task.labels:
        logging.warning(
            "%s: does not name its classes; they are assumed to be, in this "
            "order, %s.",
            checkpoint,
            names,
        )
    elif order is not None and list(order) != sorted(order):
        logging.info(
            "%s: its outputs were put in the order %s.",
            checkpoint,
            names,
        )
    _put_in_order(model, order)
    return model


def _put_in_order(model, order):
    """Puts a classifier's outputs in the order of a task's labels."""
    if order is not None and list(order) != sorted(order):
        for variable in model.classification_head.weights:
            variable.assign(ops.take(variable, order, axis=-1))


def output_order(folder: str, task: Task) -> tuple[int, ...] | None:
    """Finds a tuned model's output for each of a task's classes.

    The names of its classes are in task.json or, without one, in config.json.

    Args:
        folder: A model folder.
        task: The task.

    Returns:
        A tuple of ints: for each of the task's labels, the number of the
        model's output. None if the task has no labels or the folder does not
        name its classes.

    Raises:
        ValueError: If the folder names other classes.
    """
    path = f"{folder}/{model_folder.CONFIG_FILE}"
    if not task.labels or not files.exists(path):
        return None
    stored = model_folder.read_task(folder)
    if stored is not None:
        path = f"{folder}/{model_folder.TASK_FILE}"
        names = stored.get("labels")
    else:
        names = model_folder.read_label_names(folder)
    if not names:
        return None
    with messages.errors_named(path):
        return class_names.match(
            names, task.labels, getattr(task, "label_synonyms", ())
        )


def stored_task(folder: str, task_class: type[AnyTask]) -> AnyTask | None:
    """Returns the task that a model folder was tuned to.

    Args:
        folder: A model folder.
        task_class: The class that the task must have.

    Returns:
        A `task_class`; None if there is no task.json, as in folders that
        transformers wrote.

    Raises:
        ValueError: If it was tuned to a task of another class.
    """
    values = model_folder.read_task(folder)
    if values is None:
        return None
    with messages.errors_named(f"{folder}/{model_folder.TASK_FILE}"):
        return task_class.from_dict(values)
