import numpy as np

from bert_tf.config import BertConfig
from bert_tf.models.span_predictor import BertSpanPredictor
from references import model as reference
from support.layer_checks import check_layer
from support.layer_checks import randomized

CONFIG = BertConfig(
    vocab_size=11,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=7,
)
INPUTS = {
    "input_ids": np.array([[2, 9, 4, 7, 3], [2, 1, 3, 0, 0]], "int32"),
    "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "int32"),
    "segment_ids": np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], "int32"),
}


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
