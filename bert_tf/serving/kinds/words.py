"""What is served about the words of sentences, e.g. their tags.

A sentence of any length is one string. The tokenizer splits it into words, at
white space and around punctuation. Each word is answered by its first piece, in
the window with the most context around it, as in training. A word of the
training data may be several of these words ("U.S."); the model learned from the
first.
"""

import abc
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving.graph import chunks
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.kinds.servable import Servable
from bert_tf.serving.kinds.texts import Row
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.tagging.windows import TaggingSource
from bert_tf.tasks.tagging.windows import WindowMaker
from bert_tf.tasks.tagging.windows import padded_outputs

_BATCH_SIZE = 64


class WordOutputs(NamedTuple):
    """The model's outputs for words.

    Args:
        outputs: RaggedTensor float32 `[B, (words), K]`.
        is_read: bool `[W]`, of all words: False beyond the last window, where
            outputs mean nothing.
        starts, limits: int32 `[W]`: where the words stand in their strings, in
            Unicode code points.
    """

    outputs: tf.RaggedTensor
    is_read: tf.Tensor
    starts: tf.Tensor
    limits: tf.Tensor


class Words(Servable, abc.ABC):
    """Answers about words; each kind declares its own.

    Attributes of a kind:
        COUNT: The output that counts the answers to a string. Outputs with
            `missing` have as many.
    """

    MODEL = BertTokenClassifier
    DEFAULTS = Servable.DEFAULTS | {"max_windows": 256}
    TAKES_PAIRS = False
    COUNT: str

    @abc.abstractmethod
    def answer_words(self, words: WordOutputs) -> dict[str, tf.Tensor]:
        """Returns the answers to strings, except `is_cut`."""

    def answer_texts(
        self,
        texts: dict[str, tf.Tensor],
        encode: Callable[..., Any],
        model: Any,
    ) -> dict[str, tf.Tensor]:
        (strings,) = texts.values()
        strings, is_cut = self.cut(strings)
        words, has_more = compute_words(
            strings, self._maker(), model, self.model.num_labels
        )
        return self.answer_words(words) | {"is_cut": is_cut | has_more}

    def hard_texts(self) -> list[Row]:
        return [(text,) for text in texts_lib.hard_uncut_texts()]

    def trained_answers(
        self, inputs: dict[str, tf.Tensor], texts: Sequence[Row]
    ) -> dict[str, np.ndarray]:
        strings, is_cut = self.cut(tf.constant([text for (text,) in texts]))
        maker = self._maker()
        _, offsets = maker.tokenizer.tokenize_with_offsets(strings)
        num_pieces = offsets.starts.merge_dims(1, 2).row_lengths()
        words = self._trained_words(strings, maker, offsets)
        found = self.answer_words(words) | {
            "is_cut": is_cut | (num_pieces > maker.max_pieces)
        }
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
        # the number of those given: `COUNT` shows a difference.
        padded = [
            output
            for output in self.outputs_of_strings
            if output.missing is not None
        ]
        if self.COUNT not in answers:
            return trained
        most = answers[self.COUNT].max(initial=0)
        if answers[padded[0].name].shape[1:] != (most,):
            return trained
        have = trained[padded[0].name].shape[1]
        after = [(0, 0), (0, max(0, most - have))]
        return trained | {
            output.name: np.pad(
                trained[output.name], after, constant_values=output.missing
            )[:, :most]
            for output in padded
        }

    def _maker(self):
        return WindowMaker(self.preprocessor, self.options.max_windows)

    def _trained_words(self, texts, maker, offsets):
        """Returns the `WordOutputs`, computed as in training's evaluation."""
        words = maker.tokenizer.split_words(texts)
        num_words = tf.size(words.flat_values)
        outputs = np.zeros([num_words, self.model.num_labels], np.float32)
        is_read = np.ones(num_words, bool)
        if num_words:
            examples = TaggingExamples(
                path="",
                words=tuple(words.flat_values.numpy()),
                tags=None,
                row_lengths=words.row_lengths().numpy(),
                lines=(),
                line_indices=np.zeros(0, np.int32),
                separator=" ",
            )
            source = TaggingSource(examples=examples, labels=(), maker=maker)
            batches = source.evaluation_batches(_BATCH_SIZE)
            logits = np.concatenate([self.model(batch) for batch in batches])
            windows, places, is_read = source.word_places
            outputs = logits[windows, places]
        return WordOutputs(
            words.with_flat_values(tf.constant(outputs)),
            tf.constant(is_read),
            *_places(offsets),
        )


def compute_words(
    texts: tf.Tensor, maker: WindowMaker, model: Any, num_outputs: int
) -> tuple[WordOutputs, tf.Tensor]:
    """Computes the outputs for the words of strings, in TensorFlow operations.

    Args:
        texts: string `[B]`.
        maker: A `WindowMaker`.
        model: The `TracedModel`.
        num_outputs: Its `num_labels`.

    Returns:
        The `WordOutputs`, and bool `[B]`: which strings have more pieces than
        the windows.
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
        [None, num_outputs],
    )

    # The window and place of every word's first piece.
    row_of_word = tf.cast(pieces_of_words.value_rowids(), tf.int32)
    first = tf.cast(pieces_of_words.values.row_starts(), tf.int32)
    first -= tf.gather(tf.cast(pieces.row_starts(), tf.int32), row_of_word)
    window, place = maker.place(first, tf.gather(num_pieces, row_of_word))
    window += tf.gather(windows_before, row_of_word)
    is_read = first < maker.max_pieces
    index = tf.stack([window, place], axis=1)
    outputs = tf.RaggedTensor.from_row_splits(
        tf.gather_nd(logits, tf.where(is_read[:, tf.newaxis], index, 0)),
        pieces_of_words.row_splits,
        validate=False,
    )
    words = WordOutputs(outputs, is_read, *_places(offsets))
    return words, num_pieces > maker.max_pieces


def _places(offsets):
    """Returns where words begin and end, from the `Offsets` of their pieces."""
    starts, limits = offsets.starts, offsets.limits
    return (
        tf.gather(starts.flat_values, starts.values.row_starts()),
        tf.gather(limits.flat_values, limits.values.row_limits() - 1),
    )
