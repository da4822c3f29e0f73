"""Opens a model folder to be served: finds its kind and loads its parts."""

import dataclasses
import math

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
    kind, task = KINDS.get(options.kind or ""), None
    if kind is None:
        task = families.read_task(model_dir)
        kind = None if task is None else kind_of(None, task.family)
    model, source = None, Source()
    # A kind that needs no model takes a folder without one.
    if kind is None or kind.MODEL is not None:
        with reader.open_checkpoint(str(model_dir)) as checkpoint:
            if kind is None:
                task = families.infer_task(
                    checkpoint, tuple(options.text_features)
                )
                kind = kind_of(None, task.family if task else None)
                if task is None:
                    _check_is_for_an_encoder(checkpoint, options)
            vectors = kind.read_vectors(model_dir)
            options = kind.resolve(options, task, vectors)
            model = kind.load(checkpoint, task, options)
            source = Source(
                weights_sha256=checkpoint.weights_sha256(),
                config=checkpoint.config_values,
                vectors=vectors,
            )
    else:
        options = kind.resolve(options, task)
    preprocessor = Preprocessor.from_folder(
        model_dir, options.max_seq_length, options.tokens_in_text
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


def default_kind(checkpoint: Checkpoint) -> type[Servable]:
    """Returns the kind that serves a checkpoint if no other is asked for.

    Args:
        checkpoint: What `reader.open_checkpoint` yielded.

    Raises:
        ValueError: As in `families.find_task`.
    """
    task = families.find_task(checkpoint)
    return kind_of(None, task.family if task else None)


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
