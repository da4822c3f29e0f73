"""The family of classifications: a class or a number for one or two strings.

GLUE is Wang et al. 2018 (arXiv 1804.07461); `glue_files` has its nine tasks
with their files' columns, and makes a task from any TSV with named columns.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import messages
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import objectives
from bert_tf.models.classifier import BertClassifier
from bert_tf.tasks import calibration
from bert_tf.tasks import class_names
from bert_tf.tasks import columns
from bert_tf.tasks import metrics
from bert_tf.tasks import task_folder
from bert_tf.tasks import tsv
from bert_tf.tasks.calibration import Calibrated
from bert_tf.tasks.classification import report
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import Source
from bert_tf.tasks.source import is_dev
from bert_tf.tasks.task import NOT_STORED
from bert_tf.tasks.task import check_has_labels
from bert_tf.tasks.task import check_logits
from bert_tf.tasks.task import check_names
from bert_tf.tasks.task import task_of_classifier
from bert_tf.tasks.text_source import TextSource
from bert_tf.tasks.tsv import Examples
from bert_tf.text.preprocessor import Preprocessor

# The name in the task.json files that exist.
FAMILY = "glue"
CLASSIFICATION = "classification"
REGRESSION = "regression"

_LABEL_METRICS = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews_correlation": metrics.matthews_correlation,
    "macro_f1": metrics.macro_f1,
}
# Metrics of the logits.
_AUC = {"auc": metrics.mean_auc}
_SCORE_METRICS = {
    "pearson": metrics.pearson,
    "spearman": metrics.spearman,
}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClassificationTask(Calibrated, Distillable, Foreign):
    """What a model is tuned to answer about one or two strings.

    The method is Devlin et al. 2018, section 4.1.

    Args:
        name: E.g. "mrpc".
        text_features: Names of the one or two strings, in the order in which
            they are packed, e.g. `("sentence1", "sentence2")`.
        labels: Names of the classes by class id. Without them `tuning.run`
            finds them in the training data, unless this is a regression.
        metrics: Names of the scores; the first one tells the better of two
            models. For classes they are "accuracy" (the default), "f1" (of
            class 1), "f1_<class>", "macro_f1", "matthews_correlation" and
            "auc" (the mean over the classes of each against the rest), for a
            regression "pearson" and "spearman" (the default is both).
        regression: Whether the labels are numbers to predict. Metrics of a
            regression say so, too.
        class_weights: Weight of each class in the training loss, 0 or more,
            as an array or a list; empty for equal weights. It is not in
            task.json.
        label_synonyms: Other names of the classes, if any, in lower case and
            by class id. They are not in task.json, and do not count when
            tasks are compared.
        temperature: Divisor of the logits of classes before they become
            probabilities; see `calibration`.

    Attributes:
        kind: `CLASSIFICATION` or `REGRESSION`.

    Raises:
        ValueError: If a value is out of its range; it names the field.

    Example:

        >>> import numpy as np
        >>> from bert_tf import ClassificationTask
        >>> task = ClassificationTask(
        ...     name="tickets",
        ...     text_features=("subject", "body"),
        ...     labels=("law", "sales"),
        ...     metrics=("accuracy", "f1_law"),
        ... )
        >>> logits = np.array([[2.0, 1.0], [0.0, 3.0], [1.0, 0.0]])
        >>> task.scores(logits, np.array([0, 1, 0]))
        {'accuracy': 1.0, 'f1_law': 1.0}
    """

    family = FAMILY
    model_class = BertClassifier

    name: str
    kind: str = dataclasses.field(init=False)
    text_features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    regression: bool = dataclasses.field(default=False, metadata=NOT_STORED)
    class_weights: tuple[float, ...] = dataclasses.field(
        default=(), metadata=NOT_STORED
    )
    label_synonyms: tuple[str, ...] = dataclasses.field(
        default=(), compare=False, metadata=NOT_STORED
    )

    def __post_init__(self):
        check_names(self)
        if len(self.labels) == 1:
            raise ValueError(
                "`labels` must be two names or more, or none for a "
                "regression. "
                f"Received: labels={messages.shortened(list(self.labels))}."
            )
        says_scores = any(name in _SCORE_METRICS for name in self.metrics)
        is_regression = self.regression or (says_scores and not self.labels)
        if is_regression and self.labels:
            raise ValueError(
                "`labels` must not be given for a regression. "
                f"Received: labels={messages.shortened(list(self.labels))}."
            )
        kind = REGRESSION if is_regression else CLASSIFICATION
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "regression", is_regression)
        if not self.metrics:
            default = _SCORE_METRICS if is_regression else ("accuracy",)
            object.__setattr__(self, "metrics", tuple(default))
        known = self._known_metrics()
        # Those of single classes can be checked when the classes are known.
        if not self.lacks_labels and {*self.metrics} - {*known}:
            raise ValueError(
                f"`metrics` of a {self.kind} must be among {', '.join(known)}. "
                f"Received: metrics={messages.shortened(list(self.metrics))}."
            )

        weights = _as_numbers(self.class_weights)
        if weights is None or (
            weights and not (len(weights) == len(self.labels) and any(weights))
        ):
            raise ValueError(
                f"`class_weights` must be {len(self.labels)} numbers of 0 or "
                "more, not all 0, in the order of the labels. Received: "
                f"class_weights={messages.shortened(self.class_weights)}."
            )
        object.__setattr__(self, "class_weights", weights)
        calibration.check_temperature(self.temperature)
        if self.temperature != 1 and not self.has_temperature:
            raise ValueError(
                "`temperature` must be 1 for a regression. "
                f"Received: temperature={self.temperature}."
            )

    @property
    def main_metric(self) -> str:
        return f"eval_{self.metrics[0]}"

    @property
    def accuracy(self) -> str | None:
        return None if self.regression else "accuracy"

    @property
    def title(self) -> str:
        return self.name

    @property
    def lacks_labels(self) -> bool:
        return not self.labels and not self.regression

    @property
    def has_temperature(self) -> bool:
        return bool(self.labels)

    @property
    def num_outputs(self) -> int:
        """`num_labels` of the `BertClassifier`: 1 for a regression."""
        check_has_labels(self)
        return len(self.labels) or 1

    @classmethod
    def from_dict(cls, values: Any) -> Self:
        task = super().from_dict(values)
        if values["kind"] != task.kind:
            raise ValueError(
                f"`kind` must be {task.kind!r} with "
                f"labels={messages.shortened(values['labels'])}. "
                f"Received: kind={messages.shortened(values['kind'])}."
            )
        return task

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
    ) -> Self | None:
        if (
            parts.CLASSIFIER not in checkpoint.found_parts
            or checkpoint.problem_type == config_json.MULTI_LABEL
        ):
            return None
        if checkpoint.problem_type == config_json.REGRESSION and (
            checkpoint.num_labels != 1
        ):
            raise ValueError(
                f"{checkpoint.folder}/{config_json.CONFIG_FILE}: "
                "`problem_type` must not be 'regression' with several "
                "outputs, which would be served as classes. "
                f"Received: num_labels={checkpoint.num_labels}."
            )
        labels = checkpoint.label_names
        is_regression = len(labels) < 2
        return task_of_classifier(
            cls,
            checkpoint,
            text_features,
            labels=() if is_regression else labels,
            metrics=("pearson" if is_regression else "accuracy",),
        )

    def takes_head_of(self, values: dict[str, Any]) -> bool:
        """Returns whether a head tuned to that task fits this one.

        Numbers, such as the 0 and 1 of CoLA and SST-2, mean different things
        in tasks with different names. Text features and metrics do not matter.
        """
        return super().takes_head_of(values) and (
            class_names.are_names(self.labels) or self.name == values["name"]
        )

    def make_model(self, config: BertConfig, **options: Any) -> BertClassifier:
        """Returns a new `BertClassifier`."""
        return BertClassifier(config, **self.model_arguments(), **options)

    def model_arguments(self) -> dict[str, Any]:
        return {"num_labels": self.num_outputs}

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses_B = self.example_losses(logits, labels)
        if self.class_weights:
            weights_K = ops.convert_to_tensor(self.class_weights, "float32")
            losses_B *= ops.take(weights_K, ops.cast(labels, "int32"))
        return losses_B

    def example_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Returns every example's loss, without class weights.

        That is its cross-entropy in nats, or the squared error of a score.
        """
        if not self.labels:
            return ops.square(logits[:, 0] - labels)
        return objectives.cross_entropy(logits, labels)

    def soft_losses(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        """Returns the squared difference if this is a regression."""
        if not self.labels:
            return ops.square(logits[:, 0] - teacher_logits[:, 0])
        return super().soft_losses(logits, teacher_logits, temperature)

    def read(
        self, data: Any, split: str, label_column: str = "label"
    ) -> Examples:
        """Returns the `Examples` of a table; see `columns.read`.

        A label is the name of a class or its synonym or, for a regression, a
        score. Outside of text files, an integer is a class's number, unless
        some class has an integer as its name. True and False are 1 and 0.
        """
        ids = {label: index for index, label in enumerate(self.labels)}
        has_numbers = any(label.lstrip("+-").isdecimal() for label in ids)

        def parse_label(where, value):
            if not ids:
                return tsv.parse_score(where, value)
            label = class_names.name_of(where, value)
            is_id = isinstance(value, int) and value in range(len(ids))
            if is_id and not has_numbers:
                return int(value)
            return tsv.parse_label(where, label, ids, self.label_synonyms)

        return columns.read_texts(
            data,
            self.text_features,
            None if split == TEST else label_column,
            parse_label,
            np.int32 if self.labels else np.float32,
        )

    def find_labels(self, data: Any, **options: Any) -> tuple[str, ...]:
        return find_labels(data, **options)

    def make_sources(
        self,
        examples: Mapping[str, Any],
        preprocessor: Preprocessor,
        **options: Any,
    ) -> dict[str, Source]:
        for split, each in examples.items():
            if not self.labels and is_dev(split):
                metrics.check_can_correlate(
                    f"The examples of {split}", len(each)
                )
        return super().make_sources(examples, preprocessor, **options)

    def evaluate(
        self, source: TextSource, logits: np.ndarray, answers: np.ndarray
    ) -> dict[str, float]:
        results = super().evaluate(source, logits, answers)
        # google-research/bert reports it under both names.
        return results | {"loss": results["eval_loss"]}

    def training_settings(self, compares_epochs: bool) -> dict[str, Any]:
        del compares_epochs
        if not self.class_weights:
            return {}
        return {"class_weights": self.class_weights}

    def report_sections(
        self, examples: Examples, answers: np.ndarray, results: dict[str, float]
    ) -> list[tuple[str, str]]:
        del results
        return report.sections(self, examples, answers)

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: Examples,
        answers: np.ndarray,
    ) -> str:
        """Writes a line for every example, as google-research/bert does.

        A line has the probabilities of the classes, separated by tabs, or the
        score of a regression.
        """
        del examples
        decoded = self.decode_tensors(answers)
        rows = decoded["probabilities" if self.labels else "scores"].numpy()
        rows = rows.reshape(len(rows), -1)
        return tsv.write_results(output_dir, split, rows)

    def read_answers(self, examples: Examples, answers: np.ndarray) -> Any:
        return self.decode(answers)

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns {"label", "score"} for each row, or a list with `top_k`.

        For a regression it is {"score"}.
        """
        if not self.labels:
            return [{"score": score} for score in found["scores"].tolist()]
        ranked = (
            class_names.ranked(self.labels, row)[: top_k or 1]
            for row in found["probabilities"]
        )
        return [each[0] if top_k is None else each for each in ranked]

    def decode_tensors(self, logits: Any) -> dict[str, tf.Tensor]:
        """Returns answers from logits, in TensorFlow's own operations.

        Args:
            logits: float32 `[B, num_outputs]`.

        Returns:
            A dictionary: for a classification `labels` string `[B]`, the names
            of the likeliest classes, and `probabilities` float32
            `[B, num_outputs]`, calibrated if the task is; for a regression
            `scores` float32 `[B]`.
        """
        check_logits(logits, self.num_outputs)
        if not self.labels:
            return {"scores": tf.squeeze(logits, axis=-1)}
        return {
            "labels": tf.gather(
                tf.constant(self.labels), tf.argmax(logits, axis=-1)
            ),
            "probabilities": tf.nn.softmax(
                self.at_temperature(logits), axis=-1
            ),
        }

    def scores(
        self, logits: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        """Returns the scores in `metrics` of a whole evaluation set.

        Args:
            logits: float32 `[N, num_outputs]`, an array.
            labels: int32 `[N]` class ids, or float32 `[N]` scores.

        Returns:
            {name: float} in the order of `metrics`.
        """
        if self.labels:
            predictions = np.argmax(logits, axis=-1)
        else:
            predictions = np.asarray(logits)[:, 0]
        known = self._known_metrics()
        return {
            name: known[name](logits if name in _AUC else predictions, labels)
            for name in self.metrics
        }

    def _known_metrics(self):
        if not self.labels:
            return _SCORE_METRICS
        of_classes = {
            f"f1_{label}": functools.partial(metrics.f1, positive=index)
            for index, label in enumerate(self.labels)
        }
        return _LABEL_METRICS | _AUC | of_classes


def find_labels(data: Any, label_column: str = "label") -> tuple[str, ...]:
    """Returns the classes of a table: names, or whole numbers, sorted.

    Args:
        data: See `columns.read`.
        label_column: Name of the column.

    Raises:
        ValueError: As in `columns.read`, or if a label is empty or a number
            that is not whole, or there are fewer than two.
    """
    title = columns.title(data)
    names = set()
    for where, (value,) in columns.read(data, [label_column]):
        if isinstance(value, float):
            raise ValueError(
                f"{where}: the label must be a name or an integer; for numbers "
                f"to predict give regression=True. Received: {value}."
            )
        name = class_names.name_of(where, value)
        if not name:
            raise ValueError(f"{where}: the label is empty.")
        names.add(name)
    if len(names) < 2:
        raise ValueError(
            f"{title}: a classification needs two labels or more. "
            f"Received: {class_names.listed(names)}."
        )
    return class_names.found(title, names)


def tuned_task(
    folder: str, task: ClassificationTask | None = None
) -> ClassificationTask:
    """Returns the task that the model in a folder was tuned to.

    Args:
        folder: A model folder.
        task: The task that it must be, if any. A folder of Hugging Face's has
            no task.json, and is assumed to be tuned to this task. Its classes
            may be in another order; `task_folder.tuned_model` puts them in
            the task's.

    Raises:
        ValueError: If the folder names no task or another one, or its
            config.json names other classes.
    """
    found = task_folder.stored_task(folder, ClassificationTask)
    if found is None:
        if task is None:
            raise ValueError(
                f"{folder}: has no {model_folder.TASK_FILE}; it is not tuned "
                "to a task."
            )
        task_folder.output_order(folder, task)
        return task
    if task is not None and found.name != task.name:
        raise ValueError(
            f"{folder}: is tuned to the task {found.name!r}. "
            f"Received: task_name={task.name!r}."
        )
    if task is None or found.labels != task.labels:
        return found
    # task.json has no synonyms.
    return dataclasses.replace(found, label_synonyms=task.label_synonyms)


def _as_numbers(weights):
    """Returns weights as a tuple of floats, or None if they are invalid.

    They may be an array, as scikit-learn computes them; floats can be stored.
    """
    if isinstance(weights, (str, Mapping)):
        return None
    try:
        weights = tuple(map(float, weights))
    except (TypeError, ValueError):
        return None
    is_good = all(0 <= weight < math.inf for weight in weights)
    return weights if is_good else None
