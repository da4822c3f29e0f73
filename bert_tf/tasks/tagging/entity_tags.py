"""Tags of words: how they mark entities, and which entities they mark.

A tag is "O", outside of all entities, or a letter with the entity's type. The
same entities in each scheme:

    word    Empire      State       Building    =   ESB
    bio     B-location  I-location  I-location  O   B-location
    iob1    I-location  I-location  I-location  O   I-location
    bioes   B-location  I-location  E-location  O   S-location
    bilou   B-location  I-location  L-location  O   U-location

In iob1, the form of CoNLL-2003's files, B- only separates an entity from one of
the same type right before it.
"""

import itertools
from collections.abc import Iterable
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

OUTSIDE = "O"
BIO, IOB1, BIOES, BILOU = "bio", "iob1", "bioes", "bilou"
# The letters of each scheme: of an entity's first word and of those inside; and
# if they have their own, of its last word and of an entity of one word.
SCHEMES = {BIO: "BI", IOB1: "BI", BIOES: "BIES", BILOU: "BILU"}


_LETTERS = {letter for letters in SCHEMES.values() for letter in letters}


class Entity(NamedTuple):
    """A sentence's entity: its type, first word, and word after the last."""

    type: str
    start: int
    limit: int


def is_tag(text: str) -> bool:
    """Returns whether a string is a tag of any scheme."""
    return text == OUTSIDE or (
        text[:1] in _LETTERS and text[1:2] == "-" and len(text) > 2
    )


def type_of(tag: str) -> str:
    """Returns the entity's type, or "" for `OUTSIDE`."""
    return tag[2:]


def locate_entities(
    tags: tf.RaggedTensor, labels: Sequence[str]
) -> dict[str, tf.Tensor]:
    """Finds the entities of every row, in TensorFlow's own operations.

    The rule is seqeval's in its default mode (see `entity_scores`). It is for
    tags of all schemes, even where they break their scheme: an I- after O, or
    of another type than the word before, begins an entity. Letters: W words of
    all rows, E their entities, K labels.

    Args:
        tags: RaggedTensor int32 `[B, (words)]`: indices in `labels`.
        labels: The tags.

    Returns:
        A dictionary: `counts` int32 `[B]`, how many entities each row has;
        `types` string `[E]`; `first_words` and `last_words` int32 `[E]`,
        numbers in the row; `entities` int32 `[W]`, the number of each word's
        entity, or -1.
    """
    may_continue_K = np.array([tag[0] in "IEL" for tag in labels], bool)
    # After such a tag the next word may continue the entity.
    may_be_continued_K = np.array([tag[0] in "BI" for tag in labels], bool)
    is_entity_K = np.array([tag != OUTSIDE for tag in labels], bool)
    types_K = [type_of(tag) for tag in labels]
    # Numbers of types, since a table of all pairs of tags may be large.
    _, type_ids_K = np.unique(types_K, return_inverse=True)
    tag_W = tags.flat_values
    place_W = tf.cast(tf.ragged.range(tags.row_lengths()).flat_values, tf.int32)
    before_W = tf.concat([tf.zeros([1], tf.int32), tag_W[:-1]], axis=0)
    # An empty batch would have one value too many.
    before_W = before_W[: tf.size(tag_W)]
    # A row's first word continues nothing, whatever the row before ends with.
    continues_W = (
        (place_W > 0)
        & tf.gather(may_continue_K, tag_W)
        & tf.gather(may_be_continued_K, before_W)
        & tf.equal(
            tf.gather(type_ids_K, tag_W), tf.gather(type_ids_K, before_W)
        )
    )
    is_entity_W = tf.gather(is_entity_K, tag_W)
    is_start_W = is_entity_W & ~continues_W
    continues_next_W = tf.concat([continues_W[1:], [False]], axis=0)
    is_end_W = is_entity_W & ~continues_next_W[: tf.size(tag_W)]
    starts = tags.with_flat_values(tf.cast(is_start_W, tf.int32))
    return {
        "counts": tf.reduce_sum(starts, axis=1),
        "types": tf.gather(
            tf.constant(types_K, tf.string), tf.boolean_mask(tag_W, is_start_W)
        ),
        "first_words": tf.boolean_mask(place_W, is_start_W),
        "last_words": tf.boolean_mask(place_W, is_end_W),
        "entities": tf.where(
            is_entity_W, tf.cumsum(starts.flat_values) - 1, -1
        ),
    }


def find_entities(sentences: Sequence[Sequence[str]]) -> list[list[Entity]]:
    """Returns the entities of each sentence, lists of `Entity` in order.

    Args:
        sentences: Lists of tags.
    """
    labels = sorted({tag for tags in sentences for tag in tags})
    numbers = {tag: number for number, tag in enumerate(labels)}
    found = locate_entities(
        tf.RaggedTensor.from_row_lengths(
            np.array(
                [numbers[tag] for tags in sentences for tag in tags], np.int32
            ),
            [len(tags) for tags in sentences],
        ),
        labels,
    )
    entities = (
        Entity(type_.decode(), first, last + 1)
        for type_, first, last in zip(
            found["types"].numpy().tolist(),
            found["first_words"].numpy().tolist(),
            found["last_words"].numpy().tolist(),
        )
    )
    return [
        list(itertools.islice(entities, count))
        for count in found["counts"].numpy().tolist()
    ]


def in_characters(
    words: Sequence[str], entities: Iterable[Entity]
) -> list[Entity]:
    """Returns entities with their places in characters instead of words.

    Args:
        words: The words of a sentence.
        entities: Its entities.

    Returns:
        The same entities, with their first character and the one after their
        last, in the words joined by blanks.
    """
    lengths = [len(word) for word in words]
    limits = np.cumsum(lengths) + np.arange(len(words))
    starts = limits - lengths
    return [
        Entity(type_, int(starts[first]), int(limits[limit - 1]))
        for type_, first, limit in entities
    ]


def make_tags(
    entities: Iterable[Entity], num_words: int, scheme: str
) -> list[str]:
    """Returns the tags of a sentence in a scheme, a list of `num_words`."""
    ends = SCHEMES[scheme][2:]
    tags = [OUTSIDE] * num_words
    previous = None
    for entity in entities:
        letters = ["I"] * (entity.limit - entity.start)
        if ends:
            letters[-1] = ends[0]
        follows = previous is not None and (
            (previous.type, previous.limit) == (entity.type, entity.start)
        )
        if scheme != IOB1 or follows:
            letters[0] = "B"
        if ends and len(letters) == 1:
            letters[0] = ends[1]
        for index, letter in enumerate(letters, start=entity.start):
            tags[index] = f"{letter}-{entity.type}"
        previous = entity
    return tags


def breaches(sentences: Sequence[Sequence[str]], scheme: str) -> list[int]:
    """Returns the numbers of the words whose tags break the scheme.

    Words are counted over all sentences, which are lists of tags.
    """
    wanted = [
        tag
        for tags, entities in zip(sentences, find_entities(sentences))
        for tag in make_tags(entities, len(tags), scheme)
    ]
    tags = itertools.chain.from_iterable(sentences)
    return [index for index, tag in enumerate(tags) if tag != wanted[index]]


def detect_scheme(sentences: Sequence[Sequence[str]]) -> str:
    """Returns the scheme of tagged sentences.

    That is bioes if any tag has E- or S-, and bilou if any has L- or U-.
    Otherwise it is bio or iob1, whichever has fewer breaches; bio if both have
    equally many.

    Args:
        sentences: Lists of tags.
    """
    letters = {tag[0] for tags in sentences for tag in tags}
    for scheme in (BIOES, BILOU):
        if letters & {*SCHEMES[scheme][2:]}:
            return scheme
    return min((BIO, IOB1), key=lambda scheme: len(breaches(sentences, scheme)))


def make_labels(
    sentences: Sequence[Sequence[str]], scheme: str
) -> tuple[str, ...]:
    """Returns all tags that a scheme has for the types in some sentences.

    They include tags that do not occur: in iob1, the B- of a type may occur
    first in the development set.

    Returns:
        A tuple: "O", then the scheme's tags of each type, sorted by type.
    """
    types = {type_of(tag) for tags in sentences for tag in tags} - {""}
    return (
        OUTSIDE,
        *(
            f"{letter}-{type_}"
            for type_ in sorted(types)
            for letter in SCHEMES[scheme]
        ),
    )
