"""Converts checkpoints from one format to another, tensor by tensor."""

import dataclasses

from absl import logging

from bert_tf import atomic
from bert_tf import files
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import containers
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import plan
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import report
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.checkpoints.report import CoverageEntry
from bert_tf.text.tokenizers import files as tokenizer_files


def convert(
    source: str,
    target: str,
    file_format: str,
    *,
    allow_partial: bool = False,
    max_position_embeddings: int | None = None,
    do_lower_case: bool | None = None,
    hidden_act: str | None = None,
) -> report.CoverageReport:
    """Converts a checkpoint; every value stays bit-identical.

    This covers weights, heads, vocabulary, case, label names and
    sentence-transformers' settings. The state of an optimizer is left out.
    The formats "hugging_face" and "bert_tf" give the same folder, except that
    "bert_tf" keeps task.json.

    Args:
        source: Like the `path` of `checkpoints.load`.
        target: Path of a folder that is empty or does not exist.
        file_format: One of `containers.FORMATS`.
        allow_partial: Whether tensors may be missing, left over or of another
            shape. They are then not in the target, and the report lists them.
        max_position_embeddings: As in `checkpoints.load`. The folder's longest
            text grows too, unless it was set to fewer tokens than there were
            positions.
        do_lower_case: Whether the model's texts were lower-cased. None takes
            the source's setting; without one, texts were lower-cased if the
            vocabulary has no capitals.
        hidden_act: None, or an activation that replaces the one in the
            configuration.

    Returns:
        The `CoverageReport`.

    Raises:
        ValueError: If the source cannot be read or has gaps, or the target
            cannot express it; the message names file and tensor.
    """
    if file_format not in containers.FORMATS:
        raise ValueError(
            f"`file_format` must be one of {', '.join(containers.FORMATS)}. "
            f"Received: file_format={file_format!r}."
        )
    target = str(target).rstrip("/")
    if files.list_folder(target):
        raise ValueError(f"{target} already exists and is not empty.")
    with reader.open_checkpoint(source, allow_partial) as checkpoint:
        family = checkpoint.family
        config = checkpoint.config
        if config is None:
            raise ValueError(
                f"{source}: must have a {family.google_config_file}."
            )
        is_google = file_format == containers.GOOGLE
        if is_google and family.write_google_config is None:
            raise ValueError(
                f"{source}: must be of a family that can be written in "
                f"Google's format. Received: model_type={family.model_type!r}."
            )
        vocabulary = model_folder.check_vocabulary(checkpoint.folder, config)
        if vocabulary is None:
            raise ValueError(f"{checkpoint.folder}: must have a vocab.txt.")
        tokenizer = tokenizer_files.read(
            checkpoint.folder, do_lower_case=do_lower_case
        )
        if max_position_embeddings is not None:
            config = loading.longer_config(config, max_position_embeddings)
        if hidden_act is not None:
            config = dataclasses.replace(config, hidden_act=hidden_act)
        its_parts = _parts(checkpoint, file_format, allow_partial)
        table = family.table(config, its_parts, checkpoint.num_labels or 2)
        steps = plan.make(
            checkpoint, table, config, its_parts, extend_positions=True
        )
        if not allow_partial:
            plan.check(steps)
        # Our folders use Hugging Face's tensor names.
        target_format = file_format if is_google else containers.HUGGING_FACE
        tensors, entries = _weights(checkpoint, steps, target_format)
        ignored = checkpoint.container.ignored.items()
        entries.extend(plan.ignored(*item) for item in ignored)
        kept, file_entries = _sentence_files(checkpoint, is_google)
        if is_google:
            assert family.google_config_file and family.write_google_config
            values = family.write_google_config(config)
            texts = {
                family.google_config_file: files.to_json(values),
                model_folder.VOCABULARY_FILE: vocabulary.to_text(),
            }
            _write_release(target, tensors, texts)
        else:
            architecture = family.architecture_of(its_parts)
            tensors = {
                family.file_name(name, architecture): array
                for name, array in tensors.items()
            }
            # These come before config.json, which is written last.
            texts = kept | _texts(checkpoint, config, architecture, tokenizer)
            if file_format == containers.HUGGING_FACE:
                texts[model_folder.TASK_FILE] = None
            model_folder.write(target, tensors, texts)
    coverage = report.CoverageReport(checkpoint.path, (*entries, *file_entries))
    logging.info("Converted a checkpoint:\n%s", coverage)
    return coverage


def _parts(checkpoint, file_format, allow_partial):
    """Returns the parts to write: all that were found, or one class's."""
    found = set(checkpoint.found_parts)
    is_whole = found.issuperset(checkpoint.parts)
    if checkpoint.architecture is not None and (is_whole or not allow_partial):
        return checkpoint.parts
    # Classifier, token-classifier and multiple-choice heads share one name.
    # With a pooler the head is taken for a classifier's, otherwise for a token
    # classifier's, whose class has no pooler.
    found.discard(parts.MULTIPLE_CHOICE)
    found.discard(
        parts.TOKEN_CLASSIFIER if parts.POOLER in found else parts.CLASSIFIER
    )
    if file_format == containers.GOOGLE:
        return tuple(sorted(found))
    architectures = checkpoint.family.architectures
    heads = found - {parts.ENCODER, parts.POOLER}
    return max(
        (each for each in architectures.values() if found.issuperset(each)),
        key=lambda each: (len(heads & set(each)), len(each)),
        default=architectures[checkpoint.family.bare_architecture],
    )


def _weights(checkpoint, steps, target_format):
    """Returns {name in the target: array}, and the report's entries."""
    tensors, entries = {}, []
    for step in steps:
        if step.status == report.LOADED:
            name, array = _read(checkpoint, step.tensor, target_format)
            tensors[name] = array
            note = f"from {step.note}"
            entries.append(CoverageEntry(step.status, name, array.shape, note))
        elif step.found is None:
            assert step.tensor is not None
            note = f"{step.note}, and not in the target"
            shape = step.tensor.shape
            entries.append(
                CoverageEntry(step.status, step.name, shape, note, step.part)
            )
        else:
            note = "of another shape" if step.tensor else step.note
            entries.append(
                CoverageEntry(report.LEFT_OVER, step.name, step.found, note)
            )
    return tensors, entries


def _read(checkpoint, tensor, target_format):
    """Returns a tensor's name and array in the target."""
    stored = tensor.stored(target_format)
    array = plan.read(checkpoint, tensor)
    return stored.name, stored.transform.to_file(array)


def _write_release(folder, tensors, texts):
    """Writes a release in Google's format, whole or not at all."""
    prefix = tf1_checkpoint.PREFIX
    with atomic.whole_folder(folder, last=f"{prefix}.index") as temporary:
        for name, text in texts.items():
            atomic.write_text(f"{temporary}/{name}", text)
        tf1_checkpoint.write(f"{temporary}/{prefix}", tensors)


def _sentence_files(checkpoint, is_google):
    """Returns sentence-transformers' files to keep, and entries of others.

    A conversion changes nothing in these files.

    Returns:
        {name in the folder: bytes}, and the report's entries.
    """
    folder = checkpoint.folder
    names = sentence_files.found_files(folder)
    note = "not stored in this format" if is_google else None
    if not is_google and not sentence_folder.is_cross_encoder(
        folder, checkpoint.config_values
    ):
        try:
            sentence_folder.read(folder)
        except ValueError as error:
            logging.warning("Left out sentence-transformers' files: %s", error)
            note = "of sentence vectors that bert_tf cannot make"
    if note is not None:
        return {}, [
            CoverageEntry(report.LEFT_OVER, name, None, note) for name in names
        ]
    return {
        name: files.read_bytes(
            f"{folder}/{name}",
            files.MAX_FOLDER_TEXT if name.endswith(".json") else None,
        )
        for name in names
    }, []


def _texts(checkpoint, config, architecture, tokenizer):
    num_labels = labels = problem_type = None
    its_parts = checkpoint.family.architectures[architecture]
    if set(parts.CLASSIFIERS) & set(its_parts):
        num_labels = checkpoint.num_labels
        labels = config_json.label_names(
            checkpoint.config_values, checkpoint.folder
        )
        problem_type = checkpoint.problem_type
    values = config_json.make(
        checkpoint.family,
        config,
        architecture,
        pad_id=tokenizer.vocabulary.pad_id,
        num_labels=num_labels,
        labels=labels,
        classifier_dropout=checkpoint.classifier_dropout,
        problem_type=problem_type,
    )
    for key in sentence_files.CROSS_ENCODER_KEYS:
        if key in checkpoint.config_values:
            values[key] = checkpoint.config_values[key]
    # transformers writes 10 ** 30, or nothing, if no length was set. A setting
    # that uses all positions grows with them.
    settings = model_folder.read_tokenizer_config(checkpoint.folder)
    longest = checkpoint.config.max_position_embeddings
    length = settings.get("model_max_length", longest)
    if length >= longest:
        length = config.max_position_embeddings
    task = model_folder.read_task(checkpoint.folder)
    return model_folder.make_texts(values, tokenizer, int(length), task)
