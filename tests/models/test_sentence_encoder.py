"""The sentence encoder against NumPy, and the contract of all models."""

import keras
import numpy as np
import pytest

from bert_tf import features
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from references import sentences
from references import training as reference
from support import layer_checks
from support.family_models import OWN_LAYERS
from support.family_models import of_family

CONFIG = reference.tiny_config(dropout=0.0)


def as_passages(inputs):
    """Returns two passages a row, of the rows and of their reverse."""
    return {
        own: np.stack([inputs[name], inputs[name][::-1]], axis=1)
        for name, own in zip(features.MODEL_INPUTS, features.PASSAGE_INPUTS)
    }


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_vectors_are_pooled_and_normalized(pooling):
    inputs = layer_checks.MODEL_INPUTS
    model = BertSentenceEncoder(
        CONFIG, pooling=pooling, dense_size=3, is_normalized=True
    )
    layer_checks.randomized(model)
    tokens = model.encoder(inputs)["sequence_output"].numpy()
    rows = sentences.pooled(tokens, inputs["input_mask"], pooling)
    kernel, bias = model.dense.get_weights()
    rows = np.tanh(rows @ kernel + bias)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(model(inputs), rows, atol=1e-5)
    assert model.vector_size == 3
    both = model(inputs | as_passages(inputs)).numpy()
    np.testing.assert_allclose(
        both, np.stack([rows, rows, rows[::-1]], axis=1), atol=1e-5
    )


def test_vectors_are_cut_but_in_training():
    inputs = layer_checks.MODEL_INPUTS
    model = BertSentenceEncoder(CONFIG, is_normalized=True, truncate_dim=3)
    layer_checks.randomized(model)
    whole = model(inputs, training=True).numpy()
    assert whole.shape == (2, CONFIG.hidden_size)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, rtol=1e-5)
    both = model(inputs | as_passages(inputs)).numpy()
    np.testing.assert_allclose(both[:, 0], whole[:, :3], atol=1e-6)
    assert both.shape == (2, 3, model.vector_size)
    with pytest.raises(ValueError, match="`truncate_dim` must be positive"):
        BertSentenceEncoder(CONFIG, truncate_dim=0)


def test_it_keeps_the_contract_of_models(tmp_path):
    layer_checks.check_layer(
        lambda dtype: BertSentenceEncoder(
            CONFIG, dense_size=3, is_normalized=True, dtype=dtype
        ),
        [layer_checks.MODEL_INPUTS],
        tmp_path,
        unused=("pooler", "segment"),
    )


@pytest.mark.parametrize("family", OWN_LAYERS)
def test_every_family_has_vectors(family):
    inputs = layer_checks.MODEL_INPUTS
    model = BertSentenceEncoder(
        of_family(CONFIG, family), pooling="mean", is_normalized=True
    )
    layer_checks.randomized(model)
    tokens = model.encoder(inputs)["sequence_output"].numpy()
    rows = sentences.pooled(tokens, inputs["input_mask"], "mean")
    assert rows.shape == (2, CONFIG.hidden_size)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    np.testing.assert_allclose(model(inputs), rows, atol=1e-5)


def test_a_head_of_training_alone_is_left_out_afterwards():
    inputs = layer_checks.MODEL_INPUTS
    model = BertSentenceEncoder(
        CONFIG, dense_size=3, has_dense_in_training_only=True
    )
    layer_checks.randomized(model)
    assert model(inputs, training=True).shape == (2, 3)
    assert model(inputs).shape == (2, model.vector_size)
    same = BertSentenceEncoder(CONFIG)
    same.set_weights(model.encoder.get_weights())
    np.testing.assert_array_equal(model(inputs), same(inputs))
    assert {id(each) for each in model.extra_weights} == {
        id(each) for each in model.dense.weights
    }


def test_a_vector_of_zeros_has_a_gradient():
    from bert_tf.models.sentence_encoder import normalize

    zeros = keras.ops.zeros((2, 3))
    np.testing.assert_array_equal(normalize(zeros), zeros)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pooling": "sum"}, "`pooling` must be one of cls, mean, max"),
        ({"dense_size": 0}, "`dense_size` must be positive"),
        ({"dense_size": "8"}, "`dense_size` must be an integer"),
        ({"truncate_dim": 1.5}, "`truncate_dim` must be an integer"),
        ({"truncate_dim": 99}, "`truncate_dim` must be at most 12, the size"),
        ({"truncate_dim": 4, "dense_size": 3}, "must be at most 3, the size"),
        ({"is_normalized": "no"}, "`is_normalized` must be True or False"),
        ({"has_dense_in_training_only": True}, "with `dense_size`"),
    ],
)
def test_bad_arguments_are_told(arguments, message):
    with pytest.raises(ValueError, match=message):
        BertSentenceEncoder(CONFIG, **arguments)
