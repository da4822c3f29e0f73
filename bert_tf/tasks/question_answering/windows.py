"""Questions with windows of their texts, turned into model inputs in tf.data.

A text that is too long for one sequence is cut into overlapping windows, each
packed with the question: [CLS] question [SEP] window [SEP]. A window is a
function of (question, text, number), in TensorFlow operations.

Letters: B windows, L sequence length, W windows of a text.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import files
from bert_tf.features import Batch
from bert_tf.tasks import source
from bert_tf.tasks.question_answering.files import SquadExamples
from bert_tf.tasks.source import Source
from bert_tf.text import packing
from bert_tf.text.offsets import Offsets
from bert_tf.text.preprocessor import Preprocessor

# Names of the outputs and labels, for the answer's first and last piece.
START_LOGITS = "start_logits"
END_LOGITS = "end_logits"
OUTPUTS = (START_LOGITS, END_LOGITS)
# int32 [B, L]: the numbers of a window's pieces among the pieces of all texts.
PIECES = "pieces"
# bool [B, L]: whether no other window has more context around the piece.
IS_MAX_CONTEXT = "is_max_context"

_COUNTING_BATCH = 256


class WindowMaker(tf.Module):
    """Makes the windows of texts.

    Args:
        preprocessor: A `Preprocessor`; its `max_seq_length` is L.
        task: A `SquadTask`.
        max_windows: How many windows a text has at most; it is cut off after
            the last one. None for any number.

    Raises:
        ValueError: If the longest question leaves no room for the text.
    """

    def __init__(
        self,
        preprocessor: Preprocessor,
        task: Any,
        max_windows: int | None = None,
    ) -> None:
        super().__init__(name="window_maker")
        special = preprocessor.vocabulary.special
        self._num_special = special.count(2)
        # The text follows [CLS], the question and the tokens between.
        self._context_offset = 1 + special.num_between
        if (
            preprocessor.max_seq_length
            <= task.max_query_length + self._num_special
        ):
            raise ValueError(
                "`max_seq_length` must be greater than max_query_length + "
                f"{self._num_special}. "
                f"Received: max_seq_length={preprocessor.max_seq_length}, "
                f"max_query_length={task.max_query_length}."
            )
        self.tokenizer = preprocessor.tokenizer
        self.vocabulary = preprocessor.vocabulary
        self.max_seq_length = preprocessor.max_seq_length
        self.max_windows = max_windows
        self.task = task
        # Traced once, for all batch sizes and uses.
        strings = tf.TensorSpec([None], tf.string)
        self._make = tf.function(
            self._make_windows,
            autograph=False,
            input_signature=[
                strings,
                strings,
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None, 2], tf.int32),
            ],
        )

    def num_pieces(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the number of pieces of texts, string `[N]`: int32 `[N]`."""
        pieces = self.tokenizer.tokenize(texts).merge_dims(1, 2)
        return tf.cast(pieces.row_lengths(), tf.int32)

    def num_windows(
        self, question_pieces: tf.Tensor, context_pieces: tf.Tensor
    ) -> tf.Tensor:
        """Returns how many windows every question has, at least one.

        Args:
            question_pieces: int32 `[B]`, numbers of pieces.
            context_pieces: int32 `[B]`, numbers of pieces.

        Returns:
            int32 `[B]`.
        """
        count = self._all_windows(question_pieces, context_pieces)
        if self.max_windows is None:
            return count
        return tf.minimum(count, self.max_windows)

    def is_cut(
        self, question_pieces: tf.Tensor, context_pieces: tf.Tensor
    ) -> tf.Tensor:
        """Returns which texts have too many windows, bool `[B]`.

        Args:
            question_pieces, context_pieces: See `num_windows`.
        """
        return self._all_windows(
            question_pieces, context_pieces
        ) > self.num_windows(question_pieces, context_pieces)

    def _all_windows(self, question_pieces, context_pieces):
        room, step = self._room_and_step(question_pieces)
        left = tf.maximum(context_pieces - room, 0)
        return 1 + (left + step - 1) // step

    def __call__(self, questions, contexts, windows, spans):
        """Makes one window of each text.

        Args:
            questions: string `[B]`.
            contexts: string `[B]`.
            windows: int32 `[B]`, numbers from 0.
            spans: int32 `[B, 2]`: the first character of the answer and the
                one after its last, or -1 for no answer.

        Returns:
            A dictionary: the model inputs, int32 `[B, L]`, and `labels`: the
            positions of the answer's first and last piece in the sequence,
            int32 `[B]` under the names of the model's outputs, 0 if the window
            does not hold the whole answer.
        """
        made = self._make(questions, contexts, windows, spans)
        for value in tf.nest.flatten(made):
            shape = [self.max_seq_length] * (value.shape.rank - 1)
            value.set_shape([*windows.shape, *shape])
        return made

    def tokenize(
        self, questions: tf.Tensor, contexts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, Offsets]:
        """Returns the pieces of questions and of texts, one list per row.

        Args:
            questions: string `[T]`.
            contexts: string `[T]`.

        Returns:
            RaggedTensor int32 `[T, (pieces)]` of the questions, cut to
            `max_query_length`; the same of the contexts, uncut; and the
            contexts' `Offsets`, also `[T, (pieces)]`.
        """
        question = self.tokenizer.tokenize(questions).merge_dims(1, 2)
        question = question[:, : self.task.max_query_length]
        context, offsets = self.tokenizer.tokenize_with_offsets(contexts)
        offsets = Offsets(*[values.merge_dims(1, 2) for values in offsets])
        return question, context.merge_dims(1, 2), offsets

    def pack(
        self,
        question: tf.RaggedTensor,
        context: tf.RaggedTensor,
        rows: tf.Tensor,
        windows: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Packs windows of tokenized texts.

        Args:
            question: As `tokenize` returns it.
            context: As `tokenize` returns it.
            rows: int32 `[B]`: which of the T texts each window is of.
            windows: int32 `[B]`, numbers from 0.

        Returns:
            A dictionary: the model inputs, int32 `[B, L]`; `pieces` int32
            `[B, L]`: the index of each token in `context.flat_values`, or the
            number of these values if it is not part of the text; and
            `is_max_context` bool `[B, L]`.
        """
        question = tf.gather(question, rows)
        question_pieces = tf.cast(question.row_lengths(), tf.int32)
        num_pieces = tf.gather(tf.cast(context.row_lengths(), tf.int32), rows)
        row_starts = tf.gather(tf.cast(context.row_starts(), tf.int32), rows)
        room, step = self._room_and_step(question_pieces)
        first = windows * step
        length = tf.clip_by_value(num_pieces - first, 0, room)
        inputs = packing.pack(
            [question, packing.take(context, rows, first, length)],
            self.max_seq_length,
            self.vocabulary,
        )

        # Which piece of the text is at each position of the sequence.
        offset = question_pieces + self._context_offset - first
        piece_BL = tf.range(self.max_seq_length) - offset[:, tf.newaxis]
        is_context_BL = (piece_BL >= first[:, tf.newaxis]) & (
            piece_BL < (first + length)[:, tf.newaxis]
        )
        most_context_BL = self._window_of_most_context(
            piece_BL, question_pieces, num_pieces
        )
        return inputs | {
            PIECES: tf.where(
                is_context_BL,
                piece_BL + row_starts[:, tf.newaxis],
                tf.size(context.flat_values),
            ),
            IS_MAX_CONTEXT: is_context_BL
            & tf.equal(most_context_BL, windows[:, tf.newaxis]),
        }

    def _make_windows(self, questions, contexts, windows, spans):
        question, context, offsets = self.tokenize(questions, contexts)
        made = self.pack(question, context, tf.range(tf.size(windows)), windows)
        made = {name: made[name] for name in features.MODEL_INPUTS}
        question_pieces = tf.cast(question.row_lengths(), tf.int32)
        num_pieces = tf.cast(context.row_lengths(), tf.int32)
        room, step = self._room_and_step(question_pieces)
        begin = windows * step
        end = tf.minimum(num_pieces, begin + room)
        first, last = _first_and_last_piece(
            offsets.starts, offsets.limits, spans
        )
        is_inside = (
            (spans[:, 0] >= 0)
            & (first <= last)
            & (first >= begin)
            & (last < end)
        )
        offset = question_pieces + self._context_offset - begin
        made[features.LABELS] = {
            name: tf.where(is_inside, piece + offset, 0)
            for name, piece in zip(OUTPUTS, (first, last))
        }
        return made

    def _room_and_step(self, question_pieces):
        room = self.max_seq_length - self._num_special
        room -= tf.minimum(question_pieces, self.task.max_query_length)
        return room, tf.minimum(room, self.task.doc_stride)

    def _window_of_most_context(self, piece_BL, question_pieces, num_pieces):
        """Returns int32 [B, L]: the window with most context around a piece.

        As in google-research/bert, a window's score is the number of pieces on
        the side with fewer of them, plus 0.01 times the window's length. Of
        windows with equal scores, the first one is taken.
        """
        room, step = self._room_and_step(question_pieces)
        count = self.num_windows(question_pieces, num_pieces)
        # A piece is in the last window that begins before or at it, and perhaps
        # in the windows just before that one. This is how many they can be.
        longest = self.max_seq_length - self._num_special
        most = -(-longest // self.task.doc_stride)
        window_BLW = (
            piece_BL[:, :, tf.newaxis] // step[:, tf.newaxis, tf.newaxis]
            - tf.range(most)[::-1]
        )
        first_BLW = window_BLW * step[:, tf.newaxis, tf.newaxis]
        length_BLW = tf.minimum(
            num_pieces[:, tf.newaxis, tf.newaxis] - first_BLW,
            room[:, tf.newaxis, tf.newaxis],
        )
        left_BLW = piece_BL[:, :, tf.newaxis] - first_BLW
        right_BLW = length_BLW - 1 - left_BLW
        # In hundredths.
        score_BLW = 100 * tf.minimum(left_BLW, right_BLW) + length_BLW
        is_there_BLW = (
            (left_BLW >= 0)
            & (right_BLW >= 0)
            & (window_BLW >= 0)
            & (window_BLW < count[:, tf.newaxis, tf.newaxis])
        )
        score_BLW = tf.where(is_there_BLW, score_BLW, tf.int32.min)
        best_BL = tf.argmax(score_BLW, axis=-1, output_type=tf.int32)
        return tf.gather(window_BLW, best_BL, batch_dims=2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSource(Source):
    """Questions with windows of their texts: a row of the source is a window.

    The batches are dictionaries of the model inputs, int32 `[B, L]`, and
    `labels`, int32 `[B]` under the names of the model's outputs.

    Args:
        maker: The `WindowMaker`.
    """

    examples: SquadExamples
    maker: WindowMaker

    @functools.cached_property
    def num_windows(self) -> np.ndarray:
        """int32 `[N]`: how many windows every question has.

        Logs a warning with the number of questions that are too long.
        """
        questions = self._num_pieces(self.examples.questions)
        longest = self.maker.task.max_query_length
        num_long = int(np.sum(questions > longest))
        if num_long:
            logging.warning(
                "%s more than max_query_length=%d pieces: what is beyond them "
                "is cut off.",
                files.counted(num_long, "question has", "questions have"),
                longest,
            )
        contexts = self._num_pieces(self.examples.contexts)
        return self.maker.num_windows(
            questions, contexts[self.examples.context_indices]
        ).numpy()

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        questions, windows = source.window_rows(self.num_windows)
        return {"question": questions, "window": windows}

    def input_maker(self) -> Callable[[Batch], Batch]:
        questions = tf.constant(self.examples.questions)
        contexts = tf.constant(self.examples.contexts)
        indices = tf.constant(self.examples.context_indices)
        spans = tf.stack(
            [self.examples.answer_starts, self.examples.answer_limits], 1
        )

        def make(batch):
            question = batch["question"]
            made = self.maker(
                tf.gather(questions, question),
                tf.gather(contexts, tf.gather(indices, question)),
                batch["window"],
                tf.gather(spans, question),
            )
            return self._trim(made)

        return make

    def _num_pieces(self, texts):
        return source.count_pieces(texts, self.maker.tokenizer, _COUNTING_BATCH)


def _first_and_last_piece(starts, limits, spans):
    """Returns the first and last piece of the text that a span touches."""
    row = starts.value_rowids()
    ends_before = limits.flat_values <= tf.gather(spans[:, 0], row)
    starts_before = starts.flat_values < tf.gather(spans[:, 1], row)
    first, after = (
        tf.reduce_sum(
            starts.with_flat_values(tf.cast(is_before, tf.int32)), axis=1
        )
        for is_before in (ends_before, starts_before)
    )
    return first, after - 1
