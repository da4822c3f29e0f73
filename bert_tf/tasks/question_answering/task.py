"""SQuAD's family of tasks: the span of a text that answers a question.

SQuAD 1.1 is Rajpurkar et al. 2016 (arXiv 1606.05250); 2.0 adds questions that
the text does not answer (Rajpurkar et al. 2018, arXiv 1806.03822). The method
is Devlin et al. 2018, sections 4.2 and 4.3. Programs, `keras.Model.fit` and the
training loop work from one `SquadTask`; a fine-tuned model's folder holds it
as task.json.
"""

import dataclasses
import math

import keras
import tensorflow as tf
from keras import ops

from bert_tf import features
from bert_tf import files
from bert_tf.models import objectives
from bert_tf.models.objectives import Objective
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.tasks import task_folder

FAMILY = "squad"
START_LOGITS = "start_logits"
END_LOGITS = "end_logits"
OUTPUTS = (START_LOGITS, END_LOGITS)
# An exported model gives every answer room for so many, and looks at the
# square of it in every window.
_MOST_ANSWERS = 1000

_SIZES = (
    "doc_stride",
    "max_query_length",
    "n_best_size",
    "max_answer_length",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadTask:
    """How texts are cut to windows and answers chosen from their logits.

    Args:
        version_2_with_negative: Whether a question may have no answer.
        doc_stride: Pieces from the beginning of one window to the next.
        max_query_length: Pieces of a question; those beyond are cut off.
        n_best_size: Candidates kept, of starts, of ends and of answers;
            1,000 at most.
        max_answer_length: Pieces of the longest answer.
        null_score_diff_threshold: With `version_2_with_negative`, the answer
            is empty where the score of none exceeds the best answer's by
            more than this.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    version_2_with_negative: bool = False
    doc_stride: int = 128
    max_query_length: int = 64
    n_best_size: int = 20
    max_answer_length: int = 30
    null_score_diff_threshold: float = 0.0

    def __post_init__(self):
        for field in _SIZES:
            value = getattr(self, field)
            if type(value) is not int or not 1 <= value < 2**31:
                raise ValueError(
                    f"`{field}` must be a positive integer of 32 bits. "
                    f"Received: {field}={files.shortened(value)}."
                )
        if self.n_best_size > _MOST_ANSWERS:
            raise ValueError(
                f"`n_best_size` must be at most {_MOST_ANSWERS:,}. "
                f"Received: n_best_size={self.n_best_size}."
            )
        if type(self.version_2_with_negative) is not bool:
            raise ValueError(
                "`version_2_with_negative` must be true or false. Received: "
                "version_2_with_negative="
                f"{files.shortened(self.version_2_with_negative)}."
            )
        threshold = self.null_score_diff_threshold
        # As a number of float32, which the answers' scores are.
        if type(threshold) not in (int, float) or not abs(threshold) < 2**127:
            raise ValueError(
                "`null_score_diff_threshold` must be a finite number. "
                "Received: null_score_diff_threshold="
                f"{files.shortened(threshold)}."
            )

    @property
    def family(self):
        return FAMILY

    @property
    def main_metric(self):
        """The result of an evaluation that tells the better model."""
        return "f1"

    @property
    def labels(self):
        """No names of classes: the labels are places."""
        return ()

    def to_dict(self):
        """Returns what task.json holds: the family and the fields."""
        return {"family": FAMILY, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, values):
        """Reads what `to_dict` returns.

        Raises:
            ValueError: If it is of another family, a key is missing or
                unknown, or a value is out of its range.
        """
        fields = [field.name for field in dataclasses.fields(cls)]
        task_folder.check_task(values, FAMILY, fields)
        return cls(**{name: values[name] for name in fields})

    def make_model(self, config, dtype=None):
        """Returns a new `BertSpanPredictor`."""
        return BertSpanPredictor(config, dtype=dtype)

    def takes_head_of(self, values):
        """Returns whether a head tuned to that task is one for this."""
        return values.get("family") == FAMILY

    def loss(self):
        """Returns the Keras losses of the outputs.

        Their sum is the mean of the cross-entropies of start and end.
        """
        return dict.fromkeys(OUTPUTS, _half_cross_entropy)

    @property
    def fit_metrics(self):
        """Nothing but the losses."""
        return None

    def objective(self):
        """Returns the same loss for `training.loop`.

        A batch has the model inputs, `labels`, a dictionary of int32 `[B]`
        under the outputs' names, and optionally `example_weights` float32
        `[B]`, 0 for windows that only fill the batch.
        """

        def losses(outputs, batch):
            labels = batch[features.LABELS]
            return sum(
                _half_cross_entropy(labels[name], outputs[name])
                for name in OUTPUTS
            )

        return Objective.of_elements(objectives.example_weights, losses)

    def decode(self, outputs, is_candidate):
        """Finds the best span of every window, in TensorFlow's operations.

        Args:
            outputs: The model's: float32 `[B, L]` under `OUTPUTS`.
            is_candidate: bool `[B, L]`: the tokens of the context.

        Returns:
            A dictionary: `starts` and `ends` int32 `[B]`, the first and the
            last token of the span of the highest score that has
            `max_answer_length` tokens or fewer; `scores` float32 `[B]`, its
            two logits' sum, and `null_scores` float32 `[B]`, that of no
            answer. Where there is no candidate, `scores` is -inf.
        """
        start_logits = outputs[START_LOGITS]
        end_logits = outputs[END_LOGITS]
        length = tf.shape(start_logits)[1]
        scores = start_logits[:, :, tf.newaxis] + end_logits[:, tf.newaxis, :]
        distance = tf.range(length) - tf.range(length)[:, tf.newaxis]
        fits = (distance >= 0) & (distance < self.max_answer_length)
        fits &= is_candidate[:, :, tf.newaxis] & is_candidate[:, tf.newaxis, :]
        scores = tf.where(fits, scores, -math.inf)
        scores = tf.reshape(scores, [-1, length * length])
        best = tf.argmax(scores, axis=-1, output_type=tf.int32)
        return {
            "starts": best // length,
            "ends": best % length,
            "scores": tf.reduce_max(scores, axis=-1),
            "null_scores": start_logits[:, 0] + end_logits[:, 0],
        }


@keras.saving.register_keras_serializable(package="bert_tf")
def _half_cross_entropy(places, logits):
    logits_BL = ops.cast(logits, "float32")
    places_B1 = ops.reshape(ops.cast(places, "int32"), (-1, 1))
    picked_B1 = ops.take_along_axis(logits_BL, places_B1, axis=-1)
    return 0.5 * (ops.logsumexp(logits_BL, axis=-1) - picked_B1[:, 0])
