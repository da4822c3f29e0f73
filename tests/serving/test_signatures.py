"""Signatures: what goes in, what comes out, and that all ways in agree."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.serving import exporter
from bert_tf.serving import saved_model
from bert_tf.serving.graph import signatures
from bert_tf.serving.kinds import texts as texts_lib
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import requests
from support import serving_models
from support.serving_models import loaded

STRINGS = [b"the quick fox", b"", "Crème 我 \U0001f600".encode(), b"x" * 60]
OTHERS = [b"lorem", b"the", b"\xff bad", b"a, b"]


def examples(**columns):
    """Returns serialized Examples of string or integer columns."""
    rows = []
    for index in range(len(next(iter(columns.values())))):
        example = tf.train.Example()
        for name, column in columns.items():
            feature = example.features.feature[name]
            if isinstance(column[index], bytes):
                feature.bytes_list.value.append(column[index])
            else:
                feature.int64_list.value.extend(column[index])
        rows.append(example.SerializeToString())
    return tf.constant(rows)


def trained_answers(kind, *strings):
    servable = serving_models.servable(kind)
    columns = [tf.constant(column) for column in strings]
    inputs = servable.preprocessor(columns)
    return inputs, servable.model(inputs)


def test_classifier_signatures():
    described = {
        name: (
            {
                key: saved_model.describe(value)
                for key, value in signature.inputs.items()
            },
            {
                key: saved_model.describe(value)
                for key, value in signature.outputs.items()
            },
            signature.method_name,
        )
        for name, signature in saved_model.read_signatures(
            serving_models.exported("pair")
        ).items()
    }
    answers = {
        "labels": "string [?]",
        "probabilities": "float32 [?, 3]",
        "classes": "string [?, 3]",
    }
    ids = dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids"), "int32 [?, ?]"
    )
    predict = "tensorflow/serving/predict"
    assert described == {
        "serving_default": (
            {"sentence_1": "string [?]", "class_": "string [?]"},
            answers,
            predict,
        ),
        "ids": (ids, answers, predict),
        "ids_examples": ({"examples": "string [?]"}, answers, predict),
        "examples": ({"examples": "string [?]"}, answers, predict),
        "classify": (
            {"inputs": "string [?]"},
            {"classes": "string [?, 3]", "scores": "float32 [?, 3]"},
            "tensorflow/serving/classify",
        ),
    }


def test_classifier_answers_equal_the_trained_models_from_every_side():
    inputs, logits = trained_answers("pair", STRINGS, OTHERS)
    # Calibrated, as the task of the model's folder has it.
    shares = np.exp(logits / 1.75)
    probabilities = shares / shares.sum(axis=1, keepdims=True)
    names = np.array(
        [label.encode() for label in serving_models.PAIR_TASK.labels]
    )
    of = loaded("pair").signatures
    serialized = examples(**{"sentence 1": STRINGS, "class": OTHERS})
    answers = [
        of["serving_default"](
            sentence_1=tf.constant(STRINGS), class_=tf.constant(OTHERS)
        ),
        of["ids"](**inputs),
        of["examples"](examples=serialized),
    ]
    for answer in answers:
        np.testing.assert_allclose(
            answer["probabilities"], probabilities, atol=1e-6
        )
        np.testing.assert_array_equal(
            answer["labels"], names[probabilities.argmax(axis=1)]
        )
        np.testing.assert_array_equal(answer["classes"], [names] * 4)
    answer = of["classify"](inputs=serialized)
    np.testing.assert_allclose(answer["scores"], probabilities, atol=1e-6)
    np.testing.assert_array_equal(answer["classes"], [names] * 4)
    # The texts are told apart at all.
    assert np.ptp(probabilities, axis=0).max() > 0.02


def test_regression_answers_equal_the_trained_models():
    _, logits = trained_answers("regression", STRINGS)
    of = loaded("regression").signatures
    serialized = examples(sentence=STRINGS)
    for answer in (
        of["serving_default"](sentence=tf.constant(STRINGS))["scores"],
        of["examples"](examples=serialized)["scores"],
        of["regress"](inputs=serialized)["outputs"],
    ):
        assert answer.shape == (4,)
        np.testing.assert_allclose(answer, logits[:, 0], atol=1e-5)
    methods = saved_model.read_signatures(serving_models.exported("regression"))
    assert methods["regress"].method_name == "tensorflow/serving/regress"


def test_encoder_answers_are_the_hubs():
    inputs, _ = trained_answers("encoder", STRINGS)
    model = serving_models.servable("encoder").model
    outputs = model(inputs)
    of = loaded("encoder").signatures
    hub_inputs = {
        "input_word_ids": inputs["input_ids"],
        "input_mask": inputs["input_mask"],
        "input_type_ids": inputs["segment_ids"],
    }
    answer = of["ids"](**hub_inputs)
    for name in ("pooled_output", "sequence_output"):
        np.testing.assert_allclose(answer[name], outputs[name], atol=1e-5)
    np.testing.assert_array_equal(answer["default"], answer["pooled_output"])
    np.testing.assert_allclose(
        answer["encoder_outputs"],
        np.stack(outputs["encoder_outputs"], axis=1),
        atol=1e-5,
    )


def test_strings_are_padded_to_the_longest_of_the_batch_only():
    of = loaded("encoder").signatures["serving_default"]
    together = of(text=tf.constant([b"the quick", b"a", b""]))
    # [CLS] the quick [SEP]
    assert together["sequence_output"].shape == (3, 4, 8)
    np.testing.assert_array_equal(
        together["input_mask"], [[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]]
    )
    alone = of(text=tf.constant([b""]))
    assert alone["sequence_output"].shape == (1, 2, 8)
    np.testing.assert_allclose(
        together["sequence_output"][2, :2],
        alone["sequence_output"][0],
        atol=1e-5,
    )
    cut = of(text=tf.constant([b"the " * 100]))
    assert cut["sequence_output"].shape == (1, serving_models.MAX_SEQ_LENGTH, 8)


@pytest.mark.parametrize("kind", ["pair", "encoder"])
def test_an_empty_batch_gets_an_empty_answer(kind):
    signature = loaded(kind).signatures["serving_default"]
    names = signature.structured_input_signature[1]
    answer = signature(**{name: tf.zeros([0], tf.string) for name in names})
    assert {value.shape[0] for value in answer.values()} == {0}


def test_a_bad_text_leaves_the_other_answers_alone():
    of = loaded("regression").signatures["serving_default"]
    good = of(sentence=tf.constant([b"the quick", b"lorem"]))["scores"]
    mixed = of(
        sentence=tf.constant([b"the quick", b"\xff\xfe\x00\xc3" * 9, b"lorem"])
    )["scores"]
    np.testing.assert_allclose(mixed.numpy()[[0, 2]], good, atol=1e-5)


def test_large_and_many_texts_are_answered():
    of = loaded("regression").signatures["serving_default"]
    lorem = of(sentence=tf.constant([b"lorem " * 30]))["scores"]
    million = of(sentence=tf.constant([b"lorem " * 170_000]))["scores"]
    np.testing.assert_allclose(million, lorem, atol=1e-5)
    thousand = of(sentence=tf.constant([b"lorem " * 30] * 1000))["scores"]
    np.testing.assert_allclose(thousand, np.repeat(lorem, 1000), atol=1e-5)


def test_ids_only_takes_ids_and_examples_of_ids():
    inputs, logits = trained_answers("pair", STRINGS, OTHERS)
    wanted = serving_models.PAIR_TASK.decode_tensors(logits)["probabilities"]
    of = loaded("pair", "ids").signatures
    assert set(of) == {"serving_default", "examples", "classify"}
    answer = of["serving_default"](**inputs)
    np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-6)
    # Examples need not be padded, nor be of one length.
    lengths = inputs["input_mask"].numpy().sum(axis=1)
    assert len(set(lengths)) > 1
    serialized = examples(
        **{
            name: [
                row[:length].tolist()
                for row, length in zip(value.numpy(), lengths)
            ]
            for name, value in inputs.items()
        }
    )
    answer = of["examples"](examples=serialized)
    np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-6)


def test_examples_without_the_feature_are_an_error_that_names_it():
    of = loaded("regression").signatures["examples"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="sentence"):
        of(examples=examples(text=STRINGS))


@pytest.mark.parametrize(
    "feature, name",
    [
        ("sentence1", "sentence1"),
        ("question 1", "question_1"),
        ("class", "class_"),
        ("1st", "text_1st"),
        ("_x", "text__x"),
        ("größe", "gr__e"),
        ("self", "self_"),
    ],
)
def test_input_names_are_python_parameters(feature, name):
    assert signatures.input_names((feature,)) == {feature: name}


@pytest.mark.parametrize(
    "features, names",
    [
        (("文", "本"), ("text__", "text___2")),
        (("title (en)", "title [en]"), ("title__en_", "title__en__2")),
        (("a b", "a_b"), ("a_b_2", "a_b")),
        (("a_b", "a b"), ("a_b", "a_b_2")),
        (("Text", "text"), ("Text", "text_2")),
    ],
)
def test_input_names_of_two_texts_are_two(features, names):
    assert signatures.input_names(features) == dict(zip(features, names))


@pytest.mark.parametrize(
    "features, names",
    [
        (("文", "本"), ("text__", "text___2")),
        (("self", "class"), ("self_", "class_")),
        (("Text", "text"), ("Text", "text_2")),
    ],
)
def test_every_text_goes_where_its_name_says(tmp_path, features, names):
    options = ExportOptions(
        kind="embedding", text_features=features, check=False
    )
    folder = serving_models.model_dir("encoder")
    exported = exporter.export(folder, tmp_path, options)
    of = tf.saved_model.load(exported.path).signatures
    row = [(b"the quick", b"lorem")]
    inputs = requests.strings(features, row)
    assert inputs == dict(zip(names, map(list, zip(*row))))
    given = {name: tf.constant(texts) for name, texts in inputs.items()}
    serialized = examples(**dict(zip(features, zip(*row))))
    np.testing.assert_allclose(
        of["serving_default"](**given)["embeddings"],
        of["examples"](examples=serialized)["embeddings"],
        atol=1e-6,
    )


def test_hard_texts_have_every_string_on_both_sides():
    pairs = texts_lib.hard_texts(2)
    for column in zip(*pairs):
        assert set(texts_lib.HARD_STRINGS) == set(column)
    assert [text for (text,) in texts_lib.hard_texts(1)] == list(
        texts_lib.HARD_STRINGS
    )
