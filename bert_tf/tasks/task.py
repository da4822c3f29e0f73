"""What a model is tuned to: the base of all families of tasks.

Programs, `keras.Model.fit`, the training loop and the exporter all work from
one `Task`; a fine-tuned model's folder holds it as task.json.
"""

import abc
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import ClassVar
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import distillation
from bert_tf.models import objectives
from bert_tf.models.objectives import Objective
from bert_tf.tasks.source import Source
from bert_tf.tasks.text_source import TextSource
from bert_tf.text.preprocessor import Preprocessor

# Metadata of a field that is of the training alone, and not in task.json.
NOT_STORED = {"is_stored": False}
# Of one that is there only where it is not the default.
STORED_IF_SET = {"is_stored_if_set": True}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(abc.ABC):
    """What a model is tuned to. A family of tasks is a frozen dataclass of it.

    Its fields are what task.json holds, but for those with `NOT_STORED`, and
    those with `STORED_IF_SET` at their defaults. They are checked when a task
    is made: `ValueError` names the field.

    Attributes:
        family: A string, the same for all tasks of the class.
        labels: Names of the classes by id; none where the labels are no
            classes.
        main_metric: The name, in the results of an evaluation, of the score
            that tells the better of two models.
        label_rank: How many axes a batch's labels have: of each output, if
            there are several.
        outputs: Names of the model's outputs, if there are several: the
            labels are then a dictionary with the same names.
        accuracy: What the loop calls the share of elements whose label has
            the largest logit; None to leave it out.
        fit_metrics: What `keras.Model.fit` logs beside the loss, new ones, or
            None; to be asked for in the scope of the strategy.
        problem_type: What config.json calls it where the number of outputs
            does not tell that; see `checkpoints.save`.
        report_scores: Which of the results a report shows, where its sections
            tell of the others; None for all.
        source: The class of the sources of its examples.
        is_teachable: Whether a student can learn it from a teacher.
        temperature: What logits are divided by where they become
            probabilities; see `calibration`.
        has_temperature: Whether it may be another than 1.
    """

    family: ClassVar[str]
    # In some families it is a field.
    labels = tuple[str, ...]()
    temperature = 1.0
    label_rank: ClassVar[int] = 1
    outputs: ClassVar[tuple[str, ...]] = ()
    problem_type: ClassVar[str | None] = None
    report_scores: ClassVar[tuple[str, ...] | None] = None
    source: ClassVar[type] = TextSource

    @property
    def is_teachable(self) -> bool:
        return True

    @property
    def has_temperature(self) -> bool:
        return False

    @property
    def main_metric(self) -> str:
        return "eval_accuracy"

    @property
    def accuracy(self) -> str | None:
        return "accuracy"

    @property
    def fit_metrics(self) -> list[keras.metrics.Metric] | None:
        if self.accuracy != "accuracy":
            return None
        # Of a name Keras makes the metric while it traces the step, which
        # TensorFlow therefore traces once more.
        return [keras.metrics.SparseCategoricalAccuracy("accuracy")]

    @property
    def title(self) -> str:
        """What logs and reports call the task."""
        return self.family

    def to_dict(self) -> dict[str, Any]:
        """Returns what task.json holds: the family and the fields."""
        values = {
            field.name: getattr(self, field.name)
            for field in self._stored_fields()
            if not field.metadata.get("is_stored_if_set")
            or getattr(self, field.name) != field.default
        }
        return {"family": self.family} | {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        """Reads what `to_dict` returns.

        Raises:
            ValueError: If it is of another family, a key is missing or
                unknown, or a value is out of its range.
        """
        _check_stored(values, cls.family, cls._stored_fields())
        return cls(
            **{
                field.name: values[field.name]
                for field in dataclasses.fields(cls)
                if field.init and field.name in values
            }
        )

    def get_config(self):
        """Returns all fields, for Keras's files of compiled models."""
        return {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.init
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the task of `get_config`, whose tuples may be lists."""
        return cls(
            **{
                name: tuple(value) if isinstance(value, list) else value
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

    def with_temperature(self, temperature: float) -> Self:
        """Returns the task with that temperature."""
        if temperature == self.temperature:
            return self
        fields: dict[str, Any] = {"temperature": temperature}
        return dataclasses.replace(self, **fields)

    def uncalibrated(self) -> Self:
        """Returns the task without what a set chose for other weights."""
        return self.with_temperature(1.0)

    def at_temperature(self, logits: Tensor) -> Tensor:
        """Returns the logits of the calibrated probabilities."""
        # Of 1 none: graphs have no operation more.
        return logits if self.temperature == 1 else logits / self.temperature

    @abc.abstractmethod
    def make_model(self, config: BertConfig, dtype: Any = None) -> keras.Model:
        """Returns a new `keras.Model`.

        Args:
            config: The `BertConfig`.
            dtype: The Keras dtype policy, or its name.
        """

    def sentence_vectors(
        self, model: keras.Model
    ) -> sentence_folder.SentenceVectors | None:
        """Returns how a text's vector is made, of a model of sentences.

        Its folder is then one of sentence-transformers.

        Args:
            model: Of `make_model`, or what `load` makes of such a folder.
        """
        del model
        return None

    def as_started(self, folder: str) -> Self:
        """Returns the task with unset fields as the checkpoint tells them.

        Args:
            folder: The checkpoint that a model is tuned from, or that is
                evaluated, in `tuning.run`.
        """
        del folder
        return self

    def load_elsewhere(
        self, model: keras.Model, folder: str, may_be_new: bool
    ) -> None:
        """Fills what a model's `weights_elsewhere` has from other files.

        Args:
            model: Of `make_model`.
            folder: The checkpoint, which the other weights were read from.
            may_be_new: Whether it need not have them: they stay as made.

        Raises:
            ValueError: If it lacks them, and they may not be new.
        """
        del model, folder, may_be_new

    def check_training(
        self, source: Any, config: Any, num_replicas: int, is_compiled: bool
    ) -> None:
        """Checks that a training can be as it is asked for.

        Args:
            source: Of the training examples.
            config: The `tuning.config.FineTuningConfig`.
            num_replicas: On how many devices it runs.
            is_compiled: Whether the step is compiled with XLA.

        Raises:
            ValueError: If not; it names the flags.
        """
        del source, config, num_replicas, is_compiled

    def takes_head_of(self, values: dict[str, Any]) -> bool:
        """Returns whether a head tuned to another task is one for this.

        Its classes are the same, in any order.

        Args:
            values: What its task.json holds.
        """
        labels = values.get("labels", [])
        return (
            values.get("family") == self.family
            and isinstance(labels, list)
            and sorted(map(str, labels)) == sorted(self.labels)
        )

    def takes_head_of_checkpoint(self, checkpoint: Checkpoint) -> bool:
        """Returns whether a classifier without a task is known to be of this.

        It has no classes whose names would tell.

        Args:
            checkpoint: What `reader.open_checkpoint` yielded.
        """
        del checkpoint
        return False

    @abc.abstractmethod
    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss of every element, in keras.ops alone.

        An element may be compared with all of the batch. Of a model with
        several `outputs` it is called with one after the other: their losses
        are added.

        Args:
            logits: The model's output, float32 `[B, ...]`.
            labels: The batch's labels, `[B, ...]`, in whatever dtype.

        Returns:
            float32, of the shape of `weights`.
        """

    def weights(self, labels: Tensor) -> Tensor:
        """Returns how much every element's loss counts, float32 `[B, ...]`.

        The loss of a batch is the sum of weight * loss over the sum of the
        weights, both over all replicas.

        Args:
            labels: As of `losses`.
        """
        return ops.ones(ops.shape(labels)[:1], "float32")

    def soft_losses(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        """Returns how far every element is from a teacher's, float32.

        Where the logits are those of one out of several it is the divergence
        of their softmax.

        Args:
            logits, teacher_logits: float32, each as of `losses`.
            temperature: As of `distillation.soft_targets`.

        Returns:
            Of the shape of `weights`, as `losses` does.
        """
        return distillation.soft_targets(logits, teacher_logits, temperature)

    def compared_logits(self, logits: Tensor, batch: features.Batch) -> Tensor:
        """Returns a student's or a teacher's logits as `soft_losses` has them.

        Where they are of places of a row, no padding has a part in them.

        Args:
            logits: As of `losses`.
            batch: The batch that they are of.
        """
        del batch
        return logits

    def objective(self) -> Objective:
        """Returns the loss for `training.loop`, and the accuracy.

        A batch has the model inputs, `labels`, and optionally
        `example_weights` float32 `[B]`, 0 for examples that only fill it.
        """

        def losses(outputs, batch):
            each = keras.tree.map_structure(
                self.losses, outputs, batch[features.LABELS]
            )
            return sum(keras.tree.flatten(each))

        return Objective.of_elements(
            self.element_weights, losses, self.accuracy
        )

    def element_weights(self, batch: features.Batch) -> Tensor:
        """Returns what every element of a batch of `objective` weighs."""
        weights = self.weights(keras.tree.flatten(batch[features.LABELS])[0])
        rest = [1] * (len(weights.shape) - 1)
        return weights * ops.reshape(
            objectives.example_weights(batch), [-1, *rest]
        )

    def loss(self) -> "TaskLoss | dict[str, TaskLoss]":
        """Returns the same loss for `keras.Model.compile`.

        It is a Keras loss or, of a model with several `outputs`, one for each.
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
            logits, labels: As of `results`.
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
            {name: float}: `eval_loss`, the mean over the examples; the scores
            as `eval_f1` and so on; and of a task with an `accuracy`
            `eval_accuracy` in any case, as google-research/bert has it.
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
            ValueError: If the data are not of such a form; it names the place.
        """

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
            **options: As of `Source`.
        """
        arguments = self.source_arguments(preprocessor) | options
        return {
            split: self.source(examples=examples[split], **arguments)
            for split in examples
        }

    def source_arguments(self, preprocessor: Preprocessor) -> dict[str, Any]:
        """Returns what `source` takes, of all sets, beside the options."""
        return {"preprocessor": preprocessor}

    def prediction_model(
        self, model: keras.Model, max_seq_length: int
    ) -> Callable[..., Tensor]:
        """Returns the model, or a function of it, that answers come from.

        Its output has one shape for all batches, whatever their length.

        Args:
            model: Of `make_model`.
            max_seq_length: Of the longest batch.
        """
        del max_seq_length
        return model

    def answers(self, source: Any, logits: np.ndarray) -> Any:
        """Returns the answers to all examples, in whatever form.

        Args:
            source: Of `make_sources`.
            logits: Of `prediction_model`, for every row of the source.
        """
        del source
        return logits

    def evaluate(
        self, source: Any, logits: np.ndarray, answers: Any
    ) -> dict[str, float]:
        """Returns the results of a labelled source, {name: float}.

        Args:
            source, logits: As of `answers`.
            answers: What that returned.
        """
        del answers
        return self.results(logits, source.examples.labels)

    def calibrate(self, examples: Any, answers: Any) -> Self:
        """Returns the task with what is chosen on the development set.

        Args:
            examples: Those of the development set.
            answers: Of `answers`.
        """
        del examples, answers
        return self

    def num_epoch_examples(self, source: Any) -> int:
        """Returns how many rows of the training set count as an epoch."""
        return source.num_examples

    def training_settings(self, compares_epochs: bool) -> dict[str, Any]:
        """Returns what a resumed training must repeat beside task.json.

        Args:
            compares_epochs: Whether the scores of epochs decide of anything.

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
            examples: Those of the development set.
            answers: Of `answers`.
            results: Of `evaluate`.
        """

    @abc.abstractmethod
    def write_predictions(
        self, output_dir: str, split: str, examples: Any, answers: Any
    ) -> str:
        """Writes the answers to a set of examples, whole or not at all.

        Returns:
            How many they are, and where: a line for people.
        """


def check_label_column(label_column: str, name: str) -> None:
    """Checks `label_column` where a family's files have one name for it.

    Raises:
        ValueError: If it is not that name.
    """
    if label_column != name:
        raise ValueError(
            f"`label_column` must be {name!r}, as the files of this family "
            f"have it. Received: label_column={files.shortened(label_column)}."
        )


def check_names(task: Any) -> None:
    """Checks a task of texts: its name, and its lists of names.

    Args:
        task: Has `name`, `text_features`, `labels` and `metrics`. Lists, as
            JSON has them, are made tuples.

    Raises:
        ValueError: If one is no name, or no list of different ones; or there
            are not one or two texts.
    """
    for field in ("text_features", "labels", "metrics"):
        values = getattr(task, field)
        if not isinstance(values, (tuple, list)) or not all(
            isinstance(value, str) and value for value in values
        ):
            raise ValueError(
                f"`{field}` must be a list of names. "
                f"Received: {field}={files.shortened(values)}."
            )
        if len(set(values)) != len(values):
            raise ValueError(
                f"`{field}` must have each name once. "
                f"Received: {field}={files.shortened(list(values))}."
            )
        object.__setattr__(task, field, tuple(values))
    if not isinstance(task.name, str) or not task.name:
        raise ValueError(
            "`name` must be a name. "
            f"Received: name={files.shortened(task.name)}."
        )
    if len(task.text_features) not in (1, 2):
        raise ValueError(
            "`text_features` must be one or two names. "
            "Received: text_features="
            f"{files.shortened(list(task.text_features))}."
        )


def _check_stored(values, family, fields):
    """Checks what task.json holds, before a task is made of it.

    Args:
        values: Its content.
        family: What `family` must be in it.
        fields: Those of all other values.

    Raises:
        ValueError: If a key is missing or unknown, or the family another.
    """
    optional = {
        field.name for field in fields if field.metadata.get("is_stored_if_set")
    }
    keys = [field.name for field in fields if field.name not in optional]
    keys = ["family", *keys]
    # First: another family's keys are others.
    if isinstance(values, dict) and values.get("family", family) != family:
        raise ValueError(
            f"`family` must be {family!r}. "
            f"Received: family={files.shortened(values['family'])}."
        )
    if not isinstance(values, dict) or set(values) - optional != set(keys):
        raise ValueError(
            f"A task must have the keys {', '.join(keys)}. "
            f"Received: {files.shortened(values)}."
        )
    for key, value in values.items():
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, (dict, list)) for item in items):
            raise ValueError(
                f"`{key}` must be one value or a list of them. "
                f"Received: {key}={files.shortened(value)}."
            )


@keras.saving.register_keras_serializable(package="bert_tf")
class TaskLoss(keras.losses.Loss):
    """A task's loss as Keras takes it: the same steps as of its objective.

    Sample weights multiply the elements' losses, and do not count in what
    these are divided by, as everywhere in Keras.

    Args:
        task: The `Task`. A file of a compiled model holds it; one of a class
            of your own is loaded where its module is imported.
        **kwargs: Of `keras.losses.Loss`.
    """

    def __init__(self, task: Task, **kwargs: Any) -> None:
        # Not in Keras's `floatx`: weights and losses are float32.
        super().__init__(**{"name": task.family, "dtype": "float32"} | kwargs)
        self.task = task

    def __call__(self, y_true, y_pred, sample_weight=None):
        if sample_weight is not None:
            # An example's weight is that of all its elements.
            sample_weight = ops.convert_to_tensor(sample_weight)
            missing = self.task.label_rank - len(sample_weight.shape)
            for _ in range(missing):
                sample_weight = sample_weight[..., None]
        return super().__call__(y_true, y_pred, sample_weight)

    def call(self, y_true, y_pred):
        # Labels may have an axis of 1 more, which would broadcast.
        shape = ops.shape(y_pred)[: self.task.label_rank]
        y_true = ops.reshape(y_true, shape)
        weights = self.task.weights(y_true)
        num_elements = ops.cast(ops.size(weights), "float32")
        weight = ops.sum(weights)
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            weight = context.all_reduce("sum", weight)
            num_elements *= context.num_replicas_in_sync
        # Keras divides the sum by the elements of a replica and by the number
        # of replicas, as if there were as many here as there.
        weights *= ops.divide_no_nan(num_elements, weight)
        return weights * self.task.losses(y_pred, y_true)

    def get_config(self):
        task = keras.saving.serialize_keras_object(self.task)
        return super().get_config() | {"task": task}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        task = keras.saving.deserialize_keras_object(config["task"])
        return cls(**config | {"task": task})
