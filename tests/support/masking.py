"""Rows of random words and pieces, and their masking."""

import numpy as np
import tensorflow as tf

from bert_tf.text import masking
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

WHOLE = tuple(f"w{i}" for i in range(23))
PIECES = tuple(f"##p{i}" for i in range(17))
VOCABULARY = Vocabulary(tokens=SPECIAL_TOKENS + WHOLE + PIECES)
FIRST_PIECE = VOCABULARY.index("##p0")


def make_inputs(num_rows, seq_length, seed, share_of_pieces=0.4):
    """Random pairs of many lengths: ids, mask, and seeds."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((num_rows, seq_length), np.int32)
    mask = np.zeros((num_rows, seq_length), np.int32)
    for row in range(num_rows):
        length = rng.integers(5, seq_length + 1)
        tokens = np.where(
            rng.random(length) < share_of_pieces,
            rng.integers(FIRST_PIECE, len(VOCABULARY), length),
            rng.integers(len(SPECIAL_TOKENS), FIRST_PIECE, length),
        )
        tokens[0] = VOCABULARY.cls_id
        tokens[rng.integers(2, length - 2)] = VOCABULARY.sep_id
        tokens[-1] = VOCABULARY.sep_id
        ids[row, :length] = tokens
        mask[row, :length] = 1
    return ids, mask, rng.integers(0, 2**32, (num_rows, 2))


def mask_tokens(ids, mask, seeds, **rules):
    """Returns what masking.mask_tokens does, as arrays."""
    masked = masking.mask_tokens(
        tf.constant(ids),
        tf.constant(mask),
        tf.constant(seeds),
        WordpieceSpec(VOCABULARY),
        masking.Rules(**rules),
    )
    return {name: value.numpy() for name, value in masked.items()}
