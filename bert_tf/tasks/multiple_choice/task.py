"""The family of multiple choice: which of several ways a text goes on.

SWAG is Zellers et al. 2018 (arXiv 1808.05326), CODAH Chen et al. 2019 (arXiv
1904.04365); the method is Devlin et al. 2018, section 4.4. Programs,
`keras.Model.fit`, the training loop and the exporter work from one
`MultipleChoiceTask`; a fine-tuned model's folder holds it as task.json.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf import files
from bert_tf.models import objectives
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.objectives import Objective
from bert_tf.tasks import metrics
from bert_tf.tasks import task_folder

FAMILY = "multiple_choice"
# Each is a sequence of its own in every step and every request.
_MOST_CHOICES = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask:
    """Of how many choices a model takes one.

    Args:
        num_choices: From 2 to 1,000.

    Raises:
        ValueError: If the value is out of its range.
    """

    num_choices: int

    def __post_init__(self):
        if (
            type(self.num_choices) is not int
            or not 2 <= self.num_choices <= _MOST_CHOICES
        ):
            raise ValueError(
                f"`num_choices` must be from 2 to {_MOST_CHOICES:,}. "
                f"Received: num_choices={files.shortened(self.num_choices)}."
            )

    @property
    def family(self):
        return FAMILY

    @property
    def labels(self):
        """No names of classes: a label is a choice's number."""
        return ()

    @property
    def main_metric(self):
        """The score that tells the better of two models."""
        return "eval_accuracy"

    def to_dict(self):
        """Returns what task.json holds: the family and the field."""
        return {"family": FAMILY, "num_choices": self.num_choices}

    @classmethod
    def from_dict(cls, values):
        """Reads what `to_dict` returns.

        Raises:
            ValueError: If it is of another family, a key is missing or
                unknown, or a value is out of its range.
        """
        task_folder.check_task(values, FAMILY, ("num_choices",))
        return cls(num_choices=values["num_choices"])

    def make_model(self, config, dtype=None):
        """Returns a new `BertMultipleChoice`."""
        return BertMultipleChoice(config, dtype=dtype)

    def takes_head_of(self, values):
        """Whether a model with this task.json has a head for this task."""
        return values.get("family") == FAMILY

    def loss(self):
        """Returns the Keras loss of the logits: mean over the batch."""
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @property
    def fit_metrics(self):
        """What `keras.Model.fit` logs beside the loss."""
        return ["accuracy"]

    def objective(self):
        """Returns the same loss for `training.loop`, and the accuracy.

        A batch has the model inputs `[B, C, L]`, `labels` int32 `[B]` and
        optionally `example_weights` float32 `[B]`, 0 for examples that only
        fill the batch.
        """

        return Objective.of_elements(
            objectives.example_weights,
            lambda outputs, batch: self.example_losses(
                outputs, batch[features.LABELS]
            ),
            "accuracy",
        )

    def example_losses(self, logits, labels):
        """Returns every example's cross-entropy in nats, float32 `[B]`.

        Args:
            logits: float32 `[B, C]`, a tensor or an array.
            labels: int32 `[B]`, numbers of the right choices.
        """
        return objectives.cross_entropy(logits, labels)

    def decode(self, logits):
        """Returns answers from logits, in TensorFlow's own operations.

        Args:
            logits: float32 `[B, C]`.

        Returns:
            A dictionary: `choice` int32 `[B]`, the numbers of the likeliest
            choices from 0, and `probabilities` float32 `[B, C]`.
        """
        return {
            "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits, axis=-1),
        }

    def scores(self, logits, labels):
        """Returns {"accuracy": float} of a whole evaluation set.

        Args:
            logits: float32 `[N, C]`, an array.
            labels: int32 `[N]`.
        """
        predictions = np.argmax(logits, axis=-1)
        return {"accuracy": metrics.accuracy(predictions, labels)}
