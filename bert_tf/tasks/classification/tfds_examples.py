"""Examples from TensorFlow Datasets that are prepared on disk.

Nothing is downloaded. To prepare a data set, run
`tfds build glue/mrpc --data_dir=...` on a machine with a network.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow_datasets as tfds
from absl import logging

from bert_tf.input import prepared_sets
from bert_tf.tasks import class_names
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.tsv import Examples

# Names of a split in data sets; the first that exists is taken.
_SPLITS = {
    glue_files.TRAIN: ("train",),
    glue_files.DEV: ("validation", "validation_matched", "dev"),
    glue_files.DEV_MISMATCHED: ("validation_mismatched",),
    glue_files.TEST: ("test", "test_matched"),
    glue_files.TEST_MISMATCHED: ("test_mismatched",),
    glue_files.AX: ("test",),
}
# The feature with a row's number in the file that a set was made from.
_PLACE = "idx"


def label_names(
    builder: tfds.core.DatasetBuilder, feature: str
) -> tuple[str, ...]:
    """Returns the names of the classes of a feature.

    Raises:
        ValueError: If it is not a feature of classes.
    """
    prepared_sets.find_feature(builder, [feature])
    names = getattr(builder.info.features[feature], "names", None)
    if names is None:
        raise ValueError(
            f"{builder.info.full_name}: the feature {feature!r} must have "
            "classes. For numbers give --regression."
        )
    return tuple(names)


def read(
    builder: tfds.core.DatasetBuilder,
    split: str,
    task: ClassificationTask,
    label_feature: str = "label",
    text_features: Sequence[str] | None = None,
) -> Examples:
    """Returns the `Examples` of a split.

    TensorFlow Datasets shuffles what it stores, unless a set is made with
    `disable_shuffling`. The feature `idx`, which GLUE's sets have, is the row
    in the original file. Shuffled examples for evaluation or prediction are
    put back in that order, which the lines of the answers must have. All other
    examples keep the order in which they are stored.

    Args:
        builder: From `input.prepared_sets.open_builder`.
        split: One of `glue_files`: `TRAIN`, `DEV`, ...
        task: A `ClassificationTask`.
        label_feature: Name of the feature of classes or scores. Classes are
            matched by name or, if the set or the task has only numbers as
            names, by order, with a warning.
        text_features: Names of the features of texts; the task's if None.

    Raises:
        ValueError: If a split or a feature is missing, the set has other
            classes than the task, or an example has no label.
    """
    name = builder.info.full_name
    stored_split = prepared_sets.find_split(builder, _SPLITS[split])
    if text_features is None:
        text_features = task.text_features
    for feature in text_features:
        prepared_sets.find_feature(builder, [feature])
    is_labelled = split in (
        glue_files.TRAIN,
        glue_files.DEV,
        glue_files.DEV_MISMATCHED,
    )
    class_ids = None
    if is_labelled and task.labels:
        class_ids = _class_ids(builder, task, label_feature)
    is_shuffled = not builder.info.disable_shuffling
    is_sorted = (
        split != glue_files.TRAIN and is_shuffled and _has_places(builder)
    )
    if split in glue_files.TESTS and is_shuffled and not is_sorted:
        logging.warning(
            "%s, %s: was shuffled when it was stored, and has no feature %r "
            "with the original order. The answers will be in the order in "
            "which it is stored.",
            name,
            stored_split,
            _PLACE,
        )
    texts: tuple[list[str], ...] = tuple([] for _ in text_features)
    labels, places = [], []
    examples = prepared_sets.rows(builder, stored_split)
    for number, example in enumerate(examples, start=1):
        where = f"{name}, {stored_split}, example {number}"
        for column, feature in zip(texts, text_features):
            column.append(example[feature].decode("utf-8"))
        if is_sorted:
            places.append(example[_PLACE])
        if not is_labelled:
            continue
        label = example[label_feature]
        if class_ids is not None:
            if not 0 <= label < len(class_ids):
                raise ValueError(f"{where}: has no label.")
            label = class_ids[label]
        elif not np.isfinite(label):
            raise ValueError(
                f"{where}: the score must be a number. Received: {label}."
            )
        labels.append(label)
    if not texts[0]:
        raise ValueError(f"{name}, {stored_split}: there are no examples.")
    if is_sorted:
        order = np.argsort(places, kind="stable")
        texts = tuple([column[index] for index in order] for column in texts)
        labels = [labels[index] for index in order if is_labelled]
    dtype = np.int32 if task.labels else np.float32
    return Examples(
        texts=texts, labels=np.array(labels, dtype) if is_labelled else None
    )


def _has_places(builder):
    features = builder.info.features
    return (
        _PLACE in features
        and features[_PLACE].shape == ()
        and np.issubdtype(features[_PLACE].np_dtype, np.integer)
    )


def _class_ids(builder, task, feature):
    """Returns the task's class id of every class of the data set."""
    names = label_names(builder, feature)
    try:
        order = class_names.match(names, task.labels, task.label_synonyms)
    except ValueError as error:
        hint = ""
        if len(names) == len(task.labels):
            hint = (
                " The data set's words can be written as `labels` into the "
                "model's task.json."
            )
        if not (hint and (_are_numbers(names) or _are_numbers(task.labels))):
            raise ValueError(
                f"{builder.info.full_name}: {error}{hint}"
            ) from error
        order = None
    if order is None:
        logging.warning(
            "%s: the classes %s are assumed to be, in this order, %s.",
            builder.info.full_name,
            ", ".join(names),
            ", ".join(task.labels),
        )
        return list(range(len(names)))
    return np.argsort(order).tolist()


def _are_numbers(names):
    """Returns whether names are nothing but the numbers of the classes."""
    return list(names) == [str(index) for index in range(len(names))]
