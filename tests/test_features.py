"""Tests of bert_tf.features."""

import pytest

from bert_tf import features

_ALWAYS = {
    "input_ids": ("int64", (7,)),
    "input_mask": ("int64", (7,)),
    "segment_ids": ("int64", (7,)),
}
_PACKED = {
    "position_ids": ("int64", (7,)),
    "sequence_ids": ("int64", (7,)),
    "first_positions": ("int64", (3,)),
}
_MASKS = {
    "masked_lm_positions": ("int64", (2,)),
    "masked_lm_ids": ("int64", (2,)),
    "masked_lm_weights": ("float32", (2,)),
}


@pytest.mark.parametrize("has_labels", [True, False])
@pytest.mark.parametrize("is_masked", [True, False])
@pytest.mark.parametrize("num_sequences", [1, 3])
def test_pretraining_record_of_every_kind(has_labels, is_masked, num_sequences):
    expected = _ALWAYS
    if num_sequences > 1:
        expected = expected | _PACKED
    if is_masked:
        expected = expected | _MASKS
    if has_labels:
        expected = expected | {
            "next_sentence_labels": ("int64", (num_sequences,))
        }
    assert expected == features.pretraining_record(
        7,
        2,
        has_labels=has_labels,
        is_masked=is_masked,
        max_sequences_per_row=num_sequences,
    )
