"""Questions with windows of their texts, turned into model inputs in tf.data.

A text that is too long for one sequence is cut into overlapping windows, each
packed with the question: [CLS] question [SEP] window [SEP]. A window is a
function of (question, text, number), in TensorFlow operations.

Letters: B windows, L sequence length, W windows of a text, T texts.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from bert_tf import features
from bert_tf import messages
from bert_tf import progress_bar
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
# Texts are tokenized together that have about so many characters.
_CHARACTERS_AT_ONCE = 2**18


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
        self._make = tf.function(
            self._make_windows,
            autograph=False,
            input_signature=[
                tf.TensorSpec([None], tf.string),
                tf.RaggedTensorSpec([None, None], tf.int32),
                *[tf.TensorSpec([None], tf.int32)] * 2,
                tf.TensorSpec([None, 2], tf.int32),
            ],
        )

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

    def __call__(
        self,
        questions: tf.Tensor,
        context: tf.RaggedTensor,
        rows: tf.Tensor,
        windows: tf.Tensor,
        answers: tf.Tensor,
    ) -> dict[str, Any]:
        """Makes one window for each question.

        Args:
            questions: string `[B]`.
            context: RaggedTensor int32 `[T, (pieces)]`, of texts.
            rows: int32 `[B]`: which text each question is about.
            windows: int32 `[B]`, numbers from 0.
            answers: int32 `[B, 2]`: the numbers of the answer's first and last
                piece in the text; the first is above the last where there is
                none.

        Returns:
            A dictionary: the model inputs, int32 `[B, L]`, and `labels`: the
            positions of the answer's first and last piece in the sequence,
            int32 `[B]` under the names of the model's outputs, 0 if the window
            does not hold the whole answer.
        """
        made = self._make(questions, context, rows, windows, answers)
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
        context, offsets = self.tokenizer.tokenize_with_offsets(contexts)
        offsets = Offsets(*[values.merge_dims(1, 2) for values in offsets])
        return (
            self._tokenize_questions(questions),
            context.merge_dims(1, 2),
            offsets,
        )

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
        most_context = self._window_of_most_context(question, context)
        question = tf.gather(question, rows)
        question_pieces = tf.cast(question.row_lengths(), tf.int32)
        row_starts = tf.gather(tf.cast(context.row_starts(), tf.int32), rows)
        inputs, first, length = self._pack(question, context, rows, windows)

        # Which piece of the text is at each position of the sequence.
        offset = question_pieces + self._context_offset - first
        piece_BL = tf.range(self.max_seq_length) - offset[:, tf.newaxis]
        is_context_BL = (piece_BL >= first[:, tf.newaxis]) & (
            piece_BL < (first + length)[:, tf.newaxis]
        )
        pieces_BL = tf.where(
            is_context_BL,
            piece_BL + row_starts[:, tf.newaxis],
            tf.size(context.flat_values),
        )
        most_context_BL = tf.gather(
            tf.concat([most_context, [-1]], axis=0), pieces_BL
        )
        return inputs | {
            PIECES: pieces_BL,
            IS_MAX_CONTEXT: tf.equal(most_context_BL, windows[:, tf.newaxis]),
        }

    def _tokenize_questions(self, questions):
        question = self.tokenizer.tokenize(questions).merge_dims(1, 2)
        return question[:, : self.task.max_query_length]

    def _pack(self, question, context, rows, windows):
        """Packs windows, each with a question of its own.

        Args:
            question: RaggedTensor int32 `[B, (pieces)]`.
            context, rows, windows: As of `pack`.

        Returns:
            The model inputs, and int32 `[B]` twice: the number in the text of
            each window's first piece, and how many pieces it has of the text.
        """
        num_pieces = tf.gather(tf.cast(context.row_lengths(), tf.int32), rows)
        room, step = self._room_and_step(
            tf.cast(question.row_lengths(), tf.int32)
        )
        first = windows * step
        length = tf.clip_by_value(num_pieces - first, 0, room)
        inputs = packing.pack(
            [question, packing.take(context, rows, first, length)],
            self.max_seq_length,
            self.vocabulary,
        )
        return inputs, first, length

    def _make_windows(self, questions, context, rows, windows, answers):
        question = self._tokenize_questions(questions)
        inputs, begin, length = self._pack(question, context, rows, windows)
        made = {name: inputs[name] for name in features.MODEL_INPUTS}
        first, last = tf.unstack(answers, axis=1)
        is_inside = (first <= last) & (first >= begin) & (last < begin + length)
        question_pieces = tf.cast(question.row_lengths(), tf.int32)
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

    def _window_of_most_context(self, question, context):
        """Returns the window with most context around each piece.

        As in google-research/bert, a window's score is the number of pieces on
        the side with fewer of them, plus 0.01 times the window's length. Of
        windows with equal scores, the first one is taken.

        Args:
            question, context: RaggedTensors int32 `[T, (pieces)]`.

        Returns:
            int32 `[P]`, for the P pieces of all texts. It has no meaning for
            those that are cut off.
        """
        question_pieces = tf.cast(question.row_lengths(), tf.int32)
        num_pieces = tf.cast(context.row_lengths(), tf.int32)
        count = self.num_windows(question_pieces, num_pieces)
        room, step = self._room_and_step(question_pieces)
        num_pieces, count, room, step, row_start = (
            tf.gather(values, context.value_rowids())
            for values in (
                num_pieces,
                count,
                room,
                step,
                tf.cast(context.row_starts(), tf.int32),
            )
        )
        piece = tf.range(tf.size(context.flat_values)) - row_start
        # The first and the last window that hold the piece.
        first = tf.maximum((piece - room) // step + 1, 0)
        last = tf.minimum(piece // step, count - 1)
        # Windows before a text's last are full. The best of them is one of the
        # two between which the piece would be in the middle. To try all would
        # take much memory if `doc_stride` is small.
        middle = (2 * piece - room + 1) // (2 * step)
        last_full = tf.minimum(last, count - 2)
        windows = tf.stack(
            [
                tf.maximum(tf.minimum(middle, last_full), first),
                tf.maximum(tf.minimum(middle + 1, last_full), first),
                last,
            ]
        )
        begin = windows * step
        length = tf.minimum(num_pieces - begin, room)
        left = piece - begin
        right = length - 1 - left
        # In hundredths.
        score = 100 * tf.minimum(left, right) + length
        best = tf.argmax(score, axis=0, output_type=tf.int32)
        return tf.gather(tf.transpose(windows), best, batch_dims=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSource(Source):
    """Questions with windows of their texts: a row of the source is a window.

    The batches are dictionaries of the model inputs, int32 `[B, L]`, and
    `labels`, int32 `[B]` under the names of the model's outputs. Beside the
    strings the pieces of all texts are kept.

    Args:
        maker: The `WindowMaker`.
    """

    unit = "windows"
    num_texts = 2

    examples: SquadExamples
    maker: WindowMaker

    @functools.cached_property
    def num_windows(self) -> np.ndarray:
        """int32 `[N]`: how many windows every question has.

        Logs a warning with the number of questions that are too long.
        """
        questions = source.count_pieces(
            self.examples.questions, self.maker.tokenizer, _COUNTING_BATCH
        )
        longest = self.maker.task.max_query_length
        num_long = int(np.sum(questions > longest))
        if num_long:
            logging.warning(
                "%s more than max_query_length=%d pieces: what is beyond them "
                "is cut off.",
                messages.counted(num_long, "question has", "questions have"),
                longest,
            )
        context, _ = self._tokenized
        lengths = tf.cast(context.row_lengths(), tf.int32)
        return self.maker.num_windows(
            questions, tf.gather(lengths, self.examples.context_indices)
        ).numpy()

    @functools.cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        questions, windows = source.window_rows(self.num_windows)
        return {"question": questions, "window": windows}

    def input_maker(self) -> Callable[[Batch], Batch]:
        questions = tf.constant(self.examples.questions)
        indices = tf.constant(self.examples.context_indices)
        context, answers = map(tf.identity, self._tokenized)

        def make(batch):
            question = batch["question"]
            made = self.maker(
                tf.gather(questions, question),
                context,
                tf.gather(indices, question),
                batch["window"],
                tf.gather(answers, question),
            )
            return self._trim(made)

        return make

    @functools.cached_property
    def _tokenized(self):
        """The pieces of all texts, and of the answers.

        To make the whole text anew for each of its windows would cost the
        square of its length.

        Returns:
            RaggedTensor int32 `[T, (pieces)]`, and an array int32 `[N, 2]`:
            what `WindowMaker.__call__` takes as `answers`.
        """
        examples = self.examples
        questions, splits = _questions_by_text(examples)
        groups = _tokenized_groups(
            examples.contexts, self.maker.tokenizer, len(questions) > 0
        )
        answers = np.tile(np.array([0, -1], np.int32), (len(examples), 1))
        all_ids, all_lengths = [], []
        text = 0
        with progress_bar.track(
            groups.as_numpy_iterator(), "tokenize", int(groups.cardinality())
        ) as tracked:
            for ids, lengths, *offsets in tracked:
                all_ids.append(ids)
                all_lengths.append(lengths)
                limits = np.cumsum(lengths)
                for first, limit in zip(limits - lengths, limits):
                    own = questions[splits[text] : splits[text + 1]]
                    text += 1
                    if len(own):
                        starts, ends = (part[first:limit] for part in offsets)
                        answers[own] = _first_and_last_piece(
                            starts,
                            ends,
                            examples.answer_starts[own],
                            examples.answer_limits[own],
                        )
        pieces = tf.RaggedTensor.from_row_lengths(
            np.concatenate(all_ids), np.concatenate(all_lengths)
        )
        return pieces, answers


def _questions_by_text(examples):
    """Returns the questions that have an answer, in the order of their texts.

    Args:
        examples: The `SquadExamples`.

    Returns:
        A pair of int64: the numbers of the questions, `[answered]`, and
        `splits`, `[T + 1]`: those about text `t` are at
        `splits[t] : splits[t + 1]`.
    """
    answered = np.flatnonzero(examples.answer_starts >= 0)
    texts = examples.context_indices[answered]
    order = np.argsort(texts, kind="stable")
    splits = np.searchsorted(
        texts[order], np.arange(len(examples.contexts) + 1)
    )
    return answered[order], splits


def _tokenized_groups(texts, tokenizer, with_offsets):
    """Tokenizes groups of texts in parallel.

    Args:
        texts: Strings.
        tokenizer: A tokenizer.
        with_offsets: Whether to find out where the pieces are in the texts.

    Returns:
        A `tf.data.Dataset`. An element is a group: the ids of its pieces, int32
        `[pieces]`, and how many each text has, int64 `[texts]`; with offsets
        also the characters where they start and end, two int32 `[pieces]`.
    """
    edges = _edges(texts)
    texts = tf.constant(texts)

    @tf.function(autograph=False)
    def tokenize(first, limit):
        if not with_offsets:
            ids = tokenizer.tokenize(texts[first:limit]).merge_dims(1, 2)
            return ids.flat_values, ids.row_lengths()
        ids, offsets = tokenizer.tokenize_with_offsets(texts[first:limit])
        return (
            ids.flat_values,
            ids.merge_dims(1, 2).row_lengths(),
            offsets.starts.flat_values,
            offsets.limits.flat_values,
        )

    groups = tf.data.Dataset.from_tensor_slices((edges[:-1], edges[1:]))
    return groups.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE)


def _edges(texts):
    """Returns int64 `[groups + 1]`: where groups of texts begin, and the end.

    They have `_CHARACTERS_AT_ONCE` or fewer, or one text.
    """
    edges, num_characters = [0], 0
    for number, text in enumerate(texts):
        num_characters += len(text)
        if num_characters > _CHARACTERS_AT_ONCE and number > edges[-1]:
            edges.append(number)
            num_characters = len(text)
    return np.array([*edges, len(texts)])


def _first_and_last_piece(starts, limits, span_starts, span_limits):
    """Returns the first and last pieces of a text that spans touch.

    Args:
        starts, limits: int `[pieces]`, characters.
        span_starts, span_limits: int `[spans]`, characters.

    Returns:
        int `[spans, 2]`.
    """
    # Sorted, as marks that change places have theirs in another order.
    first = np.searchsorted(np.sort(limits), span_starts, side="right")
    after = np.searchsorted(np.sort(starts), span_limits, side="left")
    return np.stack([first, after - 1], axis=1)
