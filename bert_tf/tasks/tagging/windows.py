"""Windows of sentences, turned into model inputs in tf.data.

A word may have many pieces; the first one is given the word's tag. A sentence
that is too long for one sequence is cut into windows, each half a window after
the one before. A word is tagged in the window with the most context on both
sides of its first piece. This is the same in training, evaluation and serving.

Letters: B windows, L sequence length, W words of all sentences of a batch.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.tasks import source
from bert_tf.tasks.source import Source
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.task import with_weights
from bert_tf.text import packing
from bert_tf.text.preprocessor import Preprocessor

_COUNTING_BATCH = 8192
# Logits at positions beyond a trimmed batch.
_PADDING_LOGIT = -1e9


class WindowMaker(tf.Module):
    """Makes the windows of sentences.

    Args:
        preprocessor: A `Preprocessor`; its `max_seq_length` is L.
        max_windows: How many windows a sentence has at most; None for any
            number. Words that begin after the last one are not tagged.

    Raises:
        ValueError: If there is no room for a piece.
    """

    def __init__(
        self, preprocessor: Preprocessor, max_windows: int | None = None
    ) -> None:
        super().__init__(name="window_maker")
        # [CLS] and [SEP].
        self.room = preprocessor.max_seq_length - 2
        if self.room < 1:
            raise ValueError(
                "`max_seq_length` must be at least 3. Received: "
                f"max_seq_length={preprocessor.max_seq_length}."
            )
        self.step = (self.room + 1) // 2
        self.max_pieces = tf.int32.max
        if max_windows is not None:
            longest = self.room + (max_windows - 1) * self.step
            self.max_pieces = min(longest, tf.int32.max)
        self.tokenizer = preprocessor.tokenizer.for_words()
        self.vocabulary = preprocessor.vocabulary
        self.max_seq_length = preprocessor.max_seq_length
        # Traced once, for all batch sizes and uses.
        ragged = functools.partial(tf.RaggedTensorSpec, [None, None])
        self._make = tf.function(
            self._make_windows,
            autograph=False,
            input_signature=[
                ragged(tf.string),
                tf.RaggedTensorSpec([None, None, 2], tf.float32, 1),
                *[tf.TensorSpec([None], tf.int32)] * 3,
            ],
        )

    def num_windows(self, num_pieces: tf.Tensor) -> tf.Tensor:
        """Returns how many windows sentences have, int32 `[N]`.

        Args:
            num_pieces: int32 `[N]`; a sentence without pieces has one window.
        """
        num_pieces = tf.minimum(num_pieces, self.max_pieces)
        left = tf.maximum(num_pieces - self.room, 0)
        return 1 + (left + self.step - 1) // self.step

    def place(
        self, piece: tf.Tensor, num_pieces: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns in which window, and where in it, a piece is tagged.

        That is the window with the most pieces on the side where it has fewer
        of them; of equal windows, the first one.

        Args:
            piece: int32 `[N]`: the piece's number in its sentence, less than
                `max_pieces`.
            num_pieces: int32 `[N]`: how many pieces that sentence has.

        Returns:
            Two int32 `[N]`: the window's number, and the position in the
            sequence.
        """
        # A piece is in two windows at most: a window is no longer than two
        # steps.
        later = piece // self.step
        earlier = later - 1
        window = tf.where(
            self._context(piece, earlier, num_pieces)
            >= self._context(piece, later, num_pieces),
            earlier,
            later,
        )
        return window, piece - window * self.step + 1

    def _context(self, piece, window, num_pieces):
        """Returns the pieces on the side with fewer, negative if not inside."""
        left = piece - window * self.step
        length = tf.minimum(num_pieces - window * self.step, self.room)
        context = tf.minimum(left, length - 1 - left)
        is_window = (window >= 0) & (window < self.num_windows(num_pieces))
        return tf.where(is_window, context, -1)

    def pack(
        self,
        pieces: tf.RaggedTensor,
        rows: tf.Tensor,
        windows: tf.Tensor,
        first_pieces: tf.Tensor | int = 0,
    ) -> dict[str, tf.Tensor]:
        """Returns the model inputs of windows, int32 `[B, L]`.

        Args:
            pieces: RaggedTensor int32 `[N, (pieces)]`, of sentences.
            rows: int32 `[B]`: which sentence each window is of.
            windows: int32 `[B]`: the windows' numbers.
            first_pieces: int32 `[B]`: the number in its sentence of the first
                of a row's pieces, if the row does not begin the sentence.
        """
        start = windows * self.step - first_pieces
        left = tf.gather(tf.cast(pieces.row_lengths(), tf.int32), rows) - start
        inside = packing.take(
            pieces, rows, start, tf.clip_by_value(left, 0, self.room)
        )
        return packing.pack([inside], self.max_seq_length, self.vocabulary)

    def __call__(
        self,
        words: tf.RaggedTensor,
        labels: tf.RaggedTensor,
        windows: tf.Tensor,
        first_pieces: tf.Tensor,
        num_pieces: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Makes one window of each sentence.

        Args:
            words: RaggedTensor string `[B, (words)]`: the words that have a
                piece in the window, or more of the sentence.
            labels: RaggedTensor float32 `[B, (words), 2]`: labels and weights.
            windows: int32 `[B]`: the windows' numbers.
            first_pieces: int32 `[B]`: how many pieces of the sentence come
                before these words.
            num_pieces: int32 `[B]`: how many pieces the whole sentence has.

        Returns:
            A dictionary: the model inputs and `labels`, float32 `[B, L, 2]`:
            the words' labels and weights at the first pieces of those that are
            tagged in this window, and weights of 0 at all other tokens.
        """
        made = self._make(words, labels, windows, first_pieces, num_pieces)
        for value in made.values():
            rest = value.shape[2:]
            value.set_shape([*windows.shape, self.max_seq_length, *rest])
        return made

    def _make_windows(self, words, labels, windows, first_pieces, num_pieces):
        # A word of nothing but control characters has no pieces.
        pieces_of_words = self.tokenizer.tokenize(words.flat_values).merge_dims(
            1, 2
        )
        pieces = tf.RaggedTensor.from_row_splits(
            pieces_of_words.flat_values,
            tf.gather(pieces_of_words.row_splits, words.row_splits),
            validate=False,
        )
        row_W = tf.cast(words.value_rowids(), tf.int32)
        first_W = tf.cast(
            pieces_of_words.row_starts()
            - tf.gather(pieces.row_starts(), row_W),
            tf.int32,
        )
        window_W, place_W = self.place(
            first_W + tf.gather(first_pieces, row_W),
            tf.gather(num_pieces, row_W),
        )
        is_here_W = (window_W == tf.gather(windows, row_W)) & (
            pieces_of_words.row_lengths() > 0
        )
        index = tf.boolean_mask(tf.stack([row_W, place_W], 1), is_here_W)
        labels_BL2 = tf.scatter_nd(
            index,
            tf.boolean_mask(labels.flat_values, is_here_W),
            tf.stack([tf.size(windows), self.max_seq_length, 2]),
        )
        return self.pack(
            pieces, tf.range(tf.size(windows)), windows, first_pieces
        ) | {features.LABELS: labels_BL2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordSource(Source):
    """Sentences of labelled words as windows: a row is a window.

    The batches are dictionaries of the model inputs and, if the words have
    labels, `labels`, float32 `[B, L, 2]` with their weights.

    Args:
        examples: Has `words`, W strings, and `row_lengths`, int `[N]`.
        maker: The `WindowMaker`.
    """

    unit = "windows"

    examples: Any
    maker: WindowMaker

    @property
    @abc.abstractmethod
    def word_labels(self) -> np.ndarray | None:
        """float32 `[W, 2]`: the words' labels and weights, if there are any."""

    @functools.cached_property
    def num_windows(self) -> np.ndarray:
        """int32 `[N]`: how many windows every sentence has."""
        return self.maker.num_windows(self._pieces_of_sentences).numpy()

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        sentences, windows = source.window_rows(self.num_windows)
        return {"sentence": sentences, "window": windows}

    @property
    def lengths(self) -> np.ndarray:
        left = (
            self._pieces_of_sentences[self.arrays["sentence"]]
            - self.arrays["window"] * self.maker.step
        )
        return np.minimum(left, self.maker.room)

    @functools.cached_property
    def word_ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Two int32 `[num_examples]`: which words have a piece in a window.

        They are the words from the first number up to, but not including, the
        second; words are counted over all sentences. To tokenize the whole
        sentence for each of its windows would cost the square of its length.
        """
        sentences, windows = self.arrays["sentence"], self.arrays["window"]
        num_pieces = self._pieces_of_sentences[sentences]
        first = self._sentence_starts[sentences] + windows * self.maker.step
        left = num_pieces - windows * self.maker.step
        limit = first + np.minimum(left, self.maker.room)
        first_words = np.searchsorted(self._word_starts[1:], first, "right")
        limits = np.searchsorted(self._word_starts[:-1], limit, "left")
        # In a sentence without pieces no word has one.
        limits = np.maximum(limits, first_words)
        return first_words.astype(np.int32), limits.astype(np.int32)

    def input_maker(self) -> Callable[[Batch], Batch]:
        words, labels = tf.constant(self.examples.words), self.word_labels
        has_labels = labels is not None
        if not has_labels:
            labels = np.zeros((len(self.examples.words), 2), np.float32)
        labels = tf.constant(labels)
        first_words, limits = map(tf.constant, self.word_ranges)
        sentences = self.arrays["sentence"]
        first_pieces = tf.constant(
            self._word_starts[self.word_ranges[0]]
            - self._sentence_starts[sentences],
            tf.int32,
        )
        num_pieces = tf.constant(self._pieces_of_sentences)
        windows_before = tf.cumsum(self.num_windows, exclusive=True)

        def make(batch):
            row = tf.gather(windows_before, batch["sentence"]) + batch["window"]
            index = tf.ragged.range(
                tf.gather(first_words, row), tf.gather(limits, row)
            )
            made = self.maker(
                index.with_flat_values(tf.gather(words, index.flat_values)),
                index.with_flat_values(tf.gather(labels, index.flat_values)),
                batch["window"],
                tf.gather(first_pieces, row),
                tf.gather(num_pieces, batch["sentence"]),
            )
            if self.is_trimmed:
                length = tf.shape(self._trim(made)[features.INPUT_IDS])[1]
                made = {name: made[name][:, :length] for name in made}
            if not has_labels:
                del made[features.LABELS]
            return made

        return make

    @property
    def num_kept(self) -> int:
        return len(self.examples.words)

    def kept(self, logits: np.ndarray, start: int) -> np.ndarray:
        """Returns the logits of the words that are tagged in some windows.

        Args:
            logits: float32 `[B, L, num_labels]`, of windows.
            start: As in `Source.kept`.
        """
        windows, places, _ = self.word_places
        words = slice(*np.searchsorted(windows, [start, start + len(logits)]))
        return logits[windows[words] - start, places[words]]

    @functools.cached_property
    def word_places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where words are tagged: int `[W]`, their windows, in rising order.

        Also int `[W]`, the places in the windows; and bool `[W]`, which words
        have their first piece in a window: the places of others mean nothing.
        """
        num_pieces = self._pieces_of_words
        sentence = np.repeat(
            np.arange(len(self.examples.row_lengths)),
            self.examples.row_lengths,
        )
        first = self._word_starts[:-1].copy()
        first -= self._sentence_starts[sentence]
        has_piece = (num_pieces > 0) & (first < self.maker.max_pieces)
        window, place = self.maker.place(
            tf.constant(first, tf.int32),
            tf.constant(self._pieces_of_sentences[sentence], tf.int32),
        )
        windows_before = np.cumsum(self.num_windows) - self.num_windows
        row = windows_before[sentence] + np.where(has_piece, window, 0)
        # Words without pieces are with the word before. Their place may be
        # after their sentence's end.
        row = np.maximum.accumulate(row)
        return row, np.where(has_piece, place, 0), has_piece

    @functools.cached_property
    def _pieces_of_words(self):
        """int32 [W]: the number of pieces of every word."""
        return source.count_pieces(
            self.examples.words, self.maker.tokenizer, _COUNTING_BATCH
        )

    @functools.cached_property
    def _word_starts(self):
        """int64 [W + 1]: how many pieces come before every word, and in all."""
        sums = np.cumsum(self._pieces_of_words, dtype=np.int64)
        return np.concatenate([[0], sums])

    @functools.cached_property
    def _sentence_starts(self):
        """int64 [N]: how many pieces come before every sentence."""
        limits = np.cumsum(self.examples.row_lengths)
        return self._word_starts[limits - self.examples.row_lengths]

    @functools.cached_property
    def _pieces_of_sentences(self):
        limits = np.cumsum(self.examples.row_lengths)
        num_pieces = self._word_starts[limits] - self._sentence_starts
        return num_pieces.astype(np.int32)


class WordTags(NamedTuple):
    """The tags of W words.

    Args:
        tags: W strings.
        scores: `[W]`, their probabilities.
    """

    tags: list[str]
    scores: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSource(WordSource):
    """Sentences of tagged words as windows.

    Args:
        labels: The task's tags.

    Raises:
        ValueError: If an example's tag is none of the task's.
    """

    examples: TaggingExamples
    labels: tuple[str, ...]

    def __post_init__(self):
        # Report wrong tags before anything else is done.
        self.word_labels  # noqa: B018

    @functools.cached_property
    def word_labels(self) -> np.ndarray | None:
        if self.examples.tags is None:
            return None
        return with_weights(self.examples.tag_ids(self.labels), 1)

    def kept(self, logits: np.ndarray, start: int) -> np.ndarray:
        """Returns words' likeliest tags, losses and scores: `[words, 3]`.

        They are the tag's id, the loss (0 if the tags are not known) and the
        tag's probability. There may be thousands of tags: logits of all words
        would be gigabytes.

        Args:
            logits, start: As in `WordSource.kept`.
        """
        logits_WK = super().kept(logits, start)
        losses = np.zeros(len(logits_WK))
        if self.word_labels is not None:
            first = np.searchsorted(self.word_places[0], start)
            labels = self.word_labels[first : first + len(logits_WK), 0]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels.astype(np.int32), logits_WK
            )
        scores = tf.reduce_max(tf.nn.softmax(logits_WK), axis=-1)
        tags = np.argmax(logits_WK, axis=-1)
        return np.stack([tags, losses, scores], axis=-1)

    def predict(self, kept: np.ndarray) -> WordTags:
        """Returns the likeliest tags of all words.

        A word that no window tags is outside of all entities.

        Args:
            kept: `[W, 3]`, from `kept`.
        """
        _, _, has_piece = self.word_places
        tags = [
            self.labels[int(label)] if is_seen else "O"
            for label, is_seen in zip(kept[:, 0], has_piece)
        ]
        return WordTags(tags, kept[:, 2])

    def loss(self, kept: np.ndarray) -> float:
        """Returns the mean loss of the words that a window tags, a float.

        Args:
            kept: `[W, 3]`, from `kept`.
        """
        _, _, has_piece = self.word_places
        return float(np.mean(kept[has_piece, 1], dtype=np.float64))


def padded_outputs(
    model: keras.Model, max_seq_length: int
) -> Callable[..., tf.Tensor]:
    """Returns the model as `tuning.predictor.Predictor` takes it.

    Args:
        model: A `BertTokenClassifier`.
        max_seq_length: L; shorter batches are filled up.

    Returns:
        A function whose outputs are float32 `[B, L, num_labels]`.
    """

    def call(inputs, training):
        logits_BLK = model(inputs, training=training)
        after = max_seq_length - tf.shape(logits_BLK)[1]
        return tf.pad(
            logits_BLK,
            [[0, 0], [0, after], [0, 0]],
            constant_values=_PADDING_LOGIT,
        )

    return call
