import random

import pytest
import tensorflow as tf

from bert_tf.text import packing
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from references import text as reference_text

# [PAD] is not 0: padding must come from the vocabulary.
VOCABULARY = Vocabulary(
    tokens=("[UNK]", "[PAD]", "a", "[SEP]", "[CLS]", "[MASK]")
)
UNK, PAD, A, SEP, CLS, MASK = range(6)


def ragged(rows, dtype=tf.int32):
    return tf.ragged.constant(rows, dtype, ragged_rank=1)


def random_rows(generator, count, longest):
    return [
        [generator.randint(6, 99) for _ in range(generator.randint(0, longest))]
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("length_a", "length_b", "max_tokens", "kept"),
    [
        (3, 4, 7, (3, 4)),
        (3, 4, 6, (3, 3)),
        # Of two equals B is cut.
        (4, 4, 7, (4, 3)),
        (4, 4, 6, (3, 3)),
        (9, 2, 6, (4, 2)),
        (2, 9, 6, (2, 4)),
        (9, 9, 5, (3, 2)),
        (9, 0, 5, (5, 0)),
        (0, 9, 5, (0, 5)),
        (5, 5, 1, (1, 0)),
        (5, 5, 0, (0, 0)),
        (0, 0, 0, (0, 0)),
    ],
)
def test_longer_segment_of_a_pair_is_cut(length_a, length_b, max_tokens, kept):
    a, b = list(range(20, 20 + length_a)), list(range(30, 30 + length_b))

    packed = packing.pack(
        [ragged([a]), ragged([b])], max_tokens + 3, VOCABULARY
    )

    ids = [CLS, *a[: kept[0]], SEP, *b[: kept[1]], SEP]
    assert packed["input_ids"][0, : len(ids)].numpy().tolist() == ids
    assert packed["input_mask"].numpy().sum() == len(ids)


def test_parts_of_rows_are_taken():
    pieces = ragged([[1, 2, 3], [], [4, 5, 6, 7]])
    parts = packing.take(pieces, [2, 0, 2, 1], [1, 0, 0, 0], [2, 3, 4, 0])
    assert parts.to_list() == [[5, 6], [1, 2, 3], [4, 5, 6, 7], []]


def test_one_segment():
    packed = packing.pack([ragged([[7, 8], [], [7, 8, 9, 6]])], 5, VOCABULARY)

    assert packed["input_ids"].numpy().tolist() == [
        [CLS, 7, 8, SEP, PAD],
        [CLS, SEP, PAD, PAD, PAD],
        [CLS, 7, 8, 9, SEP],
    ]
    assert packed["input_mask"].numpy().tolist() == [
        [1, 1, 1, 1, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 1, 1],
    ]
    assert packed["segment_ids"].numpy().tolist() == [[0] * 5] * 3
    assert {value.dtype for value in packed.values()} == {tf.int32}


def test_two_segments():
    packed = packing.pack(
        [ragged([[7], [], [7, 8, 9, 6]]), ragged([[11, 12], [], [13, 14, 15]])],
        7,
        VOCABULARY,
    )

    assert packed["input_ids"].numpy().tolist() == [
        [CLS, 7, SEP, 11, 12, SEP, PAD],
        [CLS, SEP, SEP, PAD, PAD, PAD, PAD],
        [CLS, 7, 8, SEP, 13, 14, SEP],
    ]
    assert packed["input_mask"].numpy().tolist() == [
        [1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 0, 0, 0, 0],
        [1, 1, 1, 1, 1, 1, 1],
    ]
    assert packed["segment_ids"].numpy().tolist() == [
        [0, 0, 0, 1, 1, 1, 0],
        [0, 0, 1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 1, 1],
    ]


@pytest.mark.parametrize("seq_length", [3, 4, 8, 9, 10, 13, 18, 40])
def test_packing_equals_the_loop_for_any_length(seq_length):
    generator = random.Random(5)
    a, b = random_rows(generator, 60, 15), random_rows(generator, 60, 15)

    packed = packing.pack([ragged(a), ragged(b)], seq_length, VOCABULARY)

    for row, pair in enumerate(zip(a, b)):
        cut_a, cut_b = reference_text.truncate_pair(*pair, seq_length - 3)
        ids = [CLS, *cut_a, SEP, *cut_b, SEP]
        padding = [0] * (seq_length - len(ids))
        segments = [0] * (len(cut_a) + 2) + [1] * (len(cut_b) + 1)
        got = {
            name: value[row].numpy().tolist() for name, value in packed.items()
        }
        assert got == {
            "input_ids": ids + [PAD] * len(padding),
            "input_mask": [1] * len(ids) + padding,
            "segment_ids": segments + padding,
        }


def test_words_are_joined():
    words = tf.ragged.constant([[[7, 8], [9]], []], tf.int32, ragged_rank=2)

    packed = packing.pack([words], 5, VOCABULARY)

    assert packed["input_ids"].numpy().tolist() == [
        [CLS, 7, 8, 9, SEP],
        [CLS, SEP, PAD, PAD, PAD],
    ]


def test_only_special_tokens_fit():
    one = packing.pack([ragged([[7, 8]])], 2, VOCABULARY)
    two = packing.pack([ragged([[7]]), ragged([[8, 9]])], 3, VOCABULARY)

    assert one["input_ids"].numpy().tolist() == [[CLS, SEP]]
    assert two["input_ids"].numpy().tolist() == [[CLS, SEP, SEP]]


@pytest.mark.parametrize(
    ("num_segments", "seq_length", "message"),
    [
        (1, 1, "`seq_length` must be at least 2"),
        (2, 2, "`seq_length` must be at least 3"),
        (0, 9, "`segments` must be one or two"),
        (3, 9, "`segments` must be one or two"),
    ],
)
def test_what_cannot_be_packed_is_refused(num_segments, seq_length, message):
    with pytest.raises(ValueError, match=message):
        packing.pack([ragged([[7]])] * num_segments, seq_length, VOCABULARY)


def test_segments_of_different_batches_are_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many rows"):
        packing.pack([ragged([[7]]), ragged([[8], [9]])], 9, VOCABULARY)


def test_graph_has_static_length_and_core_operations_only():
    spec = tf.RaggedTensorSpec([None, None], tf.int64, ragged_rank=1)

    @tf.function(input_signature=[spec, spec])
    def pack(a, b):
        return packing.pack([a, b], 7, VOCABULARY)

    graph = pack.get_concrete_function()

    assert {
        name: (spec.dtype, spec.shape.as_list())
        for name, spec in graph.structured_outputs.items()
    } == dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids"), (tf.int32, [None, 7])
    )
    operations = {operation.type for operation in graph.graph.get_operations()}
    assert all(hasattr(tf.raw_ops, operation) for operation in operations)
    packed = pack(ragged([[7, 8, 9]], tf.int64), ragged([[6, 6]], tf.int64))
    assert packed["input_ids"].numpy().tolist() == [[CLS, 7, 8, SEP, 6, 6, SEP]]


def test_roberta_has_two_tokens_between_and_one_segment():
    vocabulary = Vocabulary(
        tokens=("<s>", "<pad>", "</s>", "<unk>", "<mask>", "a b"),
        special=ROBERTA,
        is_wordpiece=False,
    )
    a = tf.ragged.constant([[11, 12, 13, 14], [21]], tf.int32)
    b = tf.ragged.constant([[15, 16, 17], [22, 23]], tf.int32)
    found = packing.pack([a, b], 9, vocabulary)
    assert found["input_ids"].numpy().tolist() == [
        [0, 11, 12, 13, 2, 2, 15, 16, 2],
        [0, 21, 2, 2, 22, 23, 2, 1, 1],
    ]
    assert found["input_mask"].numpy().sum(axis=1).tolist() == [9, 7]
    assert not found["segment_ids"].numpy().any()
    single = packing.pack([a], 4, vocabulary)["input_ids"]
    assert single.numpy().tolist() == [[0, 11, 12, 2], [0, 21, 2, 1]]
    with pytest.raises(ValueError, match="at least 4 for 2 segments"):
        packing.pack([a, b], 3, vocabulary)
