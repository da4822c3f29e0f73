"""The sentence embedding family: texts that belong together are close together.

Reimers & Gurevych 2019 (SBERT, arXiv 1908.10084), Karpukhin et al. 2020 (DPR,
arXiv 2004.04906), Gao et al. 2021 (SimCSE, arXiv 2104.08821), Kusupati et al.
2022 (Matryoshka, arXiv 2205.13147).
"""

import dataclasses
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import logging
from keras import ops

from bert_tf import described
from bert_tf import messages
from bert_tf.checkpoints import sentence_folder
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import sentence_encoder
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.tasks import columns
from bert_tf.tasks import metrics
from bert_tf.tasks import tsv
from bert_tf.tasks.features import sentences
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.retrieval import evaluation
from bert_tf.tasks.retrieval import files as retrieval_files
from bert_tf.tasks.retrieval import losses
from bert_tf.tasks.retrieval import options
from bert_tf.tasks.retrieval import ranking
from bert_tf.tasks.retrieval import report
from bert_tf.tasks.retrieval.corpora import Relevance
from bert_tf.tasks.retrieval.evaluation import Evaluation
from bert_tf.tasks.retrieval.files import RetrievalExamples
from bert_tf.tasks.retrieval.source import GroupSource
from bert_tf.tasks.retrieval.source import SingleSource
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.source import Source
from bert_tf.tasks.source import is_dev
from bert_tf.text.preprocessor import Preprocessor

FAMILY = "retrieval"
# {field of a task: field of a folder of sentence-transformers}.
_OF_VECTORS = {
    "pooling": "pooling",
    "normalize": "is_normalized",
    "query_prompt": "query_prompt",
    "passage_prompt": "passage_prompt",
}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class RetrievalTask(options.RetrievalOptions, Foreign):
    """How vectors of texts are made, and how they are trained.

    The fields, and what None stands for, are described in
    `options.RetrievalOptions`. The loss ignores `truncate_dim`.

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

    # Of Python alone: the program has no flags for them.
    dense_size: int | None = described.option(
        None,
        "Number of outputs of the dense layer. Default: the hidden size.",
        described.POSITIVE,
    )
    metric: str | None = described.option(
        None,
        "The score that compares epochs. Default: spearman or nDCG@10.",
        choices=(*options.CORRELATIONS, *ranking.QUERY_SCORES),
    )
    symmetric: bool = described.option(
        False,
        "Whether a positive must find its query, too.",
        stored_as="is_symmetric",
    )
    hard_negative_weight: float = described.option(
        0.0,
        "Added to the logits of a query's own hard negatives (Gao et al. 2021, "
        "arXiv 2104.08821, section 4.2: the logarithm of alpha).",
    )

    family = FAMILY
    model_class = BertSentenceEncoder
    accuracy = None

    def __post_init__(self):
        for field, value in self._defaults_of_loss().items():
            if getattr(self, field) is None:
                object.__setattr__(self, field, value)
        described.check(self)
        if self.dense_size is not None and self.head == options.NO_HEAD:
            raise ValueError(
                "`dense_size` must only be given with a `head`. "
                f"Received: dense_size={self.dense_size}, head='none'."
            )
        if self.symmetric and self.loss_name != options.MULTIPLE_NEGATIVES:
            raise ValueError(
                "`symmetric` must only be given with multiple_negatives. "
                f"Received: loss_name={self.loss_name!r}."
            )

    def _defaults_of_loss(self):
        """Returns the defaults that depend on the loss, {field: value}."""
        is_simcse = self.loss_name == options.SIMCSE
        is_scored = is_simcse or self.loss_name in options.SCORED
        return {
            "pooling": sentence_encoder.CLS
            if is_simcse
            else sentence_encoder.MEAN,
            "normalize": self.loss_name != options.TRIPLET,
            "head": options.TRAINING_DENSE if is_simcse else options.NO_HEAD,
            "metric": "spearman" if is_scored else "nDCG@10",
            "query_prompt": "",
            "passage_prompt": "",
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
    def is_in_batch(self) -> bool:
        return self.loss_name in options.IN_BATCH

    def make_model(
        self, config: BertConfig, **model_options: Any
    ) -> BertSentenceEncoder:
        """Returns a new `BertSentenceEncoder`."""
        # `__post_init__` has replaced None.
        assert self.pooling is not None and self.normalize is not None
        dense_size = None
        if self.head != options.NO_HEAD:
            dense_size = self.dense_size or config.hidden_size
        model = BertSentenceEncoder(
            config,
            pooling=self.pooling,
            dense_size=dense_size,
            has_dense_in_training_only=self.head == options.TRAINING_DENSE,
            is_normalized=self.normalize,
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

    @classmethod
    def checkpoint_fields(
        cls, folder: str, given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns how a folder of sentence-transformers makes vectors."""
        vectors = sentence_folder.read(folder)
        if vectors is None:
            return {}
        found: dict[str, Any] = {
            field: getattr(vectors, of_vectors)
            for field, of_vectors in _OF_VECTORS.items()
        }
        prompts = [
            {**found, **given}[name]
            for name in ("query_prompt", "passage_prompt")
        ]
        if not vectors.include_prompt and any(prompts):
            raise ValueError(
                f"{folder}: its prompts are left out of the pooling "
                "(include_prompt: false), which is not done here. "
                "--query_prompt and --passage_prompt must be empty. "
                f"Received: {', '.join(map(repr, prompts))}."
            )
        if vectors.dense and "head" not in given:
            _check_is_trainable(folder, vectors)
            found["head"] = options.DENSE
        if vectors.dense and given.get("head") != options.NO_HEAD:
            found["dense_size"] = vectors.dense_size
        return {name: found[name] for name in found if name not in given}

    def with_checkpoint_fields(self, folder: str) -> "RetrievalTask":
        """Returns the task with the checkpoint's `truncate_dim`, if unset.

        Warns of other differences.
        """
        vectors = sentence_folder.read_known(folder)
        if vectors is None:
            return self
        differences = [
            f"{field}={wanted!r}, not {found!r}"
            for field, of_vectors in _OF_VECTORS.items()
            if (found := getattr(vectors, of_vectors))
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
        size = self.truncate_dim
        if size is None and vectors.truncate_dim is not None:
            size = vectors.truncate_dim
            logging.info(
                "Vectors are truncated to %d numbers, as in %s. The loss uses "
                "whole vectors.",
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
                    self.symmetric,
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
            self._check_metric(options.CORRELATIONS, "scored pairs")
            if self.corpus_file:
                raise ValueError(
                    "`corpus_file` must not be given with scored pairs, which "
                    "do not search passages. Received: "
                    f"{messages.shortened([*map(str, self.corpus_file)])}."
                )
            return retrieval_files.read_scored(
                data, self._pair_columns(data), label_column, self.max_score
            )
        self._check_metric(ranking.QUERY_SCORES, "queries with passages")
        return retrieval_files.read_groups(
            data,
            names,
            is_ranking=True,
            corpus=self.corpus_file,
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
            sentences.num_prompt_tokens(prompt or "", preprocessor)
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
                    f"The passages of {split}", len(each.passages)
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
                count = messages.counted(
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
        """Returns an `Evaluation`, or the pairs' cosines, float64 `[N]`."""
        queries, passages = source.vectors(logits)
        pairs = source.examples.pairs
        if not source.examples.is_ranking:
            return ranking.cosines(queries[pairs[:, 0]], passages[pairs[:, 1]])
        # A repeated pair counts once.
        query_rows, corpus_rows = np.unique(pairs, axis=0).T
        relevance = Relevance(
            query_rows=query_rows,
            corpus_rows=corpus_rows,
            grades=np.ones(len(query_rows)),
        )
        return evaluation.evaluate(relevance, queries, passages)

    def read_answers(self, examples: RetrievalExamples, answers: Any) -> Any:
        """Returns {"score"} of each pair, or {"text", "score"} of each query.

        That is the text that the query finds first.
        """
        if not isinstance(answers, Evaluation):
            return [{"score": score} for score in answers.tolist()]
        return [
            {"text": examples.texts[text], "score": score}
            for text, score in zip(
                examples.passages[answers.first],
                answers.first_similarities.tolist(),
            )
        ]

    def evaluate(
        self, source: Any, logits: np.ndarray, answers: Any
    ) -> dict[str, float]:
        del logits
        if isinstance(answers, Evaluation):
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
        if isinstance(answers, Evaluation):
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
        header: tuple[str, ...] = ("cosine",)
        columns = [answers]
        if isinstance(answers, Evaluation):
            header = ("rank", "cosine_of_first")
            columns = [answers.best_ranks, answers.first_similarities]
        return tsv.write_results(output_dir, split, [*zip(*columns)], header)

    @property
    def _has_distinct_texts(self):
        return self.loss_name in (options.MULTIPLE_NEGATIVES, options.SIMCSE)

    def _check_metric(self, names, what):
        if self.metric not in names:
            raise ValueError(
                f"`metric` must be one of {', '.join(names)} with {what} to "
                f"evaluate on. Received: metric={self.metric!r}."
            )


def _check_is_trainable(folder, vectors):
    """Raises `ValueError` if no head is like the checkpoint's Dense layers."""
    if not vectors.is_trainable:
        found = [
            f"{each.activation} with{'out' * (each.bias is None)} a bias"
            for each in vectors.dense
        ]
        raise ValueError(
            f"{folder}: its Dense layers must be one, tanh with a bias: no "
            "other can be trained. --head=dense begins with a new one, "
            f"--head=none has none. Received: {', '.join(found)}."
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
