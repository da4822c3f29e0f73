"""Opens a model folder to be served: finds its kind and loads its parts."""

import dataclasses
import math
from typing import Any

import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import reader
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds.embedding import Embedding
from bert_tf.serving.kinds.fill_mask import FillMask
from bert_tf.serving.kinds.hub import Encoder
from bert_tf.serving.kinds.hub_preprocessor import Preprocessing
from bert_tf.serving.kinds.reranker import Reranker
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import Source
from bert_tf.serving.kinds.token_embeddings import TokenEmbeddings
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks import families
from bert_tf.text.preprocessor import Preprocessor

_DEFAULT = ExportOptions()
_NO_SOURCE = Source()
# The limit for frozen models, which take 10 to 25 times their size in a server.
MOST_FROZEN_BYTES = 2**28

# The kinds that an exporter's user can ask for. The default is the task that
# the model was tuned to, or an encoder if there is none.
KINDS: dict[str, type[Servable]] = {
    kind.KIND: kind
    for kind in (
        Encoder,
        Embedding,
        TokenEmbeddings,
        Reranker,
        FillMask,
        Preprocessing,
    )
}

# {an output that only one family of tasks has: the family}; others are `glue`.
_FAMILIES = {
    "is_label": "multi_label",
    "num_entities": "tagging",
    "token_probabilities": "tagging",
    "choice": "multiple_choice",
    "nbest_answers": "squad",
    "token_starts": "squad",
}


def open_folder(
    model_dir: files.AnyPath, options: ExportOptions = _DEFAULT
) -> Servable:
    """Opens a model folder to be served.

    A classifier without task.json, as transformers writes it, gets its label
    names from config.json. A model for multiple choice must have a task.json.

    Args:
        model_dir: The folder, of bert_tf or Hugging Face.
        options: The `ExportOptions`.

    Returns:
        A `Servable`.

    Raises:
        ValueError: If it is no model folder, or cannot be served at all or
            with these options.
    """
    kind = KINDS.get(options.kind or "")
    # A kind that needs no model takes a folder without one.
    if kind is not None and kind.MODEL is None:
        return _make(kind, str(model_dir), kind.resolve(options, None))
    with reader.open_checkpoint(str(model_dir)) as checkpoint:
        kind, task = find_kind(checkpoint, options)
        if kind is Encoder and options.kind != Encoder.KIND:
            _check_is_for_an_encoder(checkpoint, options)
        servable = open_as(kind, checkpoint, task, options)
        servable.source = dataclasses.replace(
            servable.source, weights_sha256=checkpoint.weights_sha256()
        )
    return servable


def find_kind(
    checkpoint: Checkpoint, options: ExportOptions = _DEFAULT
) -> tuple[type[Servable], Any]:
    """Returns the kind that serves a checkpoint, and its task.

    Args:
        checkpoint: What `reader.open_checkpoint` yielded.
        options: The `ExportOptions`; the default kind is that of the task that
            the model was tuned to, or an `Encoder`.

    Returns:
        A class of `Servable`; and the `Task`, None if the kind is no task's.

    Raises:
        ValueError: As in `families.find_task`.
    """
    if options.kind in KINDS:
        return KINDS[options.kind], None
    task = families.find_task(checkpoint, tuple(options.text_features))
    return kind_of(None, task.family if task else None), task


def open_as(
    kind: type[Servable],
    checkpoint: Checkpoint,
    task: Any,
    options: ExportOptions,
) -> Servable:
    """Opens a model folder as a kind; the source has no hashes of weights.

    Args:
        kind, task: What `find_kind` returned, or another kind and None.
        checkpoint: What `reader.open_checkpoint` yielded.
        options: The `ExportOptions`.

    Raises:
        ValueError: As in `open_folder`.
    """
    vectors = kind.read_vectors(checkpoint.path)
    options = kind.resolve(options, task, vectors)
    model = kind.load(checkpoint, task, options)
    source = Source(config=checkpoint.config_values, vectors=vectors)
    return _make(kind, checkpoint.path, options, task, model, source)


def _make(kind, folder, options, task=None, model=None, source=_NO_SOURCE):
    """Returns the `Servable` of a folder's parts."""
    preprocessor = Preprocessor.from_folder(
        folder, options.max_seq_length, options.tokens_in_text
    )
    if model is not None:
        model.config.check_length(preprocessor.max_seq_length)
        if options.freeze:
            _check_size(model)
    options = dataclasses.replace(
        options,
        max_seq_length=preprocessor.max_seq_length,
        tokens_in_text=preprocessor.tokenizer.spec.tokens_in_text,
    )
    return kind(model, preprocessor, task, options, source)


def kind_of(kind: str | None, family: str | None) -> type[Servable]:
    """Returns the class of what is served.

    Args:
        kind: One of `options.KINDS`; None for the default.
        family: The family of the task that the model was tuned to, or None.

    Raises:
        ValueError: If models of the family cannot be served.
    """
    if kind in KINDS:
        return KINDS[kind]
    if family is None:
        return Encoder
    servable = families.find(family).load("servable")
    if servable is None:
        raise ValueError(f"A model of the family {family!r} cannot be served.")
    return servable


def kind_of_export(path: files.AnyPath) -> type[Servable]:
    """Returns the class of what a SavedModel serves.

    Args:
        path: A SavedModel of this library.

    Raises:
        ValueError: If its bert_tf.json is damaged.
    """
    settings = saved_model.read_settings(path)
    family = settings.get("family")
    if family is None:
        # Exports of 0.2.0 do not say it.
        outputs = saved_model.read_signatures(path)[signatures.DEFAULT].outputs
        family = next(
            (_FAMILIES[name] for name in outputs if name in _FAMILIES),
            "glue",
        )
    return kind_of(settings.get("kind"), family)


def _check_is_for_an_encoder(checkpoint, options):
    """Raises `ValueError` if an encoder is not what was asked for."""
    architecture = checkpoint.architecture
    if parts.MULTIPLE_CHOICE in checkpoint.parts:
        raise ValueError(
            f"{checkpoint.path}: must have a {model_folder.TASK_FILE}, which "
            "tells the number of choices. Without it, the model can be an "
            f"encoder, which leaves the head out. Received: {architecture}."
        )
    if options.kind == options_lib.TASK:
        raise ValueError(
            f"{checkpoint.path}: must be tuned to a task to be served as one: "
            f"it has no {model_folder.TASK_FILE}, and its class tells no task. "
            f"Received: {architecture or 'no class that is known'}."
        )


def _check_size(model):
    """Raises `ValueError` if the weights are too large for a graph."""
    size = sum(
        math.prod(weight.shape) * tf.as_dtype(weight.dtype).size
        for weight in model.weights
    )
    if size > MOST_FROZEN_BYTES:
        raise ValueError(
            "--freeze must not be given for a model of more than "
            f"{MOST_FROZEN_BYTES:,} bytes of weights: TensorFlow copies what a "
            f"graph holds many times. Received: {size:,} bytes."
        )
