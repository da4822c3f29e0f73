"""Tokenizes words given one by one, or found as in data for tagging.

For tokenizers that spell a word depending on what precedes it.
"""

import tensorflow as tf

from bert_tf.text import offsets as offsets_lib
from bert_tf.text.tokenizers import wordpiece
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.tokenizers.tokenizer import Tokenizer
from bert_tf.text.tokenizers.utf_8 import END
from bert_tf.text.tokenizers.utf_8 import WHITE_SPACE
from bert_tf.text.tokenizers.utf_8 import valid

# Words as in data for tagging: "U.S", "don't", one punctuation mark.
_IN_WORD = f"[^{WHITE_SPACE}{wordpiece.PUNCTUATION}{wordpiece.IDEOGRAPHS}]+"
_WORD = (
    f"[{wordpiece.IDEOGRAPHS}]|[{wordpiece.PUNCTUATION}]"
    f"|{_IN_WORD}(?:[{wordpiece.PUNCTUATION}]+{_IN_WORD})*"
)


class WordTokenizer(tf.Module):
    """Tokenizes words that are given one by one: a `Tokenizer`.

    Args:
        spec: The spec of the tokenizer of texts.
        tokenizer: Tokenizes a text that is one word as it does a word in the
            middle of a text.
    """

    def __init__(self, spec: Spec, tokenizer: Tokenizer) -> None:
        super().__init__(name="word_tokenizer")
        self.spec = spec
        self._tokenizer = tokenizer

    def tokenize(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words.

        Args:
            words: string `[batch]`, one word each.

        Returns:
            RaggedTensor int32 `[batch, (parts of the word), (pieces)]`.
        """
        return self._tokenizer.tokenize(words)

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, offsets_lib.Offsets]:
        """Returns the ids of the words of `split_words`, and their offsets.

        Args:
            texts: string `[batch]`.

        Returns:
            RaggedTensor int32 `[batch, (words), (pieces)]` and `Offsets`.
        """
        parts = _words_and_between(texts)
        words = _words_alone(parts)
        ids, offsets = self._tokenizer.tokenize_with_offsets(words.flat_values)
        ids = words.with_values(ids.merge_dims(1, 2))
        # A word that is only marks may have no piece.
        ids = tf.ragged.boolean_mask(ids, ids.row_lengths(axis=2) > 0)
        lengths = tf.strings.length(parts.flat_values, unit="UTF8_CHAR")
        starts = parts.with_values(tf.cumsum(lengths, exclusive=True))
        starts -= tf.gather(
            tf.concat([starts.flat_values, [0]], axis=0), parts.row_starts()
        )[:, tf.newaxis]
        starts = tf.gather(
            _words_alone(starts).flat_values,
            offsets.starts.merge_dims(1, 2).value_rowids(),
        )
        first, limit = (
            starts + values.flat_values
            for values in (offsets.starts, offsets.limits)
        )
        return ids, offsets_lib.in_bytes(ids, first, limit, texts)

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of every text: string `[batch, (words)]`.

        They are separated by white space. Punctuation marks at both ends of a
        word are words of their own, and so are ideographs. A word without
        pieces is left out.
        """
        words = _words_alone(_words_and_between(texts))
        pieces = self.tokenize(words.flat_values).merge_dims(1, 2)
        return tf.ragged.boolean_mask(
            words, words.with_values(pieces.row_lengths() > 0)
        )

    def for_words(self) -> "WordTokenizer":
        """Returns this tokenizer."""
        return self


def _words_and_between(texts):
    """Returns the gaps and the words of texts in turns: `[batch, (N)]`."""
    texts = tf.strings.regex_replace(valid(texts), _WORD, END + rb"\0" + END)
    return tf.strings.split(texts, END)


def _words_alone(parts):
    """Returns every second value of rows, from the second on."""
    return parts[:, 1::2]
