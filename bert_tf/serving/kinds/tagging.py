"""Tagging as it is served: the entities of sentences, and where they stand.

A sentence of any length is one string. The tokenizer splits it into words, at
white space and around punctuation. Each word gets the tag of its first piece,
in the window with the most context around it, as in training. A word of the
training data may be several of these words ("U.S."); the model learned from the
first.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import files
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.dev_set import DevSet
from bert_tf.serving.kinds.output import IS_CUT
from bert_tf.serving.kinds.output import Output
from bert_tf.serving.kinds.output import show_span
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.servable import repeat_names
from bert_tf.serving.kinds.texts import Row
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.tasks.tagging import task as tagging
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.tagging.windows import TaggingSource
from bert_tf.tasks.tagging.windows import WindowMaker
from bert_tf.tasks.tagging.windows import padded_outputs

_BATCH_SIZE = 64


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


class Tagging(Servable):
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
    MODEL = BertTokenClassifier
    DEFAULTS = Servable.DEFAULTS | {"max_windows": 256, "token_column": None}
    TAKES_PAIRS = False

    def decode(self, outputs: Any) -> dict[str, tf.Tensor]:
        return {
            "token_probabilities": tf.nn.softmax(outputs),
            "classes": repeat_names(self.task.labels, outputs),
        }

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        (strings,) = texts.values()
        strings, is_cut = self.cut(strings)
        answers = find_entities(strings, self._maker(), self.task, model)
        return answers | {"is_cut": answers["is_cut"] | is_cut}

    def hard_texts(self) -> list[Row]:
        return [(text,) for text in texts_lib.hard_uncut_texts()]

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

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        strings, is_cut = self.cut(tf.constant([text for (text,) in texts]))
        maker = self._maker()
        _, offsets = maker.tokenizer.tokenize_with_offsets(strings)
        num_pieces = offsets.starts.merge_dims(1, 2).row_lengths()
        logits = self._trained_logits(strings, maker)
        found = _entities_of_words(self.task, logits, offsets)
        found["is_cut"] = is_cut | (num_pieces > maker.max_pieces)
        return super().trained_answers(inputs, texts) | {
            name: value.numpy() for name, value in found.items()
        }

    def settle_ties(
        self,
        texts: Sequence[Row],
        trained: dict[str, np.ndarray],
        answers: dict[str, np.ndarray],
        tolerance: float,
    ) -> dict[str, np.ndarray]:
        # There are no ties to settle. The trained answers are padded or cut to
        # the number of entities answered: `num_entities` shows a difference.
        if "num_entities" not in answers:
            return trained
        most = answers["num_entities"].max(initial=0)
        if answers["labels"].shape[1:] != (most,):
            return trained
        after = [(0, 0), (0, max(0, most - trained["labels"].shape[1]))]
        return trained | {
            output.name: np.pad(
                trained[output.name], after, constant_values=output.missing
            )[:, :most]
            for output in _OF_ENTITIES
        }

    def _maker(self):
        return WindowMaker(self.preprocessor, self.options.max_windows)

    def _trained_logits(self, texts, maker):
        """Returns the logits of words, computed as in training's evaluation.

        Args:
            texts: string `[B]`.
            maker: The `WindowMaker`.

        Returns:
            RaggedTensor float32 `[B, (words), num_labels]`.
        """
        words = maker.tokenizer.split_words(texts)
        if not tf.size(words.flat_values):
            return words.with_flat_values(tf.zeros([0, len(self.task.labels)]))
        examples = TaggingExamples(
            path="",
            words=tuple(words.flat_values.numpy()),
            tags=None,
            row_lengths=words.row_lengths().numpy(),
            lines=(),
            line_indices=np.zeros(0, np.int32),
            separator=" ",
        )
        windows = TaggingSource(
            examples=examples, labels=self.task.labels, maker=maker
        )
        batches = windows.evaluation_batches(_BATCH_SIZE)
        logits = np.concatenate([self.model(batch) for batch in batches])
        logits_WK, is_read_W = windows.word_logits(logits)
        return words.with_flat_values(
            _outside_where(self.task, ~is_read_W, logits_WK)
        )


def find_entities(
    texts: tf.Tensor, maker: WindowMaker, task: tagging.TaggingTask, model: Any
) -> dict[str, tf.Tensor]:
    """Finds the entities of strings, with TensorFlow operations.

    Args:
        texts: string `[B]`.
        maker: A `WindowMaker`.
        task: The `TaggingTask`.
        model: The `TracedModel`.

    Returns:
        The answers to strings, {output: tensor}.
    """
    pieces_of_words, offsets = maker.tokenizer.tokenize_with_offsets(texts)
    pieces = pieces_of_words.merge_dims(1, 2)
    num_pieces = tf.cast(pieces.row_lengths(), tf.int32)
    num_windows = maker.num_windows(num_pieces)

    # Every window of every text.
    row_of_window = tf.repeat(tf.range(tf.size(num_windows)), num_windows)
    windows_before = tf.cumsum(num_windows, exclusive=True)
    window = tf.range(tf.size(row_of_window)) - tf.gather(
        windows_before, row_of_window
    )
    logits = chunks.compute_windows(
        maker.pack(pieces, row_of_window, window),
        model,
        padded_outputs,
        [None, len(task.labels)],
    )

    # The window and place of every word's first piece.
    row_of_word = tf.cast(pieces_of_words.value_rowids(), tf.int32)
    first = tf.cast(pieces_of_words.values.row_starts(), tf.int32)
    first -= tf.gather(tf.cast(pieces.row_starts(), tf.int32), row_of_word)
    window, place = maker.place(first, tf.gather(num_pieces, row_of_word))
    window += tf.gather(windows_before, row_of_word)
    # A word in no window is outside all entities.
    is_read = first < maker.max_pieces
    index = tf.stack([window, place], axis=1)
    logits_of_words = tf.gather_nd(
        logits, tf.where(is_read[:, tf.newaxis], index, 0)
    )
    logits_of_words = tf.RaggedTensor.from_row_splits(
        _outside_where(task, ~is_read, logits_of_words),
        pieces_of_words.row_splits,
        validate=False,
    )
    return _entities_of_words(task, logits_of_words, offsets) | {
        "is_cut": num_pieces > maker.max_pieces
    }


def _outside_where(task, is_unread, logits):
    """Returns logits `[W, num_labels]`; words that were not read get O's."""
    outside = task.labels.index(entity_tags.OUTSIDE)
    return tf.where(
        is_unread[:, tf.newaxis],
        tf.one_hot(outside, len(task.labels)),
        logits,
    )


def _entities_of_words(task, logits, offsets):
    """Returns the answers to strings, except `is_cut`.

    Args:
        task: The `TaggingTask`.
        logits: RaggedTensor float32 `[B, (words), num_labels]`.
        offsets: `Offsets` of the pieces, `[B, (words), (pieces)]`.
    """
    found = task.decode(logits)
    words_before = tf.cast(logits.row_starts(), tf.int32)[:, tf.newaxis]
    starts, limits = offsets.starts, offsets.limits
    starts = tf.gather(starts.flat_values, starts.values.row_starts())
    limits = tf.gather(limits.flat_values, limits.values.row_limits() - 1)
    return {
        "num_entities": found["num_entities"],
        "labels": found["labels"],
        "starts": _look_up(starts, words_before, found["first_words"]),
        "limits": _look_up(limits, words_before, found["last_words"]),
        "scores": found["scores"],
    }


def _look_up(values, words_before, words):
    """Returns the values of the words of each row, `[B, E]`; -1 for word -1."""
    # One value more than there are words, for the places without one.
    values = tf.concat([values, [-1]], axis=0)
    nowhere = tf.size(values) - 1
    return tf.gather(
        values, tf.where(words >= 0, words_before + words, nowhere)
    )
