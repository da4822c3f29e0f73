"""The sentence embedding family: texts that belong together are close together.

Reimers & Gurevych 2019 (SBERT, arXiv 1908.10084), Karpukhin et al. 2020 (DPR,
arXiv 2004.04906), Gao et al. 2021 (SimCSE, arXiv 2104.08821), Kusupati et al.
2022 (Matryoshka, arXiv 2205.13147).
"""

import dataclasses
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from bert_tf import files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.formats import STORED_IF_SET
from bert_tf.models import sentence_encoder
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.tasks import columns
from bert_tf.tasks import metrics
from bert_tf.tasks.features import sentences
from bert_tf.tasks.retrieval import files as retrieval_files
from bert_tf.tasks.retrieval import losses
from bert_tf.tasks.retrieval import options
from bert_tf.tasks.retrieval import ranking
from bert_tf.tasks.retrieval import report
from bert_tf.tasks.retrieval import search
from bert_tf.tasks.retrieval.files import RetrievalExamples
from bert_tf.tasks.retrieval.report import Ranking
from bert_tf.tasks.retrieval.source import GroupSource
from bert_tf.tasks.retrieval.source import SingleSource
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.source import Source
from bert_tf.tasks.source import is_dev
from bert_tf.tasks.task import NOT_STORED
from bert_tf.tasks.task import Task
from bert_tf.text.preprocessor import Preprocessor

FAMILY = "retrieval"
# Fields that a task and a folder of sentence-transformers share.
_OF_VECTORS = ("pooling", "is_normalized", "query_prompt", "passage_prompt")
_CORRELATIONS = ("spearman", "pearson")
_METRICS = (*_CORRELATIONS, *ranking.QUERY_SCORES)


def _one_of(field, values):
    return (
        (field,),
        f"one of {', '.join(values)}",
        lambda value: value in values,
    )


def _is_number(value):
    is_number = isinstance(value, (int, float)) and type(value) is not bool
    return is_number and np.isfinite(value)


def _is_size(value):
    return type(value) is int and value > 0


# (fields, what they must be, a function that tells whether a value is valid)
_RANGES = (
    _one_of("loss_name", options.LOSSES),
    _one_of("pooling", sentence_encoder.POOLINGS),
    _one_of("head", options.HEADS),
    _one_of("metric", _METRICS),
    (
        ("scale", "max_score"),
        "a number above 0",
        lambda value: _is_number(value) and value > 0,
    ),
    (("margin", "hard_negative_weight"), "a number", _is_number),
    (
        ("is_normalized", "is_symmetric"),
        "True or False",
        lambda value: type(value) is bool,
    ),
    (
        ("query_prompt", "passage_prompt"),
        "a string",
        lambda value: isinstance(value, str),
    ),
    (
        ("dense_size", "chunk_size"),
        "a positive number, or None",
        lambda value: value is None or _is_size(value),
    ),
    (
        ("truncate_dim",),
        "a positive number, 0 or None",
        lambda value: value is None or value == 0 or _is_size(value),
    ),
    (
        ("matryoshka_sizes",),
        "a list of positive numbers",
        lambda value: (
            isinstance(value, (tuple, list)) and all(map(_is_size, value))
        ),
    ),
    (
        ("text_columns", "corpus"),
        "a list of different names",
        lambda value: (
            isinstance(value, (tuple, list))
            and all(isinstance(name, (str, os.PathLike)) for name in value)
            and len({*value}) == len(value)
        ),
    ),
)


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalTask(Task):
    """How vectors of texts are made, and how they are trained.

    Args:
        loss_name: One of
            "multiple_negatives": a query must find its positive among all
            passages of the batch. For pairs, triplets, SQuAD and NLI.
            "simcse": a text must find itself, with other dropout, among all
            texts of the batch.
            "cosent": pairs with higher human scores must have higher cosines.
            "cosine": the cosine must equal the score.
            "triplet": the positive must be nearer than the negative.
        pooling: "mean", "cls" or "max". None for "cls" with "simcse", "mean"
            otherwise.
        is_normalized: Whether vectors are divided by their length. None for
            False with "triplet", because normalised vectors cannot be as far
            apart as its margin; True otherwise.
        head: "none"; "dense", a dense layer with tanh; or "training_dense",
            the same layer in training only. None for "training_dense" with
            "simcse", "none" otherwise.
        dense_size: Outputs of that layer; None for the hidden size.
        scale: Factor of the cosines in "multiple_negatives", "simcse" and
            "cosent", the inverse of a temperature.
        margin: Margin of "triplet".
        is_symmetric: Whether a positive must also find its query, with
            "multiple_negatives".
        hard_negative_weight: Added to the logits of a query's own negatives.
        matryoshka_sizes: If given, the loss is the sum of the losses of the
            vectors truncated to each of these sizes.
        truncate_dim: The size to which the tuned model truncates its vectors;
            0 for no truncation. None for none either, but in `tuning.run` for
            the checkpoint's setting. The loss ignores it.
        query_prompt: A string put before each query, and before the first
            text of scored pairs.
        passage_prompt: A string put before each passage, and before the
            second text of scored pairs.
        metric: The score that decides which of two models is better:
            "spearman", "pearson", or for rankings "nDCG@10", "MRR@10",
            "recall@1", "recall@10", "recall@100" or "MAP". None for
            "spearman" with "simcse" and the losses of scored pairs, "nDCG@10"
            otherwise.
        max_score: Divisor of the scores in the files.
        text_columns: Names of the columns of texts, if they are not the usual
            ones (`tasks.retrieval.files`).
        corpus: More files of passages among which the queries of a
            development set must find theirs.
        chunk_size: If given, training processes a batch in chunks of so many
            texts; see `models.sentence_chunks`.

    Raises:
        ValueError: If a value is out of its range; it names the field.

    Example:

        >>> import numpy as np
        >>> from bert_tf import RetrievalTask
        >>> task = RetrievalTask(scale=1.0)
        >>> vectors = np.float32([[[1, 0], [1, 0]], [[0, 1], [0, 1]]])
        >>> losses = task.losses(vectors, np.zeros(2))
        >>> # log(1 + 1 / e)
        >>> np.asarray(losses).round(4)
        array([0.3133, 0.3133], dtype=float32)
    """

    family = FAMILY
    model_class = BertSentenceEncoder
    accuracy = None

    loss_name: str = options.MULTIPLE_NEGATIVES
    pooling: str | None = None
    is_normalized: bool | None = None
    head: str | None = None
    dense_size: int | None = None
    scale: float = 20.0
    margin: float = 5.0
    is_symmetric: bool = False
    hard_negative_weight: float = 0.0
    matryoshka_sizes: tuple[int, ...] = ()
    truncate_dim: int | None = dataclasses.field(
        default=None, metadata=STORED_IF_SET
    )
    query_prompt: str = ""
    passage_prompt: str = ""
    metric: str | None = None
    max_score: float = 1.0
    text_columns: tuple[str, ...] = dataclasses.field(
        default=(), metadata=NOT_STORED
    )
    corpus: tuple[str, ...] = dataclasses.field(default=(), metadata=NOT_STORED)
    chunk_size: int | None = dataclasses.field(
        default=None, metadata=NOT_STORED
    )

    def __post_init__(self):
        for field, value in self._defaults_of_loss().items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)
        for fields, text, is_good in _RANGES:
            for field in fields:
                value = getattr(self, field)
                if not is_good(value):
                    raise ValueError(
                        f"`{field}` must be {text}. "
                        f"Received: {field}={files.shortened(value)}."
                    )
        if self.dense_size is not None and self.head == options.NO_HEAD:
            raise ValueError(
                "`dense_size` must only be given with a `head`. "
                f"Received: dense_size={self.dense_size}, head='none'."
            )
        if self.is_symmetric and self.loss_name != options.MULTIPLE_NEGATIVES:
            raise ValueError(
                "`is_symmetric` must only be given with multiple_negatives. "
                f"Received: loss_name={self.loss_name!r}."
            )
        for field in ("matryoshka_sizes", "text_columns", "corpus"):
            object.__setattr__(self, field, tuple(getattr(self, field)))

    def _defaults_of_loss(self):
        """Returns the defaults that depend on the loss, {field: value}."""
        is_simcse = self.loss_name == options.SIMCSE
        is_scored = is_simcse or self.loss_name in options.SCORED
        return {
            "pooling": sentence_encoder.CLS
            if is_simcse
            else sentence_encoder.MEAN,
            "is_normalized": self.loss_name != options.TRIPLET,
            "head": options.TRAINING_DENSE if is_simcse else options.NO_HEAD,
            "metric": "spearman" if is_scored else "nDCG@10",
        }

    def unset_fields(self) -> set[str]:
        return super().unset_fields() | {
            field
            for field, value in self._defaults_of_loss().items()
            if getattr(self, field) == value
        }

    @property
    def main_metric(self) -> str:
        return f"eval_{self.metric}"

    @property
    def can_be_distilled(self) -> bool:
        # The outputs are vectors of queries and passages, not logits.
        return False

    @property
    def is_in_batch(self) -> bool:
        """Whether an example's loss depends on others in the batch."""
        return self.loss_name in options.IN_BATCH

    def make_model(
        self, config: BertConfig, **model_options: Any
    ) -> BertSentenceEncoder:
        """Returns a new `BertSentenceEncoder`."""
        # `__post_init__` has replaced None.
        assert self.pooling is not None and self.is_normalized is not None
        dense_size = None
        if self.head != options.NO_HEAD:
            dense_size = self.dense_size or config.hidden_size
        model = BertSentenceEncoder(
            config,
            pooling=self.pooling,
            dense_size=dense_size,
            has_dense_in_training_only=self.head == options.TRAINING_DENSE,
            is_normalized=self.is_normalized,
            truncate_dim=self.truncate_dim or None,
            chunk_size=self.chunk_size,
            **model_options,
        )
        size = dense_size or config.hidden_size
        if max(self.matryoshka_sizes, default=0) > size:
            raise ValueError(
                f"`matryoshka_sizes` must be at most {size}, the size of the "
                "vectors. Received: "
                f"matryoshka_sizes={self.matryoshka_sizes!r}."
            )
        return model

    def with_checkpoint_fields(self, folder: str) -> "RetrievalTask":
        """Returns the task with the checkpoint's `truncate_dim`, if unset.

        Warns of other differences.
        """
        vectors = sentence_folder.read_known(folder)
        if vectors is None:
            return self
        differences = [
            f"{field}={wanted!r}, not {found!r}"
            for field in _OF_VECTORS
            if (found := getattr(vectors, field))
            != (wanted := getattr(self, field))
        ]
        if vectors.dense and self.head != options.DENSE:
            differences.append(f"head={self.head!r}, not its Dense layers")
        if differences:
            logging.warning(
                "%s: vectors are not made as the checkpoint says: the task has "
                "%s.",
                folder,
                "; ".join(differences),
            )
        return self.with_truncate_dim_of(folder, vectors)

    def with_truncate_dim_of(
        self, folder: str | None, vectors: SentenceVectors | None
    ) -> "RetrievalTask":
        """Returns the task with a checkpoint's `truncate_dim`, if unset.

        A `truncate_dim` of 0 becomes None.

        Args:
            folder: The checkpoint, or None.
            vectors: The checkpoint's settings of vectors, or None.
        """
        size = self.truncate_dim
        if size is None and vectors is not None:
            size = vectors.truncate_dim
            if size is not None:
                logging.info(
                    "Vectors are truncated to %d numbers, as in %s. The loss "
                    "uses whole vectors.",
                    size,
                    folder,
                )
        return dataclasses.replace(self, truncate_dim=size or None)

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        labels = ops.cast(labels, "float32")
        everyone, all_labels, first = logits, labels, 0
        if self.is_in_batch:
            (everyone, all_labels), first = _of_all_replicas([logits, labels])
        sizes = self.matryoshka_sizes or (logits.shape[-1],)
        total = 0.0
        for size in sizes:
            own = logits[..., :size]
            if self.loss_name == options.COSENT:
                loss = losses.cosent(
                    everyone[..., :size], all_labels, self.scale
                )
                each = loss * ops.ones_like(labels)
            elif self.loss_name == options.COSINE:
                each = losses.cosine(own, labels)
            elif self.loss_name == options.TRIPLET:
                each = losses.triplet(own, self.margin)
            else:
                each = losses.multiple_negatives(
                    own,
                    everyone[..., :size],
                    first,
                    self.scale,
                    self.is_symmetric,
                    self.hard_negative_weight,
                )
            total = total + each
        return total

    def read(
        self,
        data: Any,
        split: str,
        label_column: str = retrieval_files.SCORE_COLUMN,
    ) -> RetrievalExamples:
        """Returns `RetrievalExamples`; see `tasks.retrieval.files`.

        Training data have the form that the loss needs. A loss that does not
        read scores refuses data with scores. A development set is scored pairs
        if its table has a column of scores, otherwise queries with passages. A
        set to predict has two texts a row. `text_columns` are the columns of
        the training data. For scored pairs to evaluate and for sets to predict,
        the first two are used if the table has both.
        """
        names = self.text_columns
        if split == TRAIN:
            if self.loss_name == options.SIMCSE:
                return retrieval_files.read_texts(data, names)
            if self.loss_name in options.SCORED:
                examples = retrieval_files.read_scored(
                    data, names, label_column, self.max_score
                )
                if self.loss_name == options.COSINE:
                    self._check_are_cosines(data, examples.labels)
                return examples
            examples = retrieval_files.read_groups(
                data, names, score_column=label_column
            )
            if self.loss_name == options.TRIPLET and examples.rows.shape[1] < 3:
                raise ValueError(
                    "With the loss triplet, the examples must have a negative, "
                    "a third text. Received: two texts an example."
                )
            return examples
        if split == TEST:
            return retrieval_files.read_scored(
                data, self._pair_columns(data), None
            )
        if retrieval_files.has_scores(data, label_column):
            self._check_metric(_CORRELATIONS, "scored pairs")
            if self.corpus:
                raise ValueError(
                    "`corpus` must not be given with scored pairs, which do "
                    "not search passages. "
                    f"Received: {files.shortened([*map(str, self.corpus)])}."
                )
            return retrieval_files.read_scored(
                data, self._pair_columns(data), label_column, self.max_score
            )
        self._check_metric(ranking.QUERY_SCORES, "queries with passages")
        return retrieval_files.read_groups(
            data,
            names,
            is_ranking=True,
            corpus=self.corpus,
            score_column=label_column,
        )

    def _check_are_cosines(self, data, labels):
        """Raises `ValueError` if no vectors can have these cosines."""
        (bad,) = np.nonzero(np.abs(labels) > 1)
        if len(bad):
            raise ValueError(
                f"{columns.title(data)}: with the loss cosine, scores must be "
                "from -1 to 1 when divided by `max_score`. Received: "
                f"{labels[bad[0]] * self.max_score:g}, "
                f"max_score={self.max_score:g}."
            )

    def _pair_columns(self, data):
        """Returns the first two `text_columns` if a table has both, or ()."""
        names = self.text_columns[:2]
        if len(names) == 2 and {*names} <= {*columns.names_in(data)}:
            return names
        if names:
            logging.info(
                "%s: reading its two texts from the usual columns, not from "
                "%s.",
                columns.title(data),
                ", ".join(names),
            )
        return ()

    def make_sources(
        self,
        examples: Mapping[str, Any],
        preprocessor: Preprocessor,
        **options: Any,
    ) -> dict[str, Source]:
        for split, each in examples.items():
            if is_dev(split) and not each.is_ranking:
                metrics.check_can_correlate(f"The pairs of {split}", len(each))
        for prompt in (self.query_prompt, self.passage_prompt):
            # Checks that the prompt leaves room for the text.
            sentences.num_prompt_tokens(prompt, preprocessor)
        arguments: dict[str, Any] = {
            "preprocessor": preprocessor,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
        } | options
        sources: dict[str, Source] = {}
        for split, each in examples.items():
            if split == TRAIN:
                sources[split] = GroupSource(
                    examples=each,
                    has_distinct_texts=self._has_distinct_texts,
                    **arguments,
                )
                continue
            source = SingleSource(examples=each, **arguments)
            if each.is_ranking:
                ranking.check_can_rank(
                    f"The passages of {split}", len(source.passages)
                )
            sources[split] = source
        return sources

    def check_training(
        self, source: Any, config: Any, num_replicas: int, is_compiled: bool
    ) -> None:
        batch_size = config.train_batch_size
        if self.is_in_batch and config.gradient_accumulation_steps > 1:
            raise ValueError(
                "--gradient_accumulation_steps must be 1 with the loss "
                f"{self.loss_name}: each part of a batch would have fewer "
                "negatives. --chunk_size saves memory and keeps the negatives "
                "of the whole batch. Received: "
                "--gradient_accumulation_steps="
                f"{config.gradient_accumulation_steps}."
            )
        if self.is_in_batch and is_compiled and num_replicas > 1:
            raise ValueError(
                "--jit_compile must not be true on several devices with the "
                f"loss {self.loss_name}, which compares texts across devices."
            )
        num_rows, rest = divmod(batch_size, num_replicas)
        if self.chunk_size is not None and (rest or num_rows % self.chunk_size):
            raise ValueError(
                "--chunk_size must divide a device's share of "
                f"--train_batch_size, {num_rows}. "
                f"Received: --chunk_size={self.chunk_size}."
            )
        if self.hard_negative_weight and source.examples.rows.shape[1] < 3:
            raise ValueError(
                "`hard_negative_weight` must be 0 if the examples have no "
                "negatives. Received: "
                f"hard_negative_weight={self.hard_negative_weight}."
            )
        if self._has_distinct_texts:
            if config.bucket_window_batches:
                raise ValueError(
                    "--bucket_window_batches must not be given with the loss "
                    f"{self.loss_name}: no batch may have a text twice, and "
                    "sorting would change the batches."
                )
            if source.num_examples < batch_size:
                count = files.counted(
                    source.num_examples, "example", "examples"
                )
                raise ValueError(
                    "The training examples must make one batch or more. "
                    f"Received: {count}, train_batch_size={batch_size}."
                )
            source.check_distinct(batch_size, config.num_train_epochs)

    def training_settings(self, compares_epochs: bool) -> dict[str, Any]:
        del compares_epochs
        # Dropout is drawn per chunk, so the chunk size changes the result.
        return {"chunk_size": self.chunk_size}

    def answers(self, source: Any, logits: np.ndarray) -> Any:
        """Returns a `Ranking`, or the cosines of the pairs, float64 `[N]`."""
        queries, passages = source.vectors(logits)
        rows = source.examples.rows
        query_rows = np.searchsorted(source.queries, rows[:, 0])
        passage_rows = np.searchsorted(source.passages, rows[:, 1])
        if not source.examples.is_ranking:
            return ranking.cosines(queries[query_rows], passages[passage_rows])
        # A repeated pair counts once.
        pairs = np.unique(np.stack([query_rows, passage_rows], 1), axis=0)
        ranks = search.ranks(queries, passages, pairs[:, 0], pairs[:, 1])
        starts = np.unique(pairs[:, 0], return_index=True)[1][1:]
        by_query = np.split(ranks, starts)
        similarities, found = search.top_k(
            queries, passages, min(report.NUM_FOUND, len(passages))
        )
        return Ranking(
            queries=source.queries,
            relevant=np.split(source.passages[pairs[:, 1]], starts),
            ranks=by_query,
            found=source.passages[found],
            similarities=similarities,
            scores=ranking.score_queries(by_query),
        )

    def evaluate(
        self, source: Any, logits: np.ndarray, answers: Any
    ) -> dict[str, float]:
        del logits
        if isinstance(answers, Ranking):
            scores = ranking.means(answers.scores)
        else:
            scores = ranking.correlations(answers, source.examples.labels)
        return {f"eval_{name}": score for name, score in scores.items()}

    def report_sections(
        self,
        examples: RetrievalExamples,
        answers: Any,
        results: dict[str, float],
    ) -> list[tuple[str, str]]:
        del results
        if isinstance(answers, Ranking):
            return report.of_ranking(examples, answers)
        return report.of_scores(examples, answers)

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: RetrievalExamples,
        answers: Any,
    ) -> str:
        """Writes each pair's cosine, or each query's rank and first cosine."""
        path = os.path.join(output_dir, f"{split}_results.tsv")
        if isinstance(answers, Ranking):
            lines = ["rank\tcosine_of_first"] + [
                f"{ranks.min()}\t{similarities[0]}"
                for ranks, similarities in zip(
                    answers.ranks, answers.similarities
                )
            ]
        else:
            lines = ["cosine", *map(str, answers)]
        files.write_text(path, "\n".join(lines) + "\n")
        count = files.counted(len(lines) - 1, "prediction", "predictions")
        return f"{count} in {path}"

    @property
    def _has_distinct_texts(self):
        return self.loss_name in (options.MULTIPLE_NEGATIVES, options.SIMCSE)

    def _check_metric(self, names, what):
        if self.metric not in names:
            raise ValueError(
                f"`metric` must be one of {', '.join(names)} with {what} to "
                f"evaluate on. Received: metric={self.metric!r}."
            )


def _of_all_replicas(values: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Returns the values of all replicas, and the index of the own ones.

    Each replica puts its values among zeros, and all are added. Every kind of
    device can compute this sum. Its gradient adds up the gradients of a value
    from all replicas' losses, as it should.

    Args:
        values: float32 `[B, ...]` each, of the same shape on all replicas.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return list(values), 0
    number = context.replica_id_in_sync_group
    slots = tf.one_hot(number, context.num_replicas_in_sync)

    def gather(value):
        value = tf.convert_to_tensor(value)
        shape = [-1] + [1] * value.shape.rank
        placed = tf.reshape(slots, shape) * value[tf.newaxis]
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, placed)
        return tf.reshape(total, tf.concat([[-1], tf.shape(value)[1:]], 0))

    return [gather(value) for value in values], number * tf.shape(values[0])[0]
