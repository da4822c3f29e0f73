"""Examples of TensorFlow Datasets, made up and stored."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.input import prepared_sets
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification import tfds_examples


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The folder of a data set "tickets", stored as a user stores one."""
    folder = tmp_path_factory.mktemp("tfds")
    split = {
        "subject": ["café", "b", "c"],
        "team": [2, 0, 1],
        "urgency": [0.5, 1.5, 2.5],
        # No place in a file: the set is stored in order.
        "idx": [7, 5, 5],
    }
    sets = {
        "train": tf.data.Dataset.from_tensor_slices(split),
        "dev": tf.data.Dataset.from_tensor_slices(split | {"team": [-1, 0, 1]}),
    }
    tfds.dataset_builders.store_as_tfds_dataset(
        name="tickets",
        version="1.0.0",
        features=tfds.features.FeaturesDict(
            {
                "subject": tfds.features.Text(),
                "team": tfds.features.ClassLabel(names=["it", "law", "sales"]),
                "urgency": tfds.features.Scalar(np.float32),
                "idx": tfds.features.Scalar(np.int64),
            }
        ),
        split_datasets=sets,
        data_dir=folder,
        disable_shuffling=True,
    )
    return folder


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory):
    """A set like those of GLUE; rows are shuffled when it is stored."""
    folder = tmp_path_factory.mktemp("tfds")
    rows = np.arange(12)
    columns = {
        "sentence": [f"row {row}" for row in rows],
        "label": rows % 3 % 2,
        "idx": rows,
    }
    rows = tf.data.Dataset.from_tensor_slices(columns)
    tfds.dataset_builders.store_as_tfds_dataset(
        name="like_cola",
        version="1.0.0",
        features=tfds.features.FeaturesDict(
            {
                "sentence": tfds.features.Text(),
                "label": tfds.features.ClassLabel(
                    names=["unacceptable", "acceptable"]
                ),
                "idx": np.int32,
            }
        ),
        split_datasets=dict.fromkeys(("train", "validation", "test"), rows),
        data_dir=folder,
    )
    return folder


@pytest.mark.parametrize(
    "split", [glue_files.DEV, glue_files.TEST, glue_files.AX]
)
def test_rows_are_in_the_order_before_they_were_shuffled(
    shuffled, split, caplog
):
    builder = prepared_sets.open_builder("like_cola", shuffled)
    task = glue_files.glue_task("CoLA").task
    with caplog.at_level("WARNING", logger="absl"):
        examples = tfds_examples.read(builder, split, task)
    assert examples.texts == ([f"row {row}" for row in range(12)],)
    if split == glue_files.DEV:
        assert examples.labels.tolist() == [0, 1, 0] * 4
    else:
        assert examples.labels is None
    # The names of the classes are known.
    assert not caplog.text
    # Those to train on are in the order of the files, which is another.
    training = tfds_examples.read(builder, glue_files.TRAIN, task)
    assert training.texts != examples.texts
    assert sorted(training.texts[0]) == sorted(examples.texts[0])
    for text, label in zip(training.texts[0], training.labels):
        assert label == int(text.split()[1]) % 3 % 2


def test_answers_in_a_lost_order_are_told(shuffled, caplog):
    builder = prepared_sets.open_builder("like_cola", shuffled)
    del builder.info.features._feature_dict["idx"]
    task = glue_files.glue_task("CoLA").task
    with caplog.at_level("WARNING", logger="absl"):
        tfds_examples.read(builder, glue_files.TEST, task)
    assert "test: was shuffled when it was stored" in caplog.text


def test_stored_set_with_names_of_classes(stored, caplog):
    builder = prepared_sets.open_builder("tickets", stored)
    assert tfds_examples.label_names(builder, "team") == ("it", "law", "sales")
    # The task's classes in another order.
    task = glue_files.tsv_task(["subject"], "team", ("sales", "law", "it")).task
    examples = tfds_examples.read(builder, "train", task, "team")
    assert examples.texts == (["café", "b", "c"],)
    assert examples.labels.tolist() == [0, 2, 1]
    assert examples.labels.dtype == np.int32
    # In other letters.
    task = glue_files.tsv_task(["subject"], "team", ("SALES", "Law", "It")).task
    examples = tfds_examples.read(builder, "train", task, "team")
    assert examples.labels.tolist() == [0, 2, 1]
    assert not caplog.text
    # Numbers tell no names.
    task = glue_files.tsv_task(["subject"], "team", ("0", "1", "2")).task
    with caplog.at_level("WARNING", logger="absl"):
        examples = tfds_examples.read(builder, "train", task, "team")
    assert examples.labels.tolist() == [2, 0, 1]
    assert "it, law, sales are assumed to be, in this order, 0, 1, 2" in (
        caplog.text
    )


@pytest.mark.parametrize(
    "names", [("0", "1", "2"), ("LABEL_0", "LABEL_1", "label_2")]
)
def test_a_set_whose_classes_are_numbers_has_them_in_order(
    stored, caplog, names
):
    builder = prepared_sets.open_builder("tickets", stored)
    builder.info.features._feature_dict["team"] = tfds.features.ClassLabel(
        names=names
    )
    task = glue_files.tsv_task(["subject"], "team", ("x", "y", "z")).task
    with caplog.at_level("WARNING", logger="absl"):
        examples = tfds_examples.read(builder, "train", task, "team")
    assert examples.labels.tolist() == [2, 0, 1]
    assert "are assumed to be, in this order, x, y, z" in caplog.text


def test_texts_may_have_other_names_than_in_training(stored):
    builder = prepared_sets.open_builder("tickets", stored)
    task = glue_files.tsv_task(["title"], "team", ("it", "law", "sales")).task
    with pytest.raises(ValueError, match="must be a feature 'title'"):
        tfds_examples.read(builder, "train", task, "team")
    examples = tfds_examples.read(builder, "train", task, "team", ["subject"])
    own = dataclasses.replace(task, text_features=("subject",))
    expected = tfds_examples.read(builder, "train", own, "team")
    assert examples.texts == expected.texts


def test_stored_set_with_scores(stored):
    builder = prepared_sets.open_builder("tickets", stored)
    task = glue_files.tsv_task(["subject"], "urgency").task
    for split in ("train", "dev"):
        examples = tfds_examples.read(builder, split, task, "urgency")
        assert examples.labels.tolist() == [0.5, 1.5, 2.5]
        assert examples.labels.dtype == np.float32


@pytest.mark.parametrize(
    ("columns", "label", "labels", "split", "message"),
    [
        (
            "topic",
            "team",
            "abc",
            "train",
            "must be a feature 'topic'. Received",
        ),
        ("subject", "group", "abc", "train", "must be a feature 'group'"),
        ("subject", "urgency", "abc", "train", "must have classes"),
        (
            "subject",
            "team",
            "ab",
            "train",
            "the classes must be a, b, in any order. Rec.* it,",
        ),
        (
            "subject",
            "team",
            "abc",
            "train",
            "must be a, b, c, in any order. .* it, law, sales. The data set's",
        ),
        (
            "subject",
            "team",
            ("it", "law", "sales"),
            "dev",
            "dev, example 1: has no label",
        ),
        (
            "subject",
            "team",
            "abc",
            "test",
            "must be a split 'test' or 'test_matched'. Received: train, dev",
        ),
    ],
)
def test_bad_sets_are_told(stored, columns, label, labels, split, message):
    builder = prepared_sets.open_builder("tickets", stored)
    task = glue_files.tsv_task([columns], label, tuple(labels)).task
    with pytest.raises(ValueError, match=message):
        tfds_examples.read(builder, split, task, label)


def test_sets_that_are_not_there_are_told(tmp_path):
    with pytest.raises(ValueError, match="--tfds_name=no_such_set"):
        prepared_sets.open_builder("no_such_set", tmp_path)
    with pytest.raises(ValueError, match="tfds build glue/mrpc"):
        prepared_sets.open_builder("glue/mrpc", tmp_path)


@pytest.mark.parametrize(
    ("name", "splits"),
    [
        ("mrpc", ("train", "validation", "test")),
        (
            "mnli",
            (
                "train",
                "validation_matched",
                "validation_mismatched",
                "test_matched",
                "test_mismatched",
            ),
        ),
        ("stsb", ("train", "validation", "test")),
        ("ax", ("test",)),
    ],
)
def test_sets_of_glue_have_the_features_of_the_tasks(tmp_path, name, splits):
    task_files = glue_files.glue_task(name)
    asked = []

    def as_dataset(self, split, **kwargs):
        asked.append(split)
        return made_up(self, split=split, **kwargs)

    with tfds.testing.mock_data(num_examples=3):
        made_up = tfds.core.DatasetBuilder.as_dataset
        builder = tfds.builder(f"glue/{name}", data_dir=tmp_path)
        infos = [
            tfds.core.SplitInfo(name=split, shard_lengths=[3], num_bytes=0)
            for split in splits
        ]
        builder.info.set_splits(tfds.core.splits.SplitDict(infos))
        builder.as_dataset = as_dataset.__get__(builder)
        for split in task_files.splits:
            examples = tfds_examples.read(builder, split, task_files.task)
            assert len(examples) == 3
            assert len(examples.texts) == len(task_files.task.text_features)
            is_test = split in glue_files.TESTS
            assert (examples.labels is None) == is_test
    assert sorted(asked) == sorted(splits)
