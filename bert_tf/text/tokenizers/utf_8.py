"""What tokenizers know of UTF-8 and of white space."""

import tensorflow as tf

# Unicode's White_Space.
WHITE_SPACE = (
    r"\t-\r \x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}"
    r"\x{205f}\x{3000}"
)
# A byte that never occurs in UTF-8.
END = b"\xff"
# Bytes of a text that are read by default. A sequence seldom has room for more,
# and tokenizing takes some 50 times the memory of the text.
MAX_TEXT_BYTES = 2**20
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


def cut_texts(
    texts: tf.Tensor, max_bytes: int = MAX_TEXT_BYTES
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts the ends off long texts, between two characters.

    Args:
        texts: string, of any shape.
        max_bytes: The most bytes that are kept of each.

    Returns:
        Two tensors of the same shape: the texts, and bool, whether each was
        cut.
    """
    is_cut = tf.strings.length(texts) > max_bytes
    # One byte too many, so that all characters but the last of these fit.
    head = tf.strings.substr(texts, 0, max_bytes + 1)
    count = tf.maximum(tf.strings.length(head, unit="UTF8_CHAR") - 1, 0)
    kept = tf.strings.substr(
        head, tf.zeros_like(count), count, unit="UTF8_CHAR"
    )
    return tf.where(is_cut, kept, texts), is_cut
