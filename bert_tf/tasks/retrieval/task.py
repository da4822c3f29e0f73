"""The family of sentence embeddings: texts that belong together lie together.

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
from bert_tf.checkpoints.sentence_folder import DenseLayer
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import sentence_encoder
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.tasks import columns
from bert_tf.tasks.features import sentences
from bert_tf.tasks.retrieval import chunks
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
from bert_tf.tasks.task import NOT_STORED
from bert_tf.tasks.task import STORED_IF_SET
from bert_tf.tasks.task import Task
from bert_tf.text.preprocessor import Preprocessor

FAMILY = "retrieval"
# What a task and a folder of sentence-transformers both tell.
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


# (fields, what a message says of them, whether a value is a good one)
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
    """How vectors of texts are made, and what they are to tell.

    Args:
        loss_name: One of
            "multiple_negatives": a query is to find its positive among all
            passages of the batch; of pairs, triplets, SQuAD and NLI.
            "simcse": a text is to find itself, dropped out otherwise, among
            all texts of the batch.
            "cosent": pairs that people score higher are to have the higher
            cosines.
            "cosine": the cosine is to be the score.
            "triplet": the positive is to be nearer than the negative.
        pooling: "mean", "cls" or "max". None for "cls" with "simcse", "mean"
            otherwise.
        is_normalized: Whether vectors are divided by their length. None for
            False with "triplet", whose margin is larger than the distance of
            such vectors can be; True otherwise.
        head: "none"; "dense", a dense layer with tanh; or "training_dense",
            the same in training alone. None for "training_dense" with
            "simcse", "none" otherwise.
        dense_size: Outputs of that layer; None for the hidden size.
        scale: Factor of the cosines in "multiple_negatives", "simcse" and
            "cosent", the inverse of a temperature.
        margin: Of "triplet".
        is_symmetric: Whether in "multiple_negatives" a positive is to find
            its query too.
        hard_negative_weight: Added to the logits of a query's own negatives.
        matryoshka_sizes: If given, the loss is the sum of those of the first
            so many numbers of the vectors.
        truncate_dim: How many numbers of a vector the tuned model keeps, the
            first ones; 0 for all; None likewise, but in `tuning.run` for as
            many as the checkpoint says. The loss is of all, or of
            `matryoshka_sizes`.
        query_prompt: What stands before each query, and the first of scored
            pairs.
        passage_prompt: What stands before each passage, and the second.
        metric: The score that tells the better of two models: "spearman",
            "pearson", or of rankings "nDCG@10", "MRR@10", "recall@1",
            "recall@10", "recall@100" or "MAP". None for "spearman" with
            "simcse" and the losses of scored pairs, "nDCG@10" otherwise.
        max_score: What the scores of the files are divided by.
        text_columns: Names of the columns of texts, if others than
            `tasks.retrieval.files` tells.
        corpus: Further files of passages that a development set's queries
            have to choose from.
        chunk_size: If given, training goes through a batch so many texts at
            a time; see `tasks.retrieval.chunks`.

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
        is_simcse = self.loss_name == options.SIMCSE
        is_scored = is_simcse or self.loss_name in options.SCORED
        for field, value in (
            ("pooling", "cls" if is_simcse else sentence_encoder.MEAN),
            ("is_normalized", self.loss_name != options.TRIPLET),
            ("head", options.TRAINING_DENSE if is_simcse else options.NO_HEAD),
            ("metric", "spearman" if is_scored else "nDCG@10"),
        ):
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
                "`dense_size` must be given with a `head`. "
                f"Received: dense_size={self.dense_size}, head='none'."
            )
        if self.is_symmetric and self.loss_name != options.MULTIPLE_NEGATIVES:
            raise ValueError(
                "`is_symmetric` must be given with multiple_negatives. "
                f"Received: loss_name={self.loss_name!r}."
            )
        for field in ("matryoshka_sizes", "text_columns", "corpus"):
            object.__setattr__(self, field, tuple(getattr(self, field)))

    @property
    def main_metric(self) -> str:
        return f"eval_{self.metric}"

    @property
    def is_teachable(self) -> bool:
        # Queries and passages go through the encoder together, and are told by
        # their vectors, not by logits.
        return False

    @property
    def is_in_batch(self) -> bool:
        """Whether an example's loss depends on which others are beside it."""
        return self.loss_name in options.IN_BATCH

    def make_model(
        self, config: BertConfig, dtype: Any = None
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
            dtype=dtype,
        )
        size = dense_size or config.hidden_size
        if max(self.matryoshka_sizes, default=0) > size:
            raise ValueError(
                f"`matryoshka_sizes` must be at most {size}, the size of the "
                "vectors. Received: "
                f"matryoshka_sizes={self.matryoshka_sizes!r}."
            )
        if self.chunk_size is not None:
            model.run_in_chunks = chunks.make_runner(self.chunk_size)
        return model

    def sentence_vectors(self, model: keras.Model) -> SentenceVectors:
        dense: tuple[DenseLayer, ...] = ()
        if model.dense is not None and not model.has_dense_in_training_only:
            kernel, bias = map(ops.convert_to_numpy, model.dense.weights)
            dense = (
                DenseLayer(
                    kernel=kernel,
                    bias=bias,
                    activation=sentence_folder.TANH,
                ),
            )
        prompts, default = {}, None
        if self.query_prompt or self.passage_prompt:
            query, passage = (
                sentence_folder.QUERY_PROMPTS[0],
                sentence_folder.PASSAGE_PROMPTS[0],
            )
            prompts = {query: self.query_prompt, passage: self.passage_prompt}
            if self.query_prompt == self.passage_prompt:
                # Whatever a text is, it has this one.
                default = query
        return SentenceVectors(
            pooling=model.pooling,
            is_normalized=model.is_normalized,
            truncate_dim=model.truncate_dim,
            dense=dense,
            prompts=prompts,
            default_prompt_name=default,
        )

    def as_started(self, folder: str) -> "RetrievalTask":
        """Returns the task with the checkpoint's `truncate_dim`, if unset.

        Of other differences a warning tells.
        """
        told = sentence_folder.read_known(folder)
        if told is None:
            return self
        differences = [
            f"{field}={wanted!r}, not {found!r}"
            for field in _OF_VECTORS
            if (found := getattr(told, field))
            != (wanted := getattr(self, field))
        ]
        if told.dense and self.head != options.DENSE:
            differences.append(f"head={self.head!r}, not its Dense layers")
        if differences:
            logging.warning(
                "%s: vectors are not made as the checkpoint says: the task has "
                "%s.",
                folder,
                "; ".join(differences),
            )
        return self.cut_as(folder, told)

    def cut_as(
        self, folder: str | None, told: SentenceVectors | None
    ) -> "RetrievalTask":
        """Returns the task with a checkpoint's `truncate_dim`, if unset.

        One that is 0 is None then.

        Args:
            folder: The checkpoint; None without one.
            told: What it says of its vectors; None if nothing.
        """
        size = self.truncate_dim
        if size is None and told is not None:
            size = told.truncate_dim
            if size is not None:
                logging.info(
                    "Vectors are cut to %d numbers, as %s says. The loss is of "
                    "whole ones.",
                    size,
                    folder,
                )
        return dataclasses.replace(self, truncate_dim=size or None)

    def load_elsewhere(
        self, model: keras.Model, folder: str, may_be_new: bool
    ) -> None:
        if model.dense is None or model.has_dense_in_training_only:
            return
        told = sentence_folder.read(folder)
        layers = () if told is None else told.dense
        shapes = [tuple(each.shape) for each in model.dense.weights]
        if (
            len(layers) == 1
            and layers[0].activation == sentence_folder.TANH
            and layers[0].bias is not None
            and [layers[0].kernel.shape, layers[0].bias.shape] == shapes
        ):
            model.dense.set_weights([layers[0].kernel, layers[0].bias])
        elif may_be_new:
            logging.info("%s: starting with a new dense layer.", folder)
        else:
            raise ValueError(
                f"{folder}: must hold one dense layer with tanh and a bias, of "
                f"the shapes {shapes}, on the pooled vector."
            )

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

        Data to train on are what the loss asks for; with scores they are
        refused by a loss that reads none. Those of a development set are scored
        pairs where the table has a column of scores, else queries with
        passages. Of a set to predict there are two texts a row. `text_columns`
        are of the data to train on: of scored pairs to evaluate on, and of a
        set to predict, they hold where there are two or more and the table has
        the first two.
        """
        names = self.text_columns
        if split == TRAIN:
            if self.loss_name == options.SIMCSE:
                return retrieval_files.read_texts(data, names)
            if self.loss_name in options.SCORED:
                return retrieval_files.read_scored(
                    data, names, label_column, self.max_score
                )
            examples = retrieval_files.read_groups(
                data, names, score_column=label_column
            )
            if self.loss_name == options.TRIPLET and examples.rows.shape[1] < 3:
                raise ValueError(
                    "The examples must have a negative, a third text, with the "
                    "loss triplet. Received: two texts an example."
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
                    "`corpus` must not be given with scored pairs, which have "
                    "no passages to choose from. "
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

    def _pair_columns(self, data):
        """Returns the two of `text_columns` that a table has, or none."""
        names = self.text_columns[:2]
        if len(names) == 2 and {*names} <= {*columns.names_in(data)}:
            return names
        if names:
            logging.info(
                "%s: the columns of its two texts are the usual ones, not %s.",
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
        for prompt in (self.query_prompt, self.passage_prompt):
            # Texts cut to it alone would all be one.
            sentences.num_prompt_tokens(prompt, preprocessor)
        arguments: dict[str, Any] = {
            "preprocessor": preprocessor,
            "query_prompt": self.query_prompt,
            "passage_prompt": self.passage_prompt,
        } | options
        return {
            split: GroupSource(
                examples=each,
                has_distinct_texts=self._has_distinct_texts,
                **arguments,
            )
            if split == TRAIN
            else SingleSource(examples=each, **arguments)
            for split, each in examples.items()
        }

    def check_training(
        self, source: Any, config: Any, num_replicas: int, is_compiled: bool
    ) -> None:
        batch_size = config.train_batch_size
        if self.is_in_batch and config.gradient_accumulation_steps > 1:
            raise ValueError(
                "--gradient_accumulation_steps must be 1 with the loss "
                f"{self.loss_name}: each part of a batch would have fewer "
                "negatives. --chunk_size has the memory of a part, and the "
                "negatives of the whole batch. Received: "
                "--gradient_accumulation_steps="
                f"{config.gradient_accumulation_steps}."
            )
        if self.is_in_batch and is_compiled and num_replicas > 1:
            raise ValueError(
                "--jit_compile must not be true on several devices with the "
                f"loss {self.loss_name}, which compares the texts of all."
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
                "`hard_negative_weight` must be 0 where no example has a "
                "negative. Received: "
                f"hard_negative_weight={self.hard_negative_weight}."
            )
        if self._has_distinct_texts:
            if config.bucket_window_batches:
                raise ValueError(
                    "--bucket_window_batches must not be given with the loss "
                    f"{self.loss_name}: in no batch is a text twice, and "
                    "sorting would put other texts together."
                )
            if source.num_examples < batch_size:
                raise ValueError(
                    "The training examples must make one batch or more. "
                    f"Received: {source.num_examples} examples, "
                    f"train_batch_size={batch_size}."
                )
            source.check_distinct(batch_size, config.num_train_epochs)

    def training_settings(self, compares_epochs: bool) -> dict[str, Any]:
        del compares_epochs
        # Dropout is drawn for each chunk.
        return {"chunk_size": self.chunk_size}

    def answers(self, source: Any, logits: np.ndarray) -> Any:
        """Returns a `Ranking`, or the cosines of the pairs, float64 `[N]`."""
        queries, passages = source.vectors(logits)
        rows = source.examples.rows
        query_rows = np.searchsorted(source.queries, rows[:, 0])
        passage_rows = np.searchsorted(source.passages, rows[:, 1])
        if not source.examples.is_ranking:
            return ranking.cosines(queries[query_rows], passages[passage_rows])
        # A pair counts once, however often it is there.
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
        """Writes the cosine of each pair; of queries the passage found."""
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
        told = files.counted(len(lines) - 1, "prediction", "predictions")
        return f"{told} in {path}"

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
    """Returns values of all replicas, and where the own ones stand there.

    Each replica puts its own among zeros, and all are added: on every kind of
    device there is such a sum, and its gradient, which sums what the replicas'
    losses make of a value, is right as it is.

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
