"""Sets of TensorFlow Datasets: stored ones, and a mocked CoNLL-2003."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.input import prepared_sets
from bert_tf.tasks.source import DEV
from bert_tf.tasks.source import TEST
from bert_tf.tasks.source import TRAIN
from bert_tf.tasks.tagging import files as tagging_files
from bert_tf.tasks.tagging import tfds as tagging_tfds

NAMES = ["O", "B-x", "I-x"]
ROWS = {
    "train": [(["a", "b\tc", "é"], [0, 1, 2]), ([], []), (["d"], [1])],
    "validation": [(["e", "f"], [0, 0])],
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with sets of classes, of strings, of strings and blanks."""
    folder = str(tmp_path_factory.mktemp("tfds"))
    sequence = tfds.features.Sequence
    for name, feature, as_tag in (
        ("classes", tfds.features.ClassLabel(names=NAMES), int),
        ("strings", tfds.features.Text(), lambda tag: NAMES[tag]),
        ("blanks", tfds.features.Text(), lambda tag: f" {NAMES[tag]}"),
    ):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version="1.0.0",
            features=tfds.features.FeaturesDict(
                {
                    "tokens": sequence(tfds.features.Text()),
                    "tags": sequence(feature),
                }
            ),
            split_datasets={
                split: [
                    (
                        key,
                        {
                            "tokens": words,
                            "tags": [as_tag(tag) for tag in tags],
                        },
                    )
                    for key, (words, tags) in enumerate(rows)
                ]
                for split, rows in ROWS.items()
            },
            data_dir=folder,
            disable_shuffling=True,
        )
    return folder


def read(name, folder, *arguments, **options):
    builder = prepared_sets.open_builder(name, folder)
    return tagging_tfds.read(builder, *arguments, **options)


@pytest.mark.parametrize("name", ["classes", "strings", "blanks"])
def test_stored_set_is_read(stored, tmp_path, name, caplog):
    with caplog.at_level("WARNING", logger="absl"):
        examples = read(name, stored, TRAIN)
    told = "train: stripped the blanks around 4 of the labels" in caplog.text
    assert told == (name == "blanks")
    assert examples.words == ("a", "b\tc", "é", "d")
    assert examples.tags == ("O", "B-x", "I-x", "B-x")
    assert examples.row_lengths.tolist() == [3, 1]
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["O", "O", "B-x", "I-x"])
    assert path.read_text("utf-8") == (
        "a\tO\tO\nb c\tB-x\tO\né\tI-x\tB-x\n\nd\tB-x\tI-x\n\n"
    )
    dev = read(name, stored, DEV, "tokens", "tags", has_tags=False)
    assert dev.words == ("e", "f")
    assert dev.tags is None
    # The tags stand in the lines all the same, a row without words or not.
    same = read(name, stored, TRAIN, has_tags=False)
    assert (same.tags, same.lines) == (None, examples.lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("classes", TEST), "must be a split 'test'. Received: train, val"),
        (("classes", TRAIN, "words"), "be a feature 'words'. Received: t"),
        (("classes", TRAIN, None, "pos"), "be a feature 'pos'"),
    ],
)
def test_what_is_not_there_is_told(stored, arguments, message):
    name, *others = arguments
    with pytest.raises(ValueError, match=message):
        read(name, stored, *others)


def test_conll_2003_as_the_library_describes_it(tmp_path):
    with tfds.testing.mock_data(num_examples=1):
        builder = tfds.builder("conll2003", data_dir=tmp_path)
        info = tfds.core.SplitInfo(name="dev", shard_lengths=[1], num_bytes=0)
        builder.info.set_splits(tfds.core.splits.SplitDict([info]))
        # What is made up has rows of other numbers of tags than of words.
        with pytest.raises(ValueError, match="row 1: must have as many tags"):
            tagging_tfds.read(builder, DEV)
        rows = tf.data.Dataset.from_tensors(
            {
                "tokens": ["EU", "says", "So", "So"],
                "ner": np.int64([3, 0, 7, 8]),
            }
        )
        builder.as_dataset = lambda split, **options: rows
        examples = tagging_tfds.read(builder, DEV)
    assert examples.words == ("EU", "says", "So", "So")
    assert examples.tags == ("B-ORG", "O", "B-MISC", "I-MISC")


@pytest.fixture(scope="module")
def untagged(tmp_path_factory):
    """A folder with a set whose tags are none, and one without tags."""
    folder = str(tmp_path_factory.mktemp("untagged"))
    words = tfds.features.Sequence(tfds.features.Text())
    tags = tfds.features.Sequence(tfds.features.ClassLabel(names=NAMES))
    for name, features, example in (
        ("unlabelled", {"tags": tags}, {"tags": [0, -1]}),
        ("words", {}, {}),
    ):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version="1.0.0",
            features=tfds.features.FeaturesDict({"tokens": words} | features),
            split_datasets={"test": [(0, {"tokens": ["a", "b"]} | example)]},
            data_dir=folder,
            disable_shuffling=True,
        )
    return folder


def test_a_word_without_a_tag_is_refused(untagged):
    # It was the last tag: of Python's lists -1 is that.
    with pytest.raises(ValueError, match="row 1: a tag must be O, .*: ''"):
        read("unlabelled", untagged, TEST)


@pytest.mark.parametrize("name", ["unlabelled", "words"])
def test_what_is_to_be_predicted_needs_no_tags(untagged, tmp_path, name):
    examples = read(name, untagged, TEST, has_tags=False)
    assert examples.words == ("a", "b")
    assert examples.tags is None
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["O", "B-x"])
    assert path.read_text("utf-8") == "a\tO\nb\tB-x\n\n"
