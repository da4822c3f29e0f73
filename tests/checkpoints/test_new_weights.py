"""Weights that a checkpoint lacks are drawn, by their own initializers."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.checkpoints import loading
from bert_tf.checkpoints import model_folder
from bert_tf.config import BertConfig
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.discriminator import BertDiscriminator
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.models.reranker import BertReranker
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.models.span_predictor import BertSpanPredictor
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary
from support import family_models

VOCABULARY = Vocabulary(
    tokens=("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s")
)
# A deviation that no default has.
CONFIG = BertConfig(
    vocab_size=7,
    hidden_size=36,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=10,
    max_position_embeddings=9,
    initializer_range=0.07,
)
# (family, class of ours, its arguments): each has weights that an encoder's
# folder lacks.
NEW = [
    ("bert", BertClassifier, {"num_labels": 40}),
    ("bert", BertMultipleChoice, {}),
    ("bert", BertPretrainer, {}),
    ("bert", BertReranker, {}),
    ("bert", BertSentenceEncoder, {"dense_size": 24}),
    (
        *("bert", BertSentenceEncoder),
        {"dense_size": 24, "has_dense_in_training_only": True},
    ),
    ("bert", BertSpanPredictor, {}),
    ("bert", BertTokenClassifier, {"num_labels": 40}),
    ("distilbert", BertClassifier, {"num_labels": 40}),
    ("distilbert", BertMultipleChoice, {}),
    ("electra", BertClassifier, {"num_labels": 40}),
    ("electra", BertDiscriminator, {}),
    ("electra", BertPretrainer, {}),
    ("roberta", BertClassifier, {"num_labels": 40}),
    ("roberta", BertPretrainer, {}),
]


def save_encoder(folder, model_type):
    config = family_models.of_family(CONFIG, model_type)
    model_folder.save(
        folder, BertEncoder(config), WordpieceSpec(VOCABULARY), max_seq_length=8
    )
    return config


def values(model):
    return {
        variable.path.split("/", 1)[1]: keras.ops.convert_to_numpy(variable)
        for variable in model.weights
        if "seed_generator" not in variable.path
    }


@pytest.fixture
def dirty_memory(monkeypatch):
    """Fills uninitialised memory, which may be 0 or hold an older model."""
    monkeypatch.setattr(
        tf.raw_ops,
        "Empty",
        lambda shape, dtype, **_: tf.fill(shape, tf.cast(np.nan, dtype)),
    )


@pytest.mark.parametrize("model_type, model_class, arguments", NEW)
def test_new_weights_are_those_of_a_new_model(
    tmp_path, dirty_memory, model_type, model_class, arguments
):
    config = save_encoder(tmp_path / "f", model_type)
    encoder = values(checkpoints.load(tmp_path / "f", BertEncoder))
    keras.utils.set_random_seed(5)
    loaded = checkpoints.load(tmp_path / "f", model_class, **arguments)
    keras.utils.set_random_seed(5)
    new = values(model_class(config, **arguments))
    found = values(loaded)
    assert found.keys() == new.keys()
    for name, value in found.items():
        expected = encoder.get(name, new[name])
        np.testing.assert_array_equal(value, expected, err_msg=name)
    drawn = [
        found[name].ravel()
        for name in found.keys() - encoder.keys()
        if name.endswith("kernel")
    ]
    deviation = np.std(np.concatenate(drawn))
    # A truncated normal's, of few numbers in the smallest heads.
    assert deviation == pytest.approx(0.88 * 0.07, rel=0.35)


def test_another_seed_draws_other_values(tmp_path):
    save_encoder(tmp_path / "f", "bert")
    first, second = (
        values(
            checkpoints.load(tmp_path / "f", BertSentenceEncoder, dense_size=24)
        )["sentence_dense/kernel"]
        for _ in range(2)
    )
    assert (first != second).any()


def test_what_is_of_another_shape_is_drawn(tmp_path, dirty_memory):
    save_encoder(tmp_path / "f", "bert")
    path = tmp_path / "f/config.json"
    path.write_text(path.read_text().replace("10", "11"))
    model = checkpoints.load(tmp_path / "f", BertEncoder, allow_partial=True)
    assert model.config == dataclasses.replace(CONFIG, intermediate_size=11)
    for name, value in values(model).items():
        assert np.isfinite(value).all(), name


def test_only_filled_variables_keep_what_they_were_filled_with():
    with loading.without_random_values() as random_values:
        model = BertEncoder(CONFIG)
    filled, drawn = (
        model.blocks[0].intermediate.kernel,
        model.blocks[0].output_dense.kernel,
    )
    filled.assign(np.full(filled.shape, 3.0))
    random_values.draw([filled])
    assert (np.array(filled) == 3).all()
    assert 0.05 < np.std(np.array(drawn)) < 0.07
