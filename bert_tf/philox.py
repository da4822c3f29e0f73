"""Random bits as a function of a key and a counter: Philox4x32-10.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"
(doi 10.1145/2063384.2063405). There is no state: number n of a stream always
has the same bits, in any order, process or batch. NumPy's generator takes only
one key at a time. This one takes a key and a counter for each element, in NumPy
and inside a TensorFlow graph.
"""

from collections.abc import Callable
from collections.abc import Iterable

import numpy as np

from bert_tf.features import Tensor

# uint64, like the words: with a Python integer, NumPy 1 would turn a 0-d word
# into a float.
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_INCREMENTS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_NUM_ROUNDS = 10
_LOW_WORD = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)


def halves(
    word: Tensor, right_shift: Callable[..., Tensor] = np.right_shift
) -> tuple[Tensor, Tensor]:
    """Returns the low and the high 32 bits, as words of `philox`.

    Args:
        word: Array or tensor of uint64.
        right_shift: As in `philox`.
    """
    return word & _LOW_WORD, right_shift(word, _WORD_BITS)


def philox(
    counter: Iterable[Tensor],
    key: Iterable[Tensor],
    right_shift: Callable[..., Tensor] = np.right_shift,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Returns 128 random bits for every counter and key.

    Args:
        counter: Four arrays or tensors of uint64 that broadcast against each
            other and the key, each value below 2**32.
        key: Two arrays or tensors of the same kind.
        right_shift: `np.right_shift`, or `tf.bitwise.right_shift` if the words
            are tensors.

    Returns:
        Four arrays or tensors of uint64, each value below 2**32.
    """
    word0, word1, word2, word3 = counter
    key0, key1 = key
    for _ in range(_NUM_ROUNDS):
        product0 = word0 * _MULTIPLIERS[0]
        product1 = word2 * _MULTIPLIERS[1]
        word0, word1, word2, word3 = (
            right_shift(product1, _WORD_BITS) ^ word1 ^ key0,
            product1 & _LOW_WORD,
            right_shift(product0, _WORD_BITS) ^ word3 ^ key1,
            product0 & _LOW_WORD,
        )
        key0 = (key0 + _KEY_INCREMENTS[0]) & _LOW_WORD
        key1 = (key1 + _KEY_INCREMENTS[1]) & _LOW_WORD
    return word0, word1, word2, word3
