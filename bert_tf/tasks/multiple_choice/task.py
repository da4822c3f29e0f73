"""The family of multiple choice: which of several texts continues another.

SWAG is Zellers et al. 2018 (arXiv 1808.05326), CODAH Chen et al. 2019 (arXiv
1904.04365); the method is Devlin et al. 2018, section 4.4.
"""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import messages
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import objectives
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.tasks import calibration
from bert_tf.tasks import tsv
from bert_tf.tasks.calibration import Calibrated
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.multiple_choice import files as choice_files
from bert_tf.tasks.multiple_choice import report
from bert_tf.tasks.multiple_choice.files import ChoiceExamples
from bert_tf.tasks.multiple_choice.source import ChoiceSource
from bert_tf.tasks.source import TEST

FAMILY = "multiple_choice"
# Every choice is a sequence of its own, in each step and each request.
_MOST_CHOICES = 1000


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceTask(Calibrated, Distillable):
    """Choosing one of several texts (Devlin et al. 2018, section 4.4).

    Args:
        num_choices: How many there are, from 2 to 1,000.
        temperature: Divisor of the logits before they become probabilities;
            see `calibration`.

    Raises:
        ValueError: If a value is out of its range.

    Example:

        >>> import numpy as np
        >>> from bert_tf import MultipleChoiceTask
        >>> task = MultipleChoiceTask(num_choices=4)
        >>> logits = np.array([[0.0, 3.0, 1.0, 2.0], [4.0, 0.0, 0.0, 0.0]])
        >>> task.results(logits, np.array([1, 2]))["eval_accuracy"]
        0.5
    """

    family = FAMILY
    model_class = BertMultipleChoice
    source_class = ChoiceSource

    num_choices: int

    def __post_init__(self):
        if (
            type(self.num_choices) is not int
            or not 2 <= self.num_choices <= _MOST_CHOICES
        ):
            raise ValueError(
                f"`num_choices` must be from 2 to {_MOST_CHOICES:,}. "
                f"Received: num_choices={messages.shortened(self.num_choices)}."
            )
        calibration.check_temperature(self.temperature)

    def make_model(
        self, config: BertConfig, **options: Any
    ) -> BertMultipleChoice:
        """Returns a new `BertMultipleChoice`."""
        return BertMultipleChoice(config, **options)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return objectives.cross_entropy(logits, labels)

    def read(
        self, data: Any, split: str, label_column: str = "label"
    ) -> ChoiceExamples:
        """Returns `ChoiceExamples`; see `files.read_choices`."""
        return choice_files.read_choices(
            data, split != TEST, self.num_choices, label_column
        )

    def report_sections(
        self,
        examples: ChoiceExamples,
        answers: np.ndarray,
        results: dict[str, float],
    ) -> list[tuple[str, str]]:
        del results
        return report.sections(self, examples, answers)

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: ChoiceExamples,
        answers: np.ndarray,
    ) -> str:
        """Writes every example's choice and probabilities."""
        del examples
        decoded = self.decode_tensors(answers)
        probabilities = decoded["probabilities"].numpy()
        header = [
            "choice",
            *(f"probability_{index}" for index in range(self.num_choices)),
        ]
        rows = [
            (choice, *row)
            for choice, row in zip(decoded["choice"].numpy(), probabilities)
        ]
        return tsv.write_results(output_dir, split, rows, header, "choice")

    def read_answers(self, examples: ChoiceExamples, answers: Any) -> Any:
        rows = zip(examples.contexts, examples.choices)
        return self.decode(answers, list(rows))

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns {"choice", "text", "score"}; no "text" without `rows`."""
        numbers = found["choice"].tolist()
        answers: list[dict[str, Any]] = [{"choice": each} for each in numbers]
        for answer, (_, choices) in zip(answers, rows or ()):
            answer["text"] = choices[answer["choice"]]
        for answer, shares in zip(answers, found["probabilities"]):
            answer["score"] = float(shares[answer["choice"]])
        return answers

    def decode_tensors(self, logits: Any) -> dict[str, tf.Tensor]:
        """Returns answers from logits, in TensorFlow's own operations.

        Args:
            logits: float32 `[B, C]`.

        Returns:
            A dictionary: `choice` int32 `[B]`, the numbers of the likeliest
            choices, from 0, and `probabilities` float32 `[B, C]`, calibrated
            if the task is.
        """
        return {
            "choice": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(
                self.at_temperature(logits), axis=-1
            ),
        }
