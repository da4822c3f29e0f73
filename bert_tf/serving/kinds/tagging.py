"""Tagging as it is served: the entities of sentences, and where they stand."""

from typing import Any

import tensorflow as tf

from bert_tf import files
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_span
from bert_tf.serving.kinds.servable import repeat_names
from bert_tf.serving.kinds.texts import Row
from bert_tf.serving.kinds.words import WordOutputs
from bert_tf.serving.kinds.words import Words
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging import files as tagging_files


def _show_entities(answers):
    entities = zip(
        answers["labels"][: answers["num_entities"]],
        answers["starts"],
        answers["limits"],
        answers["scores"],
    )
    return ", ".join(
        f"{label.decode()} {show_span(*span)} {score:.3f}"
        for label, *span, score in entities
    )


_OF_ENTITIES = (
    Output(
        name="labels",
        dtype="string",
        axes="entities",
        meaning="their types, in order",
        missing=b"",
        heading="entities",
        show=_show_entities,
    ),
    # Characters are Unicode code points.
    Output(
        name="starts",
        dtype="int32",
        axes="entities",
        meaning="where they start in the text",
        missing=-1,
    ),
    Output(
        name="limits",
        dtype="int32",
        axes="entities",
        meaning="where they end, exclusive",
        missing=-1,
    ),
    Output(
        name="scores",
        dtype="float32",
        axes="entities",
        meaning="the least probability of the entity's tags",
        missing=0.0,
        is_of_choice=True,
    ),
)


# The outputs that identify an entity in an answer.
_PLACES = ("labels", "starts", "limits")


class Tagging(Words):
    """Entities of strings; for ids, the probabilities of tags.

    The model was tuned to a `TaggingTask`.
    """

    outputs_of_strings = (
        Output("num_entities", "int32", "", "how many entities there are"),
        *_OF_ENTITIES,
        # True if the end of the text was not read, beyond `max_text_bytes` or
        # `max_windows`.
        IS_CUT,
    )
    outputs_of_ids = (
        Output(
            name="token_probabilities",
            dtype="float32",
            axes="length tags",
            meaning="the probabilities of every token's tags",
        ),
        Output("classes", "string", "tags", "the tags, in this order"),
    )
    COUNT = "num_entities"
    DEFAULTS = Words.DEFAULTS | {"token_column": None}

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {
            "token_probabilities": tf.nn.softmax(outputs),
            "classes": repeat_names(self.task.labels, outputs),
        }

    def answer_words(self, words: WordOutputs) -> dict[str, tf.Tensor]:
        # A word that was not read is outside all entities.
        outside = self.task.labels.index(entity_tags.OUTSIDE)
        logits = words.outputs.with_flat_values(
            tf.where(
                words.is_read[:, tf.newaxis],
                words.outputs.flat_values,
                tf.one_hot(outside, len(self.task.labels)),
            )
        )
        found = self.task.find_entities(logits)
        words_before = tf.cast(logits.row_starts(), tf.int32)[:, tf.newaxis]
        return {
            "num_entities": found["num_entities"],
            "labels": found["labels"],
            "starts": _look_up(
                words.starts, words_before, found["first_words"]
            ),
            "limits": _look_up(words.limits, words_before, found["last_words"]),
            "scores": found["scores"],
        }

    def read_texts(self, path: files.AnyPath) -> list[Row]:
        examples = self._read_columns(path, self.options.label_column)
        if examples is None:
            return super().read_texts(path)
        return [
            (" ".join(words).encode(),)
            for words in examples.by_sentence(examples.words)
        ]

    def _read_columns(self, path, tag_column):
        """Returns a column file's `TaggingExamples`; None for other files."""
        token_column = self.options.token_column
        is_column_named = token_column is not None or tag_column is not None
        if not is_column_named and not tagging_files.is_column_file(path):
            return None
        return tagging_files.read_columns(
            path,
            tagging_files.parse_column(token_column, 0),
            tagging_files.parse_column(tag_column, -1),
        )

    def read_dev_set(
        self, path: files.AnyPath, label_column: str | None = None
    ) -> DevSet | None:
        examples = self._read_columns(path, label_column)
        if examples is None:
            return None
        wanted = [
            {*entity_tags.in_characters(words, entities)}
            for words, entities in zip(
                examples.by_sentence(examples.words),
                entity_tags.find_entities(examples.by_sentence(examples.tags)),
            )
        ]

        def score(answers):
            found = [
                {
                    (label.decode(), int(start), int(limit))
                    for label, start, limit in zip(*columns)
                    if start >= 0
                }
                for columns in zip(*(answers[name] for name in _PLACES))
            ]
            return entity_scores.entity_f1(found, wanted)

        # Entities are compared by characters: clients do not know the words.
        return DevSet(
            metric="f1 of entities",
            num_texts=len(wanted),
            outputs=_PLACES,
            score=score,
        )


def _look_up(values, words_before, words):
    """Returns the values of the words of each row, `[B, E]`; -1 for word -1."""
    # One value more than there are words, for the places without one.
    values = tf.concat([values, [-1]], axis=0)
    nowhere = tf.size(values) - 1
    return tf.gather(
        values, tf.where(words >= 0, words_before + words, nowhere)
    )
