import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.models.span_predictor import BertSpanPredictor
from references import model as reference
from support import releases
from support.layer_checks import MODEL_INPUTS as INPUTS
from support.layer_checks import check_layer
from support.layer_checks import randomized

CONFIG = releases.tiny_config(11, 7)


def test_model_keeps_the_contract(tmp_path):
    check_layer(
        lambda **kwargs: BertSpanPredictor(CONFIG, **kwargs), [INPUTS], tmp_path
    )


def test_logits_are_two_scores_of_every_token():
    model = randomized(BertSpanPredictor(CONFIG))
    outputs = model(INPUTS)
    weights = reference.weights_of(model)
    sequence = np.array(model.encoder(INPUTS)["sequence_output"])
    for column, name in enumerate(("start_logits", "end_logits")):
        logits = np.array(outputs[name])
        assert logits.shape == (2, 5)
        assert logits.dtype == np.float32
        for row in range(2):
            for position in range(5):
                expected = reference.dense(
                    reference.scope(weights, "span/dense"),
                    sequence[row, position],
                )
                np.testing.assert_allclose(
                    logits[row, position], expected[column], atol=1e-4
                )


def test_the_unused_pooler_does_not_train():
    model = BertSpanPredictor(CONFIG)
    assert not [v for v in model.trainable_variables if "pooler" in v.path]
    assert len(model.weights) - len(model.trainable_variables) == 2


def test_padding_is_a_candidate_but_its_embedding_is_not_trained():
    config = dataclasses.replace(
        CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = randomized(BertSpanPredictor(config))
    table = model.encoder.embeddings.word_embeddings
    ids = np.array([[2, 5, 7, 3, 0, 0]] * 2, "int32")
    inputs = {
        "input_ids": ids,
        "input_mask": np.array([[1, 1, 1, 1, 0, 0]] * 2, "int32"),
        "segment_ids": np.zeros_like(ids),
    }
    gradients = {}
    for trains_padding in (True, False):
        model.encoder.trains_padding = trains_padding
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)["start_logits"]
            loss = tf.reduce_sum(tf.nn.log_softmax(logits)[:, 1])
        gradients[trains_padding] = np.array(
            tf.convert_to_tensor(tape.gradient(loss, table.value))
        )
    plain, found = gradients[True], gradients[False]
    assert np.abs(plain[0]).max() > 1e-3
    np.testing.assert_array_equal(found[0], 0)
    np.testing.assert_allclose(found[1:], plain[1:], atol=1e-6)
    # As it is made.
    assert not BertSpanPredictor(CONFIG).encoder.trains_padding
