"""Finds where pieces lie in the string that they were made from.

The normalised text does not say where it came from: accents and controls are
gone, spaces have been added, and a letter may have become two. But it is the
concatenation of what every character becomes by itself. (Two rules look
further: the final sigma changes no length, and the canonical order of marks
only moves bytes within a run of marks.) So each character that occurs is
normalised alone, once per batch. The lengths of the results tell which
character left which bytes of the words.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# What separates words in normalised text.
_WHITE_SPACE = r"[ \t\n\r]+"


class Offsets(NamedTuple):
    """Where pieces begin, and the places after their ends.

    For each text, `text[start:limit]` is what the piece was made from, with
    the dropped accents that follow it. All pieces of one character (a Hangul
    syllable is decomposed) have the same range.

    Attributes:
        starts: RaggedTensor int32 `[batch, (words), (pieces)]`, in characters,
            which are Unicode code points. Bytes that are not UTF-8 do not
            count.
        limits: Likewise.
        byte_starts: The same places in bytes.
        byte_limits: Likewise.
    """

    starts: tf.RaggedTensor
    limits: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_limits: tf.RaggedTensor


def locate(
    texts: tf.Tensor,
    words: tf.RaggedTensor,
    starts: tf.RaggedTensor,
    limits: tf.RaggedTensor,
    normalize: Callable[[tf.Tensor], tf.Tensor],
) -> Offsets:
    """Finds where pieces of normalised words lie in the texts.

    Args:
        texts: string `[batch]`.
        words: RaggedTensor string `[batch, (words)]`: `normalize(texts)`,
            split at white space.
        starts: RaggedTensor int `[batch, (words), (pieces)]`: where in its
            word each piece begins, in bytes.
        limits: Likewise, where it ends.
        normalize: A function from string `[N]` to string `[N]`.

    Returns:
        `Offsets`.
    """
    characters, byte_offsets = tf.strings.unicode_decode_with_offsets(
        texts, "UTF-8", errors="ignore"
    )
    code_points = characters.flat_values
    num_bytes_left, is_dropped_mark = _what_is_left(code_points, normalize)
    # The character that each byte of the words came from.
    sources = tf.repeat(tf.range(tf.size(code_points)), num_bytes_left)

    word_lengths = tf.strings.length(words.flat_values)
    word_starts = tf.cumsum(word_lengths, exclusive=True)
    word_of_piece = tf.cast(starts.values.value_rowids(), tf.int32)
    word_start = tf.gather(word_starts, word_of_piece)
    starts_in_words = tf.cast(starts.flat_values, tf.int32)
    limits_in_words = tf.cast(limits.flat_values, tf.int32)
    first = tf.gather(sources, word_start + starts_in_words)
    last = tf.gather(sources, word_start + limits_in_words - 1)

    row_splits = tf.cast(characters.row_splits, tf.int32)
    row = tf.gather(tf.cast(words.value_rowids(), tf.int32), word_of_piece)
    row_start = tf.gather(row_splits, row)
    limit = tf.minimum(
        tf.gather(next_unmarked(is_dropped_mark), last),
        tf.gather(row_splits, row + 1),
    )
    byte_offset = tf.cast(byte_offsets.flat_values, tf.int32)
    byte_limit = byte_offset + utf_8_length(code_points)

    def as_pieces(values):
        return starts.with_flat_values(values)

    return Offsets(
        starts=as_pieces(first - row_start),
        limits=as_pieces(limit - row_start),
        byte_starts=as_pieces(tf.gather(byte_offset, first)),
        byte_limits=as_pieces(tf.gather(byte_limit, limit - 1)),
    )


def in_bytes(
    ids: tf.RaggedTensor,
    starts: tf.Tensor,
    limits: tf.Tensor,
    texts: tf.Tensor,
) -> Offsets:
    """Returns the `Offsets` of ranges that are given in characters.

    Args:
        ids: RaggedTensor `[batch, (words), (pieces)]`.
        starts: int32, for all pieces of all texts; a range may be empty.
        limits: Likewise.
        texts: string `[batch]`.
    """
    characters, places = tf.strings.unicode_decode_with_offsets(
        texts, "UTF-8", errors="ignore"
    )
    first_bytes = tf.cast(places.flat_values, tf.int32)
    after_last = first_bytes + utf_8_length(characters.flat_values)
    first_bytes, after_last = (
        tf.concat([values, [0]], axis=0) for values in (first_bytes, after_last)
    )
    row_start = tf.gather(
        tf.cast(characters.row_starts(), tf.int32),
        ids.merge_dims(1, 2).value_rowids(),
    )
    byte_limits = tf.where(
        limits > 0,
        tf.gather(after_last, tf.maximum(row_start + limits - 1, 0)),
        0,
    )
    byte_starts = tf.where(
        starts < limits,
        tf.gather(first_bytes, row_start + starts),
        byte_limits,
    )
    return Offsets(
        *(
            ids.with_flat_values(values)
            for values in (starts, limits, byte_starts, byte_limits)
        )
    )


def _what_is_left(code_points, normalize):
    """Returns each character's bytes in words, and if it is a dropped Mn."""
    unique, index = tf.unique(code_points)
    alone = tf.strings.unicode_encode(unique[:, tf.newaxis], "UTF-8")
    left = tf.strings.regex_replace(normalize(alone), _WHITE_SPACE, "")
    num_bytes = tf.strings.length(left)
    is_dropped_mark = tf.equal(num_bytes, 0) & tf.strings.regex_full_match(
        alone, r"\p{Mn}"
    )
    return tf.gather(num_bytes, index), tf.gather(is_dropped_mark, index)


def next_unmarked(is_mark: tf.Tensor) -> tf.Tensor:
    """Returns for each character the next one that is not a mark.

    Args:
        is_mark: bool `[N]`, of the characters of all texts.
    """
    places = tf.cast(tf.where(~is_mark)[:, 0], tf.int32)
    places = tf.concat([places, [tf.size(is_mark)]], axis=0)
    return tf.gather(places, tf.cumsum(tf.cast(~is_mark, tf.int32)))


def utf_8_length(code_points: tf.Tensor) -> tf.Tensor:
    """Returns how many bytes code points have in UTF-8, in their dtype."""
    length = tf.ones_like(code_points)
    for first in (0x80, 0x800, 0x10000):
        length += tf.cast(code_points >= first, length.dtype)
    return length
