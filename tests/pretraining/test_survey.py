"""Totals of several files: of one objective and by one rule, or refused."""

import numpy as np
import pytest

from bert_tf import manifest as manifests
from bert_tf.playground import record_data
from bert_tf.pretraining.records import survey
from bert_tf.pretraining.records import tfrecord
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b")
)
SETTINGS = {
    "masked_lm_prob": 0.25,
    "do_whole_word_mask": False,
    "random_seed": 3,
    "objective": "sentence_order",
}


@pytest.fixture
def write(tmp_path):
    """Returns a function that writes a record, and its manifest or none."""

    def write_record(name, is_told=True, label=1, **settings):
        path = str(tmp_path / name)
        ids = np.array([[2, 5, 3, 6, 4, 3, 0]])
        record = {
            "input_ids": ids,
            "input_mask": (ids > 0).astype(int),
            "segment_ids": np.array([[0, 0, 0, 1, 1, 1, 0]]),
            "masked_lm_positions": np.array([[4, 0]]),
            "masked_lm_ids": np.array([[6, 0]]),
            "masked_lm_weights": np.array([[1, 0]], np.float32),
            "next_sentence_labels": np.array([[label]]),
        }
        tfrecord.write(path, [tfrecord.serialize(record)])
        if is_told:
            told = manifests.Manifest(
                max_seq_length=7,
                max_predictions_per_seq=2,
                vocab_size=len(VOCABULARY),
                vocab_sha256=manifests.text_sha256(VOCABULARY.to_text()),
                do_lower_case=True,
                settings=SETTINGS | settings,
                inputs=[],
                counts={},
                records={
                    name: {
                        "examples": 1,
                        "bytes": (tmp_path / name).stat().st_size,
                    }
                },
            )
            manifests.write(told, manifests.path_beside([path]))
        return path

    return write_record


def records_of(paths):
    return manifests.Records(paths, manifests.find(paths))


def make(*paths):
    return survey.make(
        records_of(paths), VOCABULARY, lambda examples, manifest: None
    )


@pytest.mark.parametrize(
    "name, value, shown",
    [
        ("objective", "next_sentence", "sentence_order and next_sentence"),
        ("masked_lm_prob", 0.5, "0.25 and 0.5"),
        ("do_span_mask", True, "False and True"),
        ("masking_rule", "electra", "bert and electra"),
    ],
)
def test_other_labels_and_rules_are_refused(write, name, value, shown):
    paths = [write("a"), write("b"), write("c", **{name: value})]
    assert make(*paths[:2]).totals["records"] == 2
    with pytest.raises(
        ValueError,
        match=f"/a and .*/c: records must have the same {name} .*: {shown}",
    ):
        make(*paths)


def test_records_that_nobody_tells_of_have_googles_labels(write):
    told, untold = write("a"), write("b", is_told=False)
    with pytest.raises(ValueError, match="same objective"):
        make(told, untold)
    told = write("c", objective="next_sentence")
    found = make(told, untold)
    # Their rules are not known, so those of all are not.
    assert found.manifest is None
    assert make(told).manifest.settings["masked_lm_prob"] == 0.25
    assert ("random next", "100.0%") in found.rows(VOCABULARY.special)


def test_only_one_set_has_a_seed_to_be_found(write):
    def data(*paths):
        return record_data.read(records_of(paths), WordpieceSpec(VOCABULARY))

    one, same, other = write("a"), write("b"), write("c", random_seed=4)
    told = data(one, same)
    assert told["builder"]["seed"] == 3
    assert told["objective"] == "sentence_order"
    told = data(one, other)
    assert told["builder"] is None
    assert told["objective"] == "sentence_order"
    assert told["meanings"] == ["in order", "swapped"]
    assert told["rules"]["maskedLmProb"] == 0.25


def test_totals_count_labels_that_say_something(write):
    paths = [write(name, label=label) for name, label in zip("abc", (7, 9, 1))]
    rows = dict(make(*paths).rows(VOCABULARY.special))
    assert rows["swapped"] == "33.3%"
    data = record_data.read(records_of(paths), WordpieceSpec(VOCABULARY))
    assert data["counts"]["label"] == [(1, 1), (7, 1), (9, 1)]
    assert [record["sequences"][0]["label"] for record in data["records"]] == (
        [7, 9, 1]
    )
