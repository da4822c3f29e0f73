r"""Unicode's NFC: a letter and its marks become one character if there is one.

Hugging Face's `tokenizers` (0.23) does the same with the letters of Unicode 12;
TensorFlow knows some later ones, too. U+FDD0 is no character, and is dropped.
"""

import tensorflow as tf

from bert_tf.text import offsets as offsets_lib
from bert_tf.text.tokenizers import characters
from bert_tf.text.tokenizers import text_ops
from bert_tf.text.tokenizers.token_finder import Normal
from bert_tf.text.tokenizers.utf_8 import END

# Characters that join the one before: marks, and vowels and finals of Hangul.
# The last ones are of Unicode 16, whose marks RE2 (Unicode 15) does not know.
_JOINS = (
    r"\p{M}\x{1161}-\x{11ff}\x{113b8}-\x{113c9}\x{1611e}-\x{16129}\x{16d67}"
)
# These too, and those that NFC replaces by others.
_CHANGES = (
    _JOINS + r"\x{374}\x{37e}\x{387}\x{958}-\x{95f}\x{9dc}-\x{9df}"
    r"\x{a33}-\x{a36}\x{a59}-\x{a5e}\x{b5c}\x{b5d}\x{f43}-\x{f69}"
    r"\x{1f71}-\x{1fff}\x{2000}\x{2001}\x{2126}-\x{212b}\x{2329}\x{232a}"
    r"\x{2adc}\x{f900}-\x{faff}\x{fb1d}-\x{fb4f}\x{1d15e}-\x{1d1c0}"
    r"\x{2f800}-\x{2fa1f}"
)
# Texts that match are in NFC.
PLAIN = f"[^{_CHANGES}]*"
_CLUSTER = f"(?s).[{_JOINS}]*"
# TensorFlow sorts each run of marks in quadratic time, so something that is no
# character breaks up those that no language has.
_LONGEST_RUN = 200
_BREAK = 0xFDD0


def compose(texts: tf.Tensor) -> tf.Tensor:
    """Returns valid texts, string `[N]`, in NFC."""

    def composed():
        tf_text = text_ops.tensorflow_text()
        normal = tf_text.normalize_utf8(_broken(texts), "NFC")
        return tf.strings.regex_replace(normal, rf"\x{{{_BREAK:x}}}", "")

    is_plain = tf.reduce_all(tf.strings.regex_full_match(texts, PLAIN))
    return tf.cond(is_plain, lambda: texts, composed)


def normalize(texts: tf.Tensor) -> Normal:
    """Returns the characters of valid texts, string `[N]`, in NFC.

    What a letter and its marks become is from the letter, and marks that are
    left from the last marks.
    """
    composed = compose(texts)
    decoded = tf.strings.unicode_decode(texts, "UTF-8")
    normal = tf.strings.unicode_decode(composed, "UTF-8")
    sources = tf.cond(
        tf.reduce_all(tf.equal(texts, composed)),
        lambda: tf.range(tf.size(decoded.flat_values)),
        lambda: _sources(texts, composed),
    )
    return Normal(decoded, normal.flat_values, normal.value_rowids(), sources)


def in_source(
    ids: tf.RaggedTensor,
    offsets: offsets_lib.Offsets,
    normal: Normal,
    texts: tf.Tensor,
) -> offsets_lib.Offsets:
    """Returns the offsets in texts for those in their normal forms.

    Args:
        ids: RaggedTensor `[batch, (words), (pieces)]`.
        offsets: Their `Offsets` in the normal forms.
        normal: The `Normal` of the texts.
        texts: string `[batch]`.
    """
    row = ids.merge_dims(1, 2).value_rowids()
    in_rows = tf.math.unsorted_segment_sum(
        tf.ones_like(normal.sources), normal.rows, normal.characters.nrows()
    )
    normal_start = tf.gather(tf.cumsum(in_rows, exclusive=True), row)
    start = tf.cast(tf.gather(normal.characters.row_starts(), row), tf.int32)
    sources = tf.concat([normal.sources, [0]], axis=0)
    first, limit = offsets.starts.flat_values, offsets.limits.flat_values
    is_empty = tf.equal(first, limit)
    first = tf.gather(sources, normal_start + first) - start
    last = tf.gather(sources, tf.maximum(normal_start + limit - 1, 0)) - start
    limit = tf.where(limit > 0, last + 1, 0)
    return offsets_lib.in_bytes(
        ids, tf.where(is_empty, limit, first), limit, texts
    )


def _broken(texts):
    """Returns texts with `_BREAK` in long runs of marks."""
    decoded = tf.strings.unicode_decode(texts, "UTF-8")
    code_points = decoded.flat_values
    is_mark = characters.is_mark(code_points)
    places = tf.range(tf.size(code_points))
    # The first place of each character's run.
    starts = tf.concat([[0], tf.boolean_mask(places, ~is_mark)], axis=0)
    starts = tf.gather(starts, tf.cumsum(tf.cast(~is_mark, tf.int32)))
    is_last = is_mark & tf.equal((places - starts) % _LONGEST_RUN, 0)
    broken = tf.stack([code_points, tf.fill(tf.shape(places), _BREAK)], axis=1)
    is_kept = tf.stack([tf.ones_like(is_last), is_last], axis=1)
    rows = decoded.with_flat_values(tf.RaggedTensor.from_tensor(broken))
    kept = tf.ragged.boolean_mask(
        rows, decoded.with_flat_values(tf.RaggedTensor.from_tensor(is_kept))
    )
    return tf.strings.unicode_encode(kept.merge_dims(1, 2), "UTF-8")


def _sources(texts, composed):
    """Returns which character each of the composed ones is from."""
    # Clusters are composed one by one; a text that stays has none.
    clusters = tf.where(
        tf.equal(texts, composed),
        tf.strings.regex_replace(texts, "(?s).", rb"\0" + END),
        tf.strings.regex_replace(texts, _CLUSTER, rb"\0" + END),
    )
    clusters = tf.strings.split(clusters, END).flat_values
    clusters = tf.boolean_mask(clusters, tf.not_equal(clusters, ""))
    before = tf.strings.length(clusters, unit="UTF8_CHAR")
    after = tf.strings.length(compose(clusters), unit="UTF8_CHAR")
    cluster = tf.repeat(tf.range(tf.size(after)), after)
    nth = tf.range(tf.size(cluster))
    nth -= tf.gather(tf.cumsum(after, exclusive=True), cluster)
    # A mark may also become two.
    place = tf.minimum(nth, tf.gather(before, cluster) - 1)
    place = tf.maximum(place, nth + tf.gather(before - after, cluster))
    start = tf.gather(tf.cumsum(before, exclusive=True), cluster)
    return start + tf.where(tf.equal(nth, 0), 0, place)
