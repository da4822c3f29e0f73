"""The base class of all families of fine-tuning tasks.

Programs, `keras.Model.fit`, the training loop and the exporter all work from
one `Task`; a fine-tuned model's folder holds it as task.json.
"""

import abc
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import ClassVar
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from numpy.typing import ArrayLike

from bert_tf import features
from bert_tf import formats
from bert_tf import messages
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import objectives
from bert_tf.models.objectives import Objective
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.source import Source
from bert_tf.tasks.text_source import TextSource
from bert_tf.text.preprocessor import Preprocessor

# Metadata of a field that is not in task.json.
NOT_STORED = {"is_stored": False}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """What a model is fine-tuned for; each family of tasks is a subclass.

    What only some families do is in classes that they also inherit from:
    `distillable.Distillable`, `calibration.Calibrated` and `foreign.Foreign`.

    A subclass is a frozen dataclass. task.json holds its fields, except those
    with `NOT_STORED`, and those with `formats.STORED_IF_SET` that have their
    default. The constructor checks the fields, and its `ValueError` names the
    field.

    Attributes:
        family: A string, the same for all tasks of the class.
        labels: Names of the classes by id; empty where the labels are not
            classes.
        lacks_labels: Whether the classes are not known yet; `read_training`
            finds them.
        main_metric: The name, in the results of an evaluation, of the score
            that tells the better of two models.
        label_rank: Number of axes of a batch's labels, or of the labels of
            each output if there are several; without the axis of weights.
        is_in_batch: Whether an element's loss depends on the rest of its batch,
            which must then be full.
        has_label_weights: Whether the labels of a batch carry their weights:
            the last axis is then a label and its weight; see `with_weights`.
        outputs: Names of the model's outputs, if there are several: the
            labels are then a dictionary with the same names.
        accuracy: The loop's name for the share of elements whose label has
            the largest logit; None to leave it out.
        fit_metrics: New metrics that `keras.Model.fit` logs besides the loss,
            or None; read it in the strategy's scope.
        problem_type: The `problem_type` of config.json, where the number of
            outputs does not imply it; see `checkpoints.save`.
        report_scores: The results that a report lists, where its sections
            cover the others; None for all.
        source_class: The class of the sources of its examples.
        model_class: The class of its models.
        query_prompt, passage_prompt: What stands before each query and each
            passage.
    """

    family: ClassVar[str]
    # Some families make these fields.
    labels = tuple[str, ...]()
    query_prompt = ""
    passage_prompt = ""
    label_rank: ClassVar[int] = 1
    has_label_weights: ClassVar[bool] = False
    outputs: ClassVar[tuple[str, ...]] = ()
    problem_type: ClassVar[str | None] = None
    report_scores: ClassVar[tuple[str, ...] | None] = None
    source_class: ClassVar[type] = TextSource
    model_class: ClassVar[type[keras.Model]] = keras.Model

    @property
    def main_metric(self) -> str:
        return "eval_accuracy"

    @property
    def lacks_labels(self) -> bool:
        return False

    @property
    def is_in_batch(self) -> bool:
        return False

    @property
    def accuracy(self) -> str | None:
        return "accuracy"

    @property
    def fit_metrics(self) -> list[keras.metrics.Metric] | None:
        if self.accuracy != "accuracy":
            return None
        # Given only a name, Keras would create the metric while it traces the
        # step, and TensorFlow would then trace the step again.
        return [keras.metrics.SparseCategoricalAccuracy("accuracy")]

    @property
    def title(self) -> str:
        """The task's name in logs and reports."""
        return self.family

    def to_dict(self) -> dict[str, Any]:
        """Returns what task.json holds: the family and the fields."""
        values = {
            stored_name(field): getattr(self, field.name)
            for field in self._stored_fields()
            if formats.is_stored(field, getattr(self, field.name))
        }
        return {"family": self.family} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    def unset_fields(self) -> set[str]:
        """Returns the names of the fields that have their default values."""
        return {
            field.name
            for field in dataclasses.fields(self)
            if getattr(self, field.name) == field.default
        }

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Reads what `to_dict` returns.

        Raises:
            ValueError: If the family is another, a key is missing or unknown,
                or a value is null or out of its range.
        """
        _check_stored(values, cls.family, cls._stored_fields())
        task = cls(
            **{
                field.name: values[stored_name(field)]
                for field in cls._stored_fields()
                if field.init and stored_name(field) in values
            }
        )
        for field in cls._stored_fields():
            name = stored_name(field)
            # The constructor takes None for a default, which may not be what
            # the model was tuned with.
            if (
                values.get(name, 0) is None
                and getattr(task, field.name) is not None
            ):
                raise ValueError(
                    f"`{name}` must have a value. Received: {name}=null."
                )
        check_has_labels(task)
        return task

    def get_config(self):
        """Returns all fields, for Keras's files of compiled models."""
        return {
            stored_name(field): getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.init
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the task from `get_config`; tuples may have become lists."""
        names = {
            stored_name(field): field.name for field in dataclasses.fields(cls)
        }
        return cls(
            **{
                names[name]: tuple(value) if isinstance(value, list) else value
                for name, value in config.items()
            }
        )

    @classmethod
    def _stored_fields(cls):
        return [
            field
            for field in dataclasses.fields(cls)
            if field.metadata.get("is_stored", True)
        ]

    @abc.abstractmethod
    def make_model(self, config: BertConfig, **options: Any) -> keras.Model:
        """Returns a new `keras.Model`.

        Args:
            config: The `BertConfig`.
            **options: Arguments that every model has: `dtype`,
                `attention_chunk`, `rematerialize`.
        """

    def model_arguments(self) -> dict[str, Any]:
        """Returns the arguments, beside the config, that its models have."""
        return {}

    def check_training(
        self, source: Any, config: Any, num_replicas: int, is_compiled: bool
    ) -> None:
        """Checks that the task can be trained as configured.

        Args:
            source: The source of the training examples.
            config: The `tuning.config.FineTuningConfig`.
            num_replicas: The number of devices.
            is_compiled: Whether the step is compiled with XLA.

        Raises:
            ValueError: If it cannot; the message names the flags.
        """
        del source, config, num_replicas, is_compiled

    def takes_head_of(self, values: dict[str, Any]) -> bool:
        """Returns whether a head tuned to another task fits this one.

        It does if its classes are the same, in any order.

        Args:
            values: The content of the other task's task.json.
        """
        labels = values.get("labels", [])
        return (
            values.get("family") == self.family
            and isinstance(labels, list)
            and sorted(map(str, labels)) == sorted(self.labels)
        )

    @abc.abstractmethod
    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of every element, using only keras.ops.

        An element's loss may depend on the whole batch. For a model with
        several `outputs` it is called once for each, and the losses are added.

        Args:
            logits: The model's output, float32 `[B, ...]`.
            labels: The batch's labels, `[B, ...]`, without their weights, in
                whatever dtype.

        Returns:
            float32, of the shape of `weights`.
        """

    def weights(self, labels: Tensor) -> Tensor:
        """Returns how much every element's loss counts, float32 `[B, ...]`.

        The loss of a batch is the sum of weight * loss over the sum of the
        weights, both over all replicas.

        Args:
            labels: The batch's, with their weights if they have any.
        """
        if self.has_label_weights:
            return ops.cast(labels[..., 1], "float32")
        return ops.ones(ops.shape(labels), "float32")

    def label_values(self, labels: Tensor) -> Tensor:
        """Returns a batch's labels without their weights."""
        return labels[..., 0] if self.has_label_weights else labels

    def objective(self) -> Objective:
        """Returns the loss and the accuracy for `training.loop`.

        A batch has the model inputs, `labels`, and optionally
        `example_weights` float32 `[B]`, 0 for examples that only fill it up.
        """

        def losses(outputs, batch):
            each = keras.tree.map_structure(
                lambda logits, labels: self.losses(
                    logits, self.label_values(labels)
                ),
                outputs,
                batch[features.LABELS],
            )
            return sum(keras.tree.flatten(each))

        return Objective.of_elements(
            self.element_weights, losses, self.accuracy, self.label_values
        )

    def element_weights(self, batch: features.Batch) -> Tensor:
        """Returns the weight of every element of a batch; see `objective`."""
        weights = self.weights(keras.tree.flatten(batch[features.LABELS])[0])
        rest = [1] * (len(weights.shape) - 1)
        return weights * ops.reshape(
            objectives.example_weights(batch), [-1, *rest]
        )

    def loss(self) -> "TaskLoss | dict[str, TaskLoss]":
        """Returns the same loss for `keras.Model.compile`.

        It is a Keras loss or, for a model with several `outputs`, a
        dictionary with one for each.
        """
        loss = TaskLoss(self)
        return dict.fromkeys(self.outputs, loss) if self.outputs else loss

    def example_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns every example's loss in an evaluation, float32 `[B]`.

        Args:
            logits: float32 `[B, ...]`, a tensor or an array.
            labels: Likewise, `[B]`.
        """
        return self.losses(logits, labels)

    def scores(
        self, logits: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """Returns the scores of a whole evaluation set, {name: float}.

        Args:
            logits, labels: See `results`.
        """
        del logits, labels
        return {}

    def results(
        self, logits: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """Returns the results of a whole evaluation set.

        Args:
            logits: float32 `[N, ...]`, an array.
            labels: `[N]`, an array.

        Returns:
            {name: float}: `eval_loss`, the mean over the examples; the scores,
            as `eval_f1` and so on; and, if the task has an `accuracy`, always
            `eval_accuracy`, as in google-research/bert.
        """
        losses = ops.convert_to_numpy(self.example_losses(logits, labels))
        results = {"eval_loss": float(np.mean(losses, dtype=np.float64))}
        if self.accuracy:
            hits = np.argmax(logits, axis=-1) == labels
            results["eval_accuracy"] = float(np.mean(hits))
        for name, score in self.scores(logits, labels).items():
            results[f"eval_{name}"] = score
        return results

    @abc.abstractmethod
    def read(self, data: Any, split: str, label_column: str = "label") -> Any:
        """Returns the examples of a set, as `make_sources` takes them.

        Args:
            data: A file or a table in one of the forms of the family.
            split: The set's name; `TEST` is read without labels.
            label_column: Name of the labels' column in a table.

        Raises:
            ValueError: If the data have none of these forms; the message
                names the place.
        """

    def read_training(self, data: Any, **options: Any) -> tuple[Self, Any]:
        """Reads the training set.

        Args:
            data: As for `read`.
            **options: Further arguments of `read`.

        Returns:
            The task, with labels that were found in the data if it had none,
            and the examples.

        Raises:
            ValueError: As in `read`, or if the data have no such labels.
        """
        task = self
        if self.lacks_labels:
            fields: dict[str, Any] = {
                "labels": self.find_labels(data, **options)
            }
            task = dataclasses.replace(self, **fields)
        return task, task.read(data, TRAIN, **options)

    def find_labels(self, data: Any, **options: Any) -> tuple[str, ...]:
        """Returns the classes in training data, of a task that `lacks_labels`.

        Args:
            data, **options: As for `read_training`.

        Raises:
            ValueError: If the data have no such labels.
        """
        raise NotImplementedError

    def make_sources(
        self,
        examples: Mapping[str, Any],
        preprocessor: Preprocessor,
        **options: Any,
    ) -> dict[str, Source]:
        """Returns {split: `Source`}.

        Args:
            examples: {split: what was read}.
            preprocessor: The `Preprocessor`.
            **options: See `Source`.
        """
        arguments = self.source_arguments(preprocessor) | options
        return {
            split: self.source_class(examples=examples[split], **arguments)
            for split in examples
        }

    def source_arguments(self, preprocessor: Preprocessor) -> dict[str, Any]:
        """Returns the arguments of `source_class`, besides the options."""
        return {"preprocessor": preprocessor}

    def prediction_model(
        self, model: keras.Model, max_seq_length: int
    ) -> Callable[..., Tensor]:
        """Returns the model, or a function of it, that answers come from.

        Its output has the same shape for all batches, whatever their length.

        Args:
            model: From `make_model`.
            max_seq_length: The length of the longest batch.
        """
        del max_seq_length
        return model

    def answers(self, source: Any, logits: np.ndarray) -> Any:
        """Returns the answers to all examples, in a form of the family's own.

        Args:
            source: From `make_sources`.
            logits: From `prediction_model`, for every row of the source: what
                the source's `kept` returned of them.
        """
        del source
        return logits

    def read_answers(self, examples: Any, answers: Any) -> Any:
        """Returns answers as plain Python values, if the family has a form.

        Args:
            examples: What was read.
            answers: From `answers`.

        Returns:
            One value for every example, as `bert_tf.predictor` gives it.
        """
        del examples
        return answers

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns the answers of an export as plain Python values.

        Args:
            found: {output: array `[B, ...]`}.
            rows: The B rows of texts; None if they are not known.
            top_k: How many answers to a row are wanted; None for the best.

        Returns:
            B values; by default {output: its value}.
        """
        del rows, top_k
        columns = (_plain(values.tolist()) for values in found.values())
        return [dict(zip(found, row)) for row in zip(*columns)]

    def decode_tensors(self, logits: Any) -> dict[str, tf.Tensor]:
        """Returns an export's answers, in TensorFlow's own operations.

        Args:
            logits: float32 `[B, ...]`, what the model returns.

        Returns:
            {output: tensor `[B, ...]`}.

        Raises:
            ValueError: If answers need more than that.
        """
        raise ValueError(
            f"Answers of the family {self.family!r} need the texts too: "
            "bert_tf.predictor(folder)(texts) finds them, as do the `answers` "
            "of tuning.run(task, test=...)."
        )

    def decode(
        self,
        logits: Any,
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns answers from what the model, or its `predict`, returns.

        Args:
            logits: float32 `[B, ...]`.
            rows, top_k: As in `read_outputs`.

        Returns:
            B plain Python values, as `bert_tf.predictor` gives them.

        Raises:
            ValueError: If the shape is another, or if answers need the texts
                too; the message says what to call.
        """
        found = self.decode_tensors(logits)
        arrays = {name: np.asarray(value) for name, value in found.items()}
        return self.read_outputs(arrays, rows, top_k)

    def evaluate(
        self, source: Any, logits: np.ndarray, answers: Any
    ) -> dict[str, float]:
        """Returns the results of a labelled source, {name: float}.

        Args:
            source, logits: See `answers`.
            answers: From `answers`.
        """
        del answers
        return self.results(logits, source.examples.labels)

    def calibrate(self, examples: Any, answers: Any) -> Self:
        """Returns the task with fields chosen on the development set.

        Args:
            examples: The development set's examples.
            answers: From `answers`.
        """
        del examples, answers
        return self

    def num_epoch_examples(self, source: Any) -> int:
        """Returns how many rows of the training set count as an epoch."""
        return source.num_examples

    def training_settings(self, compares_epochs: bool) -> dict[str, Any]:
        """Returns the settings that a resumed training must repeat.

        Those in task.json are not among them.

        Args:
            compares_epochs: Whether epochs are compared by their scores.

        Returns:
            {name of a flag: JSON-able value}.
        """
        del compares_epochs
        return {}

    @abc.abstractmethod
    def report_sections(
        self, examples: Any, answers: Any, results: dict[str, float]
    ) -> list[tuple[str, str]]:
        """Returns a report's sections, a list of (heading, Markdown).

        Args:
            examples: The development set's examples.
            answers: From `answers`.
            results: From `evaluate`.
        """

    @abc.abstractmethod
    def write_predictions(
        self, output_dir: str, split: str, examples: Any, answers: Any
    ) -> str:
        """Writes the answers to a set of examples, whole or not at all.

        Returns:
            A line for the user: how many answers were written, and where.
        """


def with_weights(labels: ArrayLike, weights: ArrayLike) -> np.ndarray:
    """Returns labels that carry weights, float32 `[..., 2]`.

    Args:
        labels: `[...]`, numbers or ids below 2**24. Those of weight 0 do not
            count.
        weights: `[...]`, 0 or more.
    """
    pair = np.broadcast_arrays(labels, weights)
    return np.stack(pair, axis=-1).astype(np.float32)


def task_of_classifier(
    task_class: type[Any],
    checkpoint: Checkpoint,
    text_features: tuple[str, ...],
    **fields: Any,
) -> Any:
    """Returns the task of a classifier that transformers wrote.

    Args:
        task_class: A class of tasks with `name` and `text_features`.
        checkpoint: The open checkpoint.
        text_features: See `Task.from_checkpoint`.
        **fields: The other fields.

    Raises:
        ValueError: If the names of the classes are not valid; the message
            names the file.
    """
    path = f"{checkpoint.folder}/{config_json.CONFIG_FILE}"
    with messages.errors_named(f"{path}, id2label"):
        task = task_class(name="classifier", text_features=("text",), **fields)
    # Outside the block, as the caller's names are not the file's.
    return dataclasses.replace(
        task, text_features=text_features or task.text_features
    )


def check_logits(logits: Tensor, num_outputs: int) -> None:
    """Checks what a task is to make answers of.

    Args:
        logits: Float `[B, num_outputs]`.
        num_outputs: As many as the task's model has.

    Raises:
        ValueError: If they are of another shape.
    """
    wanted = tf.TensorShape([None, num_outputs])
    shape = getattr(logits, "shape", None)
    if shape is None or not wanted.is_compatible_with(shape):
        raise ValueError(
            f"`logits` must be of the shape [B, {num_outputs}]. Received: "
            f"{'no array' if shape is None else f'shape {[*shape]}'}."
        )


def check_names(task: Any) -> None:
    """Checks the name of a task of texts, and its lists of names.

    Args:
        task: Has `name`, `text_features`, `labels` and `metrics`. Lists, as
            in JSON, become tuples.

    Raises:
        ValueError: If the name is not a name, a list does not hold different
            names, or there are not one or two texts.
    """
    for field in ("text_features", "labels", "metrics"):
        values = getattr(task, field)
        if not isinstance(values, (tuple, list)) or not all(
            map(config_json.is_name, values)
        ):
            raise ValueError(
                f"`{field}` must be a list of names. "
                f"Received: {field}={messages.shortened(values)}."
            )
        if len(set(values)) != len(values):
            raise ValueError(
                f"`{field}` must have each name once. "
                f"Received: {field}={messages.shortened(list(values))}."
            )
        object.__setattr__(task, field, tuple(values))
    if not isinstance(task.name, str) or not task.name:
        raise ValueError(
            "`name` must be a non-empty string. "
            f"Received: name={messages.shortened(task.name)}."
        )
    if len(task.text_features) not in (1, 2):
        raise ValueError(
            "`text_features` must be one or two names. "
            "Received: text_features="
            f"{messages.shortened(list(task.text_features))}."
        )


def _plain(values):
    """Returns lists of bytes as lists of strings; other lists as they are."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return values.decode() if isinstance(values, bytes) else values


def check_has_labels(task: Task) -> None:
    """Raises `ValueError` if the classes of a task are not known."""
    if task.lacks_labels:
        raise ValueError(
            "`labels` must be given here; `tuning.run` finds them in training "
            "data. Received: labels=()."
        )


def stored_name(field: dataclasses.Field[Any]) -> str:
    """Returns a field's name in files, where earlier releases fixed it."""
    return field.metadata.get("stored_as", field.name)


def _check_stored(values, family, fields):
    """Checks the content of task.json before a task is made from it.

    Args:
        values: The content.
        family: The family that it must have.
        fields: The dataclass fields of its other keys.

    Raises:
        ValueError: If the family is another, or a key is missing or unknown.
    """
    optional = {
        stored_name(field) for field in fields if formats.is_optional(field)
    }
    names = map(stored_name, fields)
    keys = ["family", *(name for name in names if name not in optional)]
    # First, since another family has other keys.
    if isinstance(values, dict) and values.get("family", family) != family:
        raise ValueError(
            f"`family` must be {family!r}. "
            f"Received: family={messages.shortened(values['family'])}."
        )
    if not isinstance(values, dict) or set(values) - optional != set(keys):
        raise ValueError(
            f"A task must have the keys {', '.join(keys)}. "
            f"Received: {messages.shortened(values)}."
        )
    for key, value in values.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, (dict, list)) for item in items):
            raise ValueError(
                f"`{key}` must be one value or a list of them. "
                f"Received: {key}={messages.shortened(value)}."
            )


@keras.saving.register_keras_serializable(package="bert_tf")
class TaskLoss(keras.losses.Loss):
    """A task's loss for Keras: steps are the same as with its objective.

    Sample weights multiply the elements' losses but, as everywhere in Keras,
    do not count in the divisor.

    Args:
        task: The `Task`. The file of a compiled model holds it. To load one
            with a task class of your own, import the class first.
        **kwargs: Passed to `keras.losses.Loss`.
    """

    def __init__(self, task: Task, **kwargs: Any) -> None:
        # Whatever Keras's `floatx` is, weights and losses are float32.
        super().__init__(**{"name": task.family, "dtype": "float32"} | kwargs)
        self.task = task

    def __call__(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None:
            # All elements of an example get the example's weight.
            sample_weight = ops.convert_to_tensor(sample_weight)
            missing = self.task.label_rank - len(sample_weight.shape)
            for _ in range(missing):
                sample_weight = sample_weight[..., None]
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        # Labels may have an extra axis of size 1, which would broadcast.
        shape = ops.shape(y_pred)[: self.task.label_rank]
        if self.task.has_label_weights:
            shape = (*shape, 2)
        y_true = ops.reshape(y_true, shape)
        weights = self.task.weights(y_true)
        num_elements = ops.cast(ops.size(weights), "float32")
        weight = ops.sum(weights)
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            weight = context.all_reduce("sum", weight)
            num_elements *= context.num_replicas_in_sync
        # Keras divides the sum by this replica's number of elements and by the
        # number of replicas, as if all replicas had equally many elements.
        weights *= ops.divide_no_nan(num_elements, weight)
        return weights * self.task.losses(
            y_pred, self.task.label_values(y_true)
        )

    def get_config(self):
        task = keras.saving.serialize_keras_object(self.task)
        return super().get_config() | {"task": task}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        task = keras.saving.deserialize_keras_object(config["task"])
        return cls(**config | {"task": task})
