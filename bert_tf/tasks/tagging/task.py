"""The family of tagging tasks: entities in sentences, one tag per word.

The method is Devlin et al. 2018, section 5.3: a word's tag is predicted from
its first piece, without any rule about which tag may follow which.
"""

import dataclasses
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Self

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import messages
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import parts
from bert_tf.checkpoints.reader import Checkpoint
from bert_tf.config import BertConfig
from bert_tf.features import Tensor
from bert_tf.models import objectives
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks import class_names
from bert_tf.tasks import columns
from bert_tf.tasks import task_folder
from bert_tf.tasks.distillable import Distillable
from bert_tf.tasks.foreign import Foreign
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.tasks.tagging import report
from bert_tf.tasks.tagging import windows
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.tagging.windows import TaggingSource
from bert_tf.tasks.tagging.windows import WindowMaker
from bert_tf.tasks.tagging.windows import WordTags
from bert_tf.tasks.task import check_has_labels
from bert_tf.text.preprocessor import Preprocessor

FAMILY = "tagging"


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingTask(Distillable, Foreign):
    """Which tags a model gives to words (Devlin et al. 2018, section 5.3).

    Args:
        scheme: One of `entity_tags.SCHEMES`: how the training tags mark
            entities. Without it, the labels or the training data show it.
        labels: The tags by class id; one is "O". Without them `tuning.run`
            finds them in the training data.

    Raises:
        ValueError: If a value is out of its range; it names the field.

    Example:

        >>> from bert_tf import TaggingTask
        >>> task = TaggingTask(scheme="bio", labels=("O", "B-PER", "I-PER"))
        >>> task.to_dict()["labels"]
        ['O', 'B-PER', 'I-PER']
    """

    family = FAMILY
    model_class = BertTokenClassifier
    label_rank = 2
    has_label_weights = True
    main_metric = "eval_f1"
    accuracy = "token_accuracy"
    report_scores = report.SCORES
    source_class = TaggingSource

    scheme: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self):
        if self.scheme not in ("", *entity_tags.SCHEMES):
            raise ValueError(
                f"`scheme` must be one of {', '.join(entity_tags.SCHEMES)}. "
                f"Received: scheme={messages.shortened(self.scheme)}."
            )
        labels = self.labels
        if labels == ():
            return
        if (
            not isinstance(labels, (tuple, list))
            or not all(
                isinstance(tag, str) and entity_tags.is_tag(tag)
                for tag in labels
            )
            or len(set(labels)) != len(labels)
            or len(labels) < 2
            or entity_tags.OUTSIDE not in labels
        ):
            raise ValueError(
                "`labels` must be a list of different tags: O, and at least "
                "one of B-, I-, E-, S-, L- or U- with a type. "
                f"Received: labels={messages.shortened(labels)}."
            )
        object.__setattr__(self, "labels", tuple(labels))
        if not self.scheme:
            scheme = entity_tags.detect_scheme([[tag] for tag in labels])
            object.__setattr__(self, "scheme", scheme)

    @property
    def lacks_labels(self) -> bool:
        return not self.labels

    @classmethod
    def from_checkpoint(
        cls, checkpoint: Checkpoint, text_features: tuple[str, ...] = ()
    ) -> Self | None:
        """Returns the task whose tags are the names in config.json."""
        del text_features
        if parts.TOKEN_CLASSIFIER not in checkpoint.found_parts:
            return None
        return cls._from_label_names(checkpoint.folder)

    @classmethod
    def _from_label_names(cls, folder):
        labels = model_folder.read_label_names(folder) or ()
        path = f"{folder}/{model_folder.CONFIG_FILE}"
        with messages.errors_named(f"{path}, id2label"):
            task = cls(labels=labels)
            check_has_labels(task)
            return task

    def make_model(
        self, config: BertConfig, **options: Any
    ) -> BertTokenClassifier:
        """Returns a new `BertTokenClassifier`."""
        return BertTokenClassifier(config, **self.model_arguments(), **options)

    def model_arguments(self) -> dict[str, Any]:
        check_has_labels(self)
        return {"num_labels": len(self.labels)}

    def losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        return objectives.cross_entropy(logits, labels)

    def read(
        self, data: Any, split: str, label_column: int | str | None = None
    ) -> TaggingExamples:
        """Returns the `TaggingExamples` of a column file, or of a table.

        A table (see `columns.read`) has a column `words`, lists of strings,
        and a column of their tags, called `tags` by default. In a column file
        the tags are in the last column by default; see `files.read_columns`.
        """
        if not columns.may_have_lists(data):
            column = -1 if label_column is None else label_column
            return tagging_files.read_columns(
                data, tag_column=column, has_tags=split != TEST
            )
        names: list[Any] = ["words"]
        if split != TEST:
            names.append("tags" if label_column is None else label_column)

        def rows():
            for where, values in columns.read(data, names):
                for name, texts in zip(names, values):
                    columns.check_texts(where, name, texts)
                words, *tags = values
                yield where, words, tags[0] if tags else None

        return tagging_files.from_rows(
            columns.title(data), rows(), split != TEST, self.labels
        )

    def read_training(
        self, data: Any, **options: Any
    ) -> tuple[Self, TaggingExamples]:
        examples = self.read(data, TRAIN, **options)
        return self.with_tags_of(examples), examples

    def with_tags_of(self, examples: TaggingExamples) -> Self:
        """Returns the task, with the tags of examples if it has none.

        Args:
            examples: The training examples.

        Raises:
            ValueError: If there is no entity in them.
        """
        if not self.lacks_labels:
            return self
        sentences = examples.by_sentence(examples.tags)
        scheme = self.scheme or entity_tags.detect_scheme(sentences)
        labels = entity_tags.make_labels(sentences, scheme)
        if len(labels) == 1:
            raise ValueError(f"{examples.path}: there is no entity in it.")
        logging.info(
            "%s: found the scheme %s and the tags %s.",
            examples.path,
            scheme,
            class_names.listed(labels),
        )
        return dataclasses.replace(self, scheme=scheme, labels=labels)

    def source_arguments(self, preprocessor: Preprocessor) -> dict[str, Any]:
        return {"labels": self.labels, "maker": WindowMaker(preprocessor)}

    def prediction_model(
        self, model: keras.Model, max_seq_length: int
    ) -> Callable[..., Tensor]:
        return windows.padded_outputs(model, max_seq_length)

    def answers(self, source: TaggingSource, logits: np.ndarray) -> WordTags:
        """Returns the `WordTags` of all words."""
        return source.predict(logits)

    def read_answers(self, examples: TaggingExamples, answers: WordTags) -> Any:
        """Returns a list of entities for each sentence.

        Its text is that of its words, joined by blanks.
        """
        words, tags, scores = map(
            examples.by_sentence, (examples.words, *answers)
        )
        return [
            [
                _entity(
                    " ".join(own),
                    *place,
                    min(own_scores[entity.start : entity.limit]),
                )
                for place, entity in zip(
                    entity_tags.in_characters(own, entities), entities
                )
            ]
            for own, own_scores, entities in zip(
                words, scores, entity_tags.find_entities(tags)
            )
        ]

    def read_outputs(
        self,
        found: Mapping[str, np.ndarray],
        rows: Sequence[Any] | None = None,
        top_k: int | None = None,
    ) -> list[Any]:
        """Returns a list of entities for each row of one text."""
        names = ("labels", "starts", "limits", "scores")
        columns = (found[name].tolist() for name in names)
        return [
            [
                _entity(text, label.decode(), *others)
                for label, *others in list(zip(*entities))[:count]
            ]
            for (text,), count, *entities in zip(
                rows or (), found["num_entities"], *columns
            )
        ]

    def evaluate(
        self, source: TaggingSource, logits: np.ndarray, answers: WordTags
    ) -> dict[str, float]:
        predicted, right = map(
            source.examples.by_sentence, (answers.tags, source.examples.tags)
        )
        results = {"loss": source.loss(logits)}
        results |= entity_scores.score_tags(predicted, right)
        return {f"eval_{name}": results[name] for name in results}

    def report_sections(
        self,
        examples: TaggingExamples,
        answers: WordTags,
        results: dict[str, float],
    ) -> list[tuple[str, str]]:
        del results
        return report.sections(self, examples, answers.tags)

    def write_predictions(
        self,
        output_dir: str,
        split: str,
        examples: TaggingExamples,
        answers: WordTags,
    ) -> str:
        """Writes the lines that were read, with a column of tags added."""
        path = os.path.join(output_dir, f"{split}_predictions.txt")
        tagging_files.write_predictions(path, examples, answers.tags)
        counted = messages.counted(len(answers.tags), "tag", "tags")
        return f"{counted} in {path}"

    def find_entities(self, logits: tf.RaggedTensor) -> dict[str, tf.Tensor]:
        """Finds the entities of every row, in TensorFlow's own operations.

        `entity_tags.locate_entities` says what an entity is.

        Args:
            logits: RaggedTensor float32 `[B, (words), num_labels]`: the logits
                of every word's first piece.

        Returns:
            A dictionary: `num_entities` int32 `[B]`; and, with E the most
            entities of a row, `[B, E]`: `labels` string, the types ("" beyond
            a row's entities); `first_words` and `last_words` int32, numbers in
            the row (-1 beyond); `scores` float32, the lowest probability of
            the entity's tags (0 beyond).
        """
        tag_W = tf.argmax(logits.flat_values, axis=-1, output_type=tf.int32)
        found = entity_tags.locate_entities(
            logits.with_flat_values(tag_W), self.labels
        )
        scores_E = tf.math.unsorted_segment_min(
            tf.reduce_max(tf.nn.softmax(logits.flat_values), axis=-1),
            found["entities"],
            tf.size(found["first_words"]),
        )

        def as_rows(values, beyond):
            rows = tf.RaggedTensor.from_row_lengths(
                values, found["counts"], validate=False
            )
            return rows.to_tensor(beyond)

        return {
            "num_entities": found["counts"],
            "labels": as_rows(found["types"], ""),
            "first_words": as_rows(found["first_words"], -1),
            "last_words": as_rows(found["last_words"], -1),
            "scores": as_rows(scores_E, 0.0),
        }


def _entity(text, label, start, end, score):
    return {
        "text": text[start:end],
        "label": label,
        "start": start,
        "end": end,
        "score": float(score),
    }


def tuned_task(folder: str) -> TaggingTask:
    """Returns the `TaggingTask` of a model folder.

    A folder that transformers wrote has no task.json. Its tags are the names
    of the classes in config.json.

    Raises:
        ValueError: If the folder was tuned to another task, or names no tags.
    """
    task = task_folder.stored_task(folder, TaggingTask)
    return TaggingTask._from_label_names(folder) if task is None else task
