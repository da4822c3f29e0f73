"""Loads and saves whole models, with their preprocessors, from Python."""

import dataclasses
import inspect
import os
from collections.abc import KeysView
from collections.abc import Sequence
from collections.abc import Set
from typing import Any
from typing import NamedTuple

import keras
from absl import logging

from bert_tf import files
from bert_tf import messages
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints import sentence_model
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.runs import output_folder
from bert_tf.tasks import families
from bert_tf.tasks.retrieval.task import RetrievalTask
from bert_tf.tasks.task import Task
from bert_tf.text.preprocessor import Preprocessor

# {head: class of its model}; a checkpoint without a head is an encoder's.
_MODELS = {
    parts.CLASSIFIER: BertClassifier,
    parts.TOKEN_CLASSIFIER: BertTokenClassifier,
    parts.SPAN: BertSpanPredictor,
    parts.MULTIPLE_CHOICE: BertMultipleChoice,
    parts.MASKED_LM: BertPretrainer,
    parts.NEXT_SENTENCE: BertPretrainer,
    parts.DISCRIMINATOR: BertDiscriminator,
}


class LoadedModel(NamedTuple):
    """What `load` returns and `save` takes: `save(folder, *load(path))`.

    Args:
        model: The Keras model.
        preprocessor: The `Preprocessor` whose ids the model knows.
        task: The `Task` that the model was tuned to; None if it was not tuned,
            its head is new, or its task is not known.
    """

    model: keras.Model
    preprocessor: Preprocessor
    task: Task | None


def load(
    path: files.AnyPath,
    model_class: type[keras.Model] | None = None,
    *,
    max_seq_length: int | None = None,
    allow_partial: bool = False,
    max_position_embeddings: int | None = None,
    tokens_in_text: str | None = None,
    **kwargs: Any,
) -> LoadedModel:
    """Makes a model and its preprocessor from a checkpoint.

    Weights that the checkpoint lacks are initialised, and a warning names them,
    except those of an unused pooler. The model's attribute `coverage_report`
    says what became of every tensor.

    Args:
        path: A model folder of bert_tf or Hugging Face, a release of Google's,
            or the prefix of a TF1 checkpoint; local or remote. Or a model of
            the Hugging Face Hub, "hf:organisation/name@revision", which needs
            huggingface_hub.
        model_class: `BertClassifier`, `BertEncoder`, ... None for the class
            that has the checkpoint's head. For a checkpoint without a head,
            None means `BertSentenceEncoder` if it is a folder of
            sentence-transformers, otherwise `BertEncoder`.
        max_seq_length: Length of the sequences, from 2 to the model's
            `max_position_embeddings`; None for the longest that the folder
            allows, which is 512 in a release of Google's.
        allow_partial: Whether weights may be missing, unused or of another
            shape even if that is not due to a change of the head.
        max_position_embeddings: The model's longest sequence, if longer than
            the checkpoint's, whose position embeddings are then repeated
            (Beltagy et al. 2020, section 5); None for the checkpoint's.
        tokens_in_text: Which tokens the preprocessor finds in texts, as in
            `Preprocessor`; None for what the folder says.
        **kwargs: Arguments of `model_class` other than its configuration, e.g.
            `dtype`, and `num_labels`, which defaults to the checkpoint's.

    Returns:
        A `LoadedModel`: `model`, `preprocessor`, `task`.

    Raises:
        ValueError: If files are missing or corrupt, or do not fit each other or
            the model; the message names the file and the tensor.

    Example:

        >>> from bert_tf import BertClassifier, load
        >>> model, preprocessor, task = load(
        ...     "pretrained", BertClassifier, num_labels=3, max_seq_length=16
        ... )
        >>> model(preprocessor(["a text", "another"])).shape
        TensorShape([2, 3])
        >>> load("tickets").task.labels
        ('law', 'sales')
    """
    files.check_path("path", path)
    if model_class is not None and not _is_of_bert_tf(model_class):
        raise ValueError(
            "`model_class` must be a class such as BertClassifier, or one "
            "of your own whose first argument is `config`. "
            f"Received: {model_class!r}."
        )
    if "config" in kwargs:
        raise ValueError(
            "`config` must not be given: it is the checkpoint's. "
            f"Received: config={messages.shortened(kwargs['config'])}."
        )
    with reader.open_checkpoint(os.fspath(path), allow_partial) as checkpoint:
        vectors = None
        if model_class is None:
            found = checkpoint.found_parts
            heads = [_MODELS[part] for part in _MODELS if part in found]
            model_class = heads[0] if heads else BertEncoder
            if not heads and _has_vectors(checkpoint.folder):
                model_class = BertSentenceEncoder
        if issubclass(model_class, BertSentenceEncoder):
            vectors = sentence_folder.read(checkpoint.folder)
        if vectors is not None:
            kwargs = _vector_arguments(vectors, checkpoint.config) | kwargs
            if max_seq_length is None:
                max_seq_length = vectors.max_seq_length
        preprocessor = Preprocessor.from_folder(
            checkpoint.folder, max_seq_length, tokens_in_text
        )
        model: keras.Model = loading.load_open(
            checkpoint,
            model_class,
            allow_partial=allow_partial,
            max_position_embeddings=max_position_embeddings,
            **kwargs,
        )
        model.config.check_length(preprocessor.max_seq_length)
        if vectors is not None:
            # `save` writes its prompts.
            model.sentence_vectors = vectors
            sentence_model.load_dense(
                model, checkpoint.folder, may_be_new=allow_partial
            )
        return LoadedModel(model, preprocessor, _task_of(checkpoint, model))


def save(
    folder: files.AnyPath,
    model: keras.Model,
    preprocessor: Preprocessor,
    task: Task | None = None,
    *,
    label_names: Sequence[str] | None = None,
) -> None:
    """Writes a model folder, completely or not at all.

    The folder is in Hugging Face's format: `load`, `export`, `tuning.run` and
    transformers can read it. If it holds this model already, the weights are
    replaced; if it holds another model, it is refused. If it is the output
    folder of a training, that training can no longer be resumed there, as it
    would replace what you have saved. A model card, README.md, is written too,
    unless the folder has one of your own.

    Args:
        folder: Path, local or remote; made if it does not exist.
        model: A model of bert_tf. Its weights are written, but not the state of
            its optimizer.
        preprocessor: The `Preprocessor` that the model was trained with. Its
            vocabulary, lower-casing and `max_seq_length` are written.
        task: The `Task` that the model was tuned to. It becomes task.json,
            which tells an export what to answer. Pass the task that `load`
            returned to keep the folder's.
        label_names: Names of the classes, in order, for a (token) classifier
            without a task. An export answers with them. They default to
            LABEL_0, ...

    Raises:
        ValueError: If the arguments do not fit together, if the folder holds
            another model or another vocabulary, or if it has a task and none
            is given.
        OSError: If it cannot be written, e.g. because the disk is full; the
            folder is then left as it was.

    Example:

        >>> import os
        >>> from bert_tf import BertClassifier, load, save
        >>> model, preprocessor, _ = load(
        ...     "pretrained", BertClassifier, num_labels=2
        ... )
        >>> save("reviews", model, preprocessor, label_names=("bad", "good"))
        >>> sorted(os.listdir("reviews"))  # doctest: +NORMALIZE_WHITESPACE
        ['README.md', 'config.json', 'model.safetensors', 'tokenizer.json',
         'tokenizer_config.json', 'vocab.txt']
        >>> load("reviews").task.labels
        ('bad', 'good')
    """
    files.check_path("folder", folder)
    for name, value, wanted, text in (
        ("preprocessor", preprocessor, Preprocessor, "a Preprocessor"),
        ("task", task, Task | None, "a Task or None"),
    ):
        if not isinstance(value, wanted):
            raise ValueError(
                f"`{name}` must be {text}. Received: {type(value).__name__}."
            )
    folder = os.fspath(folder)
    if label_names is not None:
        label_names = _in_order(label_names)
    problem_type = None
    if task is None:
        path = os.path.join(folder, model_folder.TASK_FILE)
        if files.exists(path):
            raise ValueError(
                f"`task` must be given: {path} says what the model was tuned "
                "to, and would be lost. Received: task=None."
            )
    else:
        if label_names is not None:
            raise ValueError(
                "`label_names` must not be given with a task, whose labels are "
                f"{messages.shortened(list(task.labels))}. "
                f"Received: label_names={messages.shortened(label_names)}."
            )
        _check_is_tuned_to(task, model)
        if isinstance(task, RetrievalTask):
            task = _with_size_of(task, model)
        label_names, problem_type = task.labels or None, task.problem_type
    vectors = _vectors_of(model, task)
    model_folder.save(
        folder,
        model,
        preprocessor.tokenizer.spec,
        preprocessor.max_seq_length,
        task=None if task is None else task.to_dict(),
        label_names=label_names,
        problem_type=problem_type,
        vectors=vectors,
    )
    output_folder.note_saved(folder)


def _is_of_bert_tf(model_class):
    """Returns whether a class makes models from a `BertConfig`."""
    return (
        isinstance(model_class, type)
        and issubclass(model_class, keras.Model)
        # A user's class may pass all its arguments on to a base class.
        and any(
            "config" in inspect.signature(vars(base)["__init__"]).parameters
            for base in model_class.__mro__
            if "__init__" in vars(base)
        )
    )


def _in_order(label_names):
    """Returns names as a list, from any ordered iterable; a string as it is.

    Raises:
        ValueError: If they have no order.
    """
    if isinstance(label_names, str):
        # The check of the names refuses it. A list would have its letters.
        return label_names
    # The order of a set differs between processes.
    is_set = isinstance(label_names, Set)
    try:
        has_order = not is_set or isinstance(label_names, KeysView)
        names = list(label_names) if has_order else None
    except TypeError:
        names = None
    if names is None:
        raise ValueError(
            "`label_names` must be names in order, as a list has them. "
            f"Received: label_names={messages.shortened(label_names)}."
        )
    return names


def _has_vectors(folder):
    """Returns whether a model of ours can make a folder's vectors."""
    vectors = sentence_folder.read_known(folder)
    if vectors is None:
        return False
    if not vectors.is_trainable:
        logging.warning(
            "%s: its Dense layers are not loaded: only one with tanh and a "
            "bias can be trained. An export has them.",
            folder,
        )
        return False
    return True


def _vector_arguments(vectors, config):
    """Returns the arguments of a `BertSentenceEncoder`."""
    truncate_dim = vectors.truncate_dim
    if truncate_dim is not None and config is not None:
        # Files may keep more numbers than there are.
        truncate_dim = vectors.size(config.hidden_size)
    return {
        "pooling": vectors.pooling,
        "is_normalized": vectors.is_normalized,
        "dense_size": vectors.dense_size,
        "truncate_dim": truncate_dim,
    }


def _vectors_of(model, task):
    """Returns the `SentenceVectors` for a folder; None for other models."""
    if task is not None:
        return sentence_model.vectors_of(
            model, task.query_prompt, task.passage_prompt
        )
    vectors = sentence_model.vectors_of(model)
    loaded = getattr(model, "sentence_vectors", None)
    if vectors is None or loaded is None:
        return vectors
    return dataclasses.replace(
        vectors,
        prompts=loaded.prompts,
        default_prompt_name=loaded.default_prompt_name,
        include_prompt=loaded.include_prompt,
        similarity=loaded.similarity,
    )


def _task_of(checkpoint, model):
    """Returns the task that a loaded model was tuned to, or None."""
    new = model.coverage_report.missing(model)
    if new:
        logging.warning(
            "%s: %s not in it and must be trained: %s.",
            checkpoint.path,
            messages.counted(len(new), "weight is", "weights are"),
            ", ".join(new),
        )
        return None
    try:
        task = families.find_task(checkpoint)
    except ValueError as error:
        logging.warning("The task of the model is not known: %s", error)
        return None
    is_for_it = task is not None and isinstance(model, task.model_class)
    return task if is_for_it else None


def _with_size_of(task, model):
    """Returns the retrieval task with the size to which the model cuts vectors.

    Raises:
        ValueError: If the task has another size.
    """
    if task.truncate_dim is None:
        return dataclasses.replace(task, truncate_dim=model.truncate_dim)
    if (task.truncate_dim or None) != model.truncate_dim:
        raise ValueError(
            f"`truncate_dim` of the task must be {model.truncate_dim}, as in "
            f"the model. Received: truncate_dim={task.truncate_dim}."
        )
    return task


def _check_is_tuned_to(task, model):
    """Raises `ValueError` if the model is of another kind than the task's."""
    wanted = task.model_arguments()
    found = {name: getattr(model, name, None) for name in wanted}
    if not isinstance(model, task.model_class) or found != wanted:
        raise ValueError(
            f"`model` must be a {task.model_class.__name__} for this "
            f"{type(task).__name__}, with {wanted or 'any head'}. "
            f"Received: a {type(model).__name__} with {found or 'any head'}."
        )
