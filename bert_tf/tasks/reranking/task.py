"""The reranking family: which of a query's texts answer it best.

A cross-encoder reads the query and one text together (Nogueira and Cho 2019,
arXiv 1901.04085). Its scores order the first texts of a search.
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

from bert_tf import described
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import distillation
from bert_tf.models import objectives
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.reranker import BertReranker
from bert_tf.tasks import tsv
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.reranking import files as group_files
from bert_tf.tasks.reranking import report
from bert_tf.tasks.reranking.files import Groups
from bert_tf.tasks.reranking.options import POINTWISE
from bert_tf.tasks.reranking.options import SOFTMAX
from bert_tf.tasks.reranking.options import RerankingOptions
from bert_tf.tasks.reranking.source import NO_TEXT
from bert_tf.tasks.reranking.source import RerankingSource
from bert_tf.tasks.retrieval import ranking
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.source import Source
from bert_tf.tasks.task import check_logits
from bert_tf.text.preprocessor import Preprocessor

FAMILY = "reranking"
# The scores of `ranking` that are reported for reranking.
_SCORES = ("MRR@10", "nDCG@10")
# Amounts to minus infinity, but is finite in float32.
_LOWEST = -1e9


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RerankingTask(RerankingOptions, Distillable, Foreign):
    """How well a text answers a query.

    `RerankingOptions` describes the fields.

    Raises:
        ValueError: If a value is out of its range.

    Example:

        >>> import numpy as np
        >>> from bert_tf import RerankingTask
        >>> task = RerankingTask(loss_name="softmax")
        >>> logits = np.zeros((1, 4), "float32")
        >>> losses = task.losses(logits, np.array([[1, 0, 0, 0]]))
        >>> round(float(losses[0, 0]), 4)  # Four equally likely texts.
        1.3863
    """

    family = FAMILY
    # `load` makes one, as the weights are the same as a `BertReranker`'s.
    model_class = BertClassifier
    label_rank = 2
    accuracy = None
    source_class = RerankingSource

    def __post_init__(self):
        described.check(self)

    @property
    def main_metric(self) -> str:
        return f"eval_{_SCORES[0]}"

    @property
    def can_be_distilled(self) -> bool:
        # With "softmax", only labels say where a row has no text.
        return self.loss_name == POINTWISE

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
    ) -> Self | None:
        """Returns the default task for the folder of a CrossEncoder."""
        del text_features
        is_reranker = (
            parts.CLASSIFIER in checkpoint.found_parts
            and checkpoint.num_labels == 1
            and sentence_folder.is_cross_encoder(
                checkpoint.folder, checkpoint.config_values
            )
        )
        return cls() if is_reranker else None

    def make_model(self, config: BertConfig, **options: Any) -> BertReranker:
        """Returns a new `BertReranker`."""
        return BertReranker(config, **options)

    def model_arguments(self) -> dict[str, Any]:
        return {"num_labels": 1}

    def takes_head_of_checkpoint(self, checkpoint: Checkpoint) -> bool:
        return sentence_folder.is_cross_encoder(
            checkpoint.folder, checkpoint.config_values
        )

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        logits = ops.cast(logits, "float32")
        if self.loss_name == POINTWISE:
            return ops.softplus(logits) - ops.cast(labels, "float32") * logits
        logits = ops.where(ops.equal(labels, NO_TEXT), _LOWEST, logits)
        return objectives.cross_entropy(logits, ops.argmax(labels, axis=1))[
            :, None
        ]

    def weights(self, labels: Tensor) -> Tensor:
        weights = super().weights(labels)
        # With "softmax", each row is one choice.
        return weights if self.loss_name == POINTWISE else weights[:, :1]

    def soft_losses(
        self, logits: Tensor, teacher_logits: Tensor, temperature: float
    ) -> Tensor:
        """Returns the divergence of a yes-or-no answer, for "pointwise"."""
        return distillation.soft_labels(logits, teacher_logits, temperature)

    def read(
        self, data: Any, split: str, label_column: str = group_files.LABEL
    ) -> Groups:
        """Returns `Groups`; see `files.read_groups`."""
        is_choice = split == TRAIN and self.loss_name == SOFTMAX
        return group_files.read_groups(
            data,
            split != TEST,
            label_column,
            # Without a positive there is no rank to report.
            needs_positives=is_choice or split not in (TRAIN, TEST),
            needs_negatives=is_choice,
        )

    def make_sources(
        self,
        examples: Mapping[str, Any],
        preprocessor: Preprocessor,
        **options: Any,
    ) -> dict[str, Source]:
        # Other sets are scored text by text: a query may have any number of
        # texts.
        return {
            split: RerankingSource(
                examples=examples[split],
                preprocessor=preprocessor,
                num_negatives=(
                    self.num_negatives
                    if split == TRAIN and self.loss_name == SOFTMAX
                    else None
                ),
                **options,
            )
            for split in examples
        }

    def answers(self, source: Any, logits: np.ndarray) -> np.ndarray:
        """Returns the score of every text, float32 `[N]`."""
        del source
        return logits[:, 0]

    def evaluate(
        self, source: Any, logits: np.ndarray, answers: np.ndarray
    ) -> dict[str, float]:
        """Returns the loss over all texts, and the scores of the ranking.

        With "softmax", a text that answers its query competes with all of the
        query's texts that do not, rather than with a sample.
        """
        groups = source.examples
        scores = ranking.means(
            ranking.score_queries(report.ranks_of(groups, answers))
        )
        if self.loss_name == POINTWISE:
            losses = self.losses(logits, groups.labels[:, np.newaxis])
            loss = float(np.mean(losses, dtype=np.float64))
        else:
            loss = _choice_loss(groups, answers)
        return {"eval_loss": loss} | {
            f"eval_{name}": scores[name] for name in _SCORES
        }

    def report_sections(
        self,
        examples: Groups,
        answers: np.ndarray,
        results: dict[str, float],
    ) -> list[tuple[str, str]]:
        del results
        return report.sections(examples, answers)

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: Groups,
        answers: np.ndarray,
    ) -> str:
        """Writes the score and the rank of every text, in their order."""
        ranks = np.zeros(len(examples), np.int64)
        for rows in examples.rows:
            ranks[rows] = ranking.ranks(answers[rows], np.arange(len(rows)))
        decoded = self.decode_tensors(answers[:, np.newaxis])
        columns = [
            *map(np.asarray, (decoded["scores"], decoded["probabilities"])),
            ranks,
        ]
        header = ("score", "probability", "rank")
        return tsv.write_results(
            output_dir, split, [*zip(*columns)], header, "score"
        )

    def read_answers(self, examples: Groups, answers: np.ndarray) -> Any:
        return self.read_outputs({"scores": answers})

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns {"score"} for each row."""
        return [{"score": score} for score in found["scores"].tolist()]

    def decode_tensors(self, logits: Any) -> dict[str, tf.Tensor]:
        """Returns answers from logits, with TensorFlow operations alone.

        Args:
            logits: float32 `[B, 1]`.

        Returns:
            A dictionary of float32 `[B]`: `scores`, the logits, and
            `probabilities`, their sigmoids.
        """
        check_logits(logits, 1)
        scores = logits[:, 0]
        return {"scores": scores, "probabilities": tf.nn.sigmoid(scores)}


def _choice_loss(groups, scores):
    """Returns the mean loss of all texts that answer their query."""
    losses = []
    for rows in groups.rows:
        is_positive = groups.labels[rows] == 1
        found = scores[rows].astype(np.float64)
        rest = np.logaddexp.reduce(found[~is_positive], initial=-np.inf)
        positives = found[is_positive]
        losses.extend(np.logaddexp(positives, rest) - positives)
    return float(np.mean(losses))
