"""What tokenizers know of UTF-8 and of white space."""

import tensorflow as tf

# Unicode's White_Space.
WHITE_SPACE = (
    r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}"
    r"\x{205f}\x{3000}"
)
# A byte that never occurs in UTF-8.
END = b"\xff"
_VALID = r"[^\x{d800}-\x{dfff}]*"


def valid(texts: tf.Tensor) -> tf.Tensor:
    """Returns strings `[N]` without the bytes that are not UTF-8."""
    is_valid = tf.reduce_all(tf.strings.regex_full_match(texts, _VALID))
    return tf.cond(
        is_valid,
        lambda: texts,
        lambda: tf.strings.unicode_transcode(
            texts, "UTF-8", "UTF-8", errors="ignore"
        ),
    )
