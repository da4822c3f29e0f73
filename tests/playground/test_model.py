"""What the playground answers equals what the library computes."""

import base64
import functools
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf import features
from bert_tf.models.encoder import BertEncoder
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.playground import requests
from bert_tf.playground.model import PlaygroundModel
from bert_tf.tasks import fill_mask
from bert_tf.tasks.features import sentences
from bert_tf.text.preprocessor import Preprocessor
from references import model as reference
from support import serving_models

TEXT = "The quick lorem."
# {kind of model: texts}
ASKED = {
    "pair": ("the quick", "a lorem 我"),
    "regression": ("the quick",),
    "topics": ("the quick",),
    "tagger": ("The quick, the 我 a lorem x",),
    "choice": ("the quick", "a", "lorem", "x y"),
    "squad": ("the quick?", "A 我 lorem b the quick x. Lorem a b c d e f"),
    "reranker": ("the quick", "a", "lorem b"),
}


@pytest.fixture(params=["eager", pytest.param("graph", marks=pytest.mark.slow)])
def way(request):
    """How functions are computed: traces take most of the time of a test."""
    tf.config.run_functions_eagerly(request.param == "eager")
    yield
    tf.config.run_functions_eagerly(False)


@functools.cache
def model(kind):
    return PlaygroundModel(serving_models.model_dir(kind))


def trained(kind, rows):
    """Returns the trained model's answers, as an export's check has them."""
    servable = model(kind)._servable
    rows = [tuple(text.encode() for text in row) for row in rows]
    return servable.trained_answers(servable.encode(rows), rows)


def ask(kind):
    return model(kind).predict({"texts": list(ASKED[kind])})


def test_description():
    told = model("pair").describe()
    assert told["name"] == "pair"
    assert (told["num_layers"], told["num_heads"]) == (2, 2)
    assert told["max_seq_length"] == serving_models.MAX_SEQ_LENGTH
    assert not told["fills_masks"]
    assert told["task"]["kind"] == "classes"
    assert told["task"]["text_names"] == ["sentence 1", "class"]
    told = model("pretrainer").describe()
    assert told["fills_masks"]
    assert told["task"] is None


@pytest.mark.usefixtures("way")
def test_masks_are_filled_as_by_the_program():
    told = model("pretrainer").fill_mask(
        {"texts": ["The [MASK] lorem."], "position": None}
    )
    (mask,) = told["masks"]
    folder = serving_models.model_dir("pretrainer")
    preprocessor = Preprocessor.from_folder(folder)
    inputs = fill_mask.encode(tf.constant(["The [MASK] lorem."]), preprocessor)
    wanted = fill_mask.decode(
        *fill_mask.predict(
            inputs,
            checkpoints.load(folder, BertPretrainer),
            preprocessor.vocabulary,
        ),
        preprocessor.vocabulary,
        10,
    )
    assert [each["id"] for each in mask["answers"]] == (
        wanted["ids"].numpy()[0, 0].tolist()
    )
    np.testing.assert_allclose(
        [each["probability"] for each in mask["answers"]],
        wanted["scores"][0, 0],
        rtol=1e-4,
    )
    assert mask["position"] == 2
    assert mask["given"] is None

    # The same by a click at the token in that place.
    clicked = model("pretrainer").fill_mask(
        {"texts": ["The quick lorem."], "position": 2}
    )
    (by_click,) = clicked["masks"]
    assert by_click["answers"] == mask["answers"]
    assert by_click["given"]["token"] == "quick"
    probabilities = [each["probability"] for each in mask["answers"]]
    better = sum(p > by_click["given"]["probability"] for p in probabilities)
    if better < 10:
        assert by_click["given"]["rank"] == better + 1
    else:
        assert by_click["given"]["rank"] > 10
    # Without either it tells the tokens.
    asked = model("pretrainer").fill_mask({"texts": [TEXT]})
    assert asked["masks"] == []
    assert [each["token"] for each in asked["sequence"]] == (
        ["[CLS]", "the", "quick", "lorem", ".", "[SEP]"]
    )
    assert not asked["is_cut"]


def test_what_is_cut_of_a_text_with_masks_is_told():
    room = serving_models.MAX_SEQ_LENGTH - 2
    for count, is_cut in ((room, False), (room + 1, True)):
        text = "[MASK] " + "the " * (count - 1)
        told = model("pretrainer").fill_mask({"texts": [text]})
        assert told["is_cut"] == is_cut
        assert len(told["sequence"]) == serving_models.MAX_SEQ_LENGTH


def test_a_folder_is_called_by_its_name(monkeypatch):
    folder = pathlib.Path(serving_models.model_dir("pair"))
    monkeypatch.chdir(folder)
    for path in (".", "./", str(folder), f"{folder}/", "../pair"):
        assert PlaygroundModel(path).describe()["name"] == "pair"


@pytest.mark.parametrize(
    "values, message",
    [
        ({"texts": [TEXT], "position": 0}, "1 to 4"),
        ({"texts": [TEXT], "position": 5}, "1 to 4"),
        ({"texts": [TEXT], "position": "1"}, "integer"),
        ({"texts": [TEXT], "position": True}, "integer"),
        ({"texts": ["[MASK] " * 33]}, "at most 32"),
        ({"texts": [TEXT, TEXT]}, "must be 1. Received: 2"),
        ({"texts": TEXT}, "list of strings"),
        ({"texts": [TEXT, 1]}, "list of strings"),
        ({"texts": [TEXT], "more": 1}, "no values except"),
        ([TEXT], "JSON object"),
        ({"texts": ["a" * (requests.MAX_CHARACTERS + 1)]}, "10,001"),
    ],
)
def test_bad_requests_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        model("pretrainer").fill_mask(values)


def test_what_a_model_has_not_is_refused():
    with pytest.raises(ValueError, match="masked-LM head"):
        model("pair").fill_mask({"texts": [TEXT]})
    with pytest.raises(ValueError, match="tuned to a task"):
        model("pretrainer").predict({"texts": [TEXT]})


def test_halves_of_characters_are_replaced():
    (text,) = requests.texts_of({"texts": ["a\ud83d\ude00\ud800"]}, 1, 1)
    assert text == "a\U0001f600\ufffd"


@pytest.mark.usefixtures("way")
def test_attention_is_the_encoders_own():
    asked = model("pretrainer")
    told = asked.attention({"texts": [TEXT, "a lorem"]})
    assert told["shape"] == [2, 2, 9, 9]
    assert len(told["sequence"]) == 9
    probs = np.frombuffer(
        base64.b64decode(told["probabilities"]), "<f4"
    ).reshape(told["shape"])

    encoder = asked._encoder
    assert isinstance(encoder, BertEncoder)
    preprocessor = Preprocessor.from_folder(
        serving_models.model_dir("pretrainer"), 9
    )
    inputs = {
        name: value.numpy()
        for name, value in preprocessor([[TEXT], ["a lorem"]]).items()
    }
    weights = reference.weights_of(encoder)
    states = reference.encoder(
        weights,
        encoder.config,
        inputs[features.INPUT_IDS][0],
        np.ones((9, 9), bool),
        inputs[features.SEGMENT_IDS][0],
    )
    embedded = reference.embeddings(
        reference.scope(weights, "embeddings"),
        inputs[features.INPUT_IDS][0],
        inputs[features.SEGMENT_IDS][0],
    )
    for layer, state in enumerate([embedded, states[0]]):
        wanted = reference.attention_probs(
            reference.scope(weights, f"layer_{layer}/attention"),
            state,
            np.ones((9, 9), bool),
            2,
        )
        np.testing.assert_allclose(probs[layer], wanted, atol=1e-4)


def test_classes():
    wanted = trained("pair", [ASKED["pair"]])
    classes = ask("pair")["classes"]
    assert [each["name"] for each in classes] == ["nein", "ja", "vielleicht¿"]
    shares = [each["probability"] for each in classes]
    np.testing.assert_allclose(shares, wanted["probabilities"][0], atol=1e-5)
    assert [each["is_chosen"] for each in classes] == (
        [share == max(shares) for share in shares]
    )


@pytest.mark.usefixtures("way")
def test_labels():
    wanted = trained("topics", [ASKED["topics"]])
    classes = ask("topics")["classes"]
    np.testing.assert_allclose(
        [each["probability"] for each in classes],
        wanted["probabilities"][0],
        atol=1e-5,
    )
    assert [each["is_chosen"] for each in classes] == (
        wanted["is_label"][0].tolist()
    )


@pytest.mark.usefixtures("way")
def test_number():
    wanted = trained("regression", [ASKED["regression"]])
    assert ask("regression")["score"] == pytest.approx(
        wanted["scores"][0], abs=1e-5
    )


@pytest.mark.slow
def test_entities():
    wanted = trained("tagger", [ASKED["tagger"]])
    told = ask("tagger")
    count = wanted["num_entities"][0]
    assert len(told["entities"]) == count > 0
    for name, key in (("starts", "start"), ("limits", "limit")):
        assert [each[key] for each in told["entities"]] == (
            wanted[name][0, :count].tolist()
        )
    assert [each["label"].encode() for each in told["entities"]] == (
        wanted["labels"][0, :count].tolist()
    )
    np.testing.assert_allclose(
        [each["score"] for each in told["entities"]],
        wanted["scores"][0, :count],
        atol=1e-5,
    )


@pytest.mark.usefixtures("way")
def test_answers_are_cited():
    wanted = trained("squad", [ASKED["squad"]])
    told = ask("squad")
    context = ASKED["squad"][1]
    assert told["best"]["text"].encode() == wanted["answers"][0]
    assert told["null_odds"] == pytest.approx(wanted["null_odds"][0], abs=1e-4)
    entries = told["answers"]
    assert len(entries) == np.count_nonzero(wanted["nbest_scores"][0]) > 1
    for entry, score in zip(entries, wanted["nbest_scores"][0]):
        assert entry["score"] == pytest.approx(score, abs=1e-5)
        if entry["start"] >= 0:
            assert entry["text"] == context[entry["start"] : entry["limit"]]


@pytest.mark.usefixtures("way")
def test_choices():
    wanted = trained("choice", [ASKED["choice"]])
    told = ask("choice")
    np.testing.assert_allclose(
        told["probabilities"], wanted["probabilities"][0], atol=1e-5
    )
    assert told["choice"] == wanted["choice"][0]


def test_what_is_cut_of_choices_is_told():
    assert not ask("choice")["is_cut"]
    # Three are special: what a pair has room for, and one more.
    room = serving_models.MAX_SEQ_LENGTH - 3
    for length in (room - 1, room):
        texts = ["the " * length, "", "", "a"]
        told = model("choice").predict({"texts": texts})
        assert told["is_cut"] == (length == room)


def test_what_is_cut_of_a_question_is_told():
    most = serving_models.SQUAD_TASK.max_query_length
    for length in (most, most + 1):
        told = model("squad").predict({"texts": ["the " * length, "a lorem"]})
        assert told["is_cut"] == (length > most)


@pytest.mark.usefixtures("way")
def test_texts_are_ranked():
    query, *texts = ASKED["reranker"]
    wanted = trained("reranker", [(query, text) for text in texts])
    told = ask("reranker")
    np.testing.assert_allclose(told["scores"], wanted["scores"], atol=1e-5)
    assert told["order"] == np.argsort(-wanted["scores"]).tolist()


@pytest.mark.usefixtures("way")
def test_sentences():
    texts = ["the quick", "a lorem 我", "x the quick"]
    told = model("encoder").predict({"texts": texts})
    embedder = sentences.open_embedder(serving_models.model_dir("encoder"))
    vectors = embedder(texts).astype("float64")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(told["cosines"], vectors @ vectors.T, atol=1e-5)
    assert model("encoder").describe()["task"]["kind"] == "sentences"
    with pytest.raises(ValueError, match="2 to 32"):
        model("encoder").predict({"texts": texts[:1]})


def test_warm_up_traces_all_there_is():
    asked = model("pretrainer")
    asked.warm_up()
    functions = (
        asked._compute_attention,
        asked._encode_masked,
        asked._compute_masks,
        asked._reader._tokenize,
    )
    traces = [each.experimental_get_tracing_count() for each in functions]
    assert traces == [1, 1, 1, 1]
    for length in (1, 2, 5):
        asked.fill_mask({"texts": [" ".join(["the"] * length)], "position": 1})
        asked.attention({"texts": [" ".join(["the"] * length)]})
    # Of any length there is no other trace.
    assert traces == [
        each.experimental_get_tracing_count() for each in functions
    ]
