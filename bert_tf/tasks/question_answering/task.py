"""SQuAD's family of tasks: the span of a text that answers a question.

SQuAD 1.1 is Rajpurkar et al. 2016 (arXiv 1606.05250); 2.0 adds questions that
the text does not answer (Rajpurkar et al. 2018, arXiv 1806.03822). The method
is Devlin et al. 2018, sections 4.2 and 4.3.
"""

import dataclasses
import math
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import described
from bert_tf import features
from bert_tf import messages
from bert_tf.checkpoints import parts
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import objectives
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.tasks import columns
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import files as squad_files
from bert_tf.tasks.question_answering import report
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.question_answering.answers import SquadAnswers
from bert_tf.tasks.question_answering.files import SquadExamples
from bert_tf.tasks.question_answering.options import SquadOptions
from bert_tf.tasks.question_answering.windows import END_LOGITS
from bert_tf.tasks.question_answering.windows import OUTPUTS
from bert_tf.tasks.question_answering.windows import START_LOGITS
from bert_tf.tasks.question_answering.windows import WindowMaker
from bert_tf.tasks.question_answering.windows import WindowSource
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.text.preprocessor import Preprocessor

FAMILY = "squad"


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadTask(SquadOptions, Distillable, Foreign):
    """How texts are cut into windows and answers chosen from the logits.

    The method is Devlin et al. 2018, sections 4.2 and 4.3.

    `SquadOptions` describes the fields.

    Raises:
        ValueError: If a value is out of its range; it names the field.

    Example:

        >>> from bert_tf import SquadTask
        >>> task = SquadTask(doc_stride=64, version_2_with_negative=True)
        >>> task.main_metric, task.max_answer_length
        ('f1', 30)
    """

    family = FAMILY
    model_class = BertSpanPredictor
    main_metric = "f1"
    outputs = OUTPUTS
    accuracy = None
    report_scores = report.SCORES
    source_class = WindowSource

    def __post_init__(self):
        described.check(self)
        if self.tune_null_threshold and not self.version_2_with_negative:
            raise ValueError(
                "--tune_null_threshold must be given with "
                "--version_2_with_negative."
            )

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
    ) -> Self | None:
        """Returns run_squad's default task for a checkpoint of a span model."""
        del text_features
        return cls() if parts.SPAN in checkpoint.found_parts else None

    def make_model(
        self, config: BertConfig, **options: Any
    ) -> BertSpanPredictor:
        """Returns a new `BertSpanPredictor`."""
        return BertSpanPredictor(config, **options)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        # Called for starts and for ends: the halves add up to the mean.
        return 0.5 * objectives.cross_entropy(logits, labels)

    def soft_losses(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        return 0.5 * super().soft_losses(logits, teacher_logits, temperature)

    def compared_logits(self, logits: Tensor, batch: features.Batch) -> Tensor:
        # Finite, so that a probability of 0 times a difference is 0.
        return ops.where(
            ops.cast(batch[features.INPUT_MASK], "bool"),
            ops.cast(logits, "float32"),
            squad_answers.PADDING_LOGIT,
        )

    def for_student(self) -> Self:
        """Returns the task without its null threshold."""
        return dataclasses.replace(self, null_score_diff_threshold=0.0)

    def read(
        self, data: Any, split: str, label_column: str = "answers"
    ) -> SquadExamples:
        """Returns `SquadExamples`; see `files.read_squad`."""
        if label_column != "answers" and not columns.may_have_lists(data):
            raise ValueError(
                f"{columns.title(data)}: `label_column` must not be given: "
                "SQuAD's JSON has no columns. "
                f"Received: label_column={label_column!r}."
            )
        examples = squad_files.read_squad(
            data,
            self.version_2_with_negative,
            split == TRAIN,
            self.verbose_logging,
            answers_column=None if split == TEST else label_column,
        )
        if split == DEV:
            examples.check_scorable(
                columns.title(data), self.version_2_with_negative
            )
        return examples

    def source_arguments(self, preprocessor: Preprocessor) -> dict[str, Any]:
        return {"maker": WindowMaker(preprocessor, self)}

    def prediction_model(
        self, model: keras.Model, max_seq_length: int
    ) -> Callable[..., Tensor]:
        return squad_answers.stacked_outputs(model, max_seq_length)

    def answers(self, source: WindowSource, logits: np.ndarray) -> SquadAnswers:
        """Returns `SquadAnswers`."""
        return squad_answers.find_answers(self, source, logits)

    def read_answers(self, examples: SquadExamples, answers: Any) -> list[Any]:
        """Returns {"text", "start", "end", "score"} of each question, or None.

        None is no answer.
        """
        return [
            answers.best(name) if text else None
            for name, text in answers.predictions(self).items()
        ]

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns {"text", "start", "end", "score"} for each row, or None."""
        names = ("answers", "starts", "limits", "scores")
        return [
            None
            if start < 0
            else squad_answers.entry(text.decode(), start, end, score)
            for text, start, end, score in zip(
                *(found[name].tolist() for name in names)
            )
        ]

    def evaluate(
        self, source: WindowSource, logits: np.ndarray, answers: SquadAnswers
    ) -> dict[str, float]:
        """Returns the official scores, under their official names."""
        examples = source.examples
        assert examples.answers is not None
        task = self.calibrate(examples, answers)
        predictions = list(answers.predictions(task).values())
        if not self.version_2_with_negative:
            return squad_scores.scores_1_1(predictions, examples.answers)
        return {
            **squad_scores.scores_2_0(predictions, examples.answers),
            **squad_scores.best_thresholds(
                list(answers.texts.values()),
                list(answers.null_odds.values()),
                examples.answers,
            ),
            "null_score_diff_threshold": task.null_score_diff_threshold,
        }

    def calibrate(self, examples: SquadExamples, answers: SquadAnswers) -> Self:
        """Returns the task, with the best F1's threshold if it is tuned."""
        if not self.tune_null_threshold:
            return self
        assert examples.answers is not None
        threshold = squad_scores.tuned_null_threshold(
            list(answers.texts.values()),
            list(answers.null_odds.values()),
            examples.answers,
        )
        return dataclasses.replace(self, null_score_diff_threshold=threshold)

    def num_epoch_examples(self, source: WindowSource) -> int:
        if source.whole_epochs:
            return source.num_examples
        # As in google-research/bert, an epoch has as many windows as there are
        # questions.
        return len(source.examples)

    def training_settings(self, compares_epochs: bool) -> dict[str, Any]:
        # The tuned threshold changes the scores that epochs are compared by.
        if compares_epochs and self.tune_null_threshold:
            return {"tune_null_threshold": True}
        return {}

    def report_sections(
        self,
        examples: SquadExamples,
        answers: SquadAnswers,
        results: dict[str, float],
    ) -> list[tuple[str, str]]:
        return report.sections(self, examples, answers, results)

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: SquadExamples,
        answers: SquadAnswers,
    ) -> str:
        """Writes the files of google-research/bert's run_squad."""
        del split, examples
        predictions = answers.predictions(self)
        contents = {
            "predictions": predictions,
            "nbest_predictions": answers.nbest,
        }
        if self.version_2_with_negative:
            contents["null_odds"] = answers.null_odds
        for name, values in contents.items():
            path = os.path.join(output_dir, f"{name}.json")
            squad_files.write_json(path, values)
        path = os.path.join(output_dir, "predictions.json")
        return (
            f"{messages.counted(len(predictions), 'answer', 'answers')} in "
            f"{path}"
        )

    def find_spans(
        self, outputs: dict[str, tf.Tensor], is_candidate: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Finds the best span of every window, in TensorFlow's operations.

        Args:
            outputs: The model's: float32 `[B, L]` under `OUTPUTS`.
            is_candidate: bool `[B, L]`: the tokens of the context.

        Returns:
            A dictionary: `starts` and `ends` int32 `[B]`, the first and last
            token of the likeliest span of at most `max_answer_length` tokens;
            `scores` float32 `[B]`, the sum of its two logits, or -inf if no
            span is possible; and `null_scores` float32 `[B]`, the same sum for
            no answer.
        """
        start_logits = outputs[START_LOGITS]
        end_logits = outputs[END_LOGITS]
        length = tf.shape(start_logits)[1]
        # Letters: A lengths of an answer, from 1 on.
        most = tf.minimum(self.max_answer_length, length)
        starts_BL, ends_BL = (
            tf.where(is_candidate, logits, -math.inf)
            for logits in (start_logits, end_logits)
        )
        ends_BL = tf.pad(
            ends_BL, [[0, 0], [0, most - 1]], constant_values=-math.inf
        )
        end_LA = tf.range(length)[:, tf.newaxis] + tf.range(most)
        scores_BLA = starts_BL[:, :, tf.newaxis] + tf.gather(
            ends_BL, end_LA, axis=1
        )
        scores = tf.reshape(scores_BLA, [-1, length * most])
        best = tf.argmax(scores, axis=-1, output_type=tf.int32)
        starts = best // most
        return {
            "starts": starts,
            "ends": starts + best % most,
            "scores": tf.reduce_max(scores, axis=-1),
            "null_scores": start_logits[:, 0] + end_logits[:, 0],
        }
