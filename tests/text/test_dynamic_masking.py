"""Predictions chosen while records are read: masks, next tokens."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.text import dynamic_masking
from bert_tf.text import masking
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import training as reference_training
from support.masking import VOCABULARY
from support.masking import make_inputs
from support.masking import mask_tokens


def test_seeds_of_examples_in_training():
    seeds = dynamic_masking.example_seeds(
        7, tf.constant([0, 1, 2**33 + 1])
    ).numpy()
    assert seeds.shape == (3, 2)
    assert (seeds >= 0).all()
    assert (seeds < 2**32).all()
    assert len({tuple(row) for row in seeds.tolist()}) == 3
    np.testing.assert_array_equal(
        dynamic_masking.example_seeds(7, tf.constant([1], tf.int64)), seeds[1:2]
    )
    assert (
        (dynamic_masking.example_seeds(8, tf.constant([1])) != seeds[1:2])
        .numpy()
        .all()
    )


def test_dynamic_masking_in_a_pipeline_is_that_of_the_builder():
    ids, mask, _ = make_inputs(10, 23, seed=14)
    rules = masking.Rules(max_predictions_per_seq=4, do_span_mask=True)
    dataset = tf.data.Dataset.from_tensor_slices(
        {
            "input_ids": ids,
            "input_mask": mask,
            "next_sentence_labels": mask[:, :1],
        }
    ).batch(4)

    def mask_batch(start, examples):
        numbers = start * 4 + tf.range(
            tf.shape(examples["input_ids"])[0], dtype=tf.int64
        )
        return dynamic_masking.mask_examples(
            examples,
            dynamic_masking.example_seeds(5, numbers),
            WordpieceSpec(VOCABULARY),
            rules,
        )

    batches = list(dataset.enumerate().map(mask_batch).as_numpy_iterator())
    found = {
        name: np.concatenate([batch[name] for batch in batches])
        for name in batches[0]
    }
    expected = mask_tokens(
        ids,
        mask,
        dynamic_masking.example_seeds(5, tf.range(10)).numpy(),
        max_predictions_per_seq=4,
        do_span_mask=True,
    )
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    np.testing.assert_array_equal(found["next_sentence_labels"], mask[:, :1])


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"do_whole_word_mask": True},
        {"do_span_mask": True},
        {"do_ngram_mask": True},
    ],
)
def test_sequences_of_packed_rows_are_masked_as_if_alone(rules):
    ids, mask, _ = make_inputs(9, 13, seed=15)
    groups = [[3, 0, 5], [1], [8, 2], [4, 6, 7]]
    arrays = {
        "input_ids": ids,
        "input_mask": mask,
        "segment_ids": np.zeros_like(ids),
    }
    packed = reference_training.pack_rows(arrays, groups, 41, 11, 3)
    dataset = tf.data.Dataset.from_tensor_slices(
        {name: value.astype(np.int32) for name, value in packed.items()}
    ).batch(len(groups), drop_remainder=True)
    rules = {"max_predictions_per_seq": 11, "masked_lm_prob": 0.2} | rules
    seeds = dynamic_masking.example_seeds(4, tf.range(len(groups)))
    dataset = dataset.map(
        lambda examples: dynamic_masking.mask_examples(
            examples,
            seeds,
            WordpieceSpec(VOCABULARY),
            masking.Rules(**rules),
        )
    )
    for spec in dataset.element_spec.values():
        assert spec.shape.is_fully_defined()
    rows = next(dataset.as_numpy_iterator())

    # Each alone, with the seeds of its place.
    order = [example for group in groups for example in group]
    places = [(row, s) for row, g in enumerate(groups) for s in range(len(g))]
    own_seeds = dynamic_masking._sequence_seeds(
        tf.gather(seeds, [row for row, _ in places]),
        tf.constant([s for _, s in places]),
    )
    alone = mask_tokens(ids[order], mask[order], own_seeds.numpy(), **rules)
    again = reference_training.pack_rows(
        {
            "input_ids": alone["input_ids"],
            "input_mask": mask[order],
            "segment_ids": np.zeros_like(ids),
            **{name: alone[name] for name in alone if "masked_lm" in name},
        },
        [[0, 1, 2], [3], [4, 5], [6, 7, 8]],
        41,
        11,
        3,
    )
    for name, value in again.items():
        np.testing.assert_array_equal(rows[name], value, err_msg=name)
    assert len({tuple(row) for row in own_seeds.numpy().tolist()}) == 9


def test_a_row_with_more_predictions_than_room_is_an_error():
    ids, mask, _ = make_inputs(2, 13, seed=16)
    mask[:] = 1
    packed = reference_training.pack_rows(
        {"input_ids": ids, "input_mask": mask, "segment_ids": mask},
        [[0, 1]],
        26,
        3,
        2,
    )
    with pytest.raises(tf.errors.InvalidArgumentError):
        dynamic_masking.mask_examples(
            {name: value.astype(np.int32) for name, value in packed.items()},
            dynamic_masking.example_seeds(4, tf.range(1)),
            WordpieceSpec(VOCABULARY),
            masking.Rules(max_predictions_per_seq=3),
        )


def as_records(arrays):
    return {
        name: tf.constant(
            array.astype(np.int32) if array.dtype == np.int64 else array
        )
        for name, array in arrays.items()
    }


def test_next_tokens_by_hand():
    # Two masks are undone; slots without a prediction are not looked at.
    examples = {
        "input_ids": [[2, 4, 8, 4, 3, 0], [2, 5, 3, 0, 0, 0]],
        "input_mask": [[1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0]],
        "segment_ids": [[0] * 6] * 2,
        "masked_lm_positions": [[1, 3, 0], [0, 0, 0]],
        "masked_lm_ids": [[7, 9, 0], [0, 0, 0]],
    }
    examples = {name: np.array(v, np.int32) for name, v in examples.items()}
    examples["masked_lm_weights"] = np.array([[1, 1, 0], [0, 0, 0]], "float32")
    found = dynamic_masking.predict_next_tokens(as_records(examples))
    expected = {
        "input_ids": [[2, 7, 8, 9, 3, 0], [2, 5, 3, 0, 0, 0]],
        "masked_lm_positions": [[0, 1, 2, 3, 0], [0, 1, 0, 0, 0]],
        "masked_lm_ids": [[7, 8, 9, 3, 0], [5, 3, 0, 0, 0]],
        "masked_lm_weights": [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
        "segment_ids": [[0] * 6] * 2,
        "input_mask": examples["input_mask"],
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_next_tokens_of_packed_rows_are_of_their_own_sequence():
    ids, mask, _ = make_inputs(5, 13, seed=17)
    arrays = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
    packed = reference_training.pack_rows(
        arrays, [[3, 0], [1, 4], [2]], 27, 1, 2
    )
    found = dynamic_masking.predict_next_tokens(as_records(packed))
    for row, group in enumerate([[3, 0], [1, 4], [2]]):
        expected, start = [], 0
        for example in group:
            size = mask[example].sum()
            expected += [
                (start + place, ids[example, place + 1])
                for place in range(size - 1)
            ]
            start += size
        is_predicted = found["masked_lm_weights"][row].numpy() > 0
        assert expected == [
            (place, label)
            for place, label in zip(
                found["masked_lm_positions"][row].numpy()[is_predicted],
                found["masked_lm_ids"][row].numpy()[is_predicted],
            )
        ]
