import json

import numpy as np
import safetensors.numpy
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import model as reference
from support import releases
from support.layer_checks import check_layer
from support.layer_checks import randomized

CONFIG = releases.tiny_config(11, 7)
# Two rows of three choices.
INPUTS = {
    "input_ids": np.array(
        [
            [[2, 9, 4, 7, 3], [2, 1, 3, 0, 0], [2, 5, 6, 3, 0]],
            [[2, 10, 3, 0, 0], [2, 3, 0, 0, 0], [2, 8, 8, 8, 3]],
        ],
        "int32",
    ),
    "segment_ids": np.array(
        [
            [[0, 0, 1, 1, 1], [0, 0, 0, 0, 0], [0, 1, 1, 1, 0]],
            [[0, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1]],
        ],
        "int32",
    ),
}
INPUTS["input_mask"] = (INPUTS["input_ids"] > 0).astype("int32")


def test_model_keeps_the_contract(tmp_path):
    check_layer(
        lambda **kwargs: BertMultipleChoice(CONFIG, **kwargs),
        [INPUTS],
        tmp_path,
    )


def test_every_choice_is_scored_by_itself():
    model = randomized(BertMultipleChoice(CONFIG))
    logits = np.array(model(INPUTS))
    assert logits.shape == (2, 3)
    assert logits.dtype == np.float32
    head = reference.scope(reference.weights_of(model), "multiple_choice/dense")
    for row in range(2):
        for choice in range(3):
            one = {
                name: values[row, choice][None]
                for name, values in INPUTS.items()
            }
            pooled = np.array(model.encoder(one)["pooled_output"])[0]
            np.testing.assert_allclose(
                logits[row, choice],
                reference.dense(head, pooled)[0],
                atol=1e-4,
            )


def test_dropout_is_before_the_head_in_training_only():
    model = randomized(BertMultipleChoice(CONFIG, dropout=0.5))
    np.testing.assert_array_equal(model(INPUTS), model(INPUTS, training=False))
    assert np.any(
        np.abs(np.array(model(INPUTS, training=True)) - model(INPUTS)) > 0.1
    )


def test_hugging_faces_files_hold_it_and_googles_as_a_classifier(tmp_path):
    model = randomized(BertMultipleChoice(CONFIG))
    vocabulary = Vocabulary(tokens=(*SPECIAL_TOKENS, *"abcdef"))
    folder = str(tmp_path / "ours")
    checkpoints.save(folder, model, WordpieceSpec(vocabulary), 7)

    config = json.loads((tmp_path / "ours/config.json").read_text())
    assert config["architectures"] == ["BertForMultipleChoice"]
    tensors = safetensors.numpy.load_file(f"{folder}/model.safetensors")
    kernel, bias = model.choice_head.weights
    np.testing.assert_array_equal(tensors["classifier.weight"].T, kernel)
    np.testing.assert_array_equal(tensors["classifier.bias"], bias)
    loaded = checkpoints.load(folder, BertMultipleChoice)
    np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))

    # Another head of the same name is not taken for this one.
    classifier = checkpoints.load(folder, BertClassifier)
    assert classifier.num_labels == 2
    assert len(classifier.coverage_report.names("new")) == 2

    checkpoints.convert(
        folder, tmp_path / "google", "google", hidden_act="gelu_new"
    )
    stored = tf.train.load_checkpoint(str(tmp_path / "google/bert_model.ckpt"))
    np.testing.assert_array_equal(stored.get_tensor("output_weights").T, kernel)
    again = checkpoints.load(tmp_path / "google", BertMultipleChoice)
    for ours, theirs in zip(model.weights, again.weights):
        np.testing.assert_array_equal(ours, theirs)
