"""Folders as other tools write them: what is read, and what is refused."""

import json
import re

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import bert_tf
from bert_tf import checkpoints
from bert_tf.checkpoints import containers
from bert_tf.checkpoints import families
from bert_tf.checkpoints import reader
from bert_tf.checkpoints import starting_point
from bert_tf.checkpoints.containers import tf1_checkpoint
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from bert_tf.tasks import fill_mask
from references import checkpoints as peer
from references import families as family_peer
from support import family_models
from support import paths

INPUTS = {name: np.array(ids, "int32") for name, ids in peer.INPUTS.items()}
DECODER = "cls.predictions.decoder.weight"
EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    f"oid sha256:{'0123456789abcdef' * 4}\n"
    "size 12345\n"
)


def write(folder, architecture, tensors=None, **values):
    """Writes a folder whose config.json has more values."""
    peer.write_folder(folder, architecture, tensors)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return folder


def states(model):
    encoder = getattr(model, "encoder", model)
    return np.array(encoder(INPUTS)["sequence_output"])


@pytest.fixture
def expected(tmp_path):
    peer.write_folder(tmp_path / "expected", "BertModel")
    return states(checkpoints.load(tmp_path / "expected", BertEncoder))


def test_unknown_keys_are_named_once(tmp_path, expected, caplog):
    write(
        tmp_path / "f",
        "BertModel",
        adapters={"adapters": {}, "config_map": {}},
        auto_map={"AutoModel": "modeling.BertModel"},
        my_note="private",
        # Known, and of no effect.
        chunk_size_feed_forward=2,
        position_embedding_type=None,
        tie_word_embeddings=False,
        use_bfloat16=False,
    )
    for _ in range(2):
        model = checkpoints.load(tmp_path / "f", BertEncoder)
    np.testing.assert_array_equal(states(model), expected)
    lines = [line for line in caplog.messages if "nothing reads" in line]
    assert len(lines) == 1
    assert lines[0].endswith(
        "f/config.json: keys that nothing reads here: "
        "['adapters', 'auto_map', 'my_note']."
    )


@pytest.mark.parametrize("architectures", [["MyBertModel"], None])
def test_an_authors_own_code_is_refused(tmp_path, architectures):
    write(
        tmp_path / "f",
        "BertModel",
        architectures=architectures,
        auto_map={"AutoModel": "modeling.MyBertModel"},
    )
    with pytest.raises(
        ValueError,
        match=r"config.json: `auto_map` names code of the model's author.*"
        rf"BertForMaskedLM.*architectures={re.escape(str(architectures))}",
    ):
        checkpoints.load(tmp_path / "f", BertEncoder)


def test_other_names_of_distilbert_s_sizes_are_read():
    config = families.parse_config(
        {
            "model_type": "distilbert",
            "vocab_size": 9,
            "hidden_size": 24,
            "num_attention_heads": 4,
            "num_hidden_layers": 3,
            "n_layers": 3,
        }
    )
    assert config.hidden_size == 24
    assert config.num_attention_heads == 4
    assert config.num_hidden_layers == 3


def test_swish_is_silu():
    values = {"model_type": "bert", "vocab_size": 9, "hidden_act": "swish"}
    assert families.parse_config(values).hidden_act == "silu"


def test_an_untied_decoder_matters_to_the_masked_lm_alone(tmp_path):
    tensors = peer.tensors("BertForMaskedLM")
    tensors[DECODER] = tensors[EMBEDDINGS] + 0.5
    folder = write(
        *(tmp_path / "f", "BertForMaskedLM", tensors), tie_word_embeddings=False
    )
    encoder = checkpoints.load(folder, BertEncoder)
    assert DECODER in encoder.coverage_report.names("left over")
    checkpoints.load(folder, BertClassifier, num_labels=2)
    with pytest.raises(ValueError, match=f"{DECODER} must .*untied decoder"):
        checkpoints.load(folder, BertPretrainer)
    tensors[DECODER] = tensors[EMBEDDINGS].copy()
    write(folder, "BertForMaskedLM", tensors, tie_word_embeddings=False)
    checkpoints.load(folder, BertPretrainer)
    del tensors[DECODER]
    write(folder, "BertForMaskedLM", tensors, tie_word_embeddings=False)
    checkpoints.load(folder, BertEncoder)
    with pytest.raises(ValueError, match=f"{DECODER} is missing, the untied"):
        checkpoints.load(folder, BertPretrainer)


@pytest.mark.parametrize("architecture", ["BertModel", "BertForMaskedLM"])
def test_names_of_data_parallel_training_are_read(
    tmp_path, expected, architecture
):
    tensors = {
        f"module.{name}": array
        for name, array in peer.tensors(architecture).items()
    }
    write(tmp_path / "f", architecture, tensors)
    encoder = checkpoints.load(tmp_path / "f", BertEncoder)
    new = encoder.coverage_report.names("new")
    assert len(new) == (0 if architecture == "BertModel" else 2)
    assert all("pooler" in name for name in new)
    write(tmp_path / "g", architecture)
    other = checkpoints.load(tmp_path / "g", BertEncoder)
    np.testing.assert_array_equal(states(encoder), states(other))


@pytest.mark.parametrize("case", ["albert", "distilbert", "electra", "roberta"])
def test_old_names_of_layer_norm_are_read_in_every_family(case, tmp_path):
    golden = json.loads((paths.GOLDEN / "families.json").read_text())
    architecture = family_peer.classes(case)[0]
    shapes = golden["models"][case][architecture]["shapes"]
    folder = family_models.write_folder(
        tmp_path / "f", case, architecture, shapes
    )
    model = checkpoints.load(folder, BertEncoder)
    tensors = family_peer.tensors(shapes)
    old = {}
    for name, array in tensors.items():
        is_norm = re.search(r"(?i)layer_?norm\.", name)
        if is_norm:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        old[name] = array
    assert old.keys() != tensors.keys()
    safetensors.numpy.save_file(old, tmp_path / "f/model.safetensors")
    again = checkpoints.load(folder, BertEncoder)
    for left, right in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(left, right)


def without_pooler():
    return {
        name: array
        for name, array in peer.tensors("BertModel").items()
        if not name.startswith("pooler.")
    }


def test_a_model_without_a_pooler_is_read(tmp_path, expected, caplog):
    folder = write(tmp_path / "f", "BertModel", without_pooler())
    for model_class, kwargs in (
        (BertSentenceEncoder, {}),
        (BertTokenClassifier, {"num_labels": 3}),
    ):
        model = checkpoints.load(folder, model_class, **kwargs)
        np.testing.assert_array_equal(states(model), expected)
    assert "initialised" not in caplog.text
    # Its pooled output is of new weights.
    checkpoints.load(folder, BertEncoder)
    assert "2 initialised (pooler)" in caplog.text
    checkpoints.convert(folder, tmp_path / "g", "hugging_face")
    found = json.loads((tmp_path / "g/config.json").read_text())
    assert found["architectures"] == ["BertModel"]
    with reader.open_checkpoint(str(tmp_path / "g")) as checkpoint:
        assert len(checkpoint.container.shapes) == len(without_pooler())


def test_half_a_pooler_is_refused(tmp_path):
    tensors = peer.tensors("BertModel")
    del tensors["pooler.dense.bias"]
    folder = write(tmp_path / "f", "BertModel", tensors)
    with pytest.raises(ValueError, match="pooler.dense.bias is missing"):
        checkpoints.load(folder, BertSentenceEncoder)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "vocab.txt"]
)
def test_pointers_of_git_lfs_are_named(tmp_path, name):
    folder = write(tmp_path / "f", "BertModel")
    (folder / name).write_text(POINTER)
    with pytest.raises(
        ValueError, match=f"{name}: is a pointer of Git LFS.*`git lfs pull`"
    ):
        bert_tf.load(folder)


def test_a_tf1_index_may_be_a_pointer_of_git_lfs(tmp_path):
    (tmp_path / "bert_model.ckpt.index").write_text(POINTER)
    with pytest.raises(ValueError, match=r"ckpt.index: is a pointer of Git"):
        checkpoints.load(tmp_path, BertEncoder)


def test_adapters_of_peft_are_named(tmp_path):
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(
        ValueError,
        match=r"adapter_config.json: belongs to an adapter of PEFT"
        r".*merge_and_unload\(\)",
    ):
        checkpoints.load(tmp_path, BertEncoder)


def test_slots_of_any_optimizer_are_no_weights(tmp_path):
    write(tmp_path / "a", "BertModel")
    # Google's files have no other form of gelu.
    path = tmp_path / "a/config.json"
    path.write_text(path.read_text().replace('"gelu"', '"gelu_new"'))
    checkpoints.convert(tmp_path / "a", tmp_path / "b", containers.GOOGLE)
    expected = states(checkpoints.load(tmp_path / "a", BertEncoder))
    prefix = str(tmp_path / "b" / tf1_checkpoint.PREFIX)
    stored = tf.train.load_checkpoint(prefix)
    weights = {
        name: stored.get_tensor(name)
        for name in stored.get_variable_to_shape_map()
    }
    slots = ("BERTAdam", "BERTAdam_1", "Adam", "Adam_1", "lamb_m", "lamb_v")
    others = {
        f"{name}/{slot}": array + 1
        for name, array in weights.items()
        for slot in slots
    } | {
        "beta1_power": np.float32(0.9),
        "training/beta2_power": np.float32(0.9),
        "current_loss_scale": np.float32(1024),
        "good_steps": np.int32(3),
        "global_step": np.int64(7),
    }
    tf1_checkpoint.write(prefix, weights | others)
    model = checkpoints.load(tmp_path / "b", BertEncoder)
    np.testing.assert_array_equal(states(model), expected)
    notes = {
        entry.name: entry.note
        for entry in model.coverage_report.entries
        if entry.status == "left over"
    }
    assert notes.keys() == others.keys()
    assert notes["bert/pooler/dense/kernel/BERTAdam_1"] == "the optimizer's"
    assert notes["beta1_power"] == "no weight"
    # What is neither a weight nor a slot of one is refused as before.
    tf1_checkpoint.write(prefix, weights | {"other/kernel": np.ones((2, 3))})
    with pytest.raises(ValueError, match="other/kernel .*has no place"):
        checkpoints.load(tmp_path / "b", BertEncoder)


def test_rows_beyond_the_vocabulary_are_kept_and_never_answered(tmp_path):
    num_entries, num_rows = len(peer.TOKENS), len(peer.TOKENS) + 7
    tensors = peer.tensors("BertForMaskedLM")
    tensors[EMBEDDINGS] = np.concatenate(
        [tensors[EMBEDDINGS], np.full((7, 12), 0.25, "float32")]
    )
    # The spare rows would be the likeliest answers.
    tensors["cls.predictions.bias"] = np.concatenate(
        [tensors["cls.predictions.bias"], np.full(7, 50.0, "float32")]
    )
    folder = write(
        *(tmp_path / "f", "BertForMaskedLM", tensors), vocab_size=num_rows
    )
    model, preprocessor, _ = bert_tf.load(folder)
    bert_tf.save(tmp_path / "g", model, preprocessor)
    checkpoints.convert(folder, tmp_path / "h", "bert_tf")
    for saved in ("g", "h"):
        with reader.open_checkpoint(str(tmp_path / saved)) as checkpoint:
            assert checkpoint.config.vocab_size == num_rows
            for name, array in tensors.items():
                np.testing.assert_array_equal(
                    checkpoint.container.read(name), array, err_msg=name
                )
    vocabulary = preprocessor.vocabulary
    assert len(vocabulary) == num_entries
    inputs = fill_mask.encode(tf.constant(["the [MASK] sat"]), preprocessor)
    probabilities, num_masks = fill_mask.predict(inputs, model, vocabulary)
    assert probabilities.shape[-1] == num_entries
    # As in transformers, the spare rows share in the softmax.
    assert tf.reduce_sum(probabilities) < 1e-3
    answers = fill_mask.decode(probabilities, num_masks, vocabulary, 5)
    assert np.max(answers["ids"]) < num_entries
    servable = opening.open_folder(
        folder, ExportOptions(kind="fill_mask", top_k=num_entries)
    )
    answers = servable.call_model(inputs, training=False)
    assert sorted(np.ravel(answers["ids"])) == [*range(num_entries)]
    with pytest.raises(ValueError, match=f"--top_k must be .*{num_entries}."):
        opening.open_folder(
            folder,
            ExportOptions(kind="fill_mask", top_k=num_rows),
        )


def test_a_vocabulary_of_another_size_is_not_the_model_s(tmp_path, caplog):
    folder = write(tmp_path / "f", "BertModel")
    short = tmp_path / "short.txt"
    short.write_text("\n".join(peer.TOKENS[:-1]) + "\n")
    with pytest.raises(ValueError, match="as many entries as .*, 17.*with 16"):
        starting_point.find(folder, vocab_file=str(short))
    (folder / "vocab.txt").unlink()
    found = starting_point.find(folder, vocab_file=str(short))
    assert len(found.tokenizer.vocabulary) == 16
    assert "has 16 entries, and the model 17 rows" in caplog.text


def test_fewer_rows_than_entries_are_refused(tmp_path):
    folder = write(tmp_path / "f", "BertModel")
    path = folder / "vocab.txt"
    path.write_text(path.read_text() + "more\n")
    with pytest.raises(
        ValueError, match=r"vocab.txt: must have at most .*=17.*: 18 entries"
    ):
        checkpoints.load(folder, BertEncoder)
