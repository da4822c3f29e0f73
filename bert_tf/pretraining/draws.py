"""Every random number of the pre-training data, in one table.

A draw is four words of 32 random bits: Philox of (seed, pass, document,
ordinal, what is drawn). Each of these has its own bits in the key or the
counter, so no two draws share bits and none depends on an earlier one. The
examples of a block are therefore the same in any order and any process.

    what            drawn for each             words
    BLOCK           document, without a seed   its block
    TARGET          document and pass          whether its pairs are short;
                                               how short
    PAIR            pair                       where A ends; whether B is
                                               random (or swapped); the
                                               document of a random B; its
                                               first sentence
    EXAMPLE         example                    its place in the records (two
                                               words); its seed for
                                               `text.masking` (two)
    OTHER_DOCUMENT  pair                       words 1 to 3: tries 2 to 4 for
                                               the document of a random B; the
                                               next two numbers: tries 5 to 8,
                                               9 and 10
    ARRANGEMENT     document                   its place in its block (two)
    SEQUENCE        sentence and pass          whether a sequence that begins
                                               here is short; how short
    TRUNCATION      pair                       128 coins, for front or end;
                                               even offsets from here are for
                                               A, odd ones for B

`packing_bits` has a key of its own: its bits are the same for all records.
"""

import numpy as np

from bert_tf.philox import halves
from bert_tf.philox import philox

BLOCK = 0
TARGET = 1
PAIR = 2
EXAMPLE = 3
OTHER_DOCUMENT = 4
ARRANGEMENT = 8
SEQUENCE = 9
TRUNCATION = 16

_PACKING_KEY = np.array([2107, 2027], np.uint64)


def draw(
    what: int | np.ndarray,
    seed: int,
    document_key: np.ndarray,
    pass_number: int | np.ndarray = 0,
    ordinal: int | np.ndarray = 0,
) -> tuple[np.ndarray, ...]:
    """Returns four words of 32 random bits for each document key, as uint64."""
    document_key = np.asarray(document_key, np.uint64)
    return philox(
        (
            *halves(document_key),
            np.asarray(ordinal, np.uint64),
            np.asarray(what, np.uint64),
        ),
        (np.asarray(seed, np.uint64), np.asarray(pass_number, np.uint64)),
    )


def packing_bits(count: int) -> np.ndarray:
    """Returns 32 random bits for each of `count` examples: uint64 [count]."""
    numbers = np.arange(count, dtype=np.uint64)
    zeros = np.zeros([3, 1], np.uint64)
    return philox((numbers, *zeros), _PACKING_KEY)[0]


def below(bits: np.ndarray, limit: int | np.ndarray) -> np.ndarray:
    """Returns int64 in [0, limit) from words of 32 random bits.

    The relative bias is at most limit / 2**32.
    """
    product = bits * np.asarray(limit, np.uint64)
    return (product >> np.uint64(32)).astype(np.int64)


def happens(bits: np.ndarray, probability: float) -> np.ndarray:
    """Returns bool, true with this probability, from 32 random bits each."""
    return bits < round(probability * 2**32)
