import numpy as np
import pytest

from bert_tf.models.token_classifier import BertTokenClassifier
from references import model as reference
from support import releases
from support.layer_checks import MODEL_INPUTS as INPUTS
from support.layer_checks import check_layer
from support.layer_checks import randomized

CONFIG = releases.tiny_config(11, 7)


def test_model_keeps_the_contract(tmp_path):
    check_layer(
        lambda **kwargs: BertTokenClassifier(CONFIG, 3, **kwargs),
        [INPUTS],
        tmp_path,
    )


def test_logits_are_a_linear_layer_over_every_token():
    model = randomized(BertTokenClassifier(CONFIG, 3))
    logits = np.array(model(INPUTS))
    assert logits.shape == (2, 5, 3)
    assert logits.dtype == np.float32
    weights = reference.weights_of(model)
    sequence = np.array(model.encoder(INPUTS)["sequence_output"])
    for row in range(2):
        for position in range(5):
            expected = reference.dense(
                reference.scope(weights, "token_classifier/dense"),
                sequence[row, position],
            )
            np.testing.assert_allclose(
                logits[row, position], expected, atol=1e-4
            )


def test_dropout_is_before_the_head_in_training_only():
    model = randomized(BertTokenClassifier(CONFIG, 3, dropout=0.5))
    np.testing.assert_array_equal(model(INPUTS), model(INPUTS, training=False))
    assert np.any(
        np.abs(np.array(model(INPUTS, training=True)) - model(INPUTS)) > 0.1
    )


def test_the_unused_pooler_does_not_train():
    model = BertTokenClassifier(CONFIG, 3)
    assert not [v for v in model.trainable_variables if "pooler" in v.path]
    assert len(model.weights) - len(model.trainable_variables) == 2


def test_number_of_labels_must_be_positive():
    with pytest.raises(ValueError, match="num_labels=0"):
        BertTokenClassifier(CONFIG, 0)
