"""Loads the weights of a checkpoint into a model; skips nothing silently."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from concurrent import futures
from typing import Any
from typing import TypeVar

import keras
import tensorflow as tf
from absl import logging

from bert_tf.arguments import whole_number
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import plan
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import report
from bert_tf.checkpoints import variables
from bert_tf.config import BertConfig
from bert_tf.layers.heads import ClassificationHead
from bert_tf.layers.heads import HiddenLayer
from bert_tf.models import token_classifier
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.token_classifier import BertTokenClassifier

# Endings of the names of variables that are initialised at random.
_RANDOM = ("kernel", "embeddings")
# {class: its head}, for heads with dropout in front of them.
_HEADS: dict[type[keras.Model], str] = {
    BertClassifier: parts.CLASSIFIER,
    BertTokenClassifier: parts.TOKEN_CLASSIFIER,
    BertMultipleChoice: parts.MULTIPLE_CHOICE,
}
_HEAD_PARTS = parts.NAMES.keys() - {parts.ENCODER, parts.POOLER}
# Two: one waits for the disk while the other transposes.
_NUM_READERS = 2


Model = TypeVar("Model", bound=keras.Model)


def load(
    path: str,
    model_class: type[Model],
    *,
    allow_partial: bool = False,
    max_position_embeddings: int | None = None,
    **kwargs: Any,
) -> Model:
    """Makes a model with the weights of a checkpoint.

    A head that the checkpoint lacks is newly initialised. A one-line summary
    is logged; the full report is the model's attribute `coverage_report`.

    Args:
        path: A model folder of bert_tf or Hugging Face, or a release of
            Google's; the contents tell which.
        model_class: `BertEncoder`, `BertPretrainer`, `BertClassifier`, ...
        allow_partial: Whether weights outside a new head may be missing, left
            over or of another shape. Missing ones are then newly initialised.
            The report lists them all.
        max_position_embeddings: None, or the number of positions, at least
            the checkpoint's, whose position embeddings are repeated from the
            first on (Beltagy et al. 2020, section 5).
        **kwargs: Arguments of `model_class` other than its configuration.
            By default a classifier's `num_labels`, a pre-trainer's
            `has_next_sentence_head` and the `dropout` of any head, even a new
            one, come from the checkpoint.

    Returns:
        The model, a `model_class`.

    Raises:
        ValueError: If files are missing or corrupt, or do not fit each other
            or the model; the message names the file and the tensor.
    """
    with reader.open_checkpoint(path, allow_partial) as checkpoint:
        return load_open(
            checkpoint,
            model_class,
            allow_partial=allow_partial,
            max_position_embeddings=max_position_embeddings,
            **kwargs,
        )


def load_open(
    checkpoint: reader.Checkpoint,
    model_class: type[Model],
    *,
    allow_partial: bool = False,
    max_position_embeddings: int | None = None,
    **kwargs: Any,
) -> Model:
    """Does what `load` does, with an open checkpoint.

    Args:
        checkpoint: What `reader.open_checkpoint` yielded.
        model_class, allow_partial, max_position_embeddings, **kwargs: As in
            `load`.
    """
    config = checkpoint.config
    if config is None:
        raise ValueError(
            f"{checkpoint.path}: must have a {config_json.CONFIG_FILE} or "
            "bert_config.json beside its weights."
        )
    if max_position_embeddings is not None:
        config = longer_config(config, max_position_embeddings)
    with _TensorReader(checkpoint) as tensors:
        # Every model has an encoder: read it while Keras makes the variables.
        tensors.begin(checkpoint.family.table(config, (parts.ENCODER,)))
        model_folder.check_vocabulary(checkpoint.folder, config)
        kwargs = _head_arguments(checkpoint, config, model_class) | kwargs
        with without_random_values() as random_values:
            model = model_class(config, **kwargs)
        coverage = _fill(model, tensors, allow_partial, True)
    loaded = coverage.names(report.LOADED)
    random_values.draw([each for each in model.weights if each.path in loaded])
    # New heads are normal, but not an encoder's new pooler.
    is_whole = not coverage.missing(model, _HEAD_PARTS)
    level = logging.INFO if is_whole else logging.WARNING
    logging.log(level, "%s", coverage.summary)
    model.coverage_report = coverage
    return model


def load_weights(
    path: str,
    model: keras.Model,
    *,
    allow_partial: bool = False,
    extend_positions: bool = False,
    new_parts: Collection[str] = (),
) -> report.CoverageReport:
    """Fills a model with the weights of a checkpoint.

    One line is logged: how many tensors were loaded, and which parts of the
    model keep their present weights. It is a warning if such a part is not in
    `new_parts`.

    Args:
        path: As in `load`.
        model: A model of `bert_tf.models`.
        allow_partial: As in `load`.
        extend_positions: Whether the model may have more positions than the
            checkpoint; they are filled as in `load`.
        new_parts: Names of heads, from `parts`, that are not filled even if
            the checkpoint has them.

    Returns:
        The `CoverageReport`.

    Raises:
        ValueError: As in `load`. No variable has been changed then, unless a
            tensor turned out to be unreadable.
    """
    with (
        reader.open_checkpoint(path, allow_partial) as checkpoint,
        _TensorReader(checkpoint) as tensors,
    ):
        coverage = _fill(
            model, tensors, allow_partial, extend_positions, new_parts
        )
    missing = coverage.missing(model, new_parts)
    level = logging.WARNING if missing else logging.INFO
    logging.log(level, "%s", coverage.summary)
    return coverage


def longer_config(
    config: BertConfig, max_position_embeddings: int
) -> BertConfig:
    """Returns the configuration with that many positions.

    Raises:
        ValueError: If the configuration has more positions already, or the
            number is not an integer.
    """
    max_position_embeddings = whole_number(
        "max_position_embeddings", max_position_embeddings
    )
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
def without_random_values() -> Iterator["RandomValues"]:
    """Puts off the values of random variables that are made in the block.

    Most are about to be filled. Drawing the values of BERT-base would take
    several times as long as reading them.

    Yields:
        The `RandomValues` that were not drawn. They must be drawn for every
        variable that is not filled otherwise: it holds uninitialised memory.
    """
    values = RandomValues()

    def make(next_creator, **kwargs):
        initial_value = kwargs["initial_value"]
        is_put_off = False
        if kwargs["name"].endswith(_RANDOM) and callable(initial_value):
            # The function is a closure over Keras's own variable, which knows
            # shape and dtype. Without one, the values are drawn as usual.
            owner = inspect.getclosurevars(initial_value).nonlocals.get("self")
            if isinstance(owner, keras.Variable):
                is_put_off = True
                kwargs["initial_value"] = lambda: tf.raw_ops.Empty(
                    shape=owner.shape, dtype=owner.dtype
                )
        # Outside Keras's name scopes: TensorFlow makes a kernel for each new
        # name, which takes longer than the variable. Keras's paths stay.
        with tf.name_scope(""):
            variable = next_creator(**kwargs)
        if is_put_off:
            values.add(variable, initial_value)
        return variable

    with tf.variable_creator_scope(make):
        yield values


class RandomValues:
    """The values that variables would have had, which were not drawn yet."""

    def __init__(self) -> None:
        self._pending: list[tuple[tf.Variable, Callable[[], tf.Tensor]]] = []

    def add(
        self, variable: tf.Variable, initial_value: Callable[[], tf.Tensor]
    ) -> None:
        """Puts off the value of a variable."""
        self._pending.append((variable, initial_value))

    def draw(self, filled: Collection[keras.Variable]) -> None:
        """Gives every variable its value, except those that were filled.

        The values are those that the variables would have had from the start.
        """
        done = {id(variable.value) for variable in filled}
        for variable, initial_value in self._pending:
            if id(variable) not in done:
                variable.assign(initial_value())


def _head_arguments(checkpoint, config, model_class):
    """Returns the arguments of a model's heads as the checkpoint has them."""
    if issubclass(model_class, BertPretrainer) and config.is_trained_on_pairs:
        found = checkpoint.found_parts
        # Of an encoder alone, both heads are new.
        if parts.MASKED_LM not in found:
            return {}
        return {"has_next_sentence_head": parts.NEXT_SENTENCE in found}
    part = _head_of(model_class)
    if part is None:
        return {}
    arguments = {}
    # Also for a new head.
    dropout = checkpoint.dropout_of(part)
    if dropout is not None:
        arguments["dropout"] = dropout
    num_labels = checkpoint.num_labels
    if (
        part in parts.CLASSIFIERS
        and num_labels is not None
        and checkpoint.has_part(part)
    ):
        arguments["num_labels"] = num_labels
    return arguments


def _head_of(model_class):
    """Returns a model class's head, if there is dropout in front of it."""
    for a_class, part in _HEADS.items():
        if issubclass(model_class, a_class):
            return part
    return None


def set_dropout(
    model: keras.Model, config: BertConfig, checkpoint: reader.Checkpoint
) -> None:
    """Gives a model's head the dropout that a checkpoint specifies.

    The model keeps its dropout if that is not the default, or if its
    configuration differs from the checkpoint's.

    Args:
        model: A model, not trained yet.
        config: The model's `BertConfig`.
        checkpoint: What `reader.open_checkpoint` yielded.
    """
    part = _head_of(type(model))
    if part is None or checkpoint.config is None:
        return
    is_token_classifier = isinstance(model, BertTokenClassifier)
    default = config.classifier_dropout_prob
    if is_token_classifier:
        default = token_classifier.DEFAULT_DROPOUT
    own_config = dataclasses.replace(
        checkpoint.config,
        max_position_embeddings=config.max_position_embeddings,
    )
    dropout = checkpoint.dropout_of(part)
    if dropout is None or model.dropout != default or own_config != config:
        return
    # In place: another model would hold all of its weights once more.
    for layer in model.layers:
        is_head = isinstance(layer, ClassificationHead | HiddenLayer)
        if is_head and layer.dropout == default:
            layer.dropout = layer.input_dropout.rate = dropout
    model.dropout = dropout


def _fill(model, tensors, allow_partial, extend_positions, new_parts=()):
    """Assigns what fits, one tensor at a time; returns the report."""
    checkpoint = tensors.checkpoint
    matched = variables.match(model)
    if checkpoint.config is not None:
        _check_architecture(checkpoint, model.config)
        for part in checkpoint.missing_heads:
            logging.warning(
                "%s: has no %s, although its class is %s.",
                checkpoint.path,
                parts.NAMES[part],
                checkpoint.architecture,
            )
    steps = plan.make(
        checkpoint,
        matched,
        model.config,
        checkpoint.parts,
        extend_positions,
        new_parts,
    )
    if not allow_partial:
        plan.check(steps)
    to_load = [step.tensor for step in steps if step.status == report.LOADED]
    for tensor, value in tensors.read(to_load):
        matched[tensor].assign(value)
    entries = []
    for step in steps:
        name, shape = step.name, step.found or ()
        if step.tensor is not None:
            name, shape = matched[step.tensor].path, step.tensor.shape
        entries.append(
            report.CoverageEntry(step.status, name, shape, step.note, step.part)
        )
    entries.extend(
        plan.ignored(*item) for item in checkpoint.container.ignored.items()
    )
    coverage = report.CoverageReport(checkpoint.path, tuple(entries))
    logging.debug("Loaded a checkpoint:\n%s", coverage)
    return coverage


def _check_architecture(checkpoint, config):
    stored = checkpoint.config
    for field in model_folder.ARCHITECTURE_FIELDS:
        if getattr(stored, field) != getattr(config, field):
            raise ValueError(
                f"{checkpoint.path}: `{field}` of the checkpoint must be the "
                f"model's. Received: {field}={getattr(stored, field)!r} in the "
                f"checkpoint, {getattr(config, field)!r} in the model."
            )


class _TensorReader:
    """Reads tensors of a checkpoint in threads, ahead of their use.

    A context manager.
    """

    def __init__(self, checkpoint):
        self.checkpoint = checkpoint
        self._pool = futures.ThreadPoolExecutor(_NUM_READERS)
        self._begun = {}

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._pool.shutdown(cancel_futures=True)

    def begin(self, wanted):
        """Starts to read those of the `Tensor`s that fit.

        Their values are held until `read` yields them. Variables that are not
        filled yet take no memory, so there is only one copy of the weights.
        """
        for tensor in wanted:
            step = plan.step_of(self.checkpoint, tensor, extend_positions=True)
            if step.status == report.LOADED:
                self._submit(tensor)

    def read(self, wanted):
        """Yields (tensor, value of its variable) of `Tensor`s, in order.

        Apart from those that `begin` started, no more values than threads are
        held beside the variables.
        """
        for index, tensor in enumerate(wanted):
            for ahead in wanted[index : index + _NUM_READERS]:
                self._submit(ahead)
            yield tensor, self._begun.pop(tensor).result()

    def _submit(self, tensor):
        if tensor not in self._begun:
            self._begun[tensor] = self._pool.submit(
                _read, self.checkpoint, tensor
            )


def _read(checkpoint, tensor):
    """Returns a tensor of the checkpoint in the form of its variable."""
    array = plan.read(checkpoint, tensor)
    # On the host: the accelerator's memory holds the variables already.
    with tf.device("CPU:0"):
        if array.flags.c_contiguous:
            return tf.convert_to_tensor(array)
        # Several times faster than NumPy's copy to another order.
        return tf.transpose(array.T)
