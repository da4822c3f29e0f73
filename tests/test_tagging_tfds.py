"""Sets of TensorFlow Datasets: stored ones, and a mocked CoNLL-2003."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from bert_tf.tasks import tagging_files
from bert_tf.tasks import tagging_tfds

NAMES = ["O", "B-x", "I-x"]
ROWS = {
    "train": [(["a", "b\tc", "é"], [0, 1, 2]), ([], []), (["d"], [1])],
    "validation": [(["e", "f"], [0, 0])],
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with two sets: of classes and of strings."""
    folder = str(tmp_path_factory.mktemp("tfds"))
    sequence = tfds.features.Sequence
    for name, feature, as_tag in (
        ("classes", tfds.features.ClassLabel(names=NAMES), int),
        ("strings", tfds.features.Text(), lambda tag: NAMES[tag]),
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


@pytest.mark.parametrize("name", ["classes", "strings"])
def test_stored_set_is_read(stored, tmp_path, name):
    examples = tagging_tfds.read_tfds(name, stored, tagging_files.TRAIN)
    assert examples.words == ("a", "b\tc", "é", "d")
    assert examples.tags == ("O", "B-x", "I-x", "B-x")
    assert examples.row_lengths.tolist() == [3, 1]
    path = tmp_path / "predictions.txt"
    tagging_files.write_predictions(path, examples, ["O", "O", "B-x", "I-x"])
    assert path.read_text("utf-8") == (
        "a\tO\tO\nb c\tB-x\tO\né\tI-x\tB-x\n\nd\tB-x\tI-x\n\n"
    )
    dev = tagging_tfds.read_tfds(
        name, stored, tagging_files.DEV, "tokens", "tags", has_tags=False
    )
    assert dev.words == ("e", "f")
    assert dev.tags is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nonesuch", tagging_files.TRAIN), "tfds_name='nonesuch'"),
        (("classes", tagging_files.TEST), "must have a split test"),
        (("classes", tagging_files.TRAIN, "words"), "a feature words"),
        (("classes", tagging_files.TRAIN, None, "pos"), "a feature pos"),
        (("conll2003", tagging_files.TRAIN), "has not been prepared in"),
    ],
)
def test_what_is_not_there_is_told(stored, arguments, message):
    name, *others = arguments
    with pytest.raises(ValueError, match=message):
        tagging_tfds.read_tfds(name, stored, *others)


def test_conll_2003_as_the_library_describes_it(tmp_path):
    tags = np.int64([3, 0, 7, 8])

    def as_dataset(builder, split, **kwargs):
        assert split == "validation"
        row = {"tokens": ["EU", "says", "So", "So"], "ner": tags}
        return tf.data.Dataset.from_tensors(row)

    with tfds.testing.mock_data(as_dataset_fn=as_dataset):
        examples = tagging_tfds.read_tfds(
            "conll2003", str(tmp_path), tagging_files.DEV
        )
        assert examples.words == ("EU", "says", "So", "So")
        assert examples.tags == ("B-ORG", "O", "B-MISC", "I-MISC")
        tags = tags[:3]
        with pytest.raises(ValueError, match="row 0: .* 4 words, 3 tags"):
            tagging_tfds.read_tfds(
                "conll2003", str(tmp_path), tagging_files.DEV
            )
