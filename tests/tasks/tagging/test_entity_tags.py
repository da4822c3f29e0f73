import random

import pytest

from bert_tf.tasks.tagging import entity_tags
from references import tagging as reference_tagging

# The same three entities: A A right before another A, and one B.
TAGGED = {
    "bio": "B-A I-A B-A O B-B I-B I-B",
    "iob1": "I-A I-A B-A O I-B I-B I-B",
    "bioes": "B-A E-A S-A O B-B I-B E-B",
    "bilou": "B-A L-A U-A O B-B I-B L-B",
}
ENTITIES = [("A", 0, 2), ("A", 2, 3), ("B", 4, 7)]


@pytest.mark.parametrize("scheme", TAGGED)
def test_entities_of_every_scheme_and_back(scheme):
    tags = TAGGED[scheme].split()
    (entities,) = entity_tags.find_entities([tags])
    assert entities == reference_tagging.find_entities(tags)
    assert entities == ENTITIES
    assert entity_tags.make_tags(entities, 7, scheme) == tags
    assert entity_tags.detect_scheme([["O"], tags]) == scheme
    assert entity_tags.breaches([tags], scheme) == []


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("", []),
        ("O O", []),
        # An I- after O, or of another type than the word before.
        ("O I-A I-A", [("A", 1, 3)]),
        ("B-A I-B I-B", [("A", 0, 1), ("B", 1, 3)]),
        ("I-A I-B", [("A", 0, 1), ("B", 1, 2)]),
        # What follows an end begins anew.
        ("S-A I-A", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A E-A E-A", [("A", 0, 2), ("A", 2, 3)]),
        ("B-A B-A S-A", [("A", 0, 1), ("A", 1, 2), ("A", 2, 3)]),
        # A type may have hyphens.
        ("B-a-b I-a-b", [("a-b", 0, 2)]),
    ],
)
def test_entities_of_tags_that_follow_no_scheme(tags, entities):
    assert entity_tags.find_entities([tags.split()]) == [entities]
    assert reference_tagging.find_entities(tags.split()) == entities


def test_entities_of_many_sentences_are_those_of_plain_loops():
    generator = random.Random(1)
    tags = ["O", *(f"{letter}-{kind}" for letter in "BIESLU" for kind in "ab")]
    sentences = [
        generator.choices(tags, k=generator.choice((0, 1, 5, 12)))
        for _ in range(200)
    ]
    assert entity_tags.find_entities(sentences) == list(
        map(reference_tagging.find_entities, sentences)
    )
    assert entity_tags.find_entities([[], []]) == [[], []]
    assert entity_tags.find_entities([]) == []


def test_breaches_name_the_words():
    tags = ["I-A", "I-A", "O", "B-B", "I-A"]
    assert entity_tags.breaches([tags], "bio") == [0, 4]
    # They are counted over all sentences.
    assert entity_tags.breaches([tags, tags], "bio") == [0, 4, 5, 9]
    assert entity_tags.breaches([["I-A", "B-A", "B-B"]], "iob1") == [2]
    tags = ["B-A", "O", "B-A", "I-A"]
    assert entity_tags.breaches([tags], "bioes") == [0, 3]


def test_scheme_with_fewer_breaches_is_detected():
    bio = [["B-A", "I-A", "O"], ["B-B"], ["O", "I-A"]]
    assert entity_tags.detect_scheme(bio) == "bio"
    iob1 = [["I-A", "I-A", "O"], ["I-B"], ["O", "B-A"]]
    assert entity_tags.detect_scheme(iob1) == "iob1"
    assert entity_tags.detect_scheme([["O"]]) == "bio"


def test_labels_are_all_tags_of_the_types():
    sentences = [["O", "I-y"], ["I-x", "B-x"]]
    assert entity_tags.make_labels(sentences, "iob1") == (
        "O",
        "B-x",
        "I-x",
        "B-y",
        "I-y",
    )
    assert entity_tags.make_labels([["S-x"]], "bioes") == (
        "O",
        "B-x",
        "I-x",
        "E-x",
        "S-x",
    )


@pytest.mark.parametrize("text", ["", "o", "B", "B-", "b-A", "X-A", "NN"])
def test_what_is_no_tag(text):
    assert not entity_tags.is_tag(text)
