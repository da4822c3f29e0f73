"""Inspection: every rule is broken once, and it is that rule that tells."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.pretraining import inspection
from bert_tf.pretraining import records
from bert_tf.text.masking import Rules
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg")
)
CLS, SEP, MASK = 2, 3, 4


@pytest.fixture
def examples():
    """[CLS] a b [SEP] c d e [SEP]: b and d are predicted, d kept."""
    return {
        "input_ids": np.array([[CLS, 5, MASK, SEP, 7, 8, 9, SEP, 0, 0]]),
        "input_mask": np.array([[1, 1, 1, 1, 1, 1, 1, 1, 0, 0]]),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 1, 1, 0, 0]]),
        "masked_lm_positions": np.array([[2, 5, 0]]),
        "masked_lm_ids": np.array([[6, 8, 0]]),
        "masked_lm_weights": np.array([[1, 1, 0]], np.float32),
        "next_sentence_labels": np.array([[1]]),
    }


RULES = Rules(max_predictions_per_seq=3, masked_lm_prob=0.25)


def test_good_example_keeps_every_rule(examples):
    checks = inspection.check(examples, VOCABULARY, RULES)
    assert len(checks) == 10
    assert all(holds.tolist() == [True] for holds in checks.values())


@pytest.mark.parametrize(
    "name, place, value, rule",
    [
        ("input_ids", 5, 12, "ids are in"),
        ("masked_lm_ids", 0, 12, "ids are in"),
        ("input_mask", 1, 0, "the input mask"),
        ("input_ids", 8, 5, "padding"),
        ("segment_ids", 9, 1, "padding"),
        ("input_ids", 0, 5, "[CLS] A"),
        ("input_ids", 4, SEP, "[CLS] A"),
        ("input_ids", 7, 5, "[CLS] A"),
        ("segment_ids", 3, 1, "segments"),
        ("segment_ids", 4, 0, "segments"),
        ("masked_lm_weights", 0, 0.5, "weights"),
        ("masked_lm_weights", 1, 0, "weights"),
        ("masked_lm_positions", 2, 4, "weights"),
        ("masked_lm_positions", 0, 6, "positions"),
        ("masked_lm_positions", 1, 9, "positions"),
        ("masked_lm_positions", 0, 0, "[CLS] and [SEP]"),
        ("masked_lm_ids", 1, SEP, "[CLS] and [SEP]"),
        ("next_sentence_labels", 0, 2, "the next-sentence"),
    ],
)
def test_broken_example_breaks_its_rule(examples, name, place, value, rule):
    examples[name][0, place] = value
    broken = [
        words
        for words, holds in inspection.check(examples, VOCABULARY).items()
        if not holds[0]
    ]
    assert any(words.startswith(rule) for words in broken), broken


def test_number_of_predictions(examples):
    words = "there are as many predictions as the rule says"

    def holds(**rules):
        rules = Rules(**{"max_predictions_per_seq": 3} | rules)
        return inspection.check(examples, VOCABULARY, rules)[words][0]

    # Of 8 tokens: 0.25 * 8 = 2.
    assert holds(masked_lm_prob=0.25)
    assert not holds(masked_lm_prob=0.375)
    assert not holds(masked_lm_prob=0.1)
    # Whole words may leave fewer, and never more.
    assert holds(masked_lm_prob=0.375, do_whole_word_mask=True)
    assert not holds(masked_lm_prob=0.1, do_whole_word_mask=True)


def test_totals(examples):
    assert inspection.count(examples, VOCABULARY) == {
        "examples": 1,
        "tokens": 8,
        "tokens of B": 4,
        "random pairs": 1,
        "predictions": 2,
        "masked": 1,
        "kept": 1,
        "replaced": 0,
    }


def test_table(examples):
    lines = inspection.table(examples, 0, VOCABULARY).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["0", "[CLS]", "0", "0"],
        ["1", "a", "0", "1"],
        ["2", "b", "0", "2", "[MASK]", "b"],
    ]
    assert lines[6].split() == ["5", "d", "1", "5", "d", "d"]
    assert lines[9] == (
        "8 tokens, 2 of padding, 2 predictions; next sentence: random"
    )


def test_records_are_read_back(examples, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    records.write(path, [records.serialize(examples) * 3])
    (batch,) = inspection.read([path])
    for name, values in examples.items():
        np.testing.assert_array_equal(batch[name], np.repeat(values, 3, 0))


@pytest.mark.parametrize(
    "data, reason",
    [
        ([], "no record"),
        ([b"\xff\xff\xff"], "not a tf.train.Example"),
        ([b""], "not a pre-training example"),
    ],
)
def test_other_records_are_refused(data, reason, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    records.write(path, [data])
    with pytest.raises(ValueError, match=reason) as caught:
        list(inspection.read([path]))
    assert path in str(caught.value)


def test_record_of_another_length_is_refused(examples, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    longer = examples | {
        name: np.pad(examples[name], [(0, 0), (0, 3)])
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    records.write(
        path, [records.serialize(examples) + records.serialize(longer)]
    )
    with pytest.raises(ValueError, match=r"x.tfrecord: Name.*\b13\b.*\[10\]$"):
        list(inspection.read([path]))


def test_cut_file_is_refused(examples, tmp_path):
    path = tmp_path / "x.tfrecord"
    records.write(str(path), [records.serialize(examples) * 3])
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="x.tfrecord: truncated record"):
        list(inspection.read([str(path)]))


def test_dtype_of_tensors_is_the_records(examples, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    records.write(path, [records.serialize(examples)])
    (batch,) = inspection.read([path])
    assert batch["input_ids"].dtype == tf.int64.as_numpy_dtype
    assert batch["masked_lm_weights"].dtype == np.float32
