"""Tagging as it is served: the entities of sentences, and where they stand.

A sentence of any length comes as one string. Its words are what the tokenizer
splits it to, at white space and round punctuation: each gets the tag of its
first piece, in the window that shows most round it, as in training. There a
word may have been several of these ("U.S."), whose first one was learned from.
"""

import numpy as np
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving.graph import chunks
from bert_tf.serving.graph import inputs as inputs_lib
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.servable import Servable
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.tagging.windows import TaggingSource
from bert_tf.tasks.tagging.windows import WindowMaker
from bert_tf.text import packing

# Of ids: the probabilities of every token's tags, [B, L, num_labels].
TOKEN_PROBABILITIES = "token_probabilities"
_BATCH_SIZE = 64
# What stands beyond the entities of a row.
_BEYOND = {"labels": b"", "starts": -1, "limits": -1, "scores": 0.0}


class Tagging(Servable):
    """Entities of strings, and the tags' probabilities of ids.

    To strings: `num_entities` int32 `[B]`, and `[B, E]`,
    E the most of a string of the batch: `labels` string, the types of the
    entities in order; `starts` and `limits` int32, places in the string in
    characters, which are Unicode code points: the first one and that after
    the last; `scores` float32, the least probability of the entity's tags.
    Beyond a string's entities stand "", -1, -1 and 0. And `is_cut` bool
    `[B]`: whether the string has an end that was not read, beyond
    `max_text_bytes` or `max_windows`.

    To ids `token_probabilities` float32 `[B, L, num_labels]`, and the tags in
    their order: `classes` string `[B, num_labels]`.

    Args:
        task: The `TaggingTask` that the model was tuned to.
    """

    KIND = "task"
    outputs_of_ids = (TOKEN_PROBABILITIES, "classes")
    outputs_of_strings = (
        "num_entities",
        "labels",
        "starts",
        "limits",
        "scores",
        "is_cut",
    )
    SCORES_OF_CHOICES = ("scores",)
    BOUNDS = ("max_text_bytes", "max_windows")
    max_windows = 256

    def __init__(self, task):
        self.task = task

    def check_text_features(self, text_features):
        if len(text_features) != 1:
            raise ValueError(
                "`text_features` must be one name for a tagger. "
                f"Received: text_features={','.join(text_features)}."
            )

    def load(self, model_dir, dtype=None):
        return checkpoints.load(
            model_dir,
            BertTokenClassifier,
            num_labels=len(self.task.labels),
            dtype=dtype,
        )

    def make_signatures(self, module, source):
        def answer_ids(inputs):
            probabilities = tf.nn.softmax(module(inputs, training=False))
            classes = tf.constant(self.task.labels)[tf.newaxis]
            batch_size = tf.shape(probabilities)[0]
            return {
                TOKEN_PROBABILITIES: probabilities,
                "classes": tf.tile(classes, [batch_size, 1]),
            }

        of_ids = signatures.of_ids(module, answer_ids)
        if module.preprocessor is None:
            return of_ids
        (name,) = source.text_features
        maker = WindowMaker(source.preprocessor, self.max_windows)

        def answer_texts(texts):
            strings, is_cut = inputs_lib.cut_texts(
                texts[name], self.max_text_bytes
            )
            answers = find_entities(
                strings,
                maker,
                self.task,
                lambda inputs: module(
                    module.from_model_inputs(inputs), training=False
                ),
            )
            return answers | {"is_cut": answers["is_cut"] | is_cut}

        return of_ids | signatures.of_strings(
            answer_texts, source.text_features
        )

    def hard_texts(self, num_strings):
        return [(text,) for text in texts_lib.hard_uncut_texts()]

    def read_texts(self, path):
        if not tagging_files.is_column_file(path):
            return None
        examples = tagging_files.read_columns(path)
        return [
            (" ".join(words).encode(),)
            for words in examples.by_sentence(examples.words)
        ]

    def trained_answers(self, source, inputs, texts):
        probabilities = tf.nn.softmax(source.model(inputs))
        classes = [label.encode("utf-8") for label in self.task.labels]
        return {
            TOKEN_PROBABILITIES: probabilities.numpy(),
            "classes": np.array([classes] * len(texts), object),
            features.INPUT_MASK: inputs[features.INPUT_MASK].numpy(),
            **self._trained_entities(source, texts),
        }

    def settle_ties(self, source, texts, trained, answers, tolerance):
        # Not ties, but room for as many entities as were answered: the rows
        # that have another number of them differ in that.
        if "num_entities" not in answers:
            return trained
        most = answers["num_entities"].max(initial=0)
        if answers["labels"].shape[1:] != (most,):
            return trained
        after = [(0, 0), (0, max(0, most - trained["labels"].shape[1]))]
        return trained | {
            name: np.pad(trained[name], after, constant_values=value)[:, :most]
            for name, value in _BEYOND.items()
        }

    def _trained_entities(self, source, texts):
        (strings,) = self.columns(texts)
        maker = WindowMaker(source.preprocessor, self.max_windows)
        answers = _trained_entities(source, maker, strings)
        is_long = [len(text) > self.max_text_bytes for (text,) in texts]
        return answers | {"is_cut": answers["is_cut"] | np.array(is_long)}


def find_entities(texts, maker, task, compute_logits):
    """Finds the entities of strings, in TensorFlow's operations.

    Args:
        texts: string `[B]`.
        maker: A `WindowMaker`.
        task: The `TaggingTask`.
        compute_logits: A function from model inputs `[N, L]` of windows to
            logits float32 `[N, L, num_labels]`.

    Returns:
        The answers to strings; see `Tagging`.
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
    inputs = packing.trim_padding(maker.pack(pieces, row_of_window, window))
    length = tf.shape(inputs[features.INPUT_IDS])[1]

    def compute_to_length(rows):
        logits = compute_logits(rows)
        after = length - tf.shape(logits)[1]
        return tf.pad(logits, [[0, 0], [0, after], [0, 0]])

    logits = chunks.compute_in_chunks(
        inputs, compute_to_length, chunks.CHUNK_SIZE, [None, len(task.labels)]
    )

    # The window and place of every word's first piece.
    row_of_word = tf.cast(pieces_of_words.value_rowids(), tf.int32)
    first = tf.cast(pieces_of_words.values.row_starts(), tf.int32)
    first -= tf.gather(tf.cast(pieces.row_starts(), tf.int32), row_of_word)
    window, place = maker.place(first, tf.gather(num_pieces, row_of_word))
    window += tf.gather(windows_before, row_of_word)
    # What is in no window is outside of all entities.
    is_read = (first < maker.max_pieces)[:, tf.newaxis]
    index = tf.where(is_read, tf.stack([window, place], axis=1), 0)
    outside = task.labels.index(entity_tags.OUTSIDE)
    logits_of_words = tf.where(
        is_read,
        tf.gather_nd(logits, index),
        tf.one_hot(outside, len(task.labels)),
    )
    found = task.decode(
        tf.RaggedTensor.from_row_splits(
            logits_of_words, pieces_of_words.row_splits, validate=False
        )
    )

    words_before = tf.cast(pieces_of_words.row_starts(), tf.int32)
    words_before = words_before[:, tf.newaxis]
    starts_of_words = _first_of_rows(offsets.starts)
    limits_of_words = _last_of_rows(offsets.limits)
    return {
        "num_entities": found["num_entities"],
        "labels": found["labels"],
        "starts": _look_up(starts_of_words, words_before, found["first_words"]),
        "limits": _look_up(limits_of_words, words_before, found["last_words"]),
        "scores": found["scores"],
        "is_cut": num_pieces > maker.max_pieces,
    }


def _first_of_rows(values):
    return tf.gather(values.flat_values, values.values.row_starts())


def _last_of_rows(values):
    return tf.gather(values.flat_values, values.values.row_limits() - 1)


def _look_up(values, words_before, words):
    """Returns [B, E] the values of words of a row, -1 for word -1."""
    # With one value more than there are words, for those that are none.
    values = tf.concat([values, [-1]], axis=0)
    nowhere = tf.size(values) - 1
    return tf.gather(
        values, tf.where(words >= 0, words_before + words, nowhere)
    )


def _trained_entities(source, maker, texts):
    """Returns what strings are answered, found as training's evaluation does.

    Args:
        source: The `Source`.
        maker: The `WindowMaker`.
        texts: string `[B]`.
    """
    preprocessor = source.preprocessor
    words = preprocessor.tokenizer.split_words(texts)
    _, offsets = preprocessor.tokenizer.tokenize_with_offsets(texts)
    starts, limits = offsets.starts.to_list(), offsets.limits.to_list()
    tags, scores = _trained_tags(source, maker, words)
    num_pieces = offsets.starts.merge_dims(1, 2).row_lengths().numpy()
    rows = []
    for row, tags_of_row in enumerate(tags):
        rows.append(
            [
                (
                    entity.type.encode("utf-8"),
                    starts[row][entity.start][0],
                    limits[row][entity.limit - 1][-1],
                    min(scores[row][entity.start : entity.limit]),
                )
                for entity in entity_tags.find_entities(tags_of_row)
            ]
        )
    most = max(map(len, rows))
    dtypes = {"labels": object, "scores": np.float32}
    answers = {
        name: np.full((len(rows), most), value, dtypes.get(name, np.int32))
        for name, value in _BEYOND.items()
    } | {
        "num_entities": np.array([len(row) for row in rows], np.int32),
        "is_cut": num_pieces > maker.max_pieces,
    }
    for row, entities in enumerate(rows):
        for index, entity in enumerate(entities):
            for name, value in zip(_BEYOND, entity):
                answers[name][row, index] = value
    return answers


def _trained_tags(source, maker, words):
    """Returns of each row the tags of its words, and their probabilities.

    Args:
        source: The `Source`.
        maker: The `WindowMaker`.
        words: RaggedTensor string `[B, (words)]`.
    """
    if not tf.size(words.flat_values):
        return ([[]] * words.shape[0],) * 2
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
        examples=examples,
        labels=source.task.labels,
        maker=maker,
    )
    batches = windows.evaluation_batches(_BATCH_SIZE)
    logits = np.concatenate([source.model(batch) for batch in batches])
    logits_of_words, _ = windows.word_logits(logits)
    probabilities = tf.nn.softmax(logits_of_words).numpy().max(axis=-1)
    return (
        examples.by_sentence(windows.predict(logits)),
        examples.by_sentence(probabilities),
    )
