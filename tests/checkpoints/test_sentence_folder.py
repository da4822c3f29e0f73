"""Folders of sentence-transformers: what is written is read again."""

import json
import shutil

import numpy as np
import pytest

import bert_tf
from bert_tf import checkpoints
from bert_tf.checkpoints import sentence_files
from bert_tf.checkpoints import sentence_folder
from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.models.encoder import BertEncoder
from bert_tf.training import options
from support import sentence_models
from support import serving_models
from support import tokenizer_families
from support.sentence_models import VECTORS


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "model"
    sentence_models.save(path, VECTORS)
    return path


def values_of(vectors):
    return vectors.__dict__ | {
        "dense": [
            (
                layer.kernel.tolist(),
                None if layer.bias is None else layer.bias.tolist(),
                layer.activation,
            )
            for layer in vectors.dense
        ]
    }


def test_folders_of_modules_are_known_by_their_names(folder):
    found = [path.name for path in folder.iterdir() if path.is_dir()]
    assert "1_Pooling" in found
    assert all(map(options.MODULE_FOLDER.fullmatch, found))
    for module in sentence_files.MODULES:
        folder_name = sentence_files.module_folder(1, module)
        assert options.MODULE_FOLDER.fullmatch(folder_name)
    for name in ("", "train", "1_Other", "2_Dense.old"):
        assert not options.MODULE_FOLDER.fullmatch(name)


def test_what_is_written_is_read(folder):
    found = sentence_folder.read(folder)
    assert values_of(found) == values_of(VECTORS) | {
        "max_seq_length": serving_models.MAX_SEQ_LENGTH
    }
    # The folder stays one of this model, and takes its new weights.
    sentence_models.save(folder, VECTORS)
    assert values_of(sentence_folder.read(folder)) == values_of(found)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("activation", ["tanh", "linear"])
def test_a_layer_with_tanh_and_a_bias_is_trainable(activation, has_bias):
    kernel, bias = np.ones((3, 2), "float32"), np.ones(2, "float32")
    layer = sentence_folder.DenseLayer(
        kernel=kernel, bias=bias if has_bias else None, activation=activation
    )
    assert layer.is_trainable == (activation == "tanh" and has_bias)
    assert len(layer.weights) == 1 + has_bias


@pytest.mark.parametrize("name", ["dot", "euclidean", None])
def test_the_similarity_is_kept(tmp_path, name):
    vectors = SentenceVectors(pooling="mean", is_normalized=False)
    sentence_models.save(tmp_path / "model", vectors)
    path = tmp_path / "model/config_sentence_transformers.json"
    values = json.loads(path.read_text())
    assert values["similarity_fn_name"] == "cosine"
    path.write_text(json.dumps(values | {"similarity_fn_name": name}))
    found = sentence_folder.read(tmp_path / "model")
    assert found.similarity == (name or "cosine")
    model, preprocessor, _ = bert_tf.load(tmp_path / "model")
    bert_tf.save(tmp_path / "again", model, preprocessor)
    assert sentence_folder.read(tmp_path / "again") == found


@pytest.mark.parametrize("name", ["albert", "mpnet", "roberta"])
def test_texts_are_lower_cased_by_the_tokenizer_alone(tmp_path, name):
    config, tokenizer, _ = tokenizer_families.FAMILIES[name]
    vectors = SentenceVectors(pooling="mean", is_normalized=False)
    length = tokenizer_families.MAX_SEQ_LENGTH
    folder = str(tmp_path / "model")
    encoder = BertEncoder(config)
    checkpoints.save(folder, encoder, tokenizer, length, vectors=vectors)
    path = tmp_path / "model/sentence_bert_config.json"
    path.write_text('{"do_lower_case": true}')
    if tokenizer.do_lower_case:
        assert sentence_folder.read(folder).max_seq_length is None
        return
    with pytest.raises(ValueError, match="`do_lower_case` must be .*, false"):
        sentence_folder.read(folder)


def test_the_length_has_an_older_file(folder, tmp_path):
    copied = tmp_path / "model"
    shutil.copytree(folder, copied)
    (copied / "sentence_bert_config.json").unlink()
    assert sentence_folder.read(copied).max_seq_length is None
    path = copied / "sentence_xlm-roberta_config.json"
    path.write_text('{"max_seq_length": 5}')
    assert sentence_folder.read(copied).max_seq_length == 5
    assert path.name in sentence_files.found_files(str(copied))


def test_prompts_are_found_by_their_names():
    assert VECTORS.prompt() == "query: "
    assert VECTORS.prompt("document") == ""
    with pytest.raises(ValueError, match="one of query, document.*'passage'"):
        VECTORS.prompt("passage")


def test_queries_and_passages_have_the_prompt_that_is_named_first():
    def prompts_of(default, **prompts):
        vectors = SentenceVectors(
            pooling="cls",
            is_normalized=True,
            prompts=prompts,
            default_prompt_name=default,
        )
        return vectors.query_prompt, vectors.passage_prompt

    assert prompts_of(None) == ("", "")
    assert prompts_of("own", own="o ") == ("o ", "o ")
    assert prompts_of("query", query="q ", corpus="c ") == ("q ", "c ")
    assert prompts_of("own", own="o ", passage="p ", document="") == ("o ", "")


@pytest.mark.parametrize(
    "name, change, message",
    [
        (
            "2_Dense/config.json",
            {"activation_function": "torch.nn.modules.activation.ReLU"},
            "`activation_function` must be one of .*Identity.*Tanh.*ReLU",
        ),
        (
            "2_Dense/config.json",
            {"use_residual": True},
            "`use_residual` must be False. Received: True",
        ),
        (
            "2_Dense/config.json",
            {"out_features": 6},
            r"2_Dense/model.safetensors: the tensors must be .*\(6, 8\)",
        ),
        (
            "3_Dense/config.json",
            {"bias": True},
            r"3_Dense/model.safetensors: the tensors must be .*linear.bias",
        ),
        (
            "1_Pooling/config.json",
            {"include_prompt": "no"},
            "1_Pooling/config.json: `include_prompt` must be true or false",
        ),
        (
            "config_sentence_transformers.json",
            {"default_prompt_name": "passage"},
            "transformers.json: The name of a prompt must be one of query, ",
        ),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": None}},
            "`prompts` must map names to texts",
        ),
        (
            "config_sentence_transformers.json",
            {"similarity_fn_name": 3},
            "`similarity_fn_name` must be a name, or null. Received.*=3",
        ),
        (
            "modules.json",
            {1: {"type": "a.Pooling", "path": "../1_Pooling"}},
            "the path of a module must be in the folder",
        ),
    ],
)
def test_what_we_do_not_do_is_refused(folder, name, change, message):
    path = folder / name
    before = path.read_text()
    values = json.loads(before)
    for key, value in change.items():
        values[key] = value
    path.write_text(json.dumps(values))
    try:
        with pytest.raises(ValueError, match=message) as error:
            sentence_folder.read(folder)
        assert str(error.value).count(str(folder)) == 1
    finally:
        path.write_text(before)


def test_weights_in_a_folder_of_their_own_are_refused(folder, tmp_path):
    # Without them it would be taken for no model folder at all.
    path = tmp_path / "modules.json"
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    path.write_text(json.dumps(modules))
    message = "modules.json: .* in the folder itself.* save it again"
    with pytest.raises(ValueError, match=message):
        checkpoints.load(tmp_path, BertEncoder)


def test_other_poolings_are_refused():
    with pytest.raises(ValueError, match="`pooling` must be one of cls, mean"):
        SentenceVectors(pooling="last", is_normalized=True)
    with pytest.raises(ValueError, match="name of a prompt.*(none)"):
        SentenceVectors(
            pooling="cls", is_normalized=True, default_prompt_name="query"
        )
