"""The family of tagging tasks: entities in sentences, a tag a word.

The method is Devlin et al. 2018, section 5.3: a word's tag is predicted from
its first piece, without any rule of which tag may follow which. Programs,
`keras.Model.fit`, the training loop and the exporter work from one
`TaggingTask`; a fine-tuned model's folder holds it as task.json.
"""

import dataclasses

import keras
import tensorflow as tf
from keras import ops

from bert_tf import features
from bert_tf import files
from bert_tf.checkpoints import model_folder
from bert_tf.models import objectives
from bert_tf.models.objectives import Objective
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.tasks import task_folder
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import entity_tags

FAMILY = "tagging"
# The label of a token that is no word's first piece.
IGNORED = -1


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingTask:
    """Which tags a model gives to words.

    Args:
        scheme: One of `entity_tags.SCHEMES`: how training's tags mark entities.
        labels: The tags by class id; one is "O".

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    scheme: str
    labels: tuple[str, ...]

    def __post_init__(self):
        if self.scheme not in tuple(entity_tags.SCHEMES):
            raise ValueError(
                f"`scheme` must be one of {', '.join(entity_tags.SCHEMES)}. "
                f"Received: scheme={files.shortened(self.scheme)}."
            )
        labels = self.labels
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
                "one of B-, I-, E- or S- with a type. "
                f"Received: labels={files.shortened(labels)}."
            )
        object.__setattr__(self, "labels", tuple(labels))

    @property
    def family(self):
        return FAMILY

    @property
    def main_metric(self):
        """The result of an evaluation that tells the better model."""
        return "eval_f1"

    def to_dict(self):
        """Returns what task.json holds: the family and the fields."""
        return {
            "family": FAMILY,
            "scheme": self.scheme,
            "labels": list(self.labels),
        }

    @classmethod
    def from_dict(cls, values):
        """Reads what `to_dict` returns.

        Raises:
            ValueError: If it is of another family, a key is missing or
                unknown, or a value is out of its range.
        """
        task_folder.check_task(values, FAMILY, ("scheme", "labels"))
        return cls(scheme=values["scheme"], labels=values["labels"])

    def make_model(self, config, dtype=None):
        """Returns a new `BertTokenClassifier`."""
        return BertTokenClassifier(config, len(self.labels), dtype=dtype)

    def takes_head_of(self, values):
        """Returns whether a head tuned to that task is one for this."""
        labels = values.get("labels")
        return values.get("family") == FAMILY and labels == list(self.labels)

    def loss(self):
        """Returns the Keras loss of the logits: mean over the words."""
        return _mean_over_words

    @property
    def fit_metrics(self):
        """Nothing but the loss."""
        return None

    def objective(self):
        """Returns the same loss for `training.loop`, and the accuracy.

        A batch has the model inputs, `labels` int32 `[B, L]`, `IGNORED` where
        there is nothing to learn, and optionally `example_weights` float32
        `[B]`, 0 for windows that only fill the batch.
        """

        return Objective.of_elements(
            _word_weights,
            lambda outputs, batch: _cross_entropy(
                outputs, batch[features.LABELS]
            ),
            "token_accuracy",
        )

    def decode(self, logits):
        """Finds the entities of every row, in TensorFlow's own operations.

        What is an entity is `entity_tags.locate_entities`'s to say.

        Args:
            logits: RaggedTensor float32 `[B, (words), num_labels]`: those of
                every word's first piece.

        Returns:
            A dictionary: `num_entities` int32 `[B]`, and `[B, E]`, filled up
            to the most of a row, `labels` string, the types ("" beyond a row's
            entities); `first_words` and `last_words` int32, numbers in the
            row (-1 beyond); `scores` float32, the least of the probabilities
            of the entity's tags (0 beyond).
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

    def scores(self, tags, wanted):
        """Returns the scores of all sentences; see `entity_scores`.

        Args:
            tags: Of each sentence the list of its predicted tags.
            wanted: Likewise, the right ones.
        """
        return entity_scores.score_tags(tags, wanted)


def tuned_task(folder):
    """Returns the `TaggingTask` of a model folder.

    One that transformers wrote has no task.json: there the tags are the names
    of the classes in config.json.

    Raises:
        ValueError: If the folder was tuned to another task, or names no tags.
    """
    task = task_folder.stored_task(folder, TaggingTask)
    if task is not None:
        return task
    labels = model_folder.read_label_names(folder) or ()
    try:
        task = TaggingTask(scheme=entity_tags.BIO, labels=labels)
    except ValueError as error:
        path = f"{folder}/{model_folder.CONFIG_FILE}"
        raise ValueError(f"{path}, id2label: {error}") from error
    scheme = entity_tags.detect_scheme([[tag] for tag in task.labels])
    return dataclasses.replace(task, scheme=scheme)


def _cross_entropy(logits, labels):
    """Returns the loss of every token, float32 [B, L]; any where ignored."""
    logits_BLK = ops.cast(logits, "float32")
    labels_BL1 = ops.expand_dims(ops.maximum(labels, 0), axis=-1)
    picked_BL1 = ops.take_along_axis(
        logits_BLK, ops.cast(labels_BL1, "int32"), axis=-1
    )
    return ops.logsumexp(logits_BLK, axis=-1) - picked_BL1[:, :, 0]


@keras.saving.register_keras_serializable(package="bert_tf")
def _mean_over_words(labels, logits):
    """The loss of all replicas' words as Keras takes it.

    Keras divides by the tokens of a replica and by the number of replicas.
    """
    weights_BL = ops.cast(ops.not_equal(labels, IGNORED), "float32")
    num_words, num_replicas = ops.sum(weights_BL), 1
    context = tf.distribute.get_replica_context()
    if context is not None:
        num_words = context.all_reduce("sum", num_words)
        num_replicas = context.num_replicas_in_sync
    num_tokens = ops.cast(ops.size(weights_BL) * num_replicas, "float32")
    return ops.divide_no_nan(
        weights_BL * _cross_entropy(logits, labels) * num_tokens, num_words
    )


def _word_weights(batch):
    weights_BL = ops.cast(
        ops.not_equal(batch[features.LABELS], IGNORED), "float32"
    )
    weights_B = objectives.example_weights(batch)
    return weights_BL * ops.expand_dims(weights_B, axis=-1)
