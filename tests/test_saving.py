"""Models from Python: what `load` finds, what `save` writes and refuses."""

import json
import os
import shutil

import keras
import numpy as np
import pytest
from absl import logging

from bert_tf import checkpoints
from bert_tf.checkpoints import model_folder
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.saving import load
from bert_tf.saving import save
from bert_tf.serving.exporter import export
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.tasks.multi_label import MultiLabelTask
from support import serving_models

TEXTS = ["the quick", "lorem ipsum"]


def read(folder):
    """Returns {name: bytes} of the files of a folder."""
    found = {}
    for name in os.listdir(folder):
        with open(f"{folder}/{name}", "rb") as stream:
            found[name] = stream.read()
    return found


@pytest.fixture
def warnings(monkeypatch):
    """A list that gets what is warned of."""
    lines = []
    monkeypatch.setattr(
        logging, "warning", lambda text, *args: lines.append(text % args)
    )
    return lines


@pytest.mark.parametrize(
    ("name", "model_class", "task"),
    [
        ("encoder", BertEncoder, None),
        ("pretrainer", BertPretrainer, None),
        ("pair", BertClassifier, serving_models.PAIR_TASK),
        ("regression", BertClassifier, serving_models.REGRESSION_TASK),
        ("topics", BertClassifier, serving_models.TOPICS_TASK),
        ("tagger", BertTokenClassifier, serving_models.TAGGING_TASK),
        ("choice", BertMultipleChoice, serving_models.CHOICE_TASK),
        ("squad", BertSpanPredictor, serving_models.SQUAD_TASK),
    ],
)
def test_a_folder_tells_its_model_and_task_and_is_saved_as_it_was(
    tmp_path, warnings, name, model_class, task
):
    folder = serving_models.model_dir(name)
    loaded = load(folder)
    assert type(loaded.model) is model_class
    assert loaded.preprocessor.max_seq_length == serving_models.MAX_SEQ_LENGTH
    assert loaded.task == task
    assert not warnings
    copies = [str(tmp_path / "copy"), str(tmp_path / "another")]
    save(copies[0], *loaded)
    first, second = (read(copy) for copy in (folder, copies[0]))
    # The support's folders do not name their labels in config.json, and so
    # not in the model card.
    for name in ("config.json", "README.md"):
        del first[name], second[name]
    assert first == second
    assert first.keys() & {"task.json"} == ({"task.json"} if task else set())
    again = load(copies[0])
    save(copies[1], *again)
    assert read(copies[1]) == read(copies[0])
    batch = loaded.preprocessor(TEXTS)
    if model_class is BertClassifier:
        np.testing.assert_array_equal(
            again.model(again.preprocessor(TEXTS)), loaded.model(batch)
        )


def test_label_names_are_what_is_served(tmp_path):
    model, preprocessor, _ = load(serving_models.model_dir("pair"))
    folder, names = str(tmp_path / "f"), ("nein", "ja", "vielleicht¿")
    save(folder, model, preprocessor, label_names=names)
    assert model_folder.read_task(folder) is None
    assert load(folder).task.labels == names
    options = ExportOptions(text_features=("a", "b"))
    servable = opening.open_folder(folder, options)
    assert servable.task.labels == names
    answers = servable.decode(servable.model(preprocessor(TEXTS)))
    found = [label.decode() for label in answers["labels"].numpy()]
    logits = np.asarray(model(preprocessor(TEXTS)))
    assert found == [names[index] for index in logits.argmax(axis=1)]


@pytest.mark.parametrize("kind", [np.array, dict.fromkeys])
def test_names_may_be_what_has_an_order(tmp_path, kind):
    """`LabelEncoder.classes_` is an array, which was no truth value."""
    model, preprocessor, _ = load(serving_models.model_dir("pair"))
    names = kind([f"topic {number}" for number in range(model.num_labels)])
    save(tmp_path / "f", model, preprocessor, label_names=names)
    assert load(tmp_path / "f").task.labels == tuple(names)


def test_names_that_are_no_task_are_warned_of(tmp_path, warnings):
    # Parts of speech are not tags of entities.
    model, preprocessor, _ = load(serving_models.model_dir("tagger"))
    folder, names = str(tmp_path / "f"), ("NOUN", "VERB", "ADJ", "ADP", "X")
    save(folder, model, preprocessor, label_names=names)
    loaded = load(folder)
    assert type(loaded.model) is BertTokenClassifier
    assert loaded.task is None
    (line,) = warnings
    assert folder in line and "NOUN" in line


class _OwnTask(ClassificationTask):
    family = "own"


def test_a_task_of_ones_own_is_kept_and_not_found(tmp_path, warnings):
    model, preprocessor, task = load(serving_models.model_dir("pair"))
    own = _OwnTask(**task.get_config())
    save(tmp_path / "f", model, preprocessor, own)
    values = json.loads((tmp_path / "f/task.json").read_text())
    assert values["family"] == "own"
    assert values["labels"] == list(task.labels)
    assert load(tmp_path / "f").task is None
    (line,) = warnings
    assert "Received: family='own'." in line


def test_a_new_head_has_no_task_and_is_warned_of(warnings):
    folder = serving_models.model_dir("pair")
    assert load(folder, BertEncoder).task is None
    assert not warnings
    model, _, task = load(folder, BertTokenClassifier, num_labels=5)
    assert task is None
    assert warnings == [
        f"{folder}: 2 weights are not in it and must be trained: "
        + ", ".join(weight.path for weight in model.classification_head.weights)
        + "."
    ]


def test_a_release_of_googles_is_loaded(tmp_path):
    folder = serving_models.model_dir("pretrainer")
    release = str(tmp_path / "release")
    checkpoints.convert(folder, release, "google")
    ours = load(folder, max_seq_length=7)
    for path in (release, f"{release}/bert_model.ckpt"):
        loaded = load(path, max_seq_length=7)
        assert type(loaded.model) is BertPretrainer
        for weight, other in zip(loaded.model.weights, ours.model.weights):
            np.testing.assert_array_equal(weight, other)
        np.testing.assert_array_equal(
            loaded.preprocessor(TEXTS)["input_ids"],
            ours.preprocessor(TEXTS)["input_ids"],
        )


def test_the_sequences_have_positions():
    folder = serving_models.model_dir("encoder")
    with pytest.raises(ValueError, match="max_position_embeddings=23. Rece"):
        load(folder, max_seq_length=24)
    with pytest.raises(ValueError, match="must be at least 2.*=0"):
        load(folder, max_seq_length=0)
    loaded = load(folder, max_seq_length=30, max_position_embeddings=30)
    outputs = loaded.model(loaded.preprocessor(TEXTS))
    assert outputs["sequence_output"].shape == (2, 30, 8)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("squad", {"task": serving_models.PAIR_TASK}, "must be a BertClassif"),
        ("pair", {"task": serving_models.SQUAD_TASK}, "must be a BertSpanPre"),
        ("pair", {"task": serving_models.REGRESSION_TASK}, "'num_labels': 1}"),
        (
            "pair",
            {"task": serving_models.PAIR_TASK, "label_names": ("a", "b", "c")},
            "must not be given with a task, whose labels are",
        ),
        ("pair", {"label_names": "abc"}, "3 different names. Received: .*'abc"),
        ("pair", {"label_names": (0, 1, 2)}, "must be 3 different names"),
        # Neither can be exported.
        ("pair", {"label_names": ("a", "", "c")}, "must be 3 different names"),
        ("pair", {"label_names": ("a", "\ud800", "c")}, "3 different names"),
        ("encoder", {"label_names": ("a", "b")}, "not a classifier"),
        ("pair", {"label_names": {"a", "b", "c"}}, "in order.*Received: .*{"),
        ("pair", {"label_names": 3}, "in order.* Received: .*=3"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    tmp_path, name, arguments, message
):
    model, preprocessor, _ = load(serving_models.model_dir(name))
    with pytest.raises(ValueError, match=message):
        save(tmp_path / "f", model, preprocessor, **arguments)
    assert not (tmp_path / "f").exists()


def test_what_is_no_path_is_not_loaded():
    with pytest.raises(ValueError, match="`path` must be a path.*: NoneType"):
        load(None)
    with pytest.raises(ValueError, match="`path` must be a path. .*: ''"):
        load("")


def test_only_models_of_the_library_are_saved(tmp_path):
    _, preprocessor, _ = load(serving_models.model_dir("encoder"))
    folder = str(tmp_path / "f")
    with pytest.raises(ValueError, match="must be one of bert_tf.models"):
        save(folder, keras.Sequential(), preprocessor)
    # The other way round, as `keras.saving.save_model` has it.
    with pytest.raises(ValueError, match="`folder` must be a path"):
        save(keras.Sequential(), folder, preprocessor)
    assert not os.path.exists(folder)


def test_a_multi_label_folder_of_transformers_has_its_task(tmp_path, warnings):
    model, preprocessor, _ = load(serving_models.model_dir("pair"))
    model_folder.save(
        str(tmp_path / "f"),
        model,
        preprocessor.tokenizer.spec,
        preprocessor.max_seq_length,
        label_names=("a", "b", "c"),
        problem_type="multi_label_classification",
    )
    task = load(tmp_path / "f").task
    assert type(task) is MultiLabelTask
    assert task.labels == ("a", "b", "c")
    assert not warnings


def test_weights_of_16_bits_are_not_rounded_into_a_folder(tmp_path):
    loaded = load(serving_models.model_dir("pair"), dtype="bfloat16")
    with pytest.raises(ValueError, match="float32 .* Received: .*bfloat16"):
        save(tmp_path / "f", *loaded)
    assert not (tmp_path / "f").exists()
    # Those of mixed precision are the file's.
    folder = serving_models.model_dir("pair")
    save(tmp_path / "f", *load(folder, dtype="mixed_bfloat16"))
    name = "model.safetensors"
    assert read(tmp_path / "f")[name] == read(folder)[name]


def test_weights_that_a_checkpoint_lacks_are_warned_of(caplog):
    folder = serving_models.model_dir("pair")
    config = load(folder).model.config
    caplog.clear()
    checkpoints.load_weights(folder, BertTokenClassifier(config, 5))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == (
        f"{folder}: loaded 39 tensors; 2 initialised (token classifier head); "
        "2 unused (classifier head)"
    )


def test_a_folders_task_is_not_lost(tmp_path):
    folder = tmp_path / "f"
    shutil.copytree(serving_models.model_dir("squad"), folder)
    model, preprocessor, task = load(folder)
    before = read_files(folder)
    with pytest.raises(ValueError, match="f/task.json says what the model was"):
        save(folder, model, preprocessor)
    # A later release's, which this one cannot read.
    path = folder / "task.json"
    later = json.loads(path.read_text()) | {"format_version": 99}
    path.write_text(json.dumps(later))
    with pytest.raises(ValueError, match="`task` must be given"):
        save(folder, *load(folder))
    assert json.loads(path.read_text())["format_version"] == 99
    path.write_bytes(before["task.json"])
    save(folder, model, preprocessor, task)
    assert read_files(folder) == before


def test_somebody_elses_config_json_is_named(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"mine": 1}')
    with pytest.raises(ValueError, match=f"{path}: .* no `vocab_size`"):
        save(tmp_path, *load(serving_models.model_dir("squad")))
    assert read_files(tmp_path) == {"config.json": b'{"mine": 1}'}


def read_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_arguments_in_another_order_are_named(tmp_path):
    model, preprocessor, task = load(serving_models.model_dir("pair"))
    folder = tmp_path / "f"
    with pytest.raises(ValueError, match="`preprocessor` must be a Preproc"):
        save(folder, preprocessor, model)
    with pytest.raises(
        ValueError, match="must be a Task or None. Received: tup"
    ):
        save(folder, model, preprocessor, ("a", "b", "c"))
    with pytest.raises(ValueError, match="`folder` must be a path"):
        save(None, model, preprocessor)
    assert not folder.exists()
    for value in ("BertClassifier", model, int, keras.Sequential, keras.Model):
        with pytest.raises(ValueError, match="`model_class` must be a class"):
            load(serving_models.model_dir("pair"), value)
    for name, value in (("config", None), ("max_position_embeddings", "64")):
        with pytest.raises(ValueError, match=f"`{name}` must .*{value!r}"):
            load(serving_models.model_dir("pair"), **{name: value})
    for arguments, name in (((folder, None), "options"), ((5,), "export_dir")):
        with pytest.raises(ValueError, match=f"`{name}` must be"):
            export(serving_models.model_dir("pair"), *arguments)
