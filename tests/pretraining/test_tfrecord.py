"""Serialized examples against tf.train.Example; record files."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import features
from bert_tf.pretraining.records import tfrecord


def make_examples(num_rows, seq_length, num_predictions, vocab_size, seed=1):
    rng = np.random.default_rng(seed)

    def integers(limit, width):
        # Small numbers too: varints of all widths.
        values = rng.integers(0, limit, (num_rows, width))
        return (values >> rng.integers(0, 16, values.shape)).astype(np.int32)

    return {
        "input_ids": integers(vocab_size, seq_length),
        "input_mask": integers(2, seq_length),
        "segment_ids": integers(2, seq_length),
        "masked_lm_positions": integers(seq_length, num_predictions),
        "masked_lm_ids": integers(vocab_size, num_predictions),
        "masked_lm_weights": rng.random((num_rows, num_predictions)).astype(
            np.float32
        ),
        "next_sentence_labels": integers(2, 1),
    }


def as_proto(examples, row):
    """The same example, made by TensorFlow's own message class."""
    example = tf.train.Example()
    for name, values in examples.items():
        feature = example.features.feature[name]
        if values.dtype == np.float32:
            feature.float_list.value.extend(values[row].tolist())
        else:
            feature.int64_list.value.extend(values[row].tolist())
    return example


@pytest.mark.parametrize(
    "seq_length, num_predictions, vocab_size",
    [(7, 3, 50), (128, 20, 30_522), (300, 77, 250_000)],
)
def test_equals_tf_train_example(seq_length, num_predictions, vocab_size):
    examples = make_examples(5, seq_length, num_predictions, vocab_size)
    serialized = tfrecord.serialize(examples)
    assert len(serialized) == 5
    for row, data in enumerate(serialized):
        expected = as_proto(examples, row)
        assert tf.train.Example.FromString(data) == expected
        # As short as TensorFlow's own, and so with no other bytes in it.
        assert len(data) == expected.ByteSize()


def test_parses_with_the_declared_features():
    examples = make_examples(4, 11, 5, 300)
    declared = {
        name: tf.io.FixedLenFeature(shape, dtype)
        for name, (dtype, shape) in features.pretraining_record(11, 5).items()
    }
    parsed = tf.io.parse_example(tfrecord.serialize(examples), declared)
    assert set(parsed) == set(examples)
    for name, values in examples.items():
        np.testing.assert_array_equal(parsed[name], values)


def test_bytes_do_not_depend_on_the_batch():
    examples = make_examples(6, 13, 4, 40_000)
    whole = tfrecord.serialize(examples)
    for row in range(6):
        part = {
            name: values[row : row + 1] for name, values in examples.items()
        }
        assert tfrecord.serialize(part) == [whole[row]]


def test_all_zero_example():
    examples = {
        name: np.zeros_like(values)
        for name, values in make_examples(2, 6, 3, 9).items()
    }
    for row, data in enumerate(tfrecord.serialize(examples)):
        assert tf.train.Example.FromString(data) == as_proto(examples, row)


def test_written_files_are_read_back(tmp_path):
    path = str(tmp_path / "x.tfrecord")
    batches = [[b"one", b"two"], [], [b"three"]]
    assert tfrecord.write(path, batches) == 3
    read = list(tf.data.TFRecordDataset(path).as_numpy_iterator())
    assert read == [b"one", b"two", b"three"]


def test_failed_write_names_the_file(tmp_path):
    path = str(tmp_path / "none" / "x.tfrecord")
    with pytest.raises(OSError, match=f"Cannot write {path}"):
        tfrecord.write(path, [[b"one"]])


@pytest.mark.parametrize(
    "names, expected",
    [
        ("a.tfrecord", ["a.tfrecord"]),
        ("/x/b, a,", None),
        ("/x/b, a", ["/x/b", "a"]),
        ("w@3", ["w-00000-of-00003", "w-00001-of-00003", "w-00002-of-00003"]),
        ("w@1,v", ["w-00000-of-00001", "v"]),
        ("", None),
        ("w@0", None),
        ("w@100000", None),
        ("a,b,a", None),
    ],
)
def test_output_paths(names, expected):
    if expected is None:
        with pytest.raises(ValueError, match="`output_file` must name"):
            tfrecord.output_paths(names)
    else:
        assert tfrecord.output_paths(names) == expected


def test_output_that_is_a_folder(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path}, a folder"):
        tfrecord.output_paths(str(tmp_path))
