import dataclasses
import json
import os

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import config_json
from bert_tf.checkpoints import conversion
from bert_tf.checkpoints import model_card
from bert_tf.checkpoints import model_folder
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s")
)
CONFIG = BertConfig(
    vocab_size=7,
    hidden_size=12,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=9,
)


def save(folder, model, vocabulary=VOCABULARY, **kwargs):
    arguments = {"tokenizer": WordpieceSpec(vocabulary), "max_seq_length": 8}
    model_folder.save(folder, model, **(arguments | kwargs))
    return str(folder)


def randomize(model, seed=0):
    """All values differ, biases and LayerNorms too."""
    rng = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(rng.normal(size=variable.shape).astype("float32"))
    return model


def values(model):
    return {
        variable.path.split("/", 1)[1]: keras.ops.convert_to_numpy(variable)
        for variable in model.weights
    }


def inputs(model_class):
    ids = np.array([[2, 5, 6, 3, 0], [2, 6, 3, 5, 3]], "int32")
    batch = {
        "input_ids": ids,
        "input_mask": np.array([[1, 1, 1, 1, 0], [1] * 5], "int32"),
        "segment_ids": np.array([[0] * 5, [0, 0, 0, 1, 1]], "int32"),
    }
    if model_class is BertPretrainer:
        batch["masked_lm_positions"] = np.array([[1, 2], [3, 0]], "int32")
    return batch


@pytest.mark.parametrize(
    ("model_class", "architecture"),
    [
        (BertEncoder, "BertModel"),
        (BertPretrainer, "BertForPreTraining"),
        (BertClassifier, "BertForSequenceClassification"),
    ],
)
def test_round_trip_gives_equal_weights_and_outputs(
    tmp_path, model_class, architecture
):
    model = randomize(model_class(CONFIG))
    folder = save(tmp_path / "folder", model)
    loaded = checkpoints.load(folder, model_class)
    assert loaded.config == CONFIG
    for name, value in values(model).items():
        np.testing.assert_array_equal(values(loaded)[name], value)
    batch = inputs(model_class)
    tf.nest.map_structure(
        np.testing.assert_array_equal, model(batch), loaded(batch)
    )
    config = json.loads((tmp_path / "folder/config.json").read_text())
    assert config["architectures"] == [architecture]
    assert sorted(os.listdir(folder)) == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_files_are_as_hugging_face_has_them(tmp_path):
    model = randomize(BertClassifier(CONFIG, num_labels=3, dropout=0.25))
    save(tmp_path / "f", model, label_names=("no", "maybe", "yes"))
    config = json.loads((tmp_path / "f/config.json").read_text())
    assert config["id2label"] == {"0": "no", "1": "maybe", "2": "yes"}
    assert config["label2id"] == {"no": 0, "maybe": 1, "yes": 2}
    assert config["classifier_dropout"] == 0.25
    assert config["hidden_act"] == "gelu_new"
    assert config["pad_token_id"] == 0
    assert "problem_type" not in config
    tokenizer = json.loads((tmp_path / "f/tokenizer_config.json").read_text())
    assert tokenizer["do_lower_case"] is True
    assert tokenizer["model_max_length"] == 8
    assert tokenizer["tokenizer_class"] == "BertTokenizer"
    assert (tmp_path / "f/vocab.txt").read_text() == VOCABULARY.to_text()

    tensors = safetensors.numpy.load_file(tmp_path / "f/model.safetensors")
    kernel = values(model)["layer_0/intermediate/kernel"]
    assert kernel.shape == (12, 10)
    np.testing.assert_array_equal(
        tensors["bert.encoder.layer.0.intermediate.dense.weight"], kernel.T
    )
    assert tensors["classifier.weight"].shape == (3, 12)
    assert tensors["bert.embeddings.position_embeddings.weight"].shape == (
        9,
        12,
    )
    assert len(tensors) == len(model.weights)
    with safetensors.safe_open(
        tmp_path / "f/model.safetensors", "numpy"
    ) as stream:
        assert stream.metadata() == {"format": "pt"}
    # Whoever may read one of the files may read all.
    assert (
        len({path.stat().st_mode for path in (tmp_path / "f").iterdir()}) == 1
    )


def test_bare_encoder_has_no_prefix(tmp_path):
    save(tmp_path / "f", BertEncoder(CONFIG))
    tensors = safetensors.numpy.load_file(tmp_path / "f/model.safetensors")
    assert "embeddings.word_embeddings.weight" in tensors
    assert not any(name.startswith("bert.") for name in tensors)


def test_pretrained_encoder_gets_a_new_head(tmp_path):
    pretrainer = randomize(BertPretrainer(CONFIG))
    save(tmp_path / "f", pretrainer)
    classifier = checkpoints.load(
        tmp_path / "f", BertClassifier, num_labels=5, dropout=0.3
    )
    assert classifier.num_labels == 5
    assert classifier.dropout == 0.3
    new = classifier.coverage_report.names("new")
    assert [name.split("/", 1)[1] for name in new] == [
        "classifier/dense/kernel",
        "classifier/dense/bias",
    ]
    assert "cls.predictions.bias" in classifier.coverage_report.names(
        "left over"
    )
    np.testing.assert_array_equal(
        values(classifier.encoder)["layer_0/output/kernel"],
        values(pretrainer.encoder)["layer_0/output/kernel"],
    )
    lines = str(classifier.coverage_report).splitlines()
    assert lines[0].split() == ["status", "name", "shape", "note"]
    assert lines[-1].endswith(
        "loaded 23 tensors; 2 initialised (classifier head); "
        "7 unused (masked-LM head, next-sentence head)"
    )


def test_tuned_classifier_restores_its_labels(tmp_path):
    model = randomize(BertClassifier(CONFIG, num_labels=3, dropout=0.25))
    save(tmp_path / "f", model, label_names=("a", "b", "ç"))
    loaded = checkpoints.load(tmp_path / "f", BertClassifier)
    assert loaded.num_labels == 3
    assert loaded.dropout == 0.25
    assert loaded.coverage_report.names("new") == ()
    assert model_folder.read_label_names(tmp_path / "f") == ("a", "b", "ç")


def test_another_number_of_labels_is_an_error_unless_partial(tmp_path):
    save(tmp_path / "f", BertClassifier(CONFIG, num_labels=3))
    with pytest.raises(
        ValueError, match=r"(?s)safetensors.*classifier\.weight.*\[2, 12\]"
    ):
        checkpoints.load(tmp_path / "f", BertClassifier, num_labels=2)
    model = checkpoints.load(
        tmp_path / "f", BertClassifier, num_labels=2, allow_partial=True
    )
    assert len(model.coverage_report.names("new")) == 2


def test_regression_is_marked(tmp_path):
    save(tmp_path / "f", BertClassifier(CONFIG, num_labels=1))
    config = json.loads((tmp_path / "f/config.json").read_text())
    assert config["problem_type"] == "regression"
    assert checkpoints.load(tmp_path / "f", BertClassifier).num_labels == 1


@pytest.mark.parametrize(
    "num_labels, problem_type",
    [
        (1, config_json.MULTI_LABEL),
        (3, config_json.MULTI_LABEL),
        # As transformers marks what it has trained.
        (3, "single_label_classification"),
    ],
)
def test_the_kind_of_labels_is_marked(tmp_path, num_labels, problem_type):
    model = BertClassifier(CONFIG, num_labels=num_labels)
    save(tmp_path / "f", model, problem_type=problem_type)
    # Converted, too.
    conversion.convert(tmp_path / "f", tmp_path / "g", "hugging_face")
    for name in ("f", "g"):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert config["problem_type"] == problem_type


def test_task_is_kept_and_taken_away(tmp_path):
    model = BertClassifier(CONFIG)
    save(tmp_path / "f", model, task={"name": "CoLA", "columns": [3, 1]})
    assert model_folder.read_task(tmp_path / "f") == {
        "name": "CoLA",
        "columns": [3, 1],
    }
    save(tmp_path / "f", model)
    assert model_folder.read_task(tmp_path / "f") is None


def test_moments_of_old_weights_are_taken_away(tmp_path):
    """0.2.0 wrote them beside the weights."""
    folder = save(tmp_path / "f", BertEncoder(CONFIG))
    (tmp_path / "f/optimizer.safetensors").write_bytes(b"moments")
    save(tmp_path / "f", randomize(BertEncoder(CONFIG)))
    assert "optimizer.safetensors" not in os.listdir(folder)


def test_new_weights_replace_old_ones_beside_other_files(tmp_path):
    (tmp_path / "train").mkdir()
    save(tmp_path, randomize(BertPretrainer(CONFIG), seed=1))
    newer = randomize(BertPretrainer(CONFIG), seed=2)
    save(tmp_path, newer)
    loaded = checkpoints.load(tmp_path, BertPretrainer)
    np.testing.assert_array_equal(
        values(loaded)["masked_lm/output_bias"],
        values(newer)["masked_lm/output_bias"],
    )
    assert not [name for name in os.listdir(tmp_path) if name[0] == "."]


ORIGIN = model_card.Origin(
    name="tickets", method="tuned", start=None, data={}, settings={}
)


def write_results(folder, card=None):
    """Writes scores into a folder's card, by default as it is now."""
    card = card or model_folder.read_card(str(folder))
    results = {"f1": 0.5}
    model_folder.write_results(str(folder), card, "tickets", "dev", results)


def test_card_is_replaced_but_for_a_users_own(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(
        model_folder.logging, "info", lambda text, *args: lines.append(args)
    )
    model = BertClassifier(CONFIG, num_labels=2)
    card = tmp_path / "README.md"
    save(tmp_path, model, origin=ORIGIN)
    num_parameters = sum(np.size(value) for value in values(model).values())
    assert f"\n- Parameters: {num_parameters:,}\n" in card.read_text()
    before = card.read_text()
    write_results(tmp_path)
    assert "\nOn dev:\n\n- `f1`: 0.5\n" in card.read_text()
    edited = f"{card.read_text()}\n## Licence\n".encode()
    # Other weights have other scores.
    save(tmp_path, model)
    assert "has not been evaluated" in card.read_text()
    assert "# BertForSequenceClassification\n" in card.read_text()
    # Those that are being evaluated meanwhile, too.
    write_results(tmp_path, before)
    assert "has not been evaluated" in card.read_text()
    assert lines == []

    for own in (b"My own.\n", b"\xff\xfe no UTF-8", edited):
        card.write_bytes(own)
        save(tmp_path, model)
        write_results(tmp_path)
        assert card.read_bytes() == own
    assert lines == [(f"{tmp_path}/README.md",)]
    # One that is in the folder before there is a model.
    (tmp_path / "new").mkdir()
    (tmp_path / "new/README.md").write_text("Mine.")
    save(tmp_path / "new", model)
    assert (tmp_path / "new/README.md").read_text() == "Mine."
    # There need not be one.
    write_results(tmp_path / "no")
    assert not (tmp_path / "no").exists()


def test_scores_are_gone_before_other_weights_are_there(tmp_path, monkeypatch):
    model = BertEncoder(CONFIG)
    save(tmp_path, model, origin=ORIGIN)
    write_results(tmp_path)
    replaced = []

    real = os.replace

    def stop(source, target):
        # A kill that comes as the first file is renamed.
        if not os.path.basename(target).startswith("."):
            replaced.append(os.path.basename(target))
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, model)
    assert replaced == ["model.safetensors"]
    assert not (tmp_path / "README.md").exists()


@pytest.mark.parametrize("error", [PermissionError, tf.errors.OpError])
def test_a_card_stops_no_save(tmp_path, monkeypatch, error):
    lines = []
    monkeypatch.setattr(
        model_folder.logging, "warning", lambda text, *args: lines.append(args)
    )
    model = BertEncoder(CONFIG)
    real = model_folder.files.read_text

    def read_text(path, *args):
        if path.endswith("README.md"):
            raise error(None, None, "no", 7)
        return real(path, *args)

    # What cannot be read is somebody's own.
    save(tmp_path / "a", model, origin=ORIGIN)
    before = (tmp_path / "a/README.md").read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(model_folder.files, "read_text", read_text)
        save(tmp_path / "a", randomize(model))
        write_results(tmp_path / "a", before.decode())
    assert (tmp_path / "a/README.md").read_bytes() == before
    assert lines == []
    # What cannot be made or written is not there.
    for name in ("make", "with_results"):
        monkeypatch.delattr(model_card, name)
    write_results(tmp_path / "a")
    for _ in range(2):
        save(tmp_path / "b", model)
    assert [path for path, _ in lines] == [
        f"{tmp_path}/{name}/README.md" for name in "ab"
    ]
    assert sorted(os.listdir(tmp_path / "b"))[0] == "config.json"


@pytest.mark.parametrize("folder_exists", [False, True])
def test_failed_save_leaves_everything_as_it_was(
    tmp_path, monkeypatch, folder_exists
):
    old = randomize(BertEncoder(CONFIG), seed=1)
    if folder_exists:
        save(tmp_path / "f", old)

    def fill_disk(tensors, path, metadata):
        with open(path, "wb") as stream:
            stream.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path / "f", randomize(BertEncoder(CONFIG), seed=2))
    if folder_exists:
        assert len(os.listdir(tmp_path / "f")) == 6
        loaded = checkpoints.load(tmp_path / "f", BertEncoder)
        for name, value in values(old).items():
            np.testing.assert_array_equal(values(loaded)[name], value)
    else:
        assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (lambda: BertPretrainer(CONFIG), "architectures"),
        (
            lambda: BertEncoder(dataclasses.replace(CONFIG, hidden_act="relu")),
            "hidden_act",
        ),
    ],
)
def test_folder_of_another_model_is_refused(tmp_path, other, match):
    save(tmp_path / "f", BertEncoder(CONFIG))
    before = (tmp_path / "f/model.safetensors").read_bytes()
    with pytest.raises(ValueError, match=match):
        save(tmp_path / "f", other())
    assert (tmp_path / "f/model.safetensors").read_bytes() == before


def test_folder_with_another_vocabulary_or_form_is_refused(tmp_path):
    model = BertEncoder(CONFIG)
    save(tmp_path / "f", model)
    other = Vocabulary(tokens=(*VOCABULARY.tokens[:-1], "##t"))
    with pytest.raises(ValueError, match=r"vocab\.txt"):
        save(tmp_path / "f", model, vocabulary=other)
    (tmp_path / "f/pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        save(tmp_path / "f", model)


@pytest.mark.parametrize(
    ("kwargs", "match"),
    [
        ({"max_seq_length": 10}, "max_seq_length=10"),
        ({"max_seq_length": 0}, "max_seq_length=0"),
        ({"label_names": ("a", "b")}, "not a classifier"),
        (
            {"vocabulary": Vocabulary(tokens=(*VOCABULARY.tokens, "more"))},
            "8 entries",
        ),
        (
            {"vocabulary": Vocabulary(tokens=(*VOCABULARY.tokens[:-1], "S"))},
            "do_lower_case",
        ),
    ],
)
def test_arguments_that_do_not_fit_write_nothing(tmp_path, kwargs, match):
    with pytest.raises(ValueError, match=match):
        save(tmp_path / "f", BertEncoder(CONFIG), **kwargs)
    assert os.listdir(tmp_path) == []


def test_label_names_must_be_as_many_as_labels(tmp_path):
    with pytest.raises(ValueError, match="3 different names"):
        save(
            tmp_path / "f",
            BertClassifier(CONFIG, num_labels=3),
            label_names=("a", "b", "a"),
        )


def test_vocabulary_is_checked_at_load(tmp_path):
    folder = save(tmp_path / "f", BertEncoder(CONFIG))
    (tmp_path / "f/tokenizer.json").unlink()
    vocabulary = tmp_path / "f/vocab.txt"
    vocabulary.write_text(VOCABULARY.to_text() + "more\n")
    with pytest.raises(ValueError, match=r"vocab\.txt.*vocab_size=7.*8"):
        checkpoints.load(folder, BertEncoder)
    vocabulary.write_text(VOCABULARY.to_text().replace("the", "The"))
    with pytest.raises(ValueError, match=r"tokenizer_config.*do_lower_case"):
        checkpoints.load(folder, BertEncoder)


def test_loads_under_a_strategy_and_mixed_precision(tmp_path):
    model = randomize(BertClassifier(CONFIG))
    folder = save(tmp_path / "f", model)
    keras.config.set_dtype_policy("mixed_bfloat16")
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        loaded = checkpoints.load(folder, BertClassifier)
    assert loaded.compute_dtype == "bfloat16"
    for name, value in values(model).items():
        np.testing.assert_array_equal(values(loaded)[name], value)
    kernel = loaded.classification_head.dense.kernel
    replicas = strategy.experimental_local_results(kernel.value)
    assert len(replicas) == 2
    np.testing.assert_array_equal(replicas[0], replicas[1])
    # Outside the scope, and back to disk.
    checkpoints.load_weights(folder, loaded)
    save(tmp_path / "g", loaded)
    assert (tmp_path / "g/model.safetensors").read_bytes() == (
        tmp_path / "f/model.safetensors"
    ).read_bytes()


def test_load_weights_wants_the_same_architecture(tmp_path):
    folder = save(tmp_path / "f", BertEncoder(CONFIG))
    other = dataclasses.replace(CONFIG, num_attention_heads=4)
    with pytest.raises(ValueError, match="num_attention_heads=3"):
        checkpoints.load_weights(folder, BertEncoder(other))
    report = checkpoints.load_weights(folder, BertPretrainer(CONFIG))
    assert len(report.names("loaded")) == 23
    assert len(report.names("new")) == 7


def test_remote_folders_work(tmp_path):
    # TensorFlow's in-memory file system stands in for an object store.
    folder = "ram://bert_tf_test/folder"
    model = randomize(BertEncoder(CONFIG))
    save(folder, model, task={"name": "x"})
    newer = randomize(BertEncoder(CONFIG), seed=5)
    save(folder, newer)
    loaded = checkpoints.load(folder, BertEncoder)
    np.testing.assert_array_equal(
        values(loaded)["pooler/dense/kernel"],
        values(newer)["pooler/dense/kernel"],
    )
    assert model_folder.read_task(folder) is None


class WithMore(keras.Model):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.encoder = BertEncoder(config, name="encoder")
        self.more = keras.layers.Dense(3, name="more")
        self.more.build((None, 4))


def test_other_variables_than_a_berts_are_refused(tmp_path):
    with pytest.raises(ValueError, match="more/kernel"):
        save(tmp_path / "f", WithMore(CONFIG))
    layer = keras.layers.Dense(2)
    layer.build((None, 3))
    with pytest.raises(ValueError, match="no `config`"):
        checkpoints.load_weights(save(tmp_path, BertEncoder(CONFIG)), layer)
