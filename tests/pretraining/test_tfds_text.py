"""Text sets of TensorFlow Datasets: a small one, stored by tfds itself."""

import json
import pickle
import shutil

import pytest
import tensorflow as tf

from bert_tf.pretraining import run_local
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import text_files
from bert_tf.pretraining.sources import tfds_text
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support.pretraining_data import VOCABULARY

pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = [
    f"A b {'abcdefgh'[n % 8]}. C {'hgf'[n % 3]}.\n\nD e f, g.\n" + "a. " * n
    for n in range(17)
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """A folder with the set "letters": 17 texts in train, one in test."""
    tfds = pytest.importorskip("tensorflow_datasets")
    folder = str(tmp_path_factory.mktemp("sets"))
    tfds.dataset_builders.store_as_tfds_dataset(
        "letters",
        "1.0.0",
        tfds.features.FeaturesDict(
            {"text": tfds.features.Text(), "number": tf.int64}
        ),
        {
            "train": [
                (number, {"text": text, "number": number})
                for number, text in enumerate(TEXTS)
            ],
            "test": [(0, {"text": "Once. Twice.", "number": 5})],
        },
        data_dir=folder,
        disable_shuffling=True,
    )
    return folder


def read(source, parts):
    """Returns {key: sentences}."""
    found = {}
    for part in parts:
        for key, sentence in text_files.Reader(source).read(part):
            found.setdefault(key, []).append(sentence)
    return found


def test_examples_are_documents_whatever_the_parts(data_dir, monkeypatch):
    source = tfds_text.TfdsText(name="letters", data_dir=data_dir)
    assert source.settings == {
        "tfds_name": "letters/1.0.0",
        "tfds_split": "train",
    }
    assert len(source.parts()) == 1
    whole = read(source, source.parts())
    assert list(whole) == sorted(whole)
    assert [" ".join(sentences) for sentences in whole.values()] == [
        " ".join(text.split()) for text in TEXTS
    ]
    assert list(whole.values())[2] == (["A b c.", "C f.", "D e f, g.", "a. a."])
    monkeypatch.setattr(text_files, "PART_BYTES", 200)
    # As another process gets it.
    source = pickle.loads(pickle.dumps(source))
    parts = source.parts()
    assert len(parts) > 3
    assert read(source, parts) == whole
    assert [len(read(source, [part])) for part in parts] == [
        part.end - part.start for part in parts
    ]
    assert sum(source.sizes(parts)) == pytest.approx(
        sum(source.sizes(source.parts())), abs=len(parts)
    )


def test_parts_of_splits(data_dir):
    def found(split):
        source = tfds_text.TfdsText(
            name="letters:1.0.0", data_dir=data_dir, split=split
        )
        return list(read(source, source.parts()).values())

    train = found("train")
    assert found("train[3:5]+test") == [*train[3:5], ["Once.", "Twice."]]


def test_long_text_is_cut(data_dir, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_DOCUMENT_BYTES", 8)
    source = tfds_text.TfdsText(
        name="letters", data_dir=data_dir, split="train[:2]"
    )
    reader = text_files.Reader(source)
    (part,) = source.parts()
    keys = {key for key, _ in reader.read(part)}
    assert len(keys) == 2 + reader.num_cut_documents > 2


def test_examples_that_are_not_utf_8_are_left_out(data_dir, monkeypatch):
    texts = [(0, b"One."), (1, b"\xff"), (2, b"Two.")]
    monkeypatch.setattr(tfds_text.TfdsText, "texts", lambda *given: texts)
    source = tfds_text.TfdsText(name="letters", data_dir=data_dir)
    (part,) = source.parts()

    with pytest.raises(ValueError, match=r"train, example 1: not UTF-8.*=0\.$"):
        list(text_files.Reader(source).read(part))
    reader = text_files.Reader(source, max_bad_lines=1)

    assert [text for _, text in reader.read(part)] == ["One.", "Two."]
    assert reader.bad_lines.count == 1


def test_records_of_a_set(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "PART_BYTES", 300)
    tokenizer = WordpieceSpec(VOCABULARY)
    settings = Settings(max_seq_length=23, dupe_factor=2, input_format="tfds")

    def build(name, split="train"):
        source = tfds_text.TfdsText(
            name="letters", data_dir=data_dir, split=split
        )
        path = f"{tmp_path}/{name}/x"
        return run_local.build(
            source, path, tokenizer, settings, overwrite=True
        )

    counts = build("one")
    assert counts.documents == 17
    manifest = json.loads((tmp_path / "one" / "manifest-x.json").read_text())
    assert manifest["settings"]["tfds_name"] == "letters/1.0.0"
    assert manifest["settings"]["tfds_split"] == "train"
    (described,) = manifest["inputs"]
    assert described["name"] == "letters-train.tfrecord-00000-of-00001"

    # What was done of one split is not gone on with for another.
    with monkeypatch.context() as patch:
        patch.setattr(run_local, "_run_stages", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build("two")
    monkeypatch.setattr(text_files, "PART_BYTES", 10**6)
    assert build("two", "train[:5]").documents == 5
    # Other parts, and a run that was stopped: the same bytes.
    assert build("two") == counts
    one, two = (tmp_path / name / "x" for name in ("one", "two"))
    assert two.read_bytes() == one.read_bytes()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"name": "none_such"}, "--tfds_name=none_such: .* not found"),
        ({"name": "wikipedia/20230601.en"}, "--tfds_name=wiki.*en is not pre"),
        ({"name": "letters:2.0.0"}, "--tfds_name=letters:2.0.0: "),
        ({"split": "dev"}, "`tfds_split` must .*: test, train. .*'dev'"),
        ({"split": "train[5:5]"}, "`tfds_split` must hold an example"),
        ({"text_field": "number"}, "`text_field` must .*: number, text. "),
        ({"text_field": "title"}, "`text_field` must .*'title'"),
    ],
)
def test_bad_sets_are_refused(data_dir, changes, message):
    with pytest.raises(ValueError, match=message):
        tfds_text.TfdsText(
            **{"name": "letters", "data_dir": data_dir} | changes
        )


def test_damaged_set_is_told(data_dir, tmp_path):
    folder = tmp_path / "sets"
    shutil.copytree(data_dir, folder)
    (path,) = folder.rglob("letters-train*")
    path.write_bytes(path.read_bytes()[:-50])
    source = tfds_text.TfdsText(name="letters", data_dir=str(folder))
    with pytest.raises(ValueError, match="letters/1.0.0, train: .*cut short"):
        read(source, source.parts())
    path.unlink()
    with pytest.raises(ValueError, match="letters/1.0.0, train: .*missing"):
        read(source, source.parts())
