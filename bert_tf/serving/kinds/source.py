"""What a model folder gives to be served: model, preprocessor, answers."""

import dataclasses
import math

import keras
import tensorflow as tf

from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.serving.kinds.classification import Classification
from bert_tf.serving.kinds.classification import task_of_classifier
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.kinds.hub import Encoder
from bert_tf.serving.kinds.hub_preprocessor import Preprocessing
from bert_tf.serving.kinds.multiple_choice import MultipleChoice
from bert_tf.serving.kinds.question_answering import QuestionAnswering
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.tagging import Tagging
from bert_tf.tasks.classification import task as glue
from bert_tf.tasks.multiple_choice import task as multiple_choice
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.tagging import task as tagging
from bert_tf.text.preprocessor import Preprocessor

DEFAULT_TEXT_FEATURES = ("text",)
FLOAT32, BFLOAT16 = "float32", "bfloat16"
PRECISIONS = (FLOAT32, BFLOAT16)

# A server's memory grows by 10 to 25 times as much.
MOST_FROZEN_BYTES = 2**28

# What an exporter's user can ask for. Where nothing is asked, it is what the
# model was tuned to, or else an encoder.
KINDS = {
    kind.KIND: kind for kind in (Encoder, Embedding, FillMask, Preprocessing)
}

# Tasks and what serves them, by the family in task.json.
_OF_FAMILY = {
    glue.FAMILY: (glue.ClassificationTask, Classification),
    tagging.FAMILY: (tagging.TaggingTask, Tagging),
    multiple_choice.FAMILY: (
        multiple_choice.MultipleChoiceTask,
        MultipleChoice,
    ),
    squad.FAMILY: (squad.SquadTask, QuestionAnswering),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A trained model, as its model folder holds it.

    Args:
        model: The Keras model; None where there is only text to preprocess.
        preprocessor: The `Preprocessor` that it was trained with.
        text_features: Names of the one or two strings that it is given.
        servable: The `Servable`: what is answered.
        precision: One of `PRECISIONS`: the arithmetic of the model's layers,
            and the form of their weights.
        is_frozen: Whether the SavedModel keeps the weights as constants of the
            graph, with which it answers faster, and not as variables, which
            can be trained on.
    """

    model: keras.Model | None
    preprocessor: Preprocessor
    text_features: tuple[str, ...]
    servable: Servable
    precision: str = FLOAT32
    is_frozen: bool = False

    @property
    def task(self):
        """What the model was tuned for; None if for nothing."""
        return getattr(self.servable, "task", None)


def make_servable(kind, settings):
    """Returns the `Servable` of a kind, None for that of the model folder.

    Args:
        kind: A key of `KINDS`; anything else is that of the model folder.
        settings: {name: value} of arguments that the kind takes.

    Raises:
        ValueError: If it does not take one of them, or its value.
    """
    allowed = KINDS[kind].SETTINGS if kind in KINDS else ()
    for name, value in settings.items():
        if name not in allowed:
            raise ValueError(
                f"`{name}` must not be given with the kind {kind or 'task'}. "
                f"Received: {name}={value!r}."
            )
    return KINDS[kind](**settings) if kind in KINDS else None


def read(
    model_dir,
    max_seq_length=None,
    text_features=None,
    servable=None,
    precision=FLOAT32,
    is_frozen=False,
    bounds=None,
):
    """Reads a model folder.

    A classifier without task.json, as transformers writes them, gets its
    label names from config.json.

    Args:
        model_dir: The folder, of bert_tf or Hugging Face.
        max_seq_length: Longest sequence; the folder's if None.
        text_features: Names of one or two strings, where no task.json has
            them: ("text",) if None.
        servable: The `Servable`; None for what the model was tuned to, or
            else an encoder.
        precision: One of `PRECISIONS`.
        is_frozen: As of `Source`.
        bounds: As of `Servable.set_bounds`; None for the kind's own.

    Returns:
        A `Source`.

    Raises:
        ValueError: If it is no model folder, or one that cannot be served.
    """
    text_features = tuple(text_features or ())
    if precision not in PRECISIONS:
        raise ValueError(
            f"`precision` must be one of {', '.join(PRECISIONS)}. "
            f"Received: precision={precision!r}."
        )
    if servable is None:
        servable = _servable_of(model_dir, text_features)
    servable.set_bounds(bounds or {})
    if servable.text_features is None:
        text_features = text_features or DEFAULT_TEXT_FEATURES
        if len({*text_features}) != len(text_features) or text_features[2:]:
            raise ValueError(
                "`text_features` must be one or two different names. "
                f"Received: text_features={','.join(text_features)}."
            )
    elif text_features in ((), servable.text_features):
        text_features = servable.text_features
    else:
        raise ValueError(
            "`text_features` must be those of the model, "
            f"{','.join(servable.text_features)}. "
            f"Received: text_features={','.join(text_features)}."
        )
    servable.check_text_features(text_features)
    model = servable.load(
        model_dir, None if precision == FLOAT32 else precision
    )
    preprocessor = Preprocessor.from_folder(model_dir, max_seq_length)
    if model is not None:
        _check_length(model, preprocessor)
        if is_frozen:
            _check_size(model)
    return Source(
        model=model,
        preprocessor=preprocessor,
        text_features=text_features,
        servable=servable,
        precision=precision,
        is_frozen=is_frozen,
    )


def _check_size(model):
    """Raises `ValueError` unless a graph may hold the weights."""
    size = sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for weight in model.weights
    )
    if size > MOST_FROZEN_BYTES:
        raise ValueError(
            "`is_frozen` must be False for a model of more than "
            f"{MOST_FROZEN_BYTES:,} bytes of weights: TensorFlow copies what a "
            f"graph holds many times. Received: {size:,} bytes."
        )


def _check_length(model, preprocessor):
    longest = model.config.max_position_embeddings
    if preprocessor.max_seq_length > longest:
        raise ValueError(
            "`max_seq_length` must not exceed the model's "
            f"max_position_embeddings={longest}. "
            f"Received: max_seq_length={preprocessor.max_seq_length}."
        )


def _servable_of(model_dir, text_features):
    """Returns what the model was tuned to answer, or an `Encoder`."""
    servable = _written_servable(model_dir)
    if servable is not None:
        return servable
    with reader.open_checkpoint(model_dir) as checkpoint:
        found = checkpoint.found_parts
        if parts.CLASSIFIER in found:
            return Classification(
                task_of_classifier(
                    checkpoint, text_features or DEFAULT_TEXT_FEATURES
                )
            )
    if parts.TOKEN_CLASSIFIER in found:
        return Tagging(tagging.tuned_task(model_dir))
    if parts.SPAN in found:
        return QuestionAnswering(squad.SquadTask())
    return Encoder()


def _written_servable(model_dir):
    """Returns that of the task in task.json, or None where there is none."""
    path = f"{model_dir}/{model_folder.TASK_FILE}"
    values = model_folder.read_task(model_dir)
    if values is None:
        return None
    family = values.get("family")
    if not isinstance(family, str) or family not in _OF_FAMILY:
        family = glue.FAMILY
    task_class, servable_class = _OF_FAMILY[family]
    try:
        return servable_class(task_class.from_dict(values))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
