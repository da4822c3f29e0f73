"""Writes and describes the model folder, which is a Hugging Face folder.

config.json              architecture, class of transformers, label names
model.safetensors        weights, under Hugging Face's names
vocab.txt                the vocabulary, one entry per line
tokenizer_config.json    case, longest sequence
tokenizer.json           the tokenizer, for Hugging Face's `tokenizers`
task.json                what the model was tuned for, if anything
modules.json, ...        of sentence models: see `sentence_folder`
README.md                model card, written last; a user's own card is kept
"""

import contextlib
import functools
import json
import math
from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf import formats
from bert_tf import messages
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import families
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints import variables
from bert_tf.checkpoints.containers import hugging_face_folder
from bert_tf.config import BertConfig
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers.tokenizer import Spec

CONFIG_FILE = config_json.CONFIG_FILE
WEIGHTS_FILE = hugging_face_folder.WEIGHTS_FILE
VOCABULARY_FILE = tokenizer_files.VOCABULARY_FILE
SETTINGS_FILE = tokenizer_files.SETTINGS_FILE
TOKENIZER_FILE = tokenizer_files.TOKENIZER_FILE
TASK_FILE = "task.json"

# Parts of a folder that `bert_tf.text` reads.
read_vocabulary = tokenizer_files.read_vocabulary
read_tokenizer_config = tokenizer_files.read_settings

# Adam's moments, as 0.2.0 wrote them: not those of new weights.
_OLD_MOMENTS = "optimizer.safetensors"
# Keys that task.json has only since version 2 of its format.
_SINCE_2 = ("temperature", "truncate_dim")
_MAX_LENGTH = "model_max_length"
_SPECIAL_TOKENS = tokenizer_files.SPECIAL_TOKENS
# Keys of tokenizer_config.json that may differ for one and the same model: the
# longest sequence, and the names of the special tokens.
_NOT_THE_TOKENIZER = (_MAX_LENGTH, *_SPECIAL_TOKENS)

# Fields that tell two models apart where the shapes of the weights may not. The
# dropouts and `initializer_range` belong to the training, not to the model.
ARCHITECTURE_FIELDS = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "type_vocab_size",
    "layer_norm_eps",
    "is_decoder",
    "embedding_size",
    "num_hidden_groups",
    "padding_idx",
    "norm_first",
    "has_biases",
    "rotary_theta",
    "local_rotary_theta",
    "attention_window",
    "full_attention_every",
    "shared_head",
    "classifier_pooling",
)


def save(
    folder: str,
    model: keras.Model,
    tokenizer: Spec,
    max_seq_length: int,
    task: dict[str, Any] | None = None,
    *,
    label_names: Sequence[str] | None = None,
    problem_type: str | None = None,
    vectors: sentence_folder.SentenceVectors | None = None,
    origin: model_card.Origin | None = None,
    untrained_parts: Collection[str] = (),
) -> None:
    """Writes the model folder, whole or not at all.

    If the folder already holds this model, it gets the new weights: a reader
    finds the old ones or the new ones, never some of each. A folder with
    another model is refused. The model card is written last; if that fails,
    a warning says so.

    Args:
        folder: Path, local or remote; created if it does not exist.
        model: A model of `bert_tf.models`.
        tokenizer: The spec of the tokenizer that the model was trained with.
        max_seq_length: Longest sequence that users should give the model.
        task: None, or the contents of task.json: a dictionary.
        label_names: Names of a (token) classifier's labels, in order, for
            config.json. LABEL_0, ... by default.
        problem_type: "multi_label_classification", as in config.json, for a
            classifier that gives a text several labels.
        vectors: None, or how to make the vector of a text: the folder is then
            one of sentence-transformers.
        origin: None, or what the model card says about the training.
        untrained_parts: Names of heads, from `parts`, that were neither loaded
            nor trained; they are left out.

    Raises:
        ValueError: If the arguments do not fit together, or the folder holds
            another model or another vocabulary.
        OSError: E.g. if the disk is full. The folder is then unchanged.
    """
    folder = str(folder).rstrip("/")
    matched = {
        tensor: variable
        for tensor, variable in variables.match(model).items()
        if tensor.part not in untrained_parts
    }
    config = model.config
    dtypes = sorted({str(variable.dtype) for variable in matched.values()})
    if dtypes != ["float32"]:
        raise ValueError(
            "`model` must have float32 weights: others would be rounded. For "
            "16 bits, load and train with dtype='mixed_bfloat16'. Received: "
            f"weights of {', '.join(dtypes)}."
        )
    _check(config, tokenizer.vocabulary, max_seq_length)
    family = families.of_config(config)
    architecture = family.architecture_of({tensor.part for tensor in matched})
    its_parts = family.architectures[architecture]
    num_labels = getattr(model, "num_labels", None)
    if label_names is not None:
        _check_label_names(label_names, num_labels)
    values = config_json.make(
        family,
        config,
        architecture,
        pad_id=tokenizer.vocabulary.pad_id,
        num_labels=num_labels,
        labels=label_names,
        classifier_dropout=getattr(model, "dropout", None),
        problem_type=problem_type,
    )
    texts = make_texts(values, tokenizer, max_seq_length, task)
    if vectors is not None:
        # These come before config.json, which is written last.
        texts = (
            sentence_folder.make_texts(
                vectors, config.hidden_size, max_seq_length
            )
            | texts
        )
    merged = variables.merged(model)
    tensors = {
        family.file_name(tensor.hugging_face.name, architecture): (
            tensor.hugging_face.transform.to_file(
                keras.ops.convert_to_numpy(merged.get(id(variable), variable))
            )
        )
        for tensor, variable in matched.items()
        if tensor.part in its_parts
    }
    write(folder, tensors, texts)
    path = f"{folder}/{model_card.CARD_FILE}"
    with _without_errors(path):
        # `write` has removed bert_tf's own card: one that exists is the user's.
        if not files.exists(path):
            num_added = sum(
                math.prod(each.shape) for each in variables.lora_factors(model)
            )
            card = model_card.make(
                config,
                values,
                num_parameters=model.count_params() - num_added,
                tokenizer_class=tokenizer.tokenizer_class,
                do_lower_case=tokenizer.do_lower_case,
                max_seq_length=max_seq_length,
                mask=tokenizer.vocabulary.special.mask,
                task=task or {},
                origin=origin,
            )
            atomic.write_text(path, card)


def write(
    folder: str,
    tensors: dict[str, np.ndarray],
    texts: dict[str, str | bytes | None],
) -> None:
    """Writes weights and texts into a model folder, whole or not at all.

    Removes the model card of the old weights, if bert_tf wrote it.

    Args:
        folder: Path, local or remote.
        tensors: {name in the file: float32 array}.
        texts: {name of a file: its contents, or None to remove it}, with
            config.json at the end.

    Raises:
        ValueError, OSError: As in `save`.
    """
    writers = {
        name: functools.partial(_write_text, text=text)
        for name, text in reversed(texts.items())
        if text is not None
    }
    write_tensors = hugging_face_folder.write
    writers[WEIGHTS_FILE] = functools.partial(write_tensors, tensors=tensors)
    if not files.list_folder(folder):
        with atomic.whole_folder(folder, last=CONFIG_FILE) as temporary:
            for name, write_file in writers.items():
                write_file(f"{temporary}/{name}")
        return
    _check_same_model(folder, texts)
    # Everything is written before anything is renamed. Files are renamed in
    # reverse: weights first, configuration last. Since the folder held this
    # model or none, every state in between is this model or none. Scores of
    # the old weights are removed first.
    with contextlib.ExitStack() as stack:
        temporaries = [
            stack.enter_context(atomic.whole_file(f"{folder}/{name}"))
            for name in writers
        ]
        for temporary, write_file in zip(temporaries, writers.values()):
            write_file(temporary)
        card_path = f"{folder}/{model_card.CARD_FILE}"
        with _without_errors(card_path):
            if read_card(folder) is not None:
                files.remove(card_path)
    for name, text in texts.items():
        if text is None and files.exists(f"{folder}/{name}"):
            files.remove(f"{folder}/{name}")


def _write_text(path, text):
    write_file = (
        atomic.write_bytes if isinstance(text, bytes) else atomic.write_text
    )
    write_file(path, text)


def read_card(folder: str) -> str | None:
    """Returns the model card of a folder, None if bert_tf has written none.

    A card that cannot be read, or was changed since, counts as the user's own.
    """
    path = f"{folder}/{model_card.CARD_FILE}"
    # File systems, local or remote, may raise anything.
    with contextlib.suppress(Exception):
        if not files.exists(path):
            return None
        text = files.read_text(path, files.MAX_FOLDER_TEXT)
        if model_card.is_own(text):
            return text
    _log_own_card(path)
    return None


def write_results(
    folder: str,
    card: str | None,
    name: str,
    dataset: str,
    results: dict[str, float],
) -> None:
    """Writes the results of an evaluation into the folder's model card.

    Writes nothing if the card has changed since the weights were read: the
    folder may then hold other weights.

    Args:
        folder: A model folder.
        card: What `read_card` returned before the weights were read, or when
            they were written.
        name: Name of the model.
        dataset: What it was evaluated on.
        results: {name: float}.
    """
    path = f"{folder}/{model_card.CARD_FILE}"
    with _without_errors(path):
        if card is None or read_card(folder) != card:
            return
        text = model_card.with_results(
            card,
            name=name,
            task_type=model_card.pipeline_tag(config_json.read(folder)),
            dataset=dataset,
            results=results,
        )
        atomic.write_text(path, text)


@contextlib.contextmanager
def _without_errors(path):
    """Turns errors into warnings: a card is not worth losing a training for."""
    try:
        yield
    except Exception as error:
        _warn_of_card(path, f"{type(error).__name__}: {error}")


# Cached to warn once: a training writes its model many times.
@functools.cache
def _warn_of_card(path, reason):
    logging.warning("%s cannot be written: %s", path, reason)


@functools.cache
def _log_own_card(path):
    logging.info("%s is not bert_tf's or was changed; it is kept.", path)


def make_texts(
    config_values: dict[str, Any],
    tokenizer: Spec,
    max_seq_length: int,
    task: dict[str, Any] | None,
) -> dict[str, str | bytes | None]:
    """Returns the argument `texts` of `write`.

    Args:
        config_values: The contents of config.json.
        tokenizer: The spec of the tokenizer.
        max_seq_length: Longest sequence that users should give the model.
        task: None, or the contents of task.json, as `read_task` returns them.
    """
    _check_length(max_seq_length)
    tokenizer_config = tokenizer_files.settings_of(tokenizer) | {
        _MAX_LENGTH: max_seq_length
    }
    if families.parse_config(config_values).type_vocab_size < 2:
        # Such models of Hugging Face take only the first segment, or none.
        tokenizer_config["model_input_names"] = ["input_ids", "attention_mask"]
    elif not tokenizer_files.has_segments_by_default(tokenizer):
        tokenizer_config["model_input_names"] = [
            "input_ids",
            "token_type_ids",
            "attention_mask",
        ]
    tokenizer_json = tokenizer.tokenizer_json
    return {
        _OLD_MOMENTS: None,
        # In this order: readers look for the configuration, which comes last.
        TASK_FILE: None if task is None else _task_text(task),
        SETTINGS_FILE: files.to_json(tokenizer_config),
        TOKENIZER_FILE: (
            None if tokenizer_json is None else files.to_json(tokenizer_json)
        ),
        **tokenizer.vocabulary_files,
        CONFIG_FILE: files.to_json(config_values),
    }


def read_label_names(folder: str) -> tuple[str, ...] | None:
    """Returns the label names of a model folder in order, or None."""
    return config_json.label_names(config_json.read(folder), folder)


def read_task(folder: str) -> dict[str, Any] | None:
    """Returns the contents of task.json, or None where there is none.

    Raises:
        ValueError: If the file is damaged, or of a later version.
    """
    path = f"{folder}/{TASK_FILE}"
    if not files.exists(path):
        return None
    return formats.unstamped(path, files.read_object(path), formats.TASK)


def write_task(folder: str, task: dict[str, Any]) -> None:
    """Writes task.json, whole or not at all, into a folder that has one.

    Args:
        folder: A model folder.
        task: As in `make_texts`, for the model that is there.
    """
    atomic.write_text(f"{folder}/{TASK_FILE}", _task_text(task))


def _task_text(task):
    # Written in the oldest version of the format that has all the keys.
    version = formats.TASK if {*_SINCE_2} & task.keys() else 1
    return files.to_json(formats.stamped(task, version))


def check_vocabulary(
    folder: str, config: BertConfig
) -> vocabulary_lib.Vocabulary | None:
    """Checks the vocabulary of a folder, if it has one.

    Returns:
        The `Vocabulary`, or None.

    Raises:
        ValueError: If it has more entries than the configuration, its case is
            not that of tokenizer_config.json, or the kind of tokenizer is not
            supported.
    """
    path = tokenizer_files.vocabulary_path(folder)
    vocabulary = read_vocabulary(folder)
    if path is None or vocabulary is None:
        return None
    with messages.errors_named(path):
        _check_entries(config, vocabulary)
    return vocabulary


def check_padding(
    config: BertConfig, vocabulary: vocabulary_lib.Vocabulary
) -> None:
    """Checks that a model and its vocabulary have the same padding id.

    Raises:
        ValueError: If they do not.
    """
    if config.padding_idx not in (None, vocabulary.pad_id):
        raise ValueError(
            "The id of the padding must be the model's "
            f"padding_idx={config.padding_idx}. "
            f"Received: pad_id={vocabulary.pad_id} of the vocabulary."
        )


def _check_entries(config, vocabulary):
    # The model may have more rows: they are never used.
    if len(vocabulary) > config.vocab_size:
        raise ValueError(
            "must have at most as many entries as the configuration's "
            f"vocab_size={config.vocab_size}. "
            f"Received: {len(vocabulary)} entries."
        )
    check_padding(config, vocabulary)


def _check(config, vocabulary, max_seq_length):
    with messages.errors_named("The vocabulary"):
        _check_entries(config, vocabulary)
    _check_length(max_seq_length)
    config.check_length(max_seq_length)


def _check_length(max_seq_length):
    if type(max_seq_length) is not int or max_seq_length < 1:
        raise ValueError(
            "`max_seq_length` must be a positive integer. Received: "
            f"max_seq_length={max_seq_length!r}."
        )


def _check_label_names(label_names, num_labels):
    if num_labels is None:
        raise ValueError(
            "`label_names` must be None: the model is not a classifier. "
            f"Received: label_names={messages.shortened(label_names)}."
        )
    if (
        # The letters of a string would pass as names.
        isinstance(label_names, str)
        or not all(map(config_json.is_name, label_names))
        or len(label_names) != num_labels
        or len(set(label_names)) != num_labels
    ):
        raise ValueError(
            f"`label_names` must be {num_labels} different names. Received: "
            f"label_names={messages.shortened(label_names)}."
        )


def _check_same_model(folder, texts):
    """Raises unless the folder holds the model that is written, or none."""
    for name in (hugging_face_folder.INDEX_FILE, *hugging_face_folder.PICKLES):
        if files.exists(f"{folder}/{name}"):
            raise ValueError(
                f"{folder}: holds weights in another form, {name}. Give "
                "another folder."
            )
    for name in tokenizer_files.vocabulary_files():
        path = f"{folder}/{name}"
        new = texts.get(name)
        if name == TOKENIZER_FILE or new is None or not files.exists(path):
            continue
        if isinstance(new, str):
            new = new.encode("utf-8")
        if files.read_bytes(path, files.MAX_FOLDER_TEXT) != new:
            raise ValueError(
                f"{path}: differs from the vocabulary of the model. Give "
                "another folder."
            )
    path = f"{folder}/{CONFIG_FILE}"
    if not files.exists(path):
        return
    old = config_json.read(folder)
    # The file may be somebody else's.
    with messages.errors_named(path):
        old = _identity(old)
    new = _identity(json.loads(texts[CONFIG_FILE] or ""))
    for key in old:
        _check_same(path, key, old[key], new[key])
    settings = read_tokenizer_config(folder)
    if not settings:
        return
    # One of the many names of a kind.
    settings["tokenizer_class"] = tokenizer_files.class_name(settings)
    path = f"{folder}/{SETTINGS_FILE}"
    for key, new in json.loads(texts[SETTINGS_FILE] or "").items():
        if key not in _NOT_THE_TOKENIZER:
            _check_same(path, key, settings.get(key, new), new)


def _check_same(path, key, old, new):
    if old != new:
        raise ValueError(
            f"{path}: is of another model: its `{key}` must be "
            f"{messages.shortened(new)}. Received: {messages.shortened(old)}. "
            "Give another folder."
        )


def _identity(values):
    """Returns the values that are the same in all configurations of a model."""
    config = families.parse_config(values)
    return {field: getattr(config, field) for field in ARCHITECTURE_FIELDS} | {
        "max_position_embeddings": config.max_position_embeddings,
        "architectures": values.get("architectures"),
        "id2label": values.get("id2label"),
        "problem_type": values.get("problem_type"),
    }
