"""Weights of a checkpoint into a model, with nothing skipped silently."""

import contextlib
import dataclasses
import inspect
from concurrent import futures

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import report
from bert_tf.checkpoints.containers import safetensors_folder
from bert_tf.checkpoints.families import bert
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.token_classifier import BertTokenClassifier

# The ends of the names of variables that begin as random values.
_RANDOM = ("kernel", "embeddings")
_MAX_PROBLEMS = 10
# Two: one waits for the disk while the other transposes.
_NUM_READERS = 2


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
    with reader.open_checkpoint(path, allow_partial) as checkpoint:
        config = checkpoint.config
        if config is None:
            raise ValueError(
                f"{path}: must have a {safetensors_folder.CONFIG_FILE} or "
                "bert_config.json beside its weights."
            )
        if max_position_embeddings is not None:
            config = longer_config(config, max_position_embeddings)
        with _TensorReader(checkpoint) as tensors:
            # What every model has, while Keras makes the variables.
            tensors.begin(bert.tensor_names(config, (bert.ENCODER,)))
            model_folder.check_vocabulary(checkpoint.folder, config)
            kwargs = _head_arguments(checkpoint, model_class) | kwargs
            with without_random_values():
                model = model_class(config, **kwargs)
            coverage = _fill(
                model,
                checkpoint,
                tensors,
                allow_partial,
                extend_positions=True,
                is_new=True,
            )
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
    with (
        reader.open_checkpoint(path, allow_partial) as checkpoint,
        _TensorReader(checkpoint) as tensors,
    ):
        return _fill(
            model,
            checkpoint,
            tensors,
            allow_partial,
            extend_positions,
            is_new=False,
        )


def longer_config(config, max_position_embeddings):
    """Returns the configuration with that many positions.

    Raises:
        ValueError: If they are fewer than it has.
    """
    if max_position_embeddings < config.max_position_embeddings:
        raise ValueError(
            "`max_position_embeddings` must be at least the checkpoint's "
            f"{config.max_position_embeddings}. Received: "
            f"max_position_embeddings={max_position_embeddings}."
        )
    return dataclasses.replace(
        config, max_position_embeddings=max_position_embeddings
    )


@contextlib.contextmanager
def without_random_values():
    """Leaves the random variables made in the block without a value.

    They are about to be filled; drawing the values of BERT-base would take
    several times as long as reading them.
    """

    def make(next_creator, **kwargs):
        initial_value = kwargs["initial_value"]
        if kwargs["name"].endswith(_RANDOM) and callable(initial_value):
            # Keras's own variable, of which the function is a closure, knows
            # shape and dtype. Were it none, the values would be drawn.
            variable = inspect.getclosurevars(initial_value).nonlocals.get(
                "self"
            )
            if isinstance(variable, keras.Variable):
                kwargs["initial_value"] = lambda: tf.raw_ops.Empty(
                    shape=variable.shape, dtype=variable.dtype
                )
        # Outside Keras's name scopes: of each new name TensorFlow makes a
        # kernel, which takes longer than the variable. Keras's paths stay.
        with tf.name_scope(""):
            return next_creator(**kwargs)

    with tf.variable_creator_scope(make):
        yield


def _head_arguments(checkpoint, model_class):
    """Returns `num_labels` and `dropout` as the checkpoint has them."""
    for a_class, part in (
        (BertClassifier, bert.CLASSIFIER),
        (BertTokenClassifier, bert.TOKEN_CLASSIFIER),
    ):
        if (
            issubclass(model_class, a_class)
            and reader.has_part(checkpoint, part)
            and checkpoint.num_labels is not None
        ):
            arguments = {"num_labels": checkpoint.num_labels}
            if checkpoint.classifier_dropout is not None:
                arguments["dropout"] = checkpoint.classifier_dropout
            return arguments
    return {}


def _check_architecture(path, stored, config):
    for field in model_folder.ARCHITECTURE_FIELDS:
        if getattr(stored, field) != getattr(config, field):
            raise ValueError(
                f"{path}: `{field}` of the checkpoint must be the model's. "
                f"Received: {field}={getattr(stored, field)!r} in the "
                f"checkpoint, {getattr(config, field)!r} in the model."
            )


def _fill(model, checkpoint, tensors, allow_partial, extend_positions, is_new):
    """Assigns what fits, one tensor at a time; returns the report."""
    matched = bert.match_variables(model)
    if checkpoint.config is not None:
        _check_architecture(checkpoint.path, checkpoint.config, model.config)
    entries, problems = [], []
    to_load, to_make = [], []
    for name, variable in matched.items():
        entry, problem = _plan(name, matched, checkpoint, extend_positions)
        entry = dataclasses.replace(entry, name=variable.path)
        entries.append(entry)
        problems.extend(problem)
        if entry.status == report.LOADED:
            to_load.append((name, variable))
        else:
            to_make.append((name, variable))
    for entry, problem in _leftovers(matched, model.config, checkpoint):
        entries.append(entry)
        problems.extend(problem)
    if problems and not allow_partial:
        raise_problems(problems)

    for variable, value in tensors.read(to_load):
        variable.assign(value)
    for name, variable in to_make:
        if is_new and name.keras.endswith(_RANDOM):
            initializer = keras.initializers.TruncatedNormal(
                stddev=model.config.initializer_range
            )
            variable.assign(initializer(name.shape))
    coverage = report.CoverageReport(
        path=str(checkpoint.path), entries=tuple(entries)
    )
    logging.info("Loaded a checkpoint:\n%s", coverage)
    return coverage


class _TensorReader:
    """Threads that read tensors of a checkpoint before they are asked for.

    A context manager.
    """

    def __init__(self, checkpoint):
        self._checkpoint = checkpoint
        self._pool = futures.ThreadPoolExecutor(_NUM_READERS)
        self._begun = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._pool.shutdown(cancel_futures=True)

    def begin(self, wanted):
        """Begins to read those of the `TensorName`s that fit.

        They are all held until they are read: variables that are not filled
        yet take no memory, so that there is one copy of the weights.
        """
        file_format = self._checkpoint.file_format
        for name in wanted:
            found = self._checkpoint.shapes.get(name.stored_name(file_format))
            shape = name.stored_shape(file_format)
            if found is not None and (
                found == shape or reader.can_extend(name, found, shape)
            ):
                self._submit(name)

    def read(self, to_load):
        """Yields (variable, its value) of (name, variable), in order.

        No more values than threads are held beside the variables, and those
        that were begun before.
        """
        for index, (name, variable) in enumerate(to_load):
            for ahead, _ in to_load[index : index + _NUM_READERS]:
                if ahead not in self._begun:
                    self._submit(ahead)
            yield variable, self._begun.pop(name).result()

    def _submit(self, name):
        self._begun[name] = self._pool.submit(
            _read, self._checkpoint, name, name.shape
        )


def _read(checkpoint, name, shape):
    """Returns a tensor of the checkpoint in the form of its variable."""
    array = reader.read_tensor(checkpoint, name)
    if array.shape != tuple(shape):
        array = reader.extend(array, shape[0])
    # In main memory: that of an accelerator holds the variables already.
    with tf.device("CPU:0"):
        if array.flags.c_contiguous:
            return tf.convert_to_tensor(array)
        # Several times faster than NumPy's copy to another order.
        return tf.transpose(array.T)


def raise_problems(problems):
    """Raises one ValueError that tells the first of them."""
    lines = list(problems)
    if len(lines) > _MAX_PROBLEMS:
        lines[_MAX_PROBLEMS:] = [f"... and {len(lines) - _MAX_PROBLEMS} more."]
    lines.append("`allow_partial` takes what does fit all the same.")
    raise ValueError("\n".join(lines))


def _plan(name, matched, checkpoint, extend_positions):
    """Returns the entry of a variable, and a list of problems with it."""
    file_format = checkpoint.file_format
    stored_name = name.stored_name(file_format)
    found = checkpoint.shapes.get(stored_name)
    wanted = name.stored_shape(file_format)
    status, note, problem = report.LOADED, stored_name, None
    if not reader.has_part(checkpoint, name.part):
        status, note = report.NEW, f"not in {checkpoint.architecture}"
    elif found is None:
        status, note = report.NEW, "not in the checkpoint"
        # A head may be missing as a whole, where nothing promises it.
        if name.part in checkpoint.parts or any(
            other.stored_name(file_format) in checkpoint.shapes
            for other in matched
            if other.part == name.part
        ):
            problem = (
                f"{checkpoint.weights_path}: the tensor {stored_name} is "
                "missing."
            )
    elif found != wanted:
        if extend_positions and reader.can_extend(name, found, wanted):
            note += f", repeated from {found[0]} rows"
        else:
            status = report.NEW
            note = f"{stored_name} has the shape {list(found)}"
            problem = (
                f"{checkpoint.file_of(stored_name)}: the tensor {stored_name} "
                f"must have the shape {list(wanted)}. Received: {list(found)}."
            )
    entry = report.CoverageEntry(
        status=status, name=name.keras, shape=name.shape, note=note
    )
    return entry, [problem] if problem else []


def _leftovers(matched, config, checkpoint):
    """Yields (entry, problems) of what no variable takes."""
    file_format = checkpoint.file_format
    used = {
        name.stored_name(file_format)
        for name in matched
        if reader.has_part(checkpoint, name.part)
    }
    # Heads of one name are told apart where the checkpoint says its class.
    parts = {
        name.stored_name(file_format): name.part
        for name in sorted(
            bert.tensor_names(config),
            key=lambda name: reader.has_part(checkpoint, name.part),
        )
    }
    for stored_name, shape in checkpoint.shapes.items():
        if stored_name in used:
            continue
        problems = []
        if stored_name in parts:
            note = f"{parts[stored_name]}: not in the model"
        elif is_tied(checkpoint, stored_name):
            note = f"the same as {safetensors_folder.TIED_NAMES[stored_name]}"
        else:
            note = "of no BERT with this configuration"
            problems = [
                f"{checkpoint.file_of(stored_name)}: the tensor {stored_name} "
                f"{list(shape)} has no place in the model."
            ]
        yield left_over(stored_name, shape, note), problems
    for name, shape in checkpoint.ignored.items():
        yield left_over(name, shape, checkpoint.ignored_note(name)), []


def is_tied(checkpoint, stored_name):
    """Whether a tensor is there a second time, under the table's name.

    BERT's masked-LM head has the word embeddings for weights; some files
    hold them twice. Where the two differ, the model is none of BERT's.
    """
    original = safetensors_folder.TIED_NAMES.get(stored_name)
    if checkpoint.shapes[stored_name] != checkpoint.shapes.get(original):
        return False
    return np.array_equal(
        checkpoint.read(stored_name), checkpoint.read(original)
    )


def left_over(name, shape, note):
    """Returns the entry of a tensor that is left over."""
    return report.CoverageEntry(
        status=report.LEFT_OVER, name=name, shape=shape, note=note
    )
