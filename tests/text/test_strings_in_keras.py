"""Keras models that take strings, and the inputs of words and of choices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary

TOKENS = (*SPECIAL_TOKENS, "good", "bad", "film", "a", "un", "##able")
CONFIG = bert_tf.BertConfig(
    vocab_size=len(TOKENS),
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=12,
    max_position_embeddings=9,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
TEXTS = ["a good film", "a bad film", "good", "unable", ""]
SECOND = ["bad", "a film a film a film", "", "good", "a"]
LABELS = np.array([1, 0, 1, 0, 1])
PREPROCESSOR = Preprocessor(WordpieceSpec(Vocabulary(tokens=TOKENS)), 9)


def compiled(model, **arguments):
    model.compile(
        keras.optimizers.SGD(0.5),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **arguments,
    )
    return model


def functional(classifier, names=("text",)):
    inputs = [keras.Input((), dtype="string", name=name) for name in names]
    if len(inputs) == 1:
        (inputs,) = inputs
    return compiled(keras.Model(inputs, classifier(PREPROCESSOR(inputs))))


class Subclass(keras.Model):
    # Keras's `export` asks for it.
    input_dtype = "string"

    def __init__(self, classifier):
        super().__init__()
        self.preprocessor = PREPROCESSOR
        self.classifier = classifier

    def call(self, texts, training=None):
        return self.classifier(self.preprocessor(texts), training=training)


def make_classifier(seed=20181011):
    keras.utils.set_random_seed(seed)
    return bert_tf.BertClassifier(CONFIG, num_labels=2, dropout=0.0)


@pytest.mark.parametrize("way", ["functional", "subclass"])
def test_a_model_of_strings_is_trained_as_one_of_ids(way):
    alone, inside = make_classifier(), make_classifier()
    if way == "functional":
        model = functional(inside)
    else:
        model = compiled(Subclass(inside), jit_compile=False)
    compiled(alone).fit(PREPROCESSOR(TEXTS), LABELS, shuffle=False, verbose=0)
    model.fit(np.array(TEXTS, object), LABELS, shuffle=False, verbose=0)
    pairs = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(5)
    ids = PREPROCESSOR(TEXTS)
    loss = model.evaluate(pairs, verbose=0)
    assert loss == pytest.approx(alone.evaluate(ids, LABELS, verbose=0))
    logits = model.predict(tf.constant(TEXTS), verbose=0)
    np.testing.assert_allclose(logits, alone(ids), rtol=1e-5, atol=1e-6)
    assert not np.allclose(logits, make_classifier()(ids), atol=1e-3)


@pytest.mark.parametrize("way", ["functional", "subclass"])
def test_an_export_takes_strings(tmp_path, way):
    classifier = make_classifier()
    model = functional(classifier)
    if way == "subclass":
        model = Subclass(classifier)
        model(tf.constant(TEXTS))
    model.export(str(tmp_path), verbose=False)
    exported = tf.saved_model.load(str(tmp_path))
    logits = exported.serve(tf.constant(TEXTS))
    np.testing.assert_allclose(
        logits, classifier(PREPROCESSOR(TEXTS)), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("names", [("text",), ("subject", "body")])
def test_a_keras_file_holds_the_tokenizer(tmp_path, names):
    model = functional(make_classifier(), names)
    columns = [np.array(texts, object) for texts in (TEXTS, SECOND)]
    texts = columns if len(names) == 2 else columns[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    logits = again.predict(texts, verbose=0)
    np.testing.assert_array_equal(logits, model.predict(texts, verbose=0))
    ids = PREPROCESSOR((TEXTS, SECOND) if len(names) == 2 else TEXTS)
    np.testing.assert_allclose(
        logits, make_classifier()(ids), rtol=1e-5, atol=1e-6
    )


def test_a_model_of_strings_is_not_compiled_with_xla():
    """On a GPU, Keras compiles where all layers allow it."""
    model = functional(make_classifier())
    assert not model.get_layer("preprocessor_layer").supports_jit
    with pytest.warns(UserWarning, match="jit_compile=False"):
        compiled(model, jit_compile=True)
    assert model.predict(tf.constant(TEXTS), verbose=0).shape == (5, 2)


def test_a_copy_has_no_tokenizer():
    copy = keras.models.clone_model(functional(make_classifier()))
    with pytest.raises(ValueError, match="Keras copies none: make the model"):
        copy.predict(tf.constant(TEXTS), verbose=0)


@pytest.mark.parametrize(
    ("shape", "dtype", "message"),
    [((1,), "string", r"string of shape \[None, 1\]"), ((), "int32", "int32")],
)
def test_inputs_that_are_no_texts_are_refused(shape, dtype, message):
    with pytest.raises(ValueError, match=f'dtype="string".*{message}'):
        PREPROCESSOR(keras.Input(shape, dtype=dtype))


def test_choices_are_pairs_with_their_context():
    choices = [["good", "bad", "a film"], ["", "a", "unable"]]
    encoded = PREPROCESSOR.encode_choices(TEXTS[:2], choices)
    batched = tf.data.Dataset.from_tensor_slices((TEXTS[:2], choices)).batch(2)
    (mapped,) = batched.map(PREPROCESSOR.encode_choices)
    for row in range(2):
        pairs = PREPROCESSOR(([TEXTS[row]] * 3, choices[row]))
        for name, ids in pairs.items():
            np.testing.assert_array_equal(encoded[name][row], ids)
            np.testing.assert_array_equal(mapped[name][row], ids)
    assert encoded["input_ids"].shape == (2, 3, 9)
    assert bert_tf.BertMultipleChoice(CONFIG)(encoded).shape == (2, 3)


WORDS = [["unable", "a", "\u200b", "film"], [], ["bad"] * 12]
CLASSES = [[3, 1, 5, 2], [], [1] * 6 + [4] * 6]


def test_words_have_their_labels_at_their_first_pieces():
    inputs, labels, weights = PREPROCESSOR.encode_words(WORDS, CLASSES)
    un, able, a, film = map(TOKENS.index, ("un", "##able", "a", "film"))
    cls, sep = map(TOKENS.index, ("[CLS]", "[SEP]"))
    assert inputs["input_ids"].numpy().tolist() == [
        [cls, un, able, a, film, sep, 0, 0, 0],
        [cls, sep, *[0] * 7],
        [cls, *[TOKENS.index("bad")] * 7, sep],
    ]
    assert labels.numpy().tolist() == [
        [0, 3, 0, 1, 2, 0, 0, 0, 0],
        [0] * 9,
        [0, *[1] * 6, 4, 0],
    ]
    assert weights.numpy().tolist() == [
        [0, 1, 0, 1, 1, 0, 0, 0, 0],
        [0] * 9,
        [0, *[1] * 7, 0],
    ]
    _, numbers, _ = PREPROCESSOR.encode_words(WORDS)
    assert numbers.numpy()[0].tolist() == [0, 0, 0, 1, 3, 0, 0, 0, 0]


def test_words_are_encoded_in_a_data_set():
    ragged = tf.ragged.constant(WORDS), tf.ragged.constant(CLASSES)
    batched = tf.data.Dataset.from_tensor_slices(ragged).ragged_batch(3)
    (mapped,) = batched.map(PREPROCESSOR.encode_words)
    wanted = PREPROCESSOR.encode_words(WORDS, CLASSES)
    for one, other in zip(
        tf.nest.flatten(mapped), tf.nest.flatten(wanted), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    model = bert_tf.BertTokenClassifier(CONFIG, num_labels=6)
    data = batched.map(PREPROCESSOR.encode_words)
    compiled(model).fit(data, shuffle=False, verbose=0)
    assert model.predict(wanted[0], verbose=0).shape == (3, 9, 6)


def test_words_and_labels_may_be_dense():
    words, classes = [["bad", "film"], ["a", "film"]], [[1, 2], [3, 2]]
    dense = tf.constant(words), tf.constant(classes)
    (mapped,) = (
        tf.data.Dataset.from_tensor_slices(dense)
        .batch(2)
        .map(PREPROCESSOR.encode_words)
    )
    wanted = PREPROCESSOR.encode_words(words, classes)
    for one, other in zip(
        tf.nest.flatten(mapped), tf.nest.flatten(wanted), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_labels_of_a_data_set_that_belong_to_other_words_are_told():
    """They were given to the words of the next row."""
    ragged = tf.ragged.constant(WORDS), tf.ragged.constant([[3], [1] * 15, []])
    batched = tf.data.Dataset.from_tensor_slices(ragged).ragged_batch(3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="in every row"):
        next(iter(batched.map(PREPROCESSOR.encode_words)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: PREPROCESSOR.encode_words(["a film", "bad"]),
            "`sentences`, row 1: must be a list of strings. Rec.*'a film'",
        ),
        (
            lambda: PREPROCESSOR.encode_words([["a"], ["film"]], [[1], [2, 3]]),
            "`labels`, row 2: must be as many as the words, 1. Received: 2",
        ),
        (
            lambda: PREPROCESSOR.encode_choices(TEXTS[:2], ["good", "bad"]),
            "`choices`, row 1: must be a list of strings. Received: 'good'",
        ),
        (
            lambda: PREPROCESSOR.encode_choices(TEXTS[:2], [["a"], ["a", "b"]]),
            "`choices` must be as many in every row. Received: rows of 1, 2",
        ),
    ],
)
def test_what_is_no_list_of_strings_is_told(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
