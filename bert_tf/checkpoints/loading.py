"""Weights of a checkpoint into a model, with nothing skipped silently."""

import dataclasses

import numpy as np
from absl import logging

from bert_tf import files
from bert_tf.checkpoints import hugging_face
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import names
from bert_tf.checkpoints import report
from bert_tf.models.classifier import BertClassifier
from bert_tf.text import vocabulary as vocabulary_lib

_MAX_PROBLEMS = 10


def load(
    path,
    model_class,
    *,
    allow_partial=False,
    max_position_embeddings=None,
    **kwargs,
):
    """Makes a model with the weights of a checkpoint.

    A head that the checkpoint does not have is newly made. The coverage
    report is logged, and is the model's attribute `coverage_report`.

    Args:
        path: A model folder of bert_tf or Hugging Face, or a release of
            Google's: told apart by what is in it.
        model_class: `BertEncoder`, `BertPretrainer`, `BertClassifier`, ...
        allow_partial: Whether weights may be missing, left over or of another
            shape for which the head is no reason: missing ones are then newly
            made. The report tells them.
        max_position_embeddings: None, or the longest sequence, beyond the
            checkpoint's: its embeddings are repeated from the first on
            (Beltagy et al. 2020, section 5).
        **kwargs: Arguments of `model_class` other than its configuration.
            Of a classifier, `num_labels` and `dropout` are the checkpoint's
            if not given.

    Returns:
        The model, a `model_class`.

    Raises:
        ValueError: If the files are missing, corrupt, or do not fit together
            or the model; the message names the file and the tensor.
    """
    with open_checkpoint(path) as checkpoint:
        config = checkpoint.config
        if config is None:
            raise ValueError(
                f"{path}: has no {hugging_face.CONFIG_FILE} or "
                "bert_config.json beside it."
            )
        check_vocabulary(path, config)
        if max_position_embeddings is not None:
            if max_position_embeddings < config.max_position_embeddings:
                raise ValueError(
                    "`max_position_embeddings` must be at least the "
                    f"checkpoint's {config.max_position_embeddings}. Received: "
                    f"max_position_embeddings={max_position_embeddings}."
                )
            config = dataclasses.replace(
                config, max_position_embeddings=max_position_embeddings
            )
        if issubclass(model_class, BertClassifier):
            kwargs = _head_arguments(checkpoint, names.CLASSIFIER) | kwargs
        model = model_class(config, **kwargs)
        coverage = _fill(model, checkpoint, allow_partial, True)
    model.coverage_report = coverage
    return model


def load_weights(path, model, *, allow_partial=False, extend_positions=False):
    """Fills a model with the weights of a checkpoint.

    Args:
        path: As of `load`.
        model: A model of `bert_tf.models`.
        allow_partial: As of `load`.
        extend_positions: Whether the model may have more positions than the
            checkpoint; they are filled as `load` says.

    Returns:
        The `CoverageReport`; it is logged also.

    Raises:
        ValueError: As of `load`. No variable has been changed then, unless a
            tensor turned out to be unreadable.
    """
    with open_checkpoint(path) as checkpoint:
        if checkpoint.config is not None and hasattr(model, "config"):
            _check_architecture(path, checkpoint.config, model.config)
        return _fill(model, checkpoint, allow_partial, extend_positions)


def open_checkpoint(path):
    """Returns a reader of what lies at `path`; a context manager.

    Raises:
        ValueError: If it is nothing that can be read.
    """
    path = str(path).rstrip("/")
    if files.exists(f"{path}/{hugging_face.CONFIG_FILE}"):
        return hugging_face.HuggingFaceCheckpoint(path)
    found = ", ".join(files.list_folder(path)) or "nothing"
    raise ValueError(
        f"{path}: is no model folder: it has no {hugging_face.CONFIG_FILE}. "
        f"Found: {found}."
    )


def check_vocabulary(folder, config):
    """Checks the vocabulary of a folder, if it has one.

    Raises:
        ValueError: If its size is not the configuration's, or its case not
            what tokenizer_config.json says.
    """
    path = f"{folder}/vocab.txt"
    if not files.exists(path):
        return
    vocabulary = vocabulary_lib.load_vocabulary(path)
    if len(vocabulary) != config.vocab_size:
        raise ValueError(
            f"{path}: must have as many entries as the configuration's "
            f"vocab_size={config.vocab_size}. Received: {len(vocabulary)} "
            "entries."
        )
    path = f"{folder}/tokenizer_config.json"
    if files.exists(path):
        do_lower_case = files.read_json(path).get("do_lower_case")
        if do_lower_case is not None:
            try:
                vocabulary_lib.check_case(vocabulary, do_lower_case)
            except ValueError as error:
                raise ValueError(f"{path}: {error}") from error


def _head_arguments(checkpoint, part):
    """Returns `num_labels` and `dropout` as the checkpoint has them."""
    if part not in checkpoint.parts:
        return {}
    values = checkpoint.config_values
    dropout = values.get("classifier_dropout")
    if dropout is None:
        dropout = checkpoint.config.hidden_dropout_prob
    return {
        "num_labels": hugging_face.num_labels(values),
        "dropout": dropout,
    }


def _check_architecture(path, stored, config):
    for field in model_folder.ARCHITECTURE_FIELDS:
        if getattr(stored, field) != getattr(config, field):
            raise ValueError(
                f"{path}: `{field}` of the checkpoint must be the model's. "
                f"Received: {field}={getattr(stored, field)!r} in the "
                f"checkpoint, {getattr(config, field)!r} in the model."
            )


def _fill(model, checkpoint, allow_partial, extend_positions):
    """Assigns what fits, one tensor at a time; returns the report."""
    matched = names.match_variables(model)
    plan, entries, problems = _plan(
        matched, checkpoint, allow_partial, extend_positions
    )
    leftovers = _leftovers(matched, model, checkpoint)
    for entry, is_explained in leftovers:
        entries.append(entry)
        if not is_explained and not allow_partial:
            problems.append(
                f"{checkpoint.file_of(entry.name)}: the tensor {entry.name} "
                f"{list(entry.shape)} has no place in the model."
            )
    if problems:
        hidden = len(problems) - _MAX_PROBLEMS
        if hidden > 0:
            problems[_MAX_PROBLEMS:] = [f"... and {hidden} more."]
        raise ValueError(
            "\n".join(problems)
            + "\n`allow_partial` loads the rest all the same."
        )
    for name, variable in plan:
        array = read_tensor(checkpoint, name)
        if array.shape != tuple(variable.shape):
            array = extend(array, variable.shape[0])
        variable.assign(array)
    coverage = report.CoverageReport(
        path=str(checkpoint.path), entries=tuple(entries)
    )
    logging.info("Loaded a checkpoint:\n%s", coverage)
    return coverage


def read_tensor(checkpoint, name):
    """Returns a tensor in the layout of its Keras variable.

    Raises:
        ValueError: If it cannot be read or has a value that is not finite;
            the message names file and tensor.
    """
    stored_name = name.stored_name(checkpoint.file_format)
    array = checkpoint.read(stored_name)
    if not np.isfinite(array).all():
        raise ValueError(
            f"{checkpoint.file_of(stored_name)}: the tensor {stored_name} "
            "holds values that are not finite."
        )
    if name.is_transposed(checkpoint.file_format):
        array = np.ascontiguousarray(array.T)
    return array


def extend(array, num_rows):
    """Repeats the rows from the first on, until there are `num_rows`.

    Copies keep what the encoder learned of positions relative to each other,
    but at the seams (Beltagy et al. 2020, Longformer, section 5).
    """
    return np.take(array, np.arange(num_rows) % len(array), axis=0)


def _plan(matched, checkpoint, allow_partial, extend_positions):
    """Returns [(TensorName, variable)] to load, entries, and problems."""
    file_format = checkpoint.file_format
    plan, entries, problems = [], [], []
    absent = {
        part: all(
            name.stored_name(file_format) not in checkpoint.shapes
            for name in matched
            if name.part == part
        )
        for part in names.parts_of(matched)
    }
    for name, variable in matched.items():
        stored_name = name.stored_name(file_format)
        shape = tuple(variable.shape)
        stored_shape = name.stored_shape(file_format)
        note = stored_name
        problem = None
        if not _is_head_of(name.part, checkpoint):
            status, note = report.NEW, f"not in {checkpoint.architecture}"
        elif stored_name not in checkpoint.shapes:
            status, note = report.NEW, "not in the checkpoint"
            # A head may be missing as a whole, where nothing promises it.
            if not absent[name.part] or name.part in checkpoint.parts:
                problem = f"the tensor {stored_name} is missing."
        elif checkpoint.shapes[stored_name] == stored_shape:
            status = report.LOADED
        elif (
            name.keras == names.POSITION_EMBEDDINGS
            and checkpoint.shapes[stored_name][1:] == stored_shape[1:]
            and checkpoint.shapes[stored_name][0] < stored_shape[0]
            and extend_positions
        ):
            status = report.LOADED
            note += f", extended from {checkpoint.shapes[stored_name][0]} rows"
        else:
            found = list(checkpoint.shapes[stored_name])
            status, note = report.NEW, f"{stored_name} has shape {found}"
            problem = (
                f"the tensor {stored_name} must have the shape "
                f"{list(stored_shape)}. Received: {found}."
            )
        if problem and not allow_partial:
            where = checkpoint.path
            if stored_name in checkpoint.shapes:
                where = checkpoint.file_of(stored_name)
            problems.append(f"{where}: {problem}")
        if status == report.LOADED:
            plan.append((name, variable))
        entries.append(
            report.CoverageEntry(
                status=status, name=variable.path, shape=shape, note=note
            )
        )
    return plan, entries, problems


def _is_head_of(part, checkpoint):
    """Whether a head's tensors, if there, are this part's and no other's."""
    if part not in (names.CLASSIFIER, names.TOKEN_CLASSIFIER):
        return True
    return checkpoint.architecture is None or part in checkpoint.parts


def _leftovers(matched, model, checkpoint):
    """Yields (entry, whether a head of another model explains it)."""
    file_format = checkpoint.file_format
    used = {
        name.stored_name(file_format)
        for name in matched
        if _is_head_of(name.part, checkpoint)
    }
    # Heads of one name are told apart where the checkpoint says its class.
    parts = {
        name.stored_name(file_format): name.part
        for name in sorted(
            names.tensor_names(model.config),
            key=lambda name: _is_head_of(name.part, checkpoint),
        )
    }
    for stored_name, shape in checkpoint.shapes.items():
        if stored_name in used:
            continue
        note, is_explained = "of no BERT of this configuration", False
        if stored_name in parts:
            note = f"of the part {parts[stored_name]}, not in the model"
            is_explained = True
        elif stored_name in hugging_face.TIED_NAMES:
            original = hugging_face.TIED_NAMES[stored_name]
            is_explained = checkpoint.shapes.get(
                original
            ) == shape and np.array_equal(
                checkpoint.read(stored_name), checkpoint.read(original)
            )
            note = f"{'the same as' if is_explained else 'unlike'} {original}"
        yield _left_over(stored_name, shape, note), is_explained
    for name, shape in checkpoint.ignored.items():
        yield _left_over(name, shape, checkpoint.ignored_note(name)), True


def _left_over(name, shape, note):
    return report.CoverageEntry(
        status=report.LEFT_OVER, name=name, shape=shape, note=note
    )
