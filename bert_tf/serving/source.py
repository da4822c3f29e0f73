"""What a model folder gives to be served: model, preprocessor, task."""

import dataclasses

import keras

from bert_tf import checkpoints
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import names
from bert_tf.checkpoints import reader
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.tasks.glue import GlueTask
from bert_tf.text.preprocessor import Preprocessor

DEFAULT_TEXT_FEATURES = ("text",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A trained model, as its model folder holds it.

    Args:
        model: A `BertClassifier`, `BertPretrainer` or `BertEncoder`.
        preprocessor: The `Preprocessor` that it was trained with.
        text_features: Names of the one or two strings that it is given.
        task: What it was tuned for; None for an encoder.
    """

    model: keras.Model
    preprocessor: Preprocessor
    text_features: tuple[str, ...]
    task: GlueTask | None


def read(model_dir, max_seq_length=None, text_features=None):
    """Reads a model folder.

    A classifier without task.json, as transformers writes them, gets its
    label names from config.json.

    Args:
        model_dir: The folder, of bert_tf or Hugging Face.
        max_seq_length: Longest sequence; the folder's if None.
        text_features: Names of one or two strings, where no task.json has
            them: ("text",) if None.

    Returns:
        A `Source`.

    Raises:
        ValueError: If it is no model folder, or one that cannot be served.
    """
    text_features = tuple(text_features or ())
    if len(set(text_features)) != len(text_features) or len(text_features) > 2:
        raise ValueError(
            "`text_features` must be one or two different names. "
            f"Received: text_features={','.join(text_features)}."
        )
    with reader.open_checkpoint(model_dir) as checkpoint:
        parts = reader.parts_of(checkpoint)
        task = _written_task(model_dir, text_features)
        if task is None and names.CLASSIFIER in parts:
            task = _task_of_classifier(checkpoint, text_features)
    if task:
        text_features = task.text_features
        model = checkpoints.load(
            model_dir, BertClassifier, num_labels=task.num_outputs
        )
    elif names.POOLER in parts:
        model = checkpoints.load(
            model_dir,
            BertPretrainer if names.MASKED_LM in parts else BertEncoder,
        )
    else:
        raise ValueError(
            f"{model_dir}: must have a pooler, which an encoder's "
            f"`pooled_output` comes from. Its parts: {', '.join(parts)}."
        )
    preprocessor = Preprocessor.from_folder(model_dir, max_seq_length)
    longest = model.config.max_position_embeddings
    if preprocessor.max_seq_length > longest:
        raise ValueError(
            "`max_seq_length` must not exceed the model's "
            f"max_position_embeddings={longest}. "
            f"Received: max_seq_length={preprocessor.max_seq_length}."
        )
    return Source(
        model=model,
        preprocessor=preprocessor,
        text_features=text_features or DEFAULT_TEXT_FEATURES,
        task=task,
    )


def _written_task(model_dir, text_features):
    """Returns the task of task.json, or None where there is none."""
    path = f"{model_dir}/{model_folder.TASK_FILE}"
    values = model_folder.read_task(model_dir)
    if values is None:
        return None
    try:
        task = GlueTask.from_dict(values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    if text_features not in ((), task.text_features):
        raise ValueError(
            f"`text_features` must be those of {path}, "
            f"{','.join(task.text_features)}. "
            f"Received: text_features={','.join(text_features)}."
        )
    return task


def _task_of_classifier(checkpoint, text_features):
    """Returns a task for a classifier that no program of ours tuned."""
    config_values = checkpoint.config_values or {}
    if config_values.get("problem_type") == "multi_label_classification":
        raise ValueError(
            f"{checkpoint.path}: must be a model of one label a text. "
            "Received: problem_type='multi_label_classification'."
        )
    num_labels = checkpoint.num_labels
    labels = hugging_face.label_names(config_values) or [
        f"LABEL_{label}" for label in range(num_labels)
    ]
    return GlueTask(
        name="classifier",
        text_features=text_features or DEFAULT_TEXT_FEATURES,
        labels=labels if num_labels > 1 else (),
        metrics=("accuracy",) if num_labels > 1 else ("pearson",),
    )
