import numpy as np

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
