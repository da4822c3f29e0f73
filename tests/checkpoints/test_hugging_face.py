"""Hugging Face folders, as transformers and older versions of it wrote them.

The golden outputs are those of transformers (provenance in the file).
"""

import hashlib
import json
import shutil
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

import bert_tf
from bert_tf import checkpoints
from bert_tf.checkpoints import model_folder
from bert_tf.checkpoints import reader
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from references import checkpoints as peer
from support import paths

GOLDEN = json.loads(
    (paths.GOLDEN / "checkpoints_tiny.json").read_text("utf-8")
)["outputs"]
INPUTS = {name: np.array(ids, "int32") for name, ids in peer.INPUTS.items()}
ALL_POSITIONS = np.tile(np.arange(7, dtype="int32"), (3, 1))
PRETRAINER_INPUTS = INPUTS | {"masked_lm_positions": ALL_POSITIONS}
# {class of transformers: (class of ours, {output there: output here})}
MODELS = {
    "BertForPreTraining": (
        BertPretrainer,
        {
            "prediction_logits": "masked_lm_logits",
            "seq_relationship_logits": "next_sentence_logits",
        },
    ),
    "BertForMaskedLM": (BertPretrainer, {"logits": "masked_lm_logits"}),
    "BertForSequenceClassification": (BertClassifier, {"logits": None}),
    "BertForTokenClassification": (BertTokenClassifier, {"logits": None}),
    "BertForQuestionAnswering": (
        BertSpanPredictor,
        {"start_logits": "start_logits", "end_logits": "end_logits"},
    ),
}


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
def test_encoder_equals_transformers(tmp_path, hidden_act):
    peer.write_folder(tmp_path, "BertModel", hidden_act=hidden_act)
    encoder = checkpoints.load(tmp_path, BertEncoder)
    outputs = encoder(INPUTS)
    golden = GOLDEN[hidden_act]["BertModel"]
    pairs = {
        "last_hidden_state": outputs["sequence_output"],
        "pooler_output": outputs["pooled_output"],
        "layer_0": outputs["encoder_outputs"][0],
        "layer_1": outputs["encoder_outputs"][1],
    }
    for name, output in pairs.items():
        np.testing.assert_allclose(
            peer.golden_slice(output), golden[name], atol=2e-5, err_msg=name
        )


def test_a_configuration_that_names_no_family_is_theirs_too(tmp_path):
    # As the older folders have it: Google's keys beside Hugging Face's weights.
    peer.write_folder(tmp_path, "BertModel")
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    for key in ("model_type", "architectures", "layer_norm_eps"):
        del values[key]
    path.write_text(json.dumps(values))
    outputs = checkpoints.load(tmp_path, BertEncoder)(INPUTS)
    np.testing.assert_allclose(
        peer.golden_slice(outputs["sequence_output"]),
        GOLDEN["gelu"]["BertModel"]["last_hidden_state"],
        atol=2e-5,
    )


def test_two_forms_of_gelu_differ():
    # The comparison above would not see them exchanged otherwise.
    first = np.array(GOLDEN["gelu"]["BertModel"]["layer_1"])
    second = np.array(GOLDEN["gelu_new"]["BertModel"]["layer_1"])
    assert np.abs(first - second).max() > 1e-4


@pytest.mark.parametrize(
    ("architecture", "hidden_act"),
    [*((name, "gelu") for name in MODELS), ("BertForPreTraining", "gelu_new")],
)
def test_heads_equal_transformers(tmp_path, architecture, hidden_act):
    peer.write_folder(tmp_path, architecture, hidden_act=hidden_act)
    model_class, names = MODELS[architecture]
    model = checkpoints.load(tmp_path, model_class)
    outputs = model(
        PRETRAINER_INPUTS if model_class is BertPretrainer else INPUTS
    )
    for name, our_name in names.items():
        np.testing.assert_allclose(
            peer.golden_slice(outputs[our_name] if our_name else outputs),
            GOLDEN[hidden_act][architecture][name],
            atol=5e-5,
            err_msg=name,
        )


@pytest.mark.parametrize("architecture", MODELS)
def test_what_we_save_has_names_and_shapes_of_transformers(
    tmp_path, architecture
):
    peer.write_folder(tmp_path / "theirs", architecture)
    model = checkpoints.load(tmp_path / "theirs", MODELS[architecture][0])
    vocabulary = Vocabulary(tokens=peer.TOKENS)
    model_folder.save(tmp_path / "ours", model, WordpieceSpec(vocabulary), 9)
    ours = safetensors.numpy.load_file(tmp_path / "ours/model.safetensors")
    theirs = peer.tensors(architecture)
    assert ours.keys() == theirs.keys()
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)
    assert json.loads((tmp_path / "ours/config.json").read_text())[
        "architectures"
    ] == [architecture]


def test_masked_lm_folder_gets_a_next_sentence_head_if_asked(tmp_path):
    peer.write_folder(tmp_path, "BertForMaskedLM")
    outputs = checkpoints.load(tmp_path, BertPretrainer)(PRETRAINER_INPUTS)
    assert outputs.keys() == {"masked_lm_logits"}
    pretrainer = checkpoints.load(
        tmp_path, BertPretrainer, has_next_sentence_head=True
    )
    new = pretrainer.coverage_report.names("new")
    assert [name.split("/", 1)[1] for name in new] == [
        "pooler/dense/kernel",
        "pooler/dense/bias",
        "next_sentence/dense/kernel",
        "next_sentence/dense/bias",
    ]
    kernel = np.array(pretrainer.next_sentence_head.dense.kernel)
    # Drawn anew: a truncated normal of deviation 0.02, not what lay there.
    assert 0 < np.abs(kernel).max() <= 0.04 + 1e-6
    encoder = checkpoints.load(tmp_path, BertEncoder)
    assert len(encoder.coverage_report.names("new")) == 2


@pytest.mark.parametrize(
    "architecture, head",
    [
        ("BertForSequenceClassification", "classifier head"),
        ("BertForQuestionAnswering", "span head"),
    ],
)
def test_a_class_without_its_head_is_no_such_class(
    tmp_path, caplog, architecture, head
):
    tensors = {
        name: array
        for name, array in peer.tensors(architecture).items()
        if name.startswith("bert.")
    }
    peer.write_folder(tmp_path, architecture, tensors)
    message = f"has no {head}, although its class is {architecture}"
    model, *_ = bert_tf.load(tmp_path)
    assert type(model) is BertEncoder
    assert caplog.text.count(message) == 1
    model_class = MODELS[architecture][0]
    with pytest.raises(ValueError, match=r"safetensors: the tensor .*missing"):
        checkpoints.load(tmp_path, model_class)
    caplog.clear()
    checkpoints.load(tmp_path, model_class, allow_partial=True)
    assert message in caplog.text


def old_names(tensors):
    """LayerNorm's weights as the first versions called them."""
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in tensors.items()
    }


def with_buffers(tensors):
    ids = np.arange(9, dtype="int64")[None]
    return tensors | {"bert.embeddings.position_ids": ids}


def without_prefix(tensors):
    return {name.removeprefix("bert."): x for name, x in tensors.items()}


def with_tied_decoder(tensors):
    words = tensors["bert.embeddings.word_embeddings.weight"]
    return tensors | {
        "cls.predictions.decoder.weight": words,
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
    }


@pytest.mark.parametrize(
    ("change", "num_left_over"),
    [
        (old_names, 0),
        (with_buffers, 1),
        (without_prefix, 0),
        (with_tied_decoder, 2),
    ],
)
def test_older_forms_load_the_same(tmp_path, change, num_left_over):
    tensors = peer.tensors("BertForPreTraining")
    peer.write_folder(tmp_path, "BertForPreTraining", change(tensors))
    model = checkpoints.load(tmp_path, BertPretrainer)
    assert len(model.coverage_report.names("left over")) == num_left_over
    outputs = model(PRETRAINER_INPUTS)
    np.testing.assert_allclose(
        outputs["next_sentence_logits"],
        GOLDEN["gelu"]["BertForPreTraining"]["seq_relationship_logits"],
        atol=5e-5,
    )


def test_bare_model_may_carry_the_prefix(tmp_path):
    tensors = {f"bert.{n}": x for n, x in peer.tensors("BertModel").items()}
    peer.write_folder(tmp_path, "BertModel", tensors)
    report = checkpoints.load(tmp_path, BertEncoder).coverage_report
    assert len(report.names("loaded")) == 39


def test_a_decoder_of_its_own_is_refused(tmp_path):
    tensors = with_tied_decoder(peer.tensors("BertForPreTraining"))
    tensors["cls.predictions.decoder.weight"] = np.ones((17, 12), "float32")
    peer.write_folder(tmp_path, "BertForPreTraining", tensors)
    with pytest.raises(ValueError, match="untied decoder is not supported"):
        checkpoints.load(tmp_path, BertPretrainer)


def test_names_that_mean_the_same_tensor_are_refused(tmp_path):
    tensors = peer.tensors("BertModel")
    tensors["embeddings.LayerNorm.gamma"] = np.ones(12, "float32")
    peer.write_folder(tmp_path, "BertModel", tensors)
    with pytest.raises(ValueError, match="there twice"):
        checkpoints.load(tmp_path, BertEncoder)


def shard(folder):
    """Splits the weights of a folder into three files and an index."""
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    path.unlink()
    weight_map = {}
    for index in range(3):
        name = f"model-{index + 1:05d}-of-00003.safetensors"
        part = dict(sorted(tensors.items())[index::3])
        safetensors.numpy.save_file(part, folder / name, {"format": "pt"})
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return weight_map


def test_sharded_folder_loads_the_same(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    whole = checkpoints.load(tmp_path, BertEncoder)
    shard(tmp_path)
    sharded = checkpoints.load(tmp_path, BertEncoder)
    for left, right in zip(whole.weights, sharded.weights):
        np.testing.assert_array_equal(left, right)


def test_hashes_are_of_the_files_that_were_opened(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    path = tmp_path / "model.safetensors"
    wanted = hashlib.sha256(path.read_bytes()).hexdigest()
    with reader.open_checkpoint(str(tmp_path)) as checkpoint:
        # Another training replaces it.
        (tmp_path / "new").write_bytes(b"other weights")
        (tmp_path / "new").rename(path)
        assert checkpoint.weights_sha256() == {path.name: wanted}


def test_a_shard_that_lacks_a_tensor_is_named(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    name = "pooler.dense.bias"
    file = shard(tmp_path)[name]
    tensors = safetensors.numpy.load_file(tmp_path / file)
    del tensors[name]
    safetensors.numpy.save_file(tensors, tmp_path / file)
    with pytest.raises(ValueError, match=f"{file}: the tensor {name}"):
        checkpoints.load(tmp_path, BertEncoder)
    (tmp_path / file).unlink()
    with pytest.raises(ValueError, match=f"no file .*{file}"):
        checkpoints.load(tmp_path, BertEncoder)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_float_types_are_read_as_float32(tmp_path, dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    tensors = {
        name: array.astype(dtype)
        for name, array in peer.tensors("BertModel").items()
    }
    peer.write_folder(tmp_path, "BertModel", tensors)
    model = checkpoints.load(tmp_path, BertEncoder)
    assert model.pooler.dense.kernel.dtype == "float32"
    np.testing.assert_array_equal(
        model.pooler.dense.kernel,
        tensors["pooler.dense.weight"].astype("float32").T,
    )


@pytest.mark.parametrize("allow_partial", [False, True])
def test_weights_of_tensorflow_classes_are_refused(tmp_path, allow_partial):
    # As TFBertModel.save_pretrained(folder, safe_serialization=True) names
    # them: with `allow_partial` each would be left over, and all be new.
    tensors = {
        "bert/embeddings/word_embeddings/weight:0": np.zeros((12, 8), "f4"),
        "bert/encoder/layer_._0/output/dense/bias:0": np.zeros(8, "f4"),
    }
    peer.write_folder(tmp_path, "BertForMaskedLM", tensors)
    with pytest.raises(ValueError) as error:
        checkpoints.load(tmp_path, BertEncoder, allow_partial=allow_partial)
    assert "bert/embeddings/word_embeddings/weight:0" in str(error.value)
    assert f"BertForMaskedLM.from_pretrained('{tmp_path}')" in str(error.value)
    (tmp_path / "model.safetensors").rename(tmp_path / "tf_model.h5")
    with pytest.raises(ValueError) as error:
        checkpoints.load(tmp_path, BertEncoder, allow_partial=allow_partial)
    assert f"from_pretrained('{tmp_path}', from_tf=True)" in str(error.value)


def cut(path, tensors):
    path.write_bytes(path.read_bytes()[:-100])
    return "truncated"


def garble(path, tensors):
    data = bytearray(path.read_bytes())
    data[3] = 200
    path.write_bytes(data)
    return "truncated"


def drop(path, tensors):
    del tensors["encoder.layer.1.output.dense.bias"]
    safetensors.numpy.save_file(tensors, path)
    return r"encoder\.layer\.1\.output\.dense\.bias is missing"


def reshape(path, tensors):
    name = "encoder.layer.0.intermediate.dense.weight"
    tensors[name] = tensors[name].T.copy()
    safetensors.numpy.save_file(tensors, path)
    return r"intermediate\.dense\.weight must .* \[10, 12\]\. .* \[12, 10\]"


def add(path, tensors):
    tensors["encoder.layer.2.output.dense.bias"] = np.ones(12, "float32")
    safetensors.numpy.save_file(tensors, path)
    return r"layer\.2\.output\.dense\.bias \[12\] has no place"


def poison(path, tensors):
    tensors["encoder.layer.1.output.dense.bias"][4] = np.nan
    safetensors.numpy.save_file(tensors, path)
    return r"layer\.1\.output\.dense\.bias holds values that are not finite"


def make_integers(path, tensors):
    name = "encoder.layer.1.output.dense.bias"
    tensors[name] = tensors[name].astype("int32")
    safetensors.numpy.save_file(tensors, path)
    return r"layer\.1\.output\.dense\.bias must be of floating-point"


@pytest.mark.parametrize(
    "damage",
    [cut, garble, drop, reshape, add, poison, make_integers],
)
def test_damaged_files_are_errors_that_name_file_and_tensor(tmp_path, damage):
    peer.write_folder(tmp_path, "BertModel")
    path = tmp_path / "model.safetensors"
    match = damage(path, peer.tensors("BertModel"))
    with pytest.raises(ValueError, match=f"(?s){tmp_path}.*{match}"):
        checkpoints.load(tmp_path, BertEncoder)


@pytest.mark.parametrize("damage", [drop, reshape, add])
def test_partial_load_takes_what_fits(tmp_path, damage):
    peer.write_folder(tmp_path, "BertModel")
    damage(tmp_path / "model.safetensors", peer.tensors("BertModel"))
    model = checkpoints.load(tmp_path, BertEncoder, allow_partial=True)
    report = model.coverage_report
    assert len(report.names("new")) == (damage is not add)
    assert len(report.names("left over")) == (damage is add)
    assert all(np.isfinite(variable).all() for variable in model.weights)


def test_failed_load_changes_no_variable(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    model = checkpoints.load(tmp_path, BertEncoder)
    before = [np.array(variable) for variable in model.weights]
    tensors = peer.tensors("BertModel", seed=2)
    drop(tmp_path / "model.safetensors", tensors)
    with pytest.raises(ValueError, match="missing"):
        checkpoints.load_weights(tmp_path, model)
    for variable, value in zip(model.weights, before):
        np.testing.assert_array_equal(variable, value)


def test_heads_of_one_name_are_not_mistaken(tmp_path):
    peer.write_folder(tmp_path, "BertForTokenClassification")
    model = checkpoints.load(
        tmp_path, BertClassifier, num_labels=peer.NUM_LABELS
    )
    report = model.coverage_report
    assert [name.split("/", 1)[1] for name in report.names("new")] == [
        *("pooler/dense/kernel", "pooler/dense/bias"),
        *("classifier/dense/kernel", "classifier/dense/bias"),
    ]
    assert sorted(report.names("left over")) == [
        "classifier.bias",
        "classifier.weight",
    ]


def test_labels_are_kept(tmp_path):
    peer.write_folder(tmp_path, "BertForTokenClassification")
    model = checkpoints.load(tmp_path, BertTokenClassifier)
    assert model.num_labels == 4
    assert model_folder.read_label_names(tmp_path) == ("L0", "L1", "L2", "L3")
    peer.write_folder(
        tmp_path,
        "BertForTokenClassification",
        id2label={"0": "a", "2": "b", "3": "c", "4": "d"},
    )
    with pytest.raises(ValueError, match=r"config\.json.*id2label"):
        model_folder.read_label_names(tmp_path)


def test_positions_are_repeated(tmp_path):
    peer.write_folder(tmp_path, "BertModel")
    model = checkpoints.load(tmp_path, BertEncoder, max_position_embeddings=20)
    assert model.config.max_position_embeddings == 20
    stored = peer.tensors("BertModel")["embeddings.position_embeddings.weight"]
    positions = np.array(model.embeddings.position_embeddings)
    np.testing.assert_array_equal(positions[:9], stored)
    np.testing.assert_array_equal(positions[9:18], stored)
    np.testing.assert_array_equal(positions[18:], stored[:2])
    assert "repeated from 9 rows" in str(model.coverage_report)
    with pytest.raises(ValueError, match="at least the checkpoint's 9"):
        checkpoints.load(tmp_path, BertEncoder, max_position_embeddings=8)
    with pytest.raises(ValueError, match="position_embeddings"):
        checkpoints.load_weights(tmp_path, model)
    checkpoints.load_weights(tmp_path, model, extend_positions=True)


def test_vocabulary_of_tokenizer_json_is_read(tmp_path):
    # What transformers 5 saves in the place of vocab.txt.
    peer.write_folder(tmp_path, "BertModel")
    (tmp_path / "vocab.txt").unlink()
    assert model_folder.read_vocabulary(tmp_path) is None
    ids = {token: index for index, token in enumerate(peer.TOKENS[:-1])}
    spec = WordpieceSpec(Vocabulary(tokens=peer.TOKENS))
    tokenizer = spec.tokenizer_json
    del tokenizer["model"]["vocab"][peer.TOKENS[-1]]
    tokenizer["added_tokens"] = [
        {"id": 0, "content": "[PAD]"},
        {"id": 16, "content": "e"},
    ]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tokenizer))
    assert model_folder.read_vocabulary(tmp_path).tokens == peer.TOKENS
    checkpoints.load(tmp_path, BertEncoder)
    for wrong in ({"type": "WordLevel", "vocab": ids}, {"vocab": {"[PAD]": 1}}):
        path.write_text(json.dumps({"model": wrong}))
        with pytest.raises(ValueError, match=r"tokenizer\.json"):
            checkpoints.load(tmp_path, BertEncoder)


def test_weights_are_not_held_twice(tmp_path):
    config = peer.CONFIG | {"num_hidden_layers": 3, "intermediate_size": 9999}
    shapes = peer.shapes("BertModel", config)
    generator = np.random.default_rng(0)
    tensors = {
        name: generator.normal(size=shape).astype("float32")
        for name, shape in shapes.items()
    }
    total = sum(array.nbytes for array in tensors.values())
    peer.write_folder(
        tmp_path,
        "BertModel",
        tensors,
        num_hidden_layers=3,
        intermediate_size=9999,
    )
    model = checkpoints.load(tmp_path, BertEncoder)
    del tensors
    tracemalloc.start()
    try:
        checkpoints.load_weights(tmp_path, model)
        # NumPy's memory only. It is not copied on its way into a variable.
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * total


def test_anything_else_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Found: nothing"):
        checkpoints.load(tmp_path, BertEncoder)
    with pytest.raises(ValueError, match="Found: nothing"):
        checkpoints.load(tmp_path / "nowhere", BertEncoder)
    (tmp_path / "texts.csv").write_text("text,label\n")
    with pytest.raises(ValueError, match="texts.csv: .* Received: a file"):
        checkpoints.load(tmp_path / "texts.csv", BertEncoder)
    peer.write_folder(tmp_path / "a", "BertModel")
    shutil.copy(tmp_path / "a/model.safetensors", tmp_path)
    with pytest.raises(ValueError, match=r"no file .*config\.json"):
        checkpoints.load(tmp_path, BertEncoder)
