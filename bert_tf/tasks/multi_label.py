"""The family of multi-label classifications: any number of labels per text.

Every label is a yes-or-no question of its own, answered by the sigmoid of its
logit. The loss is the mean of the cross-entropies over examples and labels.
"""

import dataclasses
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
from bert_tf.checkpoints import parts
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import distillation
from bert_tf.models.classifier import BertClassifier
from bert_tf.tasks import calibration
from bert_tf.tasks import class_names
from bert_tf.tasks import columns
from bert_tf.tasks import metrics
from bert_tf.tasks import tables
from bert_tf.tasks import tsv
from bert_tf.tasks.calibration import Calibrated
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.source import TEST
from bert_tf.tasks.task import check_has_labels
from bert_tf.tasks.task import check_logits
from bert_tf.tasks.task import check_names
from bert_tf.tasks.task import task_of_classifier
from bert_tf.tasks.tsv import Examples

FAMILY = "multi_label"
# Separates the names of an example's labels in a text file.
SEPARATOR = "|"

# Functions of the predictions, the logits and the labels, all `[N, K]`.
_METRICS = {
    "micro_f1": lambda hits, _, labels: metrics.f1(
        hits.flatten(), labels.flatten()
    ),
    "macro_f1": lambda hits, _, labels: _mean(metrics.f1, hits, labels),
    "subset_accuracy": lambda hits, _, labels: float(
        np.mean(np.all(hits == labels, axis=1))
    ),
    "auc": lambda _, logits, labels: _mean_auc(logits, labels),
}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiLabelTask(Calibrated, Distillable, Foreign):
    """Which labels a model gives to one or two strings.

    Args:
        name: E.g. "topics".
        text_features: Names of the one or two strings.
        labels: Names of the labels. Without them `tuning.run` finds them in
            the training data.
        metrics: Names of the scores; the first one tells the better of two
            models. They are "micro_f1", "macro_f1" (the mean of the labels'
            F1s), "subset_accuracy" (the share of examples whose labels are
            all right) and "auc" (the mean over the labels that some examples
            have and some do not; 0 if there are none).
        temperature: Divisor of all logits before they become probabilities;
            see `calibration`.

    Raises:
        ValueError: If a value is out of its range; it names the field.

    Example:

        >>> import numpy as np
        >>> from bert_tf import MultiLabelTask
        >>> task = MultiLabelTask(
        ...     name="topics",
        ...     text_features=("text",),
        ...     labels=("sport", "politics"),
        ...     metrics=("subset_accuracy",),
        ... )
        >>> logits = np.array([[2.0, 1.0], [-1.0, 3.0]])
        >>> task.scores(logits, np.array([[1, 0], [0, 1]]))
        {'subset_accuracy': 0.5}
    """

    family = FAMILY
    model_class = BertClassifier
    label_rank = 2
    accuracy = None
    problem_type = config_json.MULTI_LABEL

    name: str
    text_features: tuple[str, ...]
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("micro_f1", "macro_f1")

    def __post_init__(self):
        check_names(self)
        if SEPARATOR in "".join(self.labels):
            raise ValueError(
                f"`labels` must be names without {SEPARATOR!r}. "
                f"Received: labels={messages.shortened(list(self.labels))}."
            )
        if not self.metrics or set(self.metrics) - set(_METRICS):
            raise ValueError(
                f"`metrics` must be among {', '.join(_METRICS)}. "
                f"Received: metrics={messages.shortened(list(self.metrics))}."
            )
        calibration.check_temperature(self.temperature)

    @property
    def main_metric(self) -> str:
        return f"eval_{self.metrics[0]}"

    @property
    def lacks_labels(self) -> bool:
        return not self.labels

    @property
    def title(self) -> str:
        return self.name

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
    ) -> Self | None:
        if (
            parts.CLASSIFIER not in checkpoint.found_parts
            or checkpoint.problem_type != config_json.MULTI_LABEL
        ):
            return None
        return task_of_classifier(
            cls, checkpoint, text_features, labels=checkpoint.label_names
        )

    def make_model(self, config: BertConfig, **options: Any) -> BertClassifier:
        """Returns a new `BertClassifier`."""
        return BertClassifier(config, **self.model_arguments(), **options)

    def model_arguments(self) -> dict[str, Any]:
        check_has_labels(self)
        return {"num_labels": len(self.labels)}

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        labels = ops.cast(labels, "float32")
        return ops.softplus(logits) - labels * logits

    def soft_losses(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        """Returns the divergence of the yes or no for every label."""
        return distillation.soft_labels(logits, teacher_logits, temperature)

    def read_answers(self, examples: Examples, answers: np.ndarray) -> Any:
        return self.decode(answers)

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns a list of {"label", "score"} for each row, the best first.

        They are those that are likelier than not, or `top_k` of them.
        """
        ranked = (
            class_names.ranked(self.labels, row)
            for row in found["probabilities"]
        )
        counts = found["is_label"].sum(axis=-1).tolist()
        return [
            entries[: count if top_k is None else top_k]
            for entries, count in zip(ranked, counts)
        ]

    def decode_tensors(self, logits: Any) -> dict[str, tf.Tensor]:
        """Returns answers from logits, in TensorFlow's own operations.

        Args:
            logits: float32 `[B, K]`.

        Returns:
            A dictionary: `is_label` bool `[B, K]`, whether the label is
            likelier than not, and `probabilities` float32 `[B, K]`, calibrated
            if the task is.
        """
        check_logits(logits, len(self.labels))
        return {
            "is_label": logits > 0,
            "probabilities": tf.nn.sigmoid(self.at_temperature(logits)),
        }

    def scores(
        self, logits: np.ndarray, labels: np.ndarray
    ) -> dict[str, float]:
        hits = (np.asarray(logits) > 0).astype(np.int32)
        return {
            name: _METRICS[name](hits, logits, labels) for name in self.metrics
        }

    def read(
        self, data: Any, split: str, label_column: str = "labels"
    ) -> Examples:
        """Returns the `Examples` of a table; see `columns.read`.

        Labels are a list of names, or one string of names separated by "|".
        """

        def parse_labels(where, names):
            names = _names_in(where, names)
            if names - set(self.labels):
                raise ValueError(
                    f"{where}: the labels must be among "
                    f"{class_names.listed(self.labels)}. "
                    f"Received: {class_names.listed(sorted(names))}."
                )
            return [name in names for name in self.labels]

        label_column = None if split == TEST else label_column
        return columns.read_texts(
            data, self.text_features, label_column, parse_labels, np.int32
        )

    def find_labels(
        self, data: Any, label_column: str = "labels", **options: Any
    ) -> tuple[str, ...]:
        names: set[str] = set()
        for where, (value,) in columns.read(data, [label_column]):
            names |= _names_in(where, value)
        title = columns.title(data)
        if not names:
            raise ValueError(f"{title}: no example has a label.")
        return class_names.found(title, names)

    def report_sections(
        self, examples: Examples, answers: np.ndarray, results: dict[str, float]
    ) -> list[tuple[str, str]]:
        del results
        assert examples.labels is not None
        wanted, hits = examples.labels == 1, answers > 0
        rows = [
            (
                name,
                wanted[:, k].sum(),
                hits[:, k].sum(),
                metrics.f1(hits[:, k], wanted[:, k]),
                # Not defined if all examples have the label, or none has.
                metrics.auc(answers[:, k], wanted[:, k])
                if wanted[:, k].any() and not wanted[:, k].all()
                else "-",
            )
            for k, name in enumerate(self.labels)
        ]
        losses = ops.convert_to_numpy(self.losses(answers, examples.labels))
        losses, is_wrong = losses.mean(axis=1), np.any(hits != wanted, axis=1)
        worst = [
            (
                index + 1,
                *(texts[index] for texts in examples.texts),
                self._names(wanted[index]),
                self._names(hits[index]),
                float(losses[index]),
            )
            for index in tables.worst(losses, is_wrong)
        ]
        header = ("label", "examples", "predicted", "F1", "AUC")
        of_worst = ("example", *self.text_features, "labels", "answer", "loss")
        return [
            ("Labels", tables.table(header, rows)),
            ("Worst errors", tables.errors_table(of_worst, worst)),
        ]

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: Examples,
        answers: np.ndarray,
    ) -> str:
        """Writes a TSV: the labels, and every example's probabilities."""
        del examples
        rows = self.decode_tensors(answers)["probabilities"].numpy()
        return tsv.write_results(output_dir, split, rows, self.labels)

    def _names(self, is_label):
        return ", ".join(np.array(self.labels)[is_label])


def _names_in(where, value):
    """Returns the set of the names of an example's labels."""
    names = value
    if isinstance(value, str):
        names = [name.strip() for name in value.split(SEPARATOR)]
    if not isinstance(names, list) or not all(
        isinstance(name, str) for name in names
    ):
        raise ValueError(
            f"{where}: the labels must be a list of names, or one string of "
            f"names separated by {SEPARATOR!r}. "
            f"Received: {messages.shortened(value)}."
        )
    return {*names} - {""}


def _mean(metric, predictions, labels):
    """Returns the mean of a score over the labels."""
    pairs = zip(predictions.T, labels.T)
    return float(np.mean([metric(*pair) for pair in pairs]))


def _mean_auc(logits, labels):
    labels = np.asarray(labels) == 1
    has_pairs = labels.any(axis=0) & ~labels.all(axis=0)
    if not has_pairs.any():
        return 0.0
    return _mean(metrics.auc, logits[:, has_pairs], labels[:, has_pairs])
