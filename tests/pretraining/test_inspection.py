"""Inspection: every rule is broken once, and it is told with what follows."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import manifest
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import record_rules
from bert_tf.pretraining.records import tfrecord
from bert_tf.text.masking import Rules
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg")
)
CLS, SEP, MASK = 2, 3, 4
IDS = "ids are in the vocabulary"
MASKS = "the input mask is 1 on tokens, then 0"
PADDING = "padding has id and segment of padding"
PAIR = "[CLS] A [SEP] B [SEP], no segment empty"
SEGMENTS = "segments are 0 to the first [SEP], then 1"
WEIGHTS = "weights are 1 on predictions, then all is 0"
POSITIONS = "positions are inside and ascend"
SPECIAL = "[CLS] and [SEP] are never masked"
LABEL = "the next-sentence label is 0 or 1"
COUNT = "there are as many predictions as the rule says"
FIRST = "first positions ascend from 0, then all is 0"
NUMBERS = "sequences are numbered from 1, padding is 0"
RESTART = "positions restart in each sequence"
LABELS = "labels of sequences that are not there are 0"


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
    checks = record_rules.check(examples, VOCABULARY, RULES)
    assert len(checks) == 10
    assert all(holds.tolist() == [True] for holds in checks.values())


@pytest.mark.parametrize(
    "name, place, value, rules",
    [
        ("input_ids", 5, 12, {IDS}),
        ("masked_lm_ids", 0, 12, {IDS}),
        ("input_mask", 1, 0, {MASKS, PADDING, SEGMENTS, PAIR}),
        ("input_mask", 1, 9, {MASKS}),
        ("input_mask", 1, -9, {MASKS, PADDING, SEGMENTS, PAIR}),
        ("input_ids", 8, 5, {PADDING}),
        ("segment_ids", 9, 1, {PADDING}),
        ("input_ids", 0, 5, {PAIR}),
        ("input_ids", 4, SEP, {PAIR}),
        ("input_ids", 7, 5, {PAIR}),
        ("segment_ids", 3, 1, {SEGMENTS}),
        ("segment_ids", 4, 0, {SEGMENTS}),
        ("masked_lm_weights", 0, 0.5, {WEIGHTS}),
        ("masked_lm_weights", 1, 0, {WEIGHTS}),
        ("masked_lm_positions", 2, 4, {WEIGHTS}),
        ("masked_lm_positions", 0, 6, {POSITIONS}),
        ("masked_lm_positions", 1, 9, {POSITIONS}),
        ("masked_lm_positions", 0, 0, {SPECIAL, PAIR}),
        ("masked_lm_ids", 1, SEP, {SPECIAL, PAIR}),
        ("next_sentence_labels", 0, 2, {LABEL}),
        ("next_sentence_labels", 0, -1, {LABEL}),
    ],
)
def test_broken_example_breaks_its_rules(examples, name, place, value, rules):
    examples[name][0, place] = value
    checks = record_rules.check(examples, VOCABULARY)
    assert {words for words, holds in checks.items() if not holds[0]} == rules


def test_number_of_predictions(examples):
    def holds(**rules):
        rules = Rules(**{"max_predictions_per_seq": 3} | rules)
        return record_rules.check(examples, VOCABULARY, rules)[COUNT][0]

    # Of 8 tokens: 0.25 * 8 = 2.
    assert holds(masked_lm_prob=0.25)
    assert not holds(masked_lm_prob=0.375)
    assert not holds(masked_lm_prob=0.1)
    # Whole words may leave fewer, and never more.
    assert holds(masked_lm_prob=0.375, do_whole_word_mask=True)
    assert not holds(masked_lm_prob=0.1, do_whole_word_mask=True)


def test_totals(examples):
    assert inspection.count(examples, VOCABULARY) == {
        "records": 1,
        "columns": 10,
        "examples": 1,
        "tokens": 8,
        "unknown": 0,
        "tokens of B": 4,
        "random pairs": 1,
        "predictions": 2,
        "masked": 1,
        "kept": 1,
        "replaced": 0,
    }


def test_unknown_tokens_are_those_of_the_text(examples):
    """Also where a mask hides them, and not where they replace a token."""
    unknown = VOCABULARY.unk_id
    examples["input_ids"][0, [4, 5]] = unknown
    examples["masked_lm_ids"][0, 0] = unknown
    assert inspection.count(examples, VOCABULARY)["unknown"] == 2


def test_table(examples):
    lines = inspection.table(examples, 0, VOCABULARY).splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["0", "[CLS]", "0", "0"],
        ["1", "a", "0", "1"],
        ["2", "b", "0", "2", "[MASK]", "b"],
    ]
    assert lines[6].split() == ["5", "d", "1", "5", "d", "d"]
    assert lines[9] == "8 tokens, 2 of padding, 2 predictions; random next"


@pytest.mark.parametrize("label", [7, -1])
def test_numbers_that_break_a_rule_are_not_added_up(examples, label):
    examples["input_mask"][0, 1] = 9
    examples["segment_ids"][0, 4] = 7
    examples["next_sentence_labels"][0, 0] = label
    totals = inspection.count(examples, VOCABULARY)
    assert totals["tokens"] == 8
    assert totals["tokens of B"] == 4
    assert totals["random pairs"] == 0
    lines = inspection.table(examples, 0, VOCABULARY).splitlines()
    assert lines[9] == (f"8 tokens, 2 of padding, 2 predictions; label {label}")


@pytest.fixture
def packed():
    """[CLS] a b [SEP] c [SEP], [CLS] d [SEP] e [SEP]: b and d predicted."""
    return {
        "input_ids": np.array([[CLS, 5, 4, 3, 7, 3, CLS, 8, 3, 9, 3, 0]]),
        "input_mask": np.array([[1] * 11 + [0]]),
        "segment_ids": np.array([[0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0]]),
        "position_ids": np.array([[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 0]]),
        "sequence_ids": np.array([[1] * 6 + [2] * 5 + [0]]),
        "first_positions": np.array([[0, 6, 0]]),
        "masked_lm_positions": np.array([[2, 7, 0]]),
        "masked_lm_ids": np.array([[6, 8, 0]]),
        "masked_lm_weights": np.array([[1, 1, 0]], np.float32),
        "next_sentence_labels": np.array([[0, 1, 0]]),
    }


ROW_RULES = Rules(max_predictions_per_seq=3, masked_lm_prob=0.2)


def test_good_row_keeps_every_rule(packed):
    checks = record_rules.check(packed, VOCABULARY, ROW_RULES)
    assert len(checks) == 14
    assert all(holds.tolist() == [True] for holds in checks.values())


@pytest.mark.parametrize(
    "name, place, value, rules",
    [
        ("input_ids", 6, 5, {PAIR}),
        ("input_ids", 8, 5, {SEGMENTS, PAIR}),
        ("segment_ids", 6, 1, {SEGMENTS}),
        ("first_positions", 0, 1, {FIRST, NUMBERS, RESTART}),
        ("first_positions", 1, 11, {FIRST, NUMBERS, RESTART}),
        ("first_positions", 2, 6, {FIRST, NUMBERS, PAIR, COUNT}),
        ("first_positions", 1, 5, {NUMBERS, RESTART}),
        ("sequence_ids", 5, 2, {NUMBERS, SEGMENTS, PAIR}),
        ("sequence_ids", 11, 2, {NUMBERS}),
        ("position_ids", 6, 6, {RESTART}),
        ("position_ids", 11, 5, {RESTART}),
        ("next_sentence_labels", 2, 1, {LABELS}),
        ("masked_lm_positions", 1, 5, {PAIR, COUNT}),
    ],
)
def test_broken_row_breaks_its_rules(packed, name, place, value, rules):
    packed[name][0, place] = value
    checks = record_rules.check(packed, VOCABULARY, ROW_RULES)
    assert {words for words, holds in checks.items() if not holds[0]} == rules


def test_totals_and_table_of_a_row(packed):
    totals = inspection.count(packed, VOCABULARY)
    assert (totals["records"], totals["examples"]) == (1, 2)
    assert (totals["tokens"], totals["random pairs"]) == (11, 1)
    lines = inspection.table(packed, 0, VOCABULARY).splitlines()
    assert lines[0].split()[:5] == (
        ["index", "token", "sequence", "segment", "position"]
    )
    assert lines[3].split() == ["2", "b", "1", "0", "2", "[MASK]", "b"]
    assert lines[8].split() == ["7", "d", "2", "0", "1", "d", "d"]
    assert lines[12] == (
        "2 sequences, 11 tokens, 1 of padding, 2 predictions; "
        "follows, random next"
    )


@pytest.mark.parametrize(
    ("settings", "meanings", "shown"),
    [
        # Records made before there were others.
        ({}, ("follows", "random next"), "; follows, random next"),
        (
            {"objective": "sentence_order"},
            ("in order", "swapped"),
            "; in order, swapped",
        ),
        ({"objective": "full_sentences"}, (), ""),
    ],
)
def test_labels_mean_what_the_objective_says(packed, settings, meanings, shown):
    told = manifest.Manifest(
        max_seq_length=12,
        max_predictions_per_seq=2,
        vocab_size=len(VOCABULARY),
        vocab_sha256="",
        do_lower_case=True,
        settings=settings,
        inputs=[],
        counts={},
        records={},
    )
    assert inspection.label_meanings(told) == meanings
    if not meanings:
        del packed["next_sentence_labels"]
    table = inspection.table(packed, 0, VOCABULARY, meanings)
    assert table.endswith(f"1 of padding, 2 predictions{shown}")


def test_records_are_read_back(examples, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    tfrecord.write(path, [tfrecord.serialize(examples) * 3])
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
    tfrecord.write(path, [data])
    with pytest.raises(ValueError, match=reason) as caught:
        list(inspection.read([path]))
    assert path in str(caught.value)


def test_record_of_another_length_is_refused(examples, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    longer = examples | {
        name: np.pad(examples[name], [(0, 0), (0, 3)])
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    tfrecord.write(
        path, [tfrecord.serialize(examples) + tfrecord.serialize(longer)]
    )
    with pytest.raises(ValueError, match=r"x.tfrecord: Name.*\b13\b.*\[10\]$"):
        list(inspection.read([path]))


def test_cut_file_is_refused(examples, tmp_path):
    path = tmp_path / "x.tfrecord"
    tfrecord.write(str(path), [tfrecord.serialize(examples) * 3])
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match="x.tfrecord: truncated record"):
        list(inspection.read([str(path)]))


@pytest.mark.parametrize("num_bytes", [1, 11])
def test_file_that_is_cut_in_a_header_is_refused(examples, tmp_path, num_bytes):
    path = tmp_path / "x.tfrecord"
    tfrecord.write(str(path), [tfrecord.serialize(examples)])
    data = path.read_bytes()
    assert len(list(inspection.read([str(path)]))) == 1
    # The beginning of a header: TensorFlow takes it for the end.
    path.write_bytes(data + data[:num_bytes])
    match = "x.tfrecord: record 2 is damaged or cut"
    with pytest.raises(ValueError, match=match):
        list(inspection.read([str(path)]))
    path.write_bytes(data[:num_bytes])
    with pytest.raises(ValueError, match="record 1 is damaged"):
        list(inspection.read([str(path)]))


def test_dtype_of_tensors_is_the_records(examples, tmp_path):
    path = str(tmp_path / "x.tfrecord")
    tfrecord.write(path, [tfrecord.serialize(examples)])
    (batch,) = inspection.read([path])
    assert batch["input_ids"].dtype == tf.int64.as_numpy_dtype
    assert batch["masked_lm_weights"].dtype == np.float32
