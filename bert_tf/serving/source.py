"""What a model folder gives to be served: model, preprocessor, task."""

import dataclasses

import keras

from bert_tf import checkpoints
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import names
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
    with reader.open_checkpoint(model_dir) as checkpoint:
        parts, config = checkpoint.parts, checkpoint.config
    preprocessor = Preprocessor.from_folder(model_dir, max_seq_length)
    if preprocessor.max_seq_length > config.max_position_embeddings:
        raise ValueError(
            "`max_seq_length` must not exceed the model's "
            f"max_position_embeddings={config.max_position_embeddings}. "
            f"Received: max_seq_length={preprocessor.max_seq_length}."
        )
    text_features = tuple(text_features or ())
    task = _task(model_dir, text_features)
    if task is None:
        _check_text_features(text_features)
    if task:
        model = checkpoints.load(
            model_dir, BertClassifier, num_labels=task.num_outputs
        )
    elif names.POOLER not in parts:
        raise ValueError(
            f"{model_dir}: has no pooler, which an encoder's `pooled_output` "
            f"comes from. Its parts: {', '.join(parts)}."
        )
    elif names.MASKED_LM in parts:
        model = checkpoints.load(model_dir, BertPretrainer)
    else:
        model = checkpoints.load(model_dir, BertEncoder)
    return Source(
        model=model,
        preprocessor=preprocessor,
        text_features=task.text_features
        if task
        else (text_features or DEFAULT_TEXT_FEATURES),
        task=task,
    )


def _task(model_dir, text_features):
    """Returns the folder's task, or None where it is no classifier's."""
    path = f"{model_dir}/{model_folder.TASK_FILE}"
    values = model_folder.read_task(model_dir)
    if values is not None:
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
    with reader.open_checkpoint(model_dir) as checkpoint:
        if names.CLASSIFIER not in checkpoint.parts:
            return None
        config_values = checkpoint.config_values
    if config_values.get("problem_type") == "multi_label_classification":
        raise ValueError(
            f"{model_dir}: must be a model of one label a text. Received: "
            "problem_type='multi_label_classification'."
        )
    num_labels = hugging_face.num_labels(config_values)
    is_regression = num_labels == 1
    labels = hugging_face.label_names(config_values) or [
        f"LABEL_{label}" for label in range(num_labels)
    ]
    return GlueTask(
        name="classifier",
        text_features=text_features or DEFAULT_TEXT_FEATURES,
        labels=() if is_regression else labels,
        metrics=("pearson",) if is_regression else ("accuracy",),
    )


def _check_text_features(text_features):
    if len(set(text_features)) != len(text_features) or len(text_features) > 2:
        raise ValueError(
            "`text_features` must be one or two different names. "
            f"Received: text_features={','.join(text_features)}."
        )
