"""Rerankers as they are served: how well a text answers a query."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.checkpoints import parts
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.models.classifier import BertClassifier
from bert_tf.serving.kinds import dev_set
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import COUNT_TOKENS
from bert_tf.serving.kinds.output import COUNTED
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.options import RERANKER
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks import columns
from bert_tf.tasks.reranking import files as group_files
from bert_tf.tasks.reranking import report as rank_report
from bert_tf.tasks.reranking.task import RerankingTask
from bert_tf.tasks.retrieval import ranking

# Files of queries with their texts.
_TABLES = (".tsv", ".csv", ".jsonl", ".parquet")


class Reranker(Servable):
    """The score of a query with a text, of a `RerankingTask`.

    Any classifier with one output can be served as a reranker. Without
    task.json, a CrossEncoder of sentence-transformers is one by default.
    """

    KIND = RERANKER
    outputs_of_ids = (
        Output(
            name="scores",
            dtype="float32",
            axes="",
            meaning="the logit: texts are ordered by it",
            heading="scores",
        ),
        Output(
            name="probabilities",
            dtype="float32",
            axes="",
            meaning="its sigmoid, from 0 to 1",
            heading="probabilities",
        ),
    )
    outputs_of_strings = (*outputs_of_ids, *COUNTED)
    MODEL = BertClassifier
    DEFAULTS = Servable.DEFAULTS | {COUNT_TOKENS: False}

    @classmethod
    def read_vectors(cls, model_dir: files.AnyPath) -> None:
        sentence_folder.check_has_no_prompt(model_dir)

    @classmethod
    def text_features_of(cls, task: Any) -> tuple[str, ...] | None:
        return ("query", "text")

    @classmethod
    def load(
        cls, checkpoint: Checkpoint, task: Any, options: ExportOptions
    ) -> Any:
        if task is None and (
            parts.CLASSIFIER not in checkpoint.found_parts
            or checkpoint.num_labels != 1
        ):
            raise ValueError(
                f"{checkpoint.path}: must be a classifier of one output to be "
                f"served as {cls.KIND}. "
                f"Received: {checkpoint.architecture or 'no classifier'}, "
                f"num_labels={checkpoint.num_labels}."
            )
        return super().load(checkpoint, task, options)

    @classmethod
    def model_arguments(cls, task: Any) -> dict[str, Any]:
        return {"num_labels": 1}

    @property
    def row_shape(self) -> list[int] | None:
        return [1]

    def read_texts(self, path: files.AnyPath) -> list[Row]:
        if not str(path).lower().endswith(_TABLES):
            return super().read_texts(path)
        groups = group_files.read_groups(str(path), has_labels=False)
        return [
            (groups.queries[group].encode(), text.encode())
            for group, text in zip(groups.group_ids, groups.texts)
        ]

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        if not str(path).lower().endswith(_TABLES):
            return None
        if group_files.POSITIVE in columns.names_in(str(path)):
            dev_set.check_no_column(label_column)
        groups = group_files.read_groups(
            str(path),
            label_column=label_column or group_files.LABEL,
            needs_positives=True,
        )
        metric = (self.task or RerankingTask()).main_metric

        def score(answers):
            scores = np.asarray(answers["scores"])
            ranks = ranking.score_queries(rank_report.ranks_of(groups, scores))
            return ranking.means(ranks)[metric.removeprefix("eval_")]

        return DevSet(
            metric=metric.removeprefix("eval_"),
            num_texts=len(groups),
            outputs=("scores",),
            score=score,
        )

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return (self.task or RerankingTask()).decode_tensors(outputs)

    def read_outputs(
        self,
        found: dict[str, np.ndarray],
        rows: Sequence[Any],
        top_k: int | None,
    ) -> list[Any]:
        return (self.task or RerankingTask()).read_outputs(found)
