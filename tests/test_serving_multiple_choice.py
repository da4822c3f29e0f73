"""Multiple choice as it is served: the likeliest of several strings."""

import numpy as np
import pytest
import serving_models
import tensorflow as tf

from bert_tf.serving import check
from bert_tf.serving import requests
from bert_tf.serving import source as source_lib
from bert_tf.serving import texts

CONTEXTS = [b"the quick", b"lorem ipsum, dolor sit amet " * 3]
CHOICES = [[b"fox.", b"", b"jumps over"], [b"a", b"x" * 90, b"\xff?"]]


@pytest.fixture(scope="module")
def source():
    return source_lib.read(serving_models.model_dir("choice"))


def test_answers_are_those_of_training_on_hard_strings(source):
    hard = source.servable.hard_texts(4)
    found = serving_models.differences("choice", source, hard)
    assert set(found) == {
        *("examples", "ids", "ids_examples", "serving_default"),
    }
    for difference, where in found.values():
        assert difference < 1e-5, where


def test_every_signature_chooses_as_the_model_does(source):
    signatures = serving_models.loaded("choice").signatures
    pairs = source.preprocessor(
        (np.repeat(CONTEXTS, 3), np.array(CHOICES).reshape(-1))
    )
    inputs = {
        name: tf.reshape(value, [2, 3, -1]) for name, value in pairs.items()
    }
    probabilities = tf.nn.softmax(source.model(inputs)).numpy()

    examples = []
    for context, choices in zip(CONTEXTS, CHOICES):
        example = tf.train.Example()
        feature = example.features.feature
        feature["context"].bytes_list.value.append(context)
        feature["choices"].bytes_list.value.extend(choices)
        examples.append(example.SerializeToString())
    for answer in (
        signatures["serving_default"](
            context=tf.constant(CONTEXTS), choices=tf.constant(CHOICES)
        ),
        signatures["ids"](**inputs),
        signatures["examples"](examples=tf.constant(examples)),
    ):
        np.testing.assert_allclose(
            answer["probabilities"], probabilities, atol=1e-5
        )
        np.testing.assert_array_equal(
            answer["choice"], probabilities.argmax(-1)
        )
    nothing = signatures["serving_default"](
        context=tf.zeros([0], tf.string), choices=tf.zeros([0, 3], tf.string)
    )
    assert nothing["probabilities"].shape == (0, 3)


def test_texts_of_a_line_are_a_context_and_its_choices(source):
    path = serving_models.exported("choice", "text")
    assert check.num_strings(path) == 4
    (row,) = texts.parse_texts(["a b\tc\t\td"], 4, "--text")
    strings = requests.strings(source.text_features, [row])
    assert strings["context"].tolist() == [b"a b"]
    assert strings["choices"].tolist() == [[b"c", b"", b"d"]]
    with pytest.raises(ValueError, match="--text, line 1: must be 4 strings"):
        texts.parse_texts(["a\tb"], 4, "--text")
