"""Philox against the published known answers, in NumPy and TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.philox import halves
from bert_tf.philox import philox

# Counter, key and result of philox4x32-10 in kat_vectors of Random123, the
# authors' own library (https://github.com/DEShawResearch/random123).
KNOWN_ANSWERS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("counter, key, expected", KNOWN_ANSWERS)
def test_known_answers(counter, key, expected):
    words = philox(
        [np.uint64(word) for word in counter], [np.uint64(word) for word in key]
    )
    assert tuple(map(int, words)) == expected


@pytest.mark.parametrize("counter, key, expected", KNOWN_ANSWERS)
def test_known_answers_in_a_graph(counter, key, expected):
    @tf.function
    def compute(counter, key):
        return philox(
            tf.unstack(counter),
            tf.unstack(key),
            right_shift=tf.bitwise.right_shift,
        )

    words = compute(
        tf.constant(counter, tf.uint64), tf.constant(key, tf.uint64)
    )
    assert tuple(map(int, words)) == expected


def test_words_broadcast():
    column = np.arange(5, dtype=np.uint64)[:, None]
    row = np.arange(3, dtype=np.uint64)
    zero = np.uint64(0)
    words = np.stack(philox((column, zero, zero, zero), (row, zero)))
    assert words.shape == (4, 5, 3)
    assert len(np.unique(words)) == words.size
    single = philox((np.uint64(4), zero, zero, zero), (np.uint64(2), zero))
    assert words[:, 4, 2].tolist() == [int(word) for word in single]


def test_halves_of_words():
    word = 0x89ABCDEF_FEDCBA98
    assert halves(np.uint64(word)) == (0xFEDCBA98, 0x89ABCDEF)
    found = halves(tf.constant(word, tf.uint64), tf.bitwise.right_shift)
    assert tuple(map(int, found)) == (0xFEDCBA98, 0x89ABCDEF)
