"""Replaces characters as Hugging Face's `tokenizers` does, in a graph."""

import functools
import itertools
import unicodedata
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.text import offsets as offsets_lib

# Kinds of characters in Unicode's rules for grapheme clusters (UAX 29).
_OTHER, _EXTENDS, _CONTROL, _PREPENDED = range(4)
# Numerals' signs, which precede what they belong to. Only those of few bytes
# matter here, and of the vowel signs only these two are no marks.
_PREPENDED_SIGNS = (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2)
_VOWEL_SIGNS = (0xE33, 0xEB3)
_JOINERS = (0x200C, 0x200D)
# `tokenizers` looks up a whole cluster if it is shorter than this.
MAX_CLUSTER_BYTES = 5
# A cluster that short has at most so many characters.
_MAX_CLUSTER = 3
_NUM_CODE_POINTS = 0x110000
_PAGE = 256


class Replacer:
    """Replaces characters and clusters of characters by others.

    A cluster of a character and its marks of at most `MAX_CLUSTER_BYTES` bytes
    becomes what its shortest beginning in the table becomes; the marks behind
    that are lost. In all others each character is looked up by itself.

    Args:
        replaced: {characters: what they become}; all others stay.
    """

    def __init__(self, replaced: Mapping[str, str]) -> None:
        # Entry 0 is for characters that stay, 1 for those that are dropped.
        texts = list(dict.fromkeys(["", *replaced.values()]))
        entries = {text: n for n, text in enumerate(texts, start=1)}
        lengths = [1, *map(len, texts)]
        self._lengths = np.array(lengths, np.int32)
        self._starts = np.cumsum([0, 0, *lengths[1:-1]], dtype=np.int32)
        code_points = map(ord, itertools.chain(*texts))
        self._code_points = np.array([*code_points, 0], np.int32)
        values = np.zeros(_NUM_CODE_POINTS, np.int32)
        clusters = {}
        for characters, text in replaced.items():
            if len(characters) == 1:
                values[ord(characters)] = entries[text]
            elif len(characters) <= _MAX_CLUSTER:
                clusters[_packed(*map(ord, characters))] = entries[text]
        self._entry = _Pages(values)
        self._clusters = np.array(sorted(clusters), np.int64)
        self._cluster_entries = np.array(
            [clusters[packed] for packed in sorted(clusters)], np.int32
        )

    def replace(
        self, code_points: tf.Tensor, rows: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the characters with some replaced.

        Args:
            code_points: int32 `[N]`, of all texts.
            rows: int64 `[N]`, the text of each, in ascending order.

        Returns:
            int32 `[M]`, code points; int32 `[M]`, the place of that character
            from which each was made.
        """
        entry = alone = self._entry.look_up(code_points)
        if self._clusters.size:
            has_clusters = tf.reduce_any(
                is_mark(code_points) | (code_points == ord("\n"))
            )
            entry = tf.cond(
                has_clusters,
                lambda: self._by_cluster(code_points, rows, alone),
                lambda: alone,
            )
        length = tf.gather(self._lengths, entry)
        source = tf.repeat(tf.range(tf.size(length)), length)
        nth = tf.range(tf.size(source)) - tf.gather(
            tf.cumsum(length, exclusive=True), source
        )
        its = tf.gather(entry, source)
        replaced = tf.where(
            its == 0,
            tf.gather(code_points, source),
            tf.gather(self._code_points, tf.gather(self._starts, its) + nth),
        )
        return replaced, source

    def _by_cluster(self, code_points, rows, entry):
        """Returns the entries of all characters, given those of each alone."""
        is_start = _starts_cluster(code_points, rows)
        cluster = tf.cumsum(tf.cast(is_start, tf.int32)) - 1
        starts = tf.cast(tf.where(is_start)[:, 0], tf.int32)
        ends = tf.concat([starts[1:], [tf.size(code_points)]], axis=0)
        length = ends[: tf.size(starts)] - starts
        num_bytes = tf.math.segment_sum(
            offsets_lib.utf_8_length(code_points), cluster
        )
        is_short = (length > 1) & (num_bytes <= MAX_CLUSTER_BYTES)
        start = tf.boolean_mask(starts, is_short)
        length = tf.boolean_mask(length, is_short)
        found = tf.gather(entry, start)
        beginning = [tf.gather(code_points, start)]
        for place in range(1, _MAX_CLUSTER):
            is_there = place < length
            where = tf.where(is_there, start + place, start)
            beginning.append(tf.gather(code_points, where))
            entry_there = self._cluster_entry(_packed(*beginning))
            found = tf.where((found == 0) & is_there, entry_there, found)
        short = tf.cast(tf.where(is_short), tf.int32)
        whole = tf.scatter_nd(short, found, tf.shape(starts))
        whole = tf.gather(whole, cluster)
        # The first character stands for the cluster.
        return tf.where(whole == 0, entry, tf.where(is_start, whole, 1))

    def _cluster_entry(self, packed):
        place = tf.searchsorted(self._clusters, packed)
        place = tf.minimum(place, len(self._clusters) - 1)
        is_there = tf.gather(self._clusters, place) == packed
        return tf.where(is_there, tf.gather(self._cluster_entries, place), 0)


def is_mark(code_points: tf.Tensor) -> tf.Tensor:
    """Returns bool `[N]`: whether characters belong to the one before."""
    return tf.equal(_kinds().look_up(code_points), _EXTENDS)


def _starts_cluster(code_points, rows):
    size = tf.size(code_points)
    kind = _kinds().look_up(code_points)
    before = tf.concat([[_CONTROL], kind], axis=0)[:size]
    character_before = tf.concat([[0], code_points], axis=0)[:size]
    is_in_row = tf.concat([[False], rows[1:] == rows[:-1]], axis=0)[:size]
    continues = (
        ((kind == _EXTENDS) & (before != _CONTROL))
        | ((before == _PREPENDED) & (kind != _CONTROL))
        | ((character_before == ord("\r")) & (code_points == ord("\n")))
    )
    return ~(continues & is_in_row)


class _Pages:
    """An int32 for each code point, in pages, most of which are equal."""

    def __init__(self, values: np.ndarray) -> None:
        pages, page = np.unique(
            values.reshape(-1, _PAGE), axis=0, return_inverse=True
        )
        self._values = pages.reshape(-1)
        self._page = page.reshape(-1).astype(np.int32)

    def look_up(self, code_points: tf.Tensor) -> tf.Tensor:
        page = tf.gather(self._page, code_points // _PAGE)
        return tf.gather(self._values, page * _PAGE + code_points % _PAGE)


def _packed(*code_points):
    """Returns one number for up to three code points, integers or int32."""
    number = 0
    for code_point in code_points:
        if tf.is_tensor(code_point):
            code_point = tf.cast(code_point, tf.int64)
        number = number * _NUM_CODE_POINTS + code_point + 1
    return number


@functools.cache
def _kinds():
    """Returns the kinds of all characters: `_Pages`."""
    kinds = np.full(_NUM_CODE_POINTS, _OTHER, np.int32)
    for code_point in range(_NUM_CODE_POINTS):
        category = unicodedata.category(chr(code_point))
        if category in ("Mn", "Me", "Mc"):
            kinds[code_point] = _EXTENDS
        elif category in ("Cc", "Cf", "Zl", "Zp"):
            kinds[code_point] = _CONTROL
    kinds[[*_VOWEL_SIGNS, *_JOINERS]] = _EXTENDS
    kinds[[*_PREPENDED_SIGNS]] = _PREPENDED
    return _Pages(kinds)
