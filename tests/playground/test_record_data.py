"""What the page gets of records: their sequences, a sample, counts."""

import collections
import json

import numpy as np
import pytest

from bert_tf.manifest import Manifest
from bert_tf.playground import record_data
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import survey
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from support.tokenizer_families import FAMILIES

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##c")
)
TOKENIZER = WordpieceSpec(VOCABULARY)
EXAMPLES = {
    "input_ids": np.array([[2, 5, 3, 4, 6, 3, 0], [2, 7, 3, 1, 3, 0, 0]]),
    "input_mask": np.array([[1] * 6 + [0], [1] * 5 + [0] * 2]),
    "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0]]),
    "masked_lm_positions": np.array([[3, 4], [0, 0]]),
    "masked_lm_ids": np.array([[5, 6], [0, 0]]),
    "masked_lm_weights": np.array([[1, 1], [0, 0]], np.float32),
    "next_sentence_labels": np.array([[1], [0]]),
}


def test_example_is_described():
    assert record_data.describe(EXAMPLES, 0, 40, VOCABULARY) == {
        "number": 40,
        "columns": 7,
        "isPacked": False,
        "sequences": [
            {
                "ids": [2, 5, 3, 5, 6, 3],
                "segments": [0, 0, 0, 1, 1, 1],
                "masks": [[3, 4], [4, 6]],
                "label": 1,
            }
        ],
    }
    unmasked = {name: EXAMPLES[name] for name in list(EXAMPLES)[:3]}
    (sequence,) = record_data.describe(unmasked, 0, 0, VOCABULARY)["sequences"]
    assert sequence["masks"] is None
    assert sequence["label"] is None
    assert sequence["ids"] == [2, 5, 3, 4, 6, 3]


def test_a_mask_that_breaks_the_rule_makes_no_sequence_longer():
    # Of more than there are columns, and of fewer than none.
    for wrong in (9, -9):
        mask = EXAMPLES["input_mask"].copy()
        mask[0, 0] = wrong
        examples = EXAMPLES | {"input_mask": mask}
        described = record_data.describe(examples, 0, 0, VOCABULARY)
        (sequence,) = described["sequences"]
        assert len(sequence["ids"]) == (6 if wrong > 0 else 5)
        data = gather(2, [examples])
        assert data["counts"]["length"] == (
            [(5, 1), (6, 1)] if wrong > 0 else [(5, 2)]
        )


def test_records_of_nothing_have_totals():
    nothing = {name: 0 * values for name, values in EXAMPLES.items()}
    totals = dict(gather(1, [nothing])["totals"])
    assert totals["padding"] == "100.0%"
    assert totals["predicted tokens"] == "0.0%"


def test_packed_row_is_described_by_sequences():
    packed = {
        "input_ids": np.array([[2, 5, 3, 2, 4, 3, 0]]),
        "input_mask": np.array([[1] * 6 + [0]]),
        "segment_ids": np.zeros((1, 7), int),
        "position_ids": np.array([[0, 1, 2, 0, 1, 2, 0]]),
        "sequence_ids": np.array([[1, 1, 1, 2, 2, 2, 0]]),
        "first_positions": np.array([[0, 3]]),
        "masked_lm_positions": np.array([[4, 0]]),
        "masked_lm_ids": np.array([[6, 0]]),
        "masked_lm_weights": np.array([[1, 0]], np.float32),
        "next_sentence_labels": np.array([[1, 0]]),
    }
    described = record_data.describe(packed, 0, 0, VOCABULARY)
    assert described["isPacked"]
    assert [
        (each["ids"], each["masks"], each["label"])
        for each in described["sequences"]
    ] == [([2, 5, 3], [], 1), ([2, 6, 3], [[1, 4]], 0)]


def gather(num_records, batches):
    data = record_data.RecordData(TOKENIZER, num_records)
    totals = collections.Counter()
    for batch in batches:
        data.add(batch)
        totals += inspection.count(batch, VOCABULARY)
    return data.data(survey.Survey(1, None, totals, {"rule": 0}))


def test_sample_is_of_all_records_whatever_the_batches():
    ids = np.array([[2, 5 + number % 3, 3, 0] for number in range(500)])
    examples = {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(int),
        "segment_ids": 0 * ids,
    }

    def rows(first, last):
        return {name: each[first:last] for name, each in examples.items()}

    sample = gather(50, [rows(0, 500)])
    numbers = [record["number"] for record in sample["records"]]
    assert sample == gather(50, [rows(0, 3), rows(3, 290), rows(290, 500)])
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 50
    # Of every fifth about ten: none but with a chance of 1e-5.
    assert np.histogram(numbers, 5, (0, 500))[0].min() > 0
    for record in sample["records"]:
        (sequence,) = record["sequences"]
        assert sequence["ids"][1] == 5 + record["number"] % 3
    assert sample["numRecords"] == 500
    everything = gather(1000, [examples])["records"]
    assert [record["number"] for record in everything] == list(range(500))


def test_counts_are_of_all_sequences():
    data = gather(1, [EXAMPLES, EXAMPLES])
    assert data["counts"] == {
        "length": [(5, 2), (6, 2)],
        "unknown": [(0, 2), (1, 2)],
        "predictions": [(0, 2), (2, 2)],
        "label": [(0, 2), (1, 2)],
    }
    assert len(data["records"]) == 1
    assert data["meanings"] == ["follows", "random next"]
    assert data["builder"] is None
    assert ["examples", "4"] in data["totals"]
    assert data["checks"] == [["rule", 0]]
    json.dumps(data)


def test_a_page_holds_no_more_tokens_than_it_may(monkeypatch):
    monkeypatch.setattr(record_data, "_MAX_TOKENS", 7)
    assert len(gather(100, [EXAMPLES])["records"]) == 1
    # Of a large vocabulary only what is shown, and special tokens.
    whole = record_data.describe_vocabulary(TOKENIZER, {7})
    assert whole["ids"] is None
    monkeypatch.setattr(record_data, "_MAX_ENTRIES", 7)
    entries = record_data.describe_vocabulary(TOKENIZER, {7, 900})
    assert entries["ids"] == [0, 1, 2, 3, 4, 7]
    assert entries["names"][-1] == "##c"
    assert entries["spelled"][-1] == "c"
    assert entries["starts"] == "111110"


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_of_other_tokenizers_are_spelled(family):
    tokenizer = FAMILIES[family][1]
    entries = record_data.describe_vocabulary(tokenizer, set())
    ids = tokenizer.make().tokenize(["the quick fox"]).flat_values[:].numpy()
    text = "".join(entries["spelled"][index] for index in ids.tolist())
    assert text.strip() == "the quick fox"
    later = ids[1:].tolist()
    words = sum(entries["starts"][index] == "1" for index in later)
    assert words == 2
    assert entries["size"] == len(entries["names"]) == len(entries["starts"])


def test_rules_are_the_manifests():
    told = Manifest(
        max_seq_length=64,
        max_predictions_per_seq=7,
        vocab_size=8,
        vocab_sha256="",
        do_lower_case=True,
        settings={
            "masked_lm_prob": 0.2,
            "do_span_mask": True,
            "masking_rule": "electra",
            "random_seed": 3,
            "vocab_file": "vocab.txt",
        },
        inputs=[{"name": "a.txt", "bytes": 5, "sha256": ""}],
        counts={"examples": 2},
        records={},
    )
    assert record_data.describe_rules(told) == {
        "isTold": True,
        "maskedLmProb": 0.2,
        "maxPredictions": 7,
        "together": "spans",
        "rule": "electra",
        "masked": 0.85,
        "kept": 0.15,
    }
    defaults = record_data.describe_rules(None)
    assert not defaults["isTold"]
    assert defaults["together"] == "tokens"
    assert (defaults["maskedLmProb"], defaults["maxPredictions"]) == (0.15, 20)
