"""Rows of several sequences: by hand, and against unpacked records."""

import numpy as np
import pytest

from bert_tf import manifest as manifests
from bert_tf.pretraining import plan
from bert_tf.pretraining import run_local
from bert_tf.pretraining.records import record_rules
from bert_tf.pretraining.records import row_packing
from bert_tf.pretraining.settings import Settings
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support.pretraining_data import VOCABULARY
from support.pretraining_data import contents
from support.pretraining_data import make_documents
from support.pretraining_data import make_small
from support.pretraining_data import read_all
from support.pretraining_data import write_text


def assign(lengths, predictions=None, length=10, most=9, sequences=3):
    predictions = [1] * len(lengths) if predictions is None else predictions
    return row_packing.assign_rows(
        np.array(lengths),
        np.array(predictions),
        max_seq_length=length,
        max_predictions_per_seq=most,
        max_sequences_per_row=sequences,
    ).tolist()


def test_best_fit_the_longest_first():
    # 7 and 6 open rows with 3 and 4 left; 4 fills the second, 3 the first.
    assert assign([4, 3, 7, 6]) == [1, 0, 0, 1]
    # Rows come in the order of what opened them.
    assert assign([6, 4, 3, 7]) == [0, 0, 1, 1]
    assert assign([10, 10]) == [0, 1]
    assert assign([]) == []


def test_no_more_sequences_than_a_row_may_have():
    assert sorted(assign([2, 2, 2, 2, 2])) == [0, 0, 0, 1, 1]
    assert sorted(assign([2, 2, 2], sequences=2)) == [0, 0, 1]


def test_masks_must_fit_too():
    # Of the rows with room for it the fullest has none for two predictions.
    assert assign([6, 5, 4], [2, 1, 2], most=3) == [0, 1, 1]
    assert assign([6, 4], [2, 2], most=3) == [0, 1]


def test_padding_of_real_lengths_mostly_goes():
    rng = np.random.default_rng(3)
    lengths = np.minimum(rng.geometric(0.02, 3000) + 4, 128)
    counts = np.clip(np.round(0.15 * lengths), 1, 20)
    rows = assign(lengths, counts, length=128, most=20, sequences=8)
    tokens = np.bincount(rows, lengths)
    assert tokens.max() <= 128
    assert np.bincount(rows, counts).max() <= 20
    assert np.bincount(rows).max() <= 8
    assert lengths.mean() / 128 < 0.4
    # Nearly all of what the bound of the predictions leaves.
    assert tokens.mean() / 128 > 0.95


def test_rows_have_no_order():
    rng = np.random.default_rng(4)
    # Many are full, as the records of `full_sentences` are.
    lengths = np.minimum(rng.geometric(0.01, 20000) + 4, 128)
    counts = np.clip(np.round(0.15 * lengths), 1, 20)
    rows = assign(lengths, counts, length=128, most=20, sequences=8)
    tokens, sequences = np.bincount(rows, lengths), np.bincount(rows)
    number = np.arange(len(tokens))
    # In 0.01 of random orders the coefficient is above 2.6 / sqrt(rows).
    limit = 2.6 / np.sqrt(len(tokens))
    assert abs(np.corrcoef(number, tokens)[0, 1]) < limit
    assert abs(np.corrcoef(number, sequences)[0, 1]) < limit


def test_rows_by_hand():
    examples = {
        "input_ids": np.array([[2, 5, 3, 6, 3, 9], [2, 7, 3, 9, 9, 9]]),
        "input_mask": np.array([[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]]),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 0], [0] * 6]),
        "masked_lm_positions": np.array([[1, 3], [1, 0]]),
        "masked_lm_ids": np.array([[8, 6], [7, 0]]),
        "masked_lm_weights": np.array([[1, 1], [1, 0]], np.float32),
        "next_sentence_labels": np.array([[1], [0]]),
    }
    longer = {
        name: np.pad(
            values,
            ((0, 0), (0, {6: 3, 2: 1, 1: 0}[values.shape[1]])),
            constant_values=9 if name == "input_ids" else 0,
        )
        for name, values in examples.items()
    }
    joined = row_packing.join_rows(longer, np.array([0, 0]), 3, pad_id=9)
    expected = {
        "input_ids": [2, 5, 3, 6, 3, 2, 7, 3, 9],
        "input_mask": [1, 1, 1, 1, 1, 1, 1, 1, 0],
        "segment_ids": [0, 0, 0, 1, 1, 0, 0, 0, 0],
        "position_ids": [0, 1, 2, 3, 4, 0, 1, 2, 0],
        "sequence_ids": [1, 1, 1, 1, 1, 2, 2, 2, 0],
        "first_positions": [0, 5, 0],
        "masked_lm_positions": [1, 3, 6],
        "masked_lm_ids": [8, 6, 7],
        "masked_lm_weights": [1.0, 1.0, 1.0],
        "next_sentence_labels": [1, 0, 0],
    }
    assert {name: value[0].tolist() for name, value in joined.items()} == (
        expected
    )


def unpacked(rows):
    """Returns the sequences of packed rows as a sorted list of tuples."""
    sequences = []
    for row, numbers in enumerate(rows["sequence_ids"]):
        is_used = rows["masked_lm_weights"][row] > 0
        positions = rows["masked_lm_positions"][row][is_used]
        labels = rows["masked_lm_ids"][row][is_used]
        for number in range(1, numbers.max() + 1):
            (columns,) = np.nonzero(numbers == number)
            first = rows["first_positions"][row, number - 1]
            assert columns.tolist() == list(range(first, first + len(columns)))
            is_own = np.isin(positions, columns)
            sequences.append(
                (
                    *rows["input_ids"][row, columns],
                    *rows["segment_ids"][row, columns],
                    *rows["position_ids"][row, columns],
                    *(positions[is_own] - first),
                    *labels[is_own],
                    rows["next_sentence_labels"][row, number - 1],
                )
            )
    return sorted(sequences)


def as_sequences(examples):
    """Returns unpacked examples as `unpacked` does."""
    sequences = []
    for row, mask in enumerate(examples["input_mask"]):
        length = mask.sum()
        is_used = examples["masked_lm_weights"][row] > 0
        sequences.append(
            (
                *examples["input_ids"][row, :length],
                *examples["segment_ids"][row, :length],
                *range(length),
                *examples["masked_lm_positions"][row][is_used],
                *examples["masked_lm_ids"][row][is_used],
                examples["next_sentence_labels"][row, 0],
            )
        )
    return sorted(sequences)


@pytest.fixture(scope="module")
def tokenizer():
    return WordpieceSpec(VOCABULARY)


def settings(**changes):
    return Settings(
        **{
            "max_seq_length": 43,
            "max_predictions_per_seq": 7,
            "dupe_factor": 2,
            "short_seq_prob": 0.6,
        }
        | changes
    )


def test_rows_hold_the_examples_of_unpacked_records(
    tmp_path, tokenizer, monkeypatch
):
    text = write_text(tmp_path / "a.txt", make_documents(50, seed=11))
    make_small(monkeypatch, range_size=150)
    single, packed = f"{tmp_path}/single", f"{tmp_path}/packed"
    one = run_local.build(text, single, tokenizer, settings())
    rows = run_local.build(
        text, packed, tokenizer, settings(max_sequences_per_row=4)
    )
    found = read_all(packed)
    assert unpacked(found) == as_sequences(read_all(single))
    rules = settings().masking
    for rule, holds in record_rules.check(found, VOCABULARY, rules).items():
        assert holds.all(), rule

    assert (one.records, one.padding) == (one.examples, one.unpacked_padding)
    assert rows.examples == one.examples
    assert rows.records == len(found["input_ids"]) < 0.8 * one.records
    assert rows.padding == round(1 - found["input_mask"].mean(), 4)
    assert rows.unpacked_padding == one.padding > rows.padding + 0.15
    manifest = manifests.find([packed])[packed]
    assert manifest.settings["max_sequences_per_row"] == 4
    assert manifest.records["packed"]["examples"] == rows.records
    assert manifest.counts["padding"] == rows.padding


def test_batches_change_no_row(tmp_path, tokenizer, monkeypatch):
    text = write_text(tmp_path / "a.txt", make_documents(40, seed=12))
    make_small(monkeypatch, range_size=150)

    def build(name):
        path = f"{tmp_path}/{name}/x@2"
        run_local.build(
            text,
            path,
            tokenizer,
            settings(max_sequences_per_row=3, max_predictions_per_seq=5),
        )
        return contents(tmp_path / name)

    one = build("one")
    monkeypatch.setattr(plan, "_BATCH_SIZE", 13)
    assert build("batches") == one


@pytest.mark.parametrize(
    "changes, missing",
    [
        ({"masking_mode": "dynamic"}, "masked_lm_ids"),
        ({"objective": "full_sentences"}, "next_sentence_labels"),
    ],
)
def test_rows_without_masks_or_labels(tmp_path, tokenizer, changes, missing):
    text = write_text(tmp_path / "a.txt", make_documents(20, seed=13))
    run_local.build(
        text,
        f"{tmp_path}/x",
        tokenizer,
        settings(max_sequences_per_row=3, **changes),
    )
    found = read_all(tmp_path / "x")
    assert missing not in found
    assert found["sequence_ids"].max() > 1
    for rule, holds in record_rules.check(found, VOCABULARY).items():
        assert holds.all(), rule


def test_one_sequence_a_row_at_least():
    with pytest.raises(ValueError, match="--max_sequences_per_row must be"):
        settings(max_sequences_per_row=0)
