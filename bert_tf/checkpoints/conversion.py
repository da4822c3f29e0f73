"""Checkpoints from one form into another, tensor by tensor."""

import dataclasses

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import report
from bert_tf.checkpoints.containers import safetensors_folder
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.checkpoints.families import bert
from bert_tf.text import vocabulary as vocabulary_lib

GOOGLE = "google"
HUGGING_FACE = "hugging_face"
BERT_TF = "bert_tf"
FORMATS = (GOOGLE, HUGGING_FACE, BERT_TF)


def convert(
    source,
    target,
    file_format,
    *,
    allow_partial=False,
    max_position_embeddings=None,
    do_lower_case=None,
    hidden_act=None,
):
    """Converts a checkpoint; every value stays bit for bit what it was.

    Weights, heads, Adam's moments and the global step, vocabulary and case,
    label names. The forms "hugging_face" and "bert_tf" are one and the same
    folder, but the latter keeps the task.json.

    Args:
        source: As the `path` of `checkpoints.load`.
        target: Path of a folder that is empty or not there.
        file_format: One of `FORMATS`.
        allow_partial: Whether tensors may be missing, left over or of another
            shape; they are not in the target then. The report tells them.
        max_position_embeddings: As of `checkpoints.load`; moments are
            repeated as the embeddings are.
        do_lower_case: Whether the model's texts were lower-cased. None for
            what the source says or, where it does not, for what the
            vocabulary does: whether it is without capitals.
        hidden_act: None, or the activation which the model is taken to have,
            whatever its configuration says.

    Returns:
        The `CoverageReport`.

    Raises:
        ValueError: If the source cannot be read or has gaps, or the target
            cannot express it; the message names file and tensor.
    """
    if file_format not in FORMATS:
        raise ValueError(
            f"`file_format` must be one of {', '.join(FORMATS)}. "
            f"Received: file_format={file_format!r}."
        )
    target = str(target).rstrip("/")
    if files.list_folder(target):
        raise ValueError(f"{target} is there already and is not empty.")
    with reader.open_checkpoint(source, allow_partial) as checkpoint:
        config = checkpoint.config
        if config is None:
            raise ValueError(
                f"{source}: must have a {tf1_checkpoint.CONFIG_FILE}."
            )
        vocabulary = model_folder.check_vocabulary(checkpoint.folder, config)
        if vocabulary is None:
            raise ValueError(f"{checkpoint.folder}: must have a vocab.txt.")
        do_lower_case = _case(checkpoint, vocabulary, do_lower_case)
        if max_position_embeddings is not None:
            config = loading.longer_config(config, max_position_embeddings)
        if hidden_act is not None:
            config = dataclasses.replace(config, hidden_act=hidden_act)
        parts = _parts(checkpoint, file_format)
        tensor_names = bert.tensor_names(
            config, parts, checkpoint.num_labels or 2
        )
        tensors, entries, problems = _weights(
            checkpoint, tensor_names, file_format
        )
        if problems and not allow_partial:
            loading.raise_problems(problems)
        slots, slot_entries = _slots(checkpoint, tensor_names, file_format)
        entries.extend(slot_entries)
        if file_format == GOOGLE:
            tf1_checkpoint.write(target, tensors | slots, config, vocabulary)
        else:
            architecture = bert.architecture_of(parts)
            tensors = {
                safetensors_folder.file_name(name, architecture): array
                for name, array in tensors.items()
            }
            texts = _texts(
                checkpoint, config, architecture, vocabulary, do_lower_case
            )
            if file_format == HUGGING_FACE:
                texts[model_folder.TASK_FILE] = None
            model_folder.write(target, tensors, texts, slots)
    coverage = report.CoverageReport(
        path=str(checkpoint.path), entries=tuple(entries)
    )
    logging.info("Converted a checkpoint:\n%s", coverage)
    return coverage


def _case(checkpoint, vocabulary, do_lower_case):
    if do_lower_case is None:
        values = model_folder.read_tokenizer_config(checkpoint.folder)
        do_lower_case = values.get("do_lower_case")
    if do_lower_case is None:
        do_lower_case = not vocabulary.is_cased
    vocabulary_lib.check_case(vocabulary, do_lower_case)
    return do_lower_case


def _parts(checkpoint, file_format):
    """Returns the parts to write: all there are, or those of one class."""
    found = {
        name.part
        for name in bert.tensor_names(checkpoint.config)
        if name.stored_name(checkpoint.file_format) in checkpoint.shapes
        and reader.has_part(checkpoint, name.part)
    }
    if checkpoint.architecture is None:
        # Heads of sequences, of choices and of tokens have one name; of the
        # first two it is taken for the first, and the last one's class has no
        # pooler.
        found.discard(bert.MULTIPLE_CHOICE)
        found.discard(
            bert.TOKEN_CLASSIFIER if bert.POOLER in found else bert.CLASSIFIER
        )
        if file_format == GOOGLE:
            return tuple(part for part in bert.PARTS if part in found)
        return max(
            (
                parts
                for parts in bert.ARCHITECTURES.values()
                if found.issuperset(parts)
            ),
            key=lambda parts: (
                len(set(parts) - {bert.ENCODER, bert.POOLER}),
                len(parts),
            ),
            default=(bert.ENCODER, bert.POOLER),
        )
    return checkpoint.parts


def _weights(checkpoint, tensor_names, file_format):
    """Returns {name in the target: array}, entries of the report, problems."""
    target_format = _name_format(file_format)
    tensors, entries, problems = {}, [], []
    used = set()
    for name in tensor_names:
        stored_name = name.stored_name(checkpoint.file_format)
        used.add(stored_name)
        found = checkpoint.shapes.get(stored_name)
        wanted = name.stored_shape(checkpoint.file_format)
        if found is None:
            problems.append(
                f"{checkpoint.weights_path}: the tensor {stored_name} is "
                "missing."
            )
            continue
        note = f"from {stored_name}"
        if found != wanted:
            if not reader.can_extend(name, found, wanted):
                problems.append(
                    f"{checkpoint.file_of(stored_name)}: the tensor "
                    f"{stored_name} must have the shape {list(wanted)}. "
                    f"Received: {list(found)}."
                )
                entries.append(
                    loading.left_over(stored_name, found, "of another shape")
                )
                continue
            note += f", repeated from {found[0]} rows"
        target_name = name.stored_name(target_format)
        tensors[target_name] = _read(checkpoint, name, target_format)
        entries.append(
            report.CoverageEntry(
                status=report.LOADED,
                name=target_name,
                shape=name.stored_shape(target_format),
                note=note,
            )
        )
    known = {
        name.stored_name(checkpoint.file_format): name.part
        for name in bert.tensor_names(checkpoint.config)
    }
    for stored_name, shape in checkpoint.shapes.items():
        if stored_name in used:
            continue
        note = "of no BERT with this configuration"
        if stored_name in known:
            note = f"{known[stored_name]}: not in a model with these heads"
        elif loading.is_tied(checkpoint, stored_name):
            note = f"the same as {safetensors_folder.TIED_NAMES[stored_name]}"
        else:
            problems.append(
                f"{checkpoint.file_of(stored_name)}: the tensor {stored_name} "
                f"{list(shape)} has no place in the model."
            )
        entries.append(loading.left_over(stored_name, shape, note))
    return tensors, entries, problems


def _slots(checkpoint, tensor_names, file_format):
    """Returns {name in the target: array} of moments and step, entries."""
    target_format = _name_format(file_format)
    slots, entries = {}, []
    used = {tf1_checkpoint.GLOBAL_STEP}
    for name in tensor_names:
        for slot in bert.SLOTS:
            stored_name = name.stored_name(checkpoint.file_format) + slot
            if stored_name not in checkpoint.slots:
                continue
            used.add(stored_name)
            target_name = name.stored_name(target_format) + slot
            slots[target_name] = _read(checkpoint, name, target_format, slot)
            entries.append(
                report.CoverageEntry(
                    status=report.LOADED,
                    name=target_name,
                    shape=name.stored_shape(target_format),
                    note=f"from {stored_name}",
                )
            )
    if checkpoint.global_step is not None:
        step = np.array(checkpoint.global_step, np.int64)
        slots[tf1_checkpoint.GLOBAL_STEP] = step
        entries.append(
            report.CoverageEntry(
                status=report.LOADED,
                name=tf1_checkpoint.GLOBAL_STEP,
                shape=(),
                note=f"{step}",
            )
        )
    for stored_name, shape in (checkpoint.slots | checkpoint.ignored).items():
        if stored_name not in used:
            note = checkpoint.ignored_note(stored_name)
            entries.append(loading.left_over(stored_name, shape, note))
    return slots, entries


def _read(checkpoint, name, target_format, slot=""):
    array = reader.read_tensor(checkpoint, name, slot)
    if array.shape != name.shape:
        if not reader.can_extend(name, array.shape, name.shape):
            stored_name = name.stored_name(checkpoint.file_format) + slot
            raise ValueError(
                f"{checkpoint.file_of(stored_name)}: the tensor {stored_name} "
                f"must have the shape of its weight, {list(name.shape)}. "
                f"Received: {list(array.shape)}."
            )
        array = reader.extend(array, name.shape[0])
    return array.T if name.is_transposed(target_format) else array


def _name_format(file_format):
    return bert.GOOGLE if file_format == GOOGLE else bert.HUGGING_FACE


def _texts(checkpoint, config, architecture, vocabulary, do_lower_case):
    parts = bert.ARCHITECTURES[architecture]
    num_labels = labels = None
    if {bert.CLASSIFIER, bert.TOKEN_CLASSIFIER} & set(parts):
        num_labels = checkpoint.num_labels
        labels = safetensors_folder.label_names(checkpoint.config_values or {})
    # transformers writes 10 ** 30, or nothing, where nobody told the length.
    values = model_folder.read_tokenizer_config(checkpoint.folder)
    length = min(
        values.get("model_max_length") or config.max_position_embeddings,
        config.max_position_embeddings,
    )
    task = model_folder.read_task(checkpoint.folder)
    return {
        model_folder.TASK_FILE: task and model_folder.to_json(task),
        model_folder.TOKENIZER_FILE: model_folder.to_json(
            model_folder.tokenizer_config(vocabulary, do_lower_case, length)
        ),
        model_folder.VOCABULARY_FILE: vocabulary.to_text(),
        model_folder.CONFIG_FILE: model_folder.to_json(
            safetensors_folder.make_config(
                config,
                architecture,
                pad_id=vocabulary.pad_id,
                num_labels=num_labels,
                labels=labels,
                classifier_dropout=checkpoint.classifier_dropout,
            )
        ),
    }
