"""Texts that are hard to tokenize, and ragged tensors as lists."""

import json
import unicodedata

import tensorflow as tf

from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from support import paths

GOLDEN = json.loads((paths.GOLDEN / "tokenizer_lines.json").read_text("utf-8"))
CASES = ("uncased", "cased")
# Of the private planes 15 and 16, which are all alike, the ends.
ASSIGNED = [
    chr(code_point)
    for code_point in (*range(0xF0000), 0xFFFFD, 0x100000, 0x10FFFD)
    if unicodedata.category(chr(code_point)) not in ("Cn", "Cs")
]


def vocabulary_of(case):
    return Vocabulary(tokens=GOLDEN["vocabularies"][case])


def tokenizer_of(case, fast=False):
    return WordpieceSpec(vocabulary_of(case), case == "uncased", fast).make()


def encode(texts):
    return tf.constant([text.encode("utf-8") for text in texts], tf.string)


def to_lists(ragged):
    """RaggedTensor.to_list() takes a millisecond a row; this does not."""
    values = ragged.flat_values.numpy().tolist()
    for row_splits in reversed(ragged.nested_row_splits):
        ends = row_splits.numpy().tolist()
        values = [values[a:b] for a, b in zip(ends, ends[1:])]
    return values
