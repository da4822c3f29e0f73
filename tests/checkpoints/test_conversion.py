"""Conversion: what is kept, dropped and refused; the bits are in
test_google.py."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf.checkpoints import convert
from bert_tf.checkpoints import model_folder
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.text.preprocessor import Preprocessor
from references import checkpoints as peer
from support import sentence_models
from support import serving_models


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


# transformers writes 10 ** 30 where nobody told it.
@pytest.mark.parametrize(
    ("told", "wanted", "grown"),
    [("1000000000000000019884624", 9, 20), ("9", 9, 20), ("8.0", 8, 8)],
)
def test_longest_sequence_is_whole_and_one_of_the_models(
    tmp_path, told, wanted, grown
):
    peer.write_folder(tmp_path / "a", "BertModel")
    (tmp_path / "a/tokenizer_config.json").write_text(
        f'{{"do_lower_case": true, "model_max_length": {told}}}'
    )
    convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    tokenizer = model_folder.read_tokenizer_config(tmp_path / "b")
    assert tokenizer["model_max_length"] == wanted
    folder = tmp_path / "c"
    convert(tmp_path / "a", folder, "bert_tf", max_position_embeddings=20)
    tokenizer = model_folder.read_tokenizer_config(folder)
    assert tokenizer["model_max_length"] == grown


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
    "architecture, dropped, expected",
    [
        ("BertForPreTraining", "cls.seq_relationship.", "BertForMaskedLM"),
        ("BertForPreTraining", "cls.predictions.", "NextSentencePrediction"),
        ("BertForTokenClassification", "classifier.", "BertModel"),
    ],
)
def test_partial_conversion_names_the_class_that_is_there(
    tmp_path, architecture, dropped, expected
):
    tensors = {
        name: array
        for name, array in peer.tensors(architecture).items()
        if not name.startswith(dropped)
    }
    peer.write_folder(tmp_path / "a", architecture, tensors)
    with pytest.raises(ValueError, match=f"tensor {dropped}.*is missing"):
        convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    convert(tmp_path / "a", tmp_path / "b", "bert_tf", allow_partial=True)
    config = json.loads((tmp_path / "b/config.json").read_text())
    assert config["architectures"][0].endswith(expected)


SENTENCE_FILES = [
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
]


@pytest.fixture(scope="module")
def sentences(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences") / "model"
    vectors = dataclasses.replace(
        sentence_models.VECTORS, dense=sentence_models.VECTORS.dense[:1]
    )
    sentence_models.save(folder, vectors)
    path = folder / "sentence_bert_config.json"
    path.write_text('{"max_seq_length": 9}')
    return folder


@pytest.mark.parametrize("file_format", ["bert_tf", "hugging_face"])
def test_models_of_sentences_make_the_same_vectors(
    tmp_path, sentences, file_format
):
    report = convert(sentences, tmp_path / "b", file_format)
    assert report.names("left over") == ()
    models = [bert_tf.load(each) for each in (sentences, tmp_path / "b")]
    assert isinstance(models[1].model, BertSentenceEncoder)
    assert models[1].preprocessor.max_seq_length == 9
    texts = ["the quick", "lorem " * 30]
    expected, found = (each.model(each.preprocessor(texts)) for each in models)
    assert found.shape == (2, 5)
    np.testing.assert_array_equal(found, expected)
    for name in SENTENCE_FILES:
        converted = (tmp_path / "b" / name).read_bytes()
        assert converted == (sentences / name).read_bytes()


def test_what_has_no_place_for_sentences_reports_their_files(
    tmp_path, sentences
):
    report = convert(sentences, tmp_path / "b", "google", hidden_act="gelu_new")
    assert report.names("left over") == tuple(SENTENCE_FILES)
    assert str(report).splitlines()[-2].split() == [
        *("left", "over", "2_Dense/model.safetensors", "file"),
        *["not", "stored", "in", "this", "format"],
    ]
    assert not (tmp_path / "b/modules.json").exists()


def test_vectors_that_we_do_not_make_are_reported(tmp_path, caplog):
    peer.write_folder(tmp_path / "a", "BertModel")
    modules = [
        {"type": f"a.{name}", "path": path}
        for name, path in (("Transformer", ""), ("WordWeights", "1"))
    ]
    (tmp_path / "a/modules.json").write_text(json.dumps(modules))
    with caplog.at_level("WARNING", logger="absl"):
        report = convert(tmp_path / "a", tmp_path / "b", "bert_tf")
    assert report.names("left over") == ("modules.json",)
    assert "Received: Transformer, WordWeights" in caplog.text
    assert not (tmp_path / "b/modules.json").exists()


@pytest.mark.parametrize(
    "name, values",
    [
        (
            "config.json",
            {"sentence_transformers": {"version": "4.1.0"}},
        ),
        (
            "config.json",
            {"sbert_ce_default_activation_function": "torch.nn.Identity"},
        ),
        (
            "config_sentence_transformers.json",
            {"model_type": "CrossEncoder", "other": 1},
        ),
    ],
)
def test_cross_encoders_stay_so(tmp_path, name, values):
    bert_tf.save(
        tmp_path / "a",
        BertClassifier(serving_models.CONFIG, num_labels=1),
        Preprocessor.from_folder(serving_models.model_dir("encoder")),
    )
    path = tmp_path / "a" / name
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | values))
    convert(tmp_path / "a", tmp_path / "b", "hugging_face")
    found = json.loads((tmp_path / "b" / name).read_text())
    assert values.items() <= found.items()
    models = [bert_tf.load(tmp_path / each) for each in "ab"]
    assert models[1].task == bert_tf.RerankingTask()
    pairs = [["the quick", "a"], ["fox", "b c"]]
    expected, found = (each.model(each.preprocessor(pairs)) for each in models)
    np.testing.assert_array_equal(found, expected)


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
