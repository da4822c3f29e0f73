"""Runs of examples on disk, merged by range."""

import itertools
import tracemalloc

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining.records import example_runs
from bert_tf.text import packing
from bert_tf.text.vocabulary import ALBERT
from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary


def test_memory_does_not_grow_with_the_number_of_runs(tmp_path):
    """Every process would keep an index of 65 KB for each of its blocks."""
    index = np.zeros((2, 4097), np.int64)
    # One example of two tokens a run, in bucket 7.
    index[0, 8:], index[1, 8:] = 1, 2
    header = np.zeros(1, example_runs._HEADER)
    header["a_length"] = 2
    paths = []
    for number in range(200):
        path = str(tmp_path / f"run{number}")
        header["order"] = 7 << 52 | 200 - number
        header.tofile(f"{path}.rows")
        np.array([number, 0], np.uint16).tofile(f"{path}.tokens")
        index.tofile(f"{path}.index")
        paths.append(path)
    tracemalloc.start()
    runs = example_runs.Runs(paths, np.dtype(np.uint16))
    found = runs.read(50, 53)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # All indices have 13 MB.
    assert peak < 1e6
    assert found.own_tokens().tolist() == [149, 0, 148, 0, 147, 0]


@pytest.mark.parametrize("special", [BERT, ALBERT, ROBERTA])
def test_rows_are_those_of_the_graph(special):
    """Records and servables build their rows with code of their own."""
    vocabulary = Vocabulary(
        tokens=(*special.names[::-1], *"abcdefgh"),
        special=special,
        is_wordpiece=False,
    )
    generator = np.random.default_rng(63)
    sentences = [
        generator.integers(5, 13, length).tolist() for length in range(1, 8)
    ]
    pairs = [*itertools.product(sentences, [[], *sentences])]
    length = 7 + 7 + special.count(2)
    a, b = (tf.ragged.constant(each, tf.int32) for each in zip(*pairs))
    expected = packing.pack([a, b], length, vocabulary)
    alone = packing.pack([a], length, vocabulary)

    headers = np.zeros(len(pairs), example_runs._HEADER)
    headers["a_length"], headers["b_length"] = a.row_lengths(), b.row_lengths()
    # In another order than their tokens.
    order = generator.permutation(len(pairs))
    headers["order"][order] = np.arange(len(pairs))
    tokens = np.concatenate([first + second for first, second in pairs])
    examples = example_runs.merge([headers], [tokens.astype(np.uint16)])
    found = example_runs.pack(examples, length, vocabulary)

    has_b = headers["b_length"][:, None] > 0
    assert found.keys() == expected.keys()
    for name, rows in found.items():
        wanted = np.where(has_b, expected[name], alone[name])
        np.testing.assert_array_equal(rows, wanted[order])
