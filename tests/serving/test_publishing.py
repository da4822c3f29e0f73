"""A version's number is that of one exporter, on disks and in object stores.

The store is TensorFlow's in-memory file system, which like gs:// is reached
through tf.io.gfile alone, and copies file by file.
"""

import os
import uuid

import pytest
import tensorflow as tf

from bert_tf import atomic
from bert_tf import files
from bert_tf.serving import exporter
from bert_tf.serving import onnx_exporter
from bert_tf.serving import publishing
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from support import serving_models


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(publishing, "_MAX_PAUSE_SECONDS", 0.0)


@pytest.fixture
def store():
    path = f"ram://{uuid.uuid4().hex}/name"
    tf.io.gfile.makedirs(path)
    return path


@pytest.fixture
def make(tmp_path):
    """Returns a function: a local folder with two files, to be published."""

    def make(words):
        folder = tmp_path / words
        (folder / "variables").mkdir(parents=True)
        (folder / "variables" / "data").write_text(words)
        (folder / "saved_model.pb").write_text(words)
        return str(folder)

    return make


def read(folder):
    return [
        files.read_text(f"{folder}/{name}")
        for name in ("saved_model.pb", "variables/data")
    ]


def test_who_publishes_while_files_are_copied_takes_the_next_number(
    store, make, monkeypatch
):
    copy = atomic.copy_folder
    numbers = []

    def copy_while_another_does(source, target, last):
        monkeypatch.setattr(atomic, "copy_folder", copy)
        assert not tf.io.gfile.exists(target)
        numbers.append(publishing.publish(make("second"), store))
        copy(source, target, last)

    monkeypatch.setattr(atomic, "copy_folder", copy_while_another_does)
    numbers.append(publishing.publish(make("first"), store))
    assert numbers == [2, 1]
    assert read(f"{store}/1") == ["first"] * 2
    assert read(f"{store}/2") == ["second"] * 2
    # No claim is left.
    assert files.list_folder(store) == ["1", "2"]


def test_two_who_claim_one_number_both_try_again(store, make, monkeypatch):
    write = atomic.write_text
    claims = []

    def write_as_another_does(path, text):
        write(path, text)
        claims.append(path)
        if len(claims) == 1:
            write(path.replace(path[-38:-6], uuid.uuid4().hex), "")

    monkeypatch.setattr(atomic, "write_text", write_as_another_does)
    # The other's claim stays: that exporter was killed.
    assert publishing.publish(make("first"), store) == 2
    assert len(claims) == 2
    assert not files.exists(f"{store}/1")
    assert publishing.publish(make("second"), store) == 3


def test_a_number_given_up_between_two_looks_is_taken(store, make, monkeypatch):
    claims = publishing._claims

    def another_is_done(export_dir, number):
        found = claims(export_dir, number)
        monkeypatch.setattr(publishing, "_claims", claims)
        atomic.write_text(f"{store}/{number}/saved_model.pb", "another's")
        return found

    monkeypatch.setattr(publishing, "_claims", another_is_done)
    assert publishing.publish(make("first"), store) == 2
    assert files.read_text(f"{store}/1/saved_model.pb") == "another's"


def test_a_copy_that_fails_leaves_nothing(store, make, monkeypatch):
    copy = tf.io.gfile.copy

    def copy_the_first(source, target, overwrite):
        if target.endswith("saved_model.pb"):
            raise OSError("the store is gone")
        copy(source, target, overwrite)

    monkeypatch.setattr(tf.io.gfile, "copy", copy_the_first)
    with pytest.raises(OSError, match="the store is gone"):
        publishing.publish(make("first"), store)
    assert files.list_folder(store) == []


def test_a_name_that_another_gets_first_is_not_overwritten(
    make, tmp_path, monkeypatch
):
    export_dir = tmp_path / "name"
    rename = os.rename

    def rename_after_another(source, target):
        monkeypatch.setattr(os, "rename", rename)
        rename(make("second"), target)
        rename(source, target)

    with publishing.work_folder(str(export_dir)) as folder:
        atomic.write_text(f"{folder}/saved_model.pb", "first")
        monkeypatch.setattr(os, "rename", rename_after_another)
        assert publishing.publish(folder, str(export_dir)) == 2
    assert read(export_dir / "1") == ["second"] * 2
    assert files.list_folder(export_dir) == ["1", "2"]


def test_a_folder_has_saved_models_or_models_in_onnx(tmp_path):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = serving_models.model_dir("pair")
    for export, file_name, message in (
        (exporter.export, "model.onnx", "one --format only"),
        (onnx_exporter.export, "saved_model.pb", "one --format only"),
    ):
        folder = tmp_path / file_name
        (folder / "3").mkdir(parents=True)
        (folder / "3" / file_name).touch()
        with pytest.raises(ValueError, match=f"{message}.* version 3"):
            export(model, folder, ExportOptions())
        assert os.listdir(folder) == ["3"]


@pytest.mark.parametrize("export", [exporter.export, onnx_exporter.export])
def test_a_folder_that_cannot_be_written_is_told_before_the_model_is_loaded(
    export, tmp_path, monkeypatch
):
    if export is onnx_exporter.export:
        pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")

    def load(*_):
        raise AssertionError("The model is loaded.")

    monkeypatch.setattr(opening, "open_folder", load)
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(
            ValueError,
            match=f"^{path} must be a folder, but a file is in the way.$",
        ):
            export("model", path, ExportOptions())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match="new must be a folder to write into"):
        export("model", tmp_path / "new", ExportOptions())
    assert not (tmp_path / "new").exists()
