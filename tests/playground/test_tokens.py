"""What the page tells of tokens, for every kind of tokenizer."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.playground import tokens
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from support import serving_models
from support import tokenizer_families

SPECS = {
    "wordpiece": WordpieceSpec(serving_models.VOCABULARY),
    "bpe": tokenizer_families.BPE,
    "unigram": tokenizer_families.UNIGRAM,
    "xlm_roberta": tokenizer_families.as_xlm_roberta(
        tokenizer_families.UNIGRAM
    ),
}
TEXTS = ("Thé  quick\u200b fox ﬁ 我!", "LOREM Ω\x07 the")


@pytest.mark.parametrize(
    "was, now, changes",
    [
        ("word", "word", []),
        ("Word", "word", ["lower case"]),
        ("É", "e", ["accents dropped", "lower case"]),
        ("é", "e", ["accents dropped"]),
        ("e\u0301", "é", ["composed (NFC)"]),
        ("é", "e\u0301", ["decomposed (NFD)"]),
        ("ﬁ", "fi", ["compatibility form (NFKC)"]),
        ("Ⅳ", "iv", ["compatibility form (NFKC)", "lower case"]),
        ("``", '"', [tokens.OTHER_CHANGE]),
    ],
)
def test_changes_are_told_by_their_fewest_steps(was, now, changes):
    assert tokens.find_changes(was, now) == changes


@functools.cache
def reader(kind):
    return tokens.Reader(SPECS[kind].make(), 40)


@pytest.fixture(
    scope="module",
    autouse=True,
    params=["eager", pytest.param("graph", marks=pytest.mark.slow)],
)
def way(request):
    """How functions are computed: traces take most of the time of a test."""
    tf.config.run_functions_eagerly(request.param == "eager")
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module", params=SPECS)
def read(request, way):
    """What is read of the two texts, its spec, and what the model would get."""
    spec = SPECS[request.param]
    found = reader(request.param).read(TEXTS)
    return spec, found, Preprocessor(spec, 40)(tuple(TEXTS))


def test_inputs_are_those_of_the_model(read):
    _, found, wanted = read
    assert found.inputs.keys() == wanted.keys()
    for name, values in wanted.items():
        length = len(found.sequence)
        np.testing.assert_array_equal(found.inputs[name][0], values[:length])
        assert not np.any(values[length:]) or name == "input_ids"
    assert not found.is_cut
    ids = [entry["id"] for entry in found.sequence]
    assert ids == found.inputs["input_ids"].numpy()[0].tolist()


def test_pieces_are_cited_and_found_in_the_sequence(read):
    spec, found, _ = read
    assert [text["text"] for text in found.texts] == list(TEXTS)
    for number, (text, told) in enumerate(zip(TEXTS, found.texts)):
        places = [
            entry["piece"]
            for entry in found.sequence
            if entry["text_number"] == number
        ]
        assert places == list(range(len(told["pieces"])))
        for piece in told["pieces"]:
            assert piece["token"] == spec.vocabulary.tokens[piece["id"]]
            assert piece["is_read"]
            was = text[piece["start"] : piece["limit"]]
            # Where nothing is told of changes, there are none.
            if not piece["changes"] and not piece["is_unknown"]:
                assert piece["text"].strip() in (
                    *(was.strip(), "�"),
                    # The mark of a word's begin alone.
                    "",
                )
    special = [entry for entry in found.sequence if entry["is_special"]]
    assert special[0]["token"] == spec.vocabulary.special.cls
    assert len(special) == spec.vocabulary.special.count(2)


def test_what_wordpiece_changes_is_told():
    first, second = reader("wordpiece").read(TEXTS).texts
    told = {
        (piece["token"], first["text"][piece["start"] : piece["limit"]]): piece
        for piece in first["pieces"]
    }
    assert told["the", "Thé"]["changes"] == ["accents dropped", "lower case"]
    assert told["quick", "quick"]["changes"] == []
    assert not told["quick", "quick"]["is_unknown"]
    assert told["[UNK]", "ﬁ"]["is_unknown"]
    assert told["我", "我"]["start"] == 18
    assert [each["code_point"] for each in first["dropped"]] == ["U+200B"]
    assert first["dropped"][0]["name"] == "ZERO WIDTH SPACE"
    assert [each["start"] for each in second["dropped"]] == [7]
    assert second["pieces"][0]["changes"] == ["lower case"]


def test_a_character_of_several_bytes_is_one():
    (told,) = reader("bpe").read(["日"]).texts
    assert [piece["start"] for piece in told["pieces"]] == [0, 0, 0]
    assert [piece["limit"] for piece in told["pieces"]] == [1, 1, 1]
    assert [piece["changes"] for piece in told["pieces"]] == [[], [], []]
    assert told["dropped"] == []


def test_what_is_cut_is_told():
    found = reader("wordpiece").read(
        ["the quick lorem", "lorem the quick the"], 7
    )
    assert found.is_cut
    kept = [[p["is_read"] for p in text["pieces"]] for text in found.texts]
    # Seven places: three are special, and of the two the longer one is cut.
    assert kept == [[True, True, False], [True, True, False, False]]
    assert len(found.sequence) == 7
    assert [entry["segment"] for entry in found.sequence] == [0] * 4 + [1] * 3
