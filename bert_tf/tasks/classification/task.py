"""GLUE's family of tasks: a class or a number for one or two strings.

GLUE is Wang et al. 2018 (arXiv 1804.07461); `glue_files` has its nine tasks
with their files' columns, and makes a task from any TSV with named columns.
Programs, `keras.Model.fit`, the training loop and the exporter all work from
one `GlueTask`; a fine-tuned model's folder holds it as task.json.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints import model_folder
from bert_tf.models import objectives
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.objectives import Objective
from bert_tf.tasks import metrics
from bert_tf.tasks import task_folder
from bert_tf.tasks.classification.class_weights import WeightedCrossEntropy

FAMILY = "glue"
CLASSIFICATION = "classification"
REGRESSION = "regression"

_LABEL_METRICS = {
    "accuracy": metrics.accuracy,
    "f1": metrics.f1,
    "matthews_correlation": metrics.matthews_correlation,
}
_SCORE_METRICS = {
    "pearson": metrics.pearson,
    "spearman": metrics.spearman,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueTask:
    """What a model is tuned to answer about one or two strings.

    Args:
        name: E.g. "mrpc".
        text_features: Names of the one or two strings, in the order in which
            they are packed, e.g. `("sentence1", "sentence2")`.
        labels: Names of the classes by class id; empty for a regression.
        metrics: Names of the official scores: of "accuracy", "f1" (of class
            1) and "matthews_correlation", or for a regression of "pearson"
            and "spearman".
        class_weights: Weight of each class in training's loss; none for
            equal ones. It is of the training, and not in task.json.
        label_synonyms: What others call the classes, in lower case and by
            class id, if anything else. It is not in task.json either, and
            does not tell two tasks apart.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    name: str
    text_features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...]
    class_weights: tuple[float, ...] = ()
    label_synonyms: tuple[str, ...] = dataclasses.field(
        default=(), compare=False
    )

    def __post_init__(self):
        for field in ("text_features", "labels", "metrics"):
            values = getattr(self, field)
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
            object.__setattr__(self, field, tuple(values))
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(
                "`name` must be a name. "
                f"Received: name={files.shortened(self.name)}."
            )
        if len(self.text_features) not in (1, 2):
            raise ValueError(
                "`text_features` must be one or two names. "
                "Received: text_features="
                f"{files.shortened(list(self.text_features))}."
            )
        if len(self.labels) == 1:
            raise ValueError(
                "`labels` must be two names or more, or none for a "
                "regression. "
                f"Received: labels={files.shortened(list(self.labels))}."
            )
        known = _LABEL_METRICS if self.labels else _SCORE_METRICS
        if not self.metrics or set(self.metrics) - set(known):
            raise ValueError(
                f"`metrics` of a {self.kind} must be of {', '.join(known)}. "
                f"Received: metrics={files.shortened(list(self.metrics))}."
            )

        if self.class_weights and len(self.class_weights) != len(self.labels):
            raise ValueError(
                f"`class_weights` must be {len(self.labels)} numbers. "
                f"Received: class_weights={self.class_weights}."
            )

    @property
    def family(self):
        return FAMILY

    @property
    def main_metric(self):
        """The result of an evaluation that tells the better model."""
        return f"eval_{self.metrics[0]}"

    @property
    def kind(self):
        """`CLASSIFICATION` or `REGRESSION`."""
        return CLASSIFICATION if self.labels else REGRESSION

    @property
    def num_outputs(self):
        """`num_labels` of the `BertClassifier`: 1 for a regression."""
        return len(self.labels) or 1

    def to_dict(self):
        """Returns what task.json holds, e.g.

            {"family": "glue", "name": "mrpc", "kind": "classification",
             "text_features": ["sentence1", "sentence2"],
             "labels": ["0", "1"], "metrics": ["accuracy", "f1"]}

        A regression has `"kind": "regression"` and `"labels": []`.
        """
        return {
            "family": FAMILY,
            "name": self.name,
            "kind": self.kind,
            "text_features": list(self.text_features),
            "labels": list(self.labels),
            "metrics": list(self.metrics),
        }

    @classmethod
    def from_dict(cls, values):
        """Reads what `to_dict` returns.

        Raises:
            ValueError: If it is of another family, a key is missing or
                unknown, or a value is out of its range.
        """
        keys = ("name", "kind", "text_features", "labels", "metrics")
        task_folder.check_task(values, FAMILY, keys)
        task = cls(
            name=values["name"],
            text_features=values["text_features"],
            labels=values["labels"],
            metrics=values["metrics"],
        )
        if values["kind"] != task.kind:
            raise ValueError(
                f"`kind` must be {task.kind!r} with "
                f"labels={files.shortened(values['labels'])}. "
                f"Received: kind={files.shortened(values['kind'])}."
            )
        return task

    def make_model(self, config, dtype=None):
        """Returns a new `BertClassifier`."""
        return BertClassifier(config, self.num_outputs, dtype=dtype)

    def takes_head_of(self, values):
        """Returns whether a head tuned to that task is one for this."""
        return values == self.to_dict()

    def loss(self):
        """Returns the Keras loss of the logits: mean over the batch."""
        if self.class_weights:
            return WeightedCrossEntropy(self.class_weights)
        if self.labels:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()

    @property
    def fit_metrics(self):
        """What `keras.Model.fit` logs beside the loss, or None."""
        return ["accuracy"] if self.labels else None

    def objective(self):
        """Returns the same loss for `training.loop`, and the accuracy.

        The weights are the number of examples, whatever their classes weigh.
        A batch has the model inputs, `labels` int32 or float32 `[B]` and
        optionally `example_weights` float32 `[B]`, 0 for examples that only
        fill the batch.
        """

        def losses(outputs, batch):
            labels_B = batch[features.LABELS]
            losses_B = self.example_losses(outputs, labels_B)
            if self.class_weights:
                weights_K = ops.convert_to_tensor(self.class_weights, "float32")
                losses_B = losses_B * ops.take(weights_K, labels_B)
            return losses_B

        return Objective.of_elements(
            objectives.example_weights,
            losses,
            "accuracy" if self.labels else None,
        )

    def example_losses(self, logits, labels):
        """Returns every example's loss, whatever its class weighs.

        Args:
            logits: float32 `[B, num_outputs]`, a tensor or an array.
            labels: int32 `[B]` class ids, or float32 `[B]` scores.

        Returns:
            float32 `[B]`: cross-entropy in nats, or squared error.
        """
        if not self.labels:
            return ops.square(logits[:, 0] - labels)
        return objectives.cross_entropy(logits, labels)

    def decode(self, logits):
        """Returns answers from logits, in TensorFlow's own operations.

        Args:
            logits: float32 `[B, num_outputs]`.

        Returns:
            A dictionary: of a classification `labels` string `[B]`, the names
            of the likeliest classes, and `probabilities` float32
            `[B, num_outputs]`; of a regression `scores` float32 `[B]`.
        """
        if not self.labels:
            return {"scores": tf.squeeze(logits, axis=-1)}
        return {
            "labels": tf.gather(
                tf.constant(self.labels), tf.argmax(logits, axis=-1)
            ),
            "probabilities": tf.nn.softmax(logits, axis=-1),
        }

    def scores(self, logits, labels):
        """Returns the official scores of a whole evaluation set.

        Args:
            logits: float32 `[N, num_outputs]`, an array.
            labels: int32 `[N]` class ids, or float32 `[N]` scores.

        Returns:
            {name: float} in the order of `metrics`.
        """
        if self.labels:
            predictions = np.argmax(logits, axis=-1)
            known = _LABEL_METRICS
        else:
            predictions = np.asarray(logits)[:, 0]
            known = _SCORE_METRICS
        return {name: known[name](predictions, labels) for name in self.metrics}


def tuned_task(folder, task=None):
    """Returns the task that the model in a folder was tuned to.

    Args:
        folder: A model folder.
        task: What it must be. A folder of Hugging Face's has no task.json;
            it is then taken to be of this task. Its classes may be in another
            order: `task_folder.tuned_model` puts them in the task's.

    Raises:
        ValueError: If the folder tells no task, or another one, or its
            config.json names other classes.
    """
    found = task_folder.stored_task(folder, GlueTask)
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
    # Equal tasks may differ in their synonyms, which task.json has not.
    return task if found == task else found
