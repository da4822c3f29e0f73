"""The first errors of newcomers: each is one line that says the way out."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.models import inputs
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

TOKENS = (*SPECIAL_TOKENS, "good", "bad", "film")
CONFIG = bert_tf.BertConfig(
    vocab_size=len(TOKENS),
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=7,
)
PREPROCESSOR = Preprocessor(WordpieceSpec(Vocabulary(tokens=TOKENS)), 7)
TEXTS = ["good film", "bad film", "film"]
INPUTS = PREPROCESSOR(TEXTS)
LABELS = np.array([1, 0, 1])
FROM_LOGITS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.fixture(scope="module")
def model():
    model = bert_tf.BertClassifier(CONFIG, num_labels=2)
    model.compile("sgd", FROM_LOGITS)
    return model


def check_is_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "texts",
    [
        TEXTS,
        np.array(TEXTS),
        np.array(TEXTS, object),
        tf.constant(TEXTS),
        (TEXTS, TEXTS),
    ],
)
def test_texts_for_a_model_of_ids(model, texts):
    message = r"must be ids, not texts: preprocessor\(texts\) makes them"
    check_is_one_line(lambda: model.fit(texts, LABELS), message)
    check_is_one_line(lambda: model.evaluate(texts, LABELS), message)
    check_is_one_line(lambda: model.predict(texts), message)


def test_texts_of_a_data_set_for_a_model_of_ids(model):
    texts = tf.data.Dataset.from_tensor_slices(TEXTS).batch(3)
    with pytest.raises(ValueError, match="must be ids, not texts"):
        model.predict(texts, verbose=0)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["good", "bad", "good"], "an array of numbers: .*names.index"),
        (np.array(["good", "bad", "good"]), "an array of numbers"),
        ([1, 0, 1], r"an array of numbers: np.array\(labels\).*\[1, 0, 1\]"),
        (np.array([1, 5, 0]), "row 2: .* below 2, the model's num_l.* 5"),
        (tf.constant([1, 0, 2]), "row 3: .* Received: 2"),
    ],
)
def test_labels(model, labels, message):
    check_is_one_line(lambda: model.fit(INPUTS, labels), f"`y`.*{message}")
    check_is_one_line(lambda: model.evaluate(INPUTS, labels), message)


@pytest.mark.parametrize(
    ("loss", "labels"),
    [
        (
            keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, ignore_class=255
            ),
            np.array([1, 255, 0]),
        ),
        # Numbers to predict, two for each text.
        ("mse", np.array([[3, 5]] * 3)),
    ],
)
def test_labels_that_are_right_for_their_loss(loss, labels):
    model = bert_tf.BertClassifier(CONFIG, num_labels=2)
    model.compile("sgd", loss)
    found = model.evaluate(INPUTS, labels, verbose=0)
    assert np.isfinite(found)


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        "BinaryCrossentropy",
        keras.losses.CategoricalCrossentropy(),
    ],
)
def test_a_loss_of_probabilities(loss):
    """It trained, towards nothing."""
    model = bert_tf.BertClassifier(CONFIG, num_labels=2)
    model.compile("sgd", loss)
    message = "`loss` must take logits.*from_logits=True.*probabilities"
    check_is_one_line(lambda: model.fit(INPUTS, LABELS), message)


@pytest.mark.parametrize(
    "loss", ["mse", FROM_LOGITS, keras.losses.Huber(), None]
)
def test_other_losses_are_left_to_keras(loss):
    inputs.check_takes_logits([loss, {"b": loss}])


def test_ragged_inputs(model):
    ragged = {
        name: tf.RaggedTensor.from_tensor(ids, lengths=[3, 4, 4])
        for name, ids in INPUTS.items()
    }
    for call in (model, lambda each: model.predict(each, verbose=0)):
        with pytest.raises(ValueError, match="`input_ids` must be dense"):
            call(ragged)


def test_a_pair_of_single_strings(model):
    pair = PREPROCESSOR(("good", "film"))
    way_out = r"\(\[text\]\) makes a batch; of one pair, .*\[second\]\)"
    with pytest.raises(ValueError, match=way_out):
        model.predict(pair, verbose=0)
    batch = PREPROCESSOR((["good"], ["film"]))
    assert model.predict(batch, verbose=0).shape == (1, 2)


def test_num_classes():
    check_is_one_line(
        lambda: bert_tf.BertClassifier(CONFIG, num_classes=3),
        "`num_classes` is called num_labels here. Received: num_classes=3",
    )


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("epochs", ", here num_train_epochs"),
        ("batch_size", ", here train_batch_size"),
        ("lr", ", here learning_rate"),
        ("learnin_rate", ", here learning_rate"),
        ("colour", ""),
    ],
)
def test_hyper_parameters_of_others(tmp_path, name, ours):
    task = bert_tf.ClassificationTask(
        name="t", text_features=("text",), labels=("a", "b"), metrics=("f1",)
    )
    check_is_one_line(
        lambda: bert_tf.tuning.run(task, output_dir=tmp_path, **{name: 3}),
        f"`{name}` must be a field of FineTuningConfig{ours}. Rec.*{name}=3",
    )


def test_a_label_beyond_the_classes_of_a_task(tmp_path):
    task = bert_tf.ClassificationTask(
        name="t", text_features=("text",), labels=("a", "b"), metrics=("f1",)
    )
    data = {"text": TEXTS, "label": [0, 5, 1]}
    check_is_one_line(
        lambda: bert_tf.tuning.run(task, output_dir=tmp_path, train=data),
        "2.*label.*a, b.*Received.*5",
    )


def test_a_name_of_the_hub():
    check_is_one_line(
        lambda: bert_tf.load("google-bert/bert-base-uncased"),
        "Found: nothing. A model of the Hugging Face Hub is "
        "hf:google-bert/bert-base-uncased",
    )


def test_an_export_with_another_backend():
    done = subprocess.run(
        [sys.executable, "-c", "import bert_tf; bert_tf.export('a', 'b')"],
        env=os.environ | {"KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
    )
    *_, last = done.stderr.strip().splitlines()
    assert "An export needs TensorFlow as Keras's backend: set KERAS_B" in last


WITHOUT_TEXT = """
import sys
sys.modules["tensorflow_text"] = None
import bert_tf
for name in bert_tf.__all__:
    getattr(bert_tf, name)
from bert_tf.checkpoints import loading
import numpy as np
model = loading.load(sys.argv[1], bert_tf.BertClassifier)
inputs = dict(np.load(sys.argv[2]))
np.save(sys.argv[3], model.predict(inputs, verbose=0))
bert_tf.load(sys.argv[1])
"""


def test_without_tensorflow_text_models_take_ids(model, tmp_path):
    """As on Linux on ARM, for which it has no wheels."""
    bert_tf.save(tmp_path / "model", model, PREPROCESSOR)
    paths = [str(tmp_path / name) for name in ("model", "in.npz", "out.npy")]
    np.savez(paths[1], **INPUTS)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TEXT, *paths],
        capture_output=True,
        text=True,
    )
    *_, last = done.stderr.strip().splitlines()
    assert "ValueError: " in last and "needs tensorflow-text" in last
    logits = model.predict(INPUTS, verbose=0)
    np.testing.assert_allclose(np.load(paths[2]), logits, rtol=1e-5, atol=1e-6)
