"""Conversion: what is kept, dropped and refused; the bits are in
test_google.py."""

import json

import numpy as np
import pytest
import safetensors.numpy

from bert_tf.checkpoints import convert
from bert_tf.checkpoints import model_folder
from references import checkpoints as peer


@pytest.mark.parametrize("architecture", peer.ARCHITECTURES)
def test_every_class_keeps_its_tensors(tmp_path, architecture):
    peer.write_folder(tmp_path / "a", architecture)
    report = convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    assert report.names("left over") == ()
    converted = safetensors.numpy.load_file(tmp_path / "b/model.safetensors")
    expected = peer.tensors(architecture)
    assert converted.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(converted[name], array, err_msg=name)
    config = json.loads((tmp_path / "b/config.json").read_text())
    assert config["architectures"] == [architecture]
    if "classifier.weight" in expected:
        assert config["id2label"]["3"] == "L3"
        assert config["classifier_dropout"] == 0.1


@pytest.mark.parametrize("architecture", peer.ARCHITECTURES)
def test_every_class_survives_google(tmp_path, architecture):
    peer.write_folder(tmp_path / "a", architecture, hidden_act="gelu_new")
    convert(tmp_path / "a", tmp_path / "b", "google")
    convert(tmp_path / "b", tmp_path / "c", "hugging_face")
    converted = safetensors.numpy.load_file(tmp_path / "c/model.safetensors")
    expected = peer.tensors(architecture)
    assert converted.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(converted[name], array, err_msg=name)


def test_task_is_ours_alone(tmp_path):
    peer.write_folder(tmp_path / "a", "BertModel")
    (tmp_path / "a/task.json").write_text('{"name": "CoLA"}')
    convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    assert model_folder.read_task(tmp_path / "b") == {"name": "CoLA"}
    convert(tmp_path / "a", tmp_path / "c", "hugging_face")
    assert model_folder.read_task(tmp_path / "c") is None


def test_case_is_asked_for_or_found_in_the_vocabulary(tmp_path):
    peer.write_folder(tmp_path / "a", "BertModel")
    (tmp_path / "a/tokenizer_config.json").unlink()
    convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    assert model_folder.read_tokenizer_config(tmp_path / "b")["do_lower_case"]
    convert(tmp_path / "a", tmp_path / "c", "bert_tf", do_lower_case=False)
    assert not model_folder.read_tokenizer_config(tmp_path / "c")[
        "do_lower_case"
    ]
    tokens = "".join(f"{token}\n" for token in (*peer.TOKENS[:-1], "Cat"))
    (tmp_path / "a/vocab.txt").write_text(tokens)
    convert(tmp_path / "a", tmp_path / "d", "bert_tf")
    assert not model_folder.read_tokenizer_config(tmp_path / "d")[
        "do_lower_case"
    ]
    with pytest.raises(ValueError, match="do_lower_case=True"):
        convert(tmp_path / "a", tmp_path / "e", "bert_tf", do_lower_case=True)


def test_length_that_nobody_set_is_the_models(tmp_path):
    peer.write_folder(tmp_path / "a", "BertModel")
    (tmp_path / "a/tokenizer_config.json").write_text(
        '{"do_lower_case": true, "model_max_length": 1000000000000000019884624}'
    )
    convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    tokenizer = model_folder.read_tokenizer_config(tmp_path / "b")
    assert tokenizer["model_max_length"] == 9


def test_partial_conversion_says_what_is_left_over(tmp_path):
    tensors = peer.tensors("BertModel") | {"more": np.ones(3, "float32")}
    peer.write_folder(tmp_path / "a", "BertModel", tensors)
    with pytest.raises(ValueError, match=r"more \[3\] has no place"):
        convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    report = convert(
        tmp_path / "a", tmp_path / "b", "bert_tf", allow_partial=True
    )
    assert report.names("left over") == ("more",)
    assert len(report.names("loaded")) == 39


def test_partial_conversion_says_what_is_missing(tmp_path):
    tensors = peer.tensors("BertModel")
    names = (
        "encoder.layer.1.intermediate.dense.bias",
        "pooler.dense.weight",
    )
    shapes = [tensors.pop(name).shape for name in names]
    # In the layout of the variables: a kernel's is the other way round.
    shapes[1] = shapes[1][::-1]
    peer.write_folder(tmp_path / "a", "BertModel", tensors)
    report = convert(
        tmp_path / "a", tmp_path / "b", "bert_tf", allow_partial=True
    )
    new = [entry for entry in report.entries if entry.status == "new"]
    assert [(entry.name, entry.shape, entry.part) for entry in new] == [
        (f"bert.{names[0]}", shapes[0], "encoder"),
        (f"bert.{names[1]}", shapes[1], "pooler"),
    ]
    assert new[0].note == "not in the checkpoint, and not in the target"
    assert "37 tensors; 2 initialised" in report.summary
    converted = safetensors.numpy.load_file(tmp_path / "b/model.safetensors")
    assert not {*names} & {*converted}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda folder: (folder / "vocab.txt").unlink(), "must have a vocab"),
        (
            lambda folder: (
                (folder.parent / "b").mkdir()
                or (folder.parent / "b/x").write_text("")
            ),
            "not empty",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused(tmp_path, change, match):
    peer.write_folder(tmp_path / "a", "BertModel")
    change(tmp_path / "a")
    with pytest.raises(ValueError, match=match):
        convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    assert not (tmp_path / "b/config.json").exists()


def test_form_must_be_known(tmp_path):
    with pytest.raises(ValueError, match="file_format='onnx'"):
        convert(tmp_path, tmp_path / "b", "onnx")
