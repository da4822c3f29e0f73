"""Tags of words: how they mark entities, and which entities they mark.

A tag is "O", outside of all entities, or a letter with the entity's type. By
scheme the same entities are

    word    Empire      State       Building    =   ESB
    bio     B-location  I-location  I-location  O   B-location
    iob1    I-location  I-location  I-location  O   I-location
    bioes   B-location  I-location  E-location  O   S-location

In iob1, the form of CoNLL-2003's files, B- parts an entity from one of the same
type right before it.
"""

from typing import NamedTuple

OUTSIDE = "O"

BIO = "bio"
IOB1 = "iob1"
BIOES = "bioes"
# The letters of each scheme.
SCHEMES = {BIO: "BI", IOB1: "BI", BIOES: "BIES"}


class Entity(NamedTuple):
    """An entity of one sentence: its type, first word, and word after it."""

    type: str
    start: int
    limit: int


def is_tag(text):
    """Returns whether a string is a tag of any scheme."""
    return text == OUTSIDE or (
        text[:1] in ("B", "I", "E", "S") and text[1:2] == "-" and len(text) > 2
    )


def type_of(tag):
    """Returns the entity's type, "" of `OUTSIDE`."""
    return tag[2:]


def continues(previous, tag):
    """Returns whether a word belongs to the entity of the word before it.

    The rule is conlleval's, for tags of all schemes, also where they do not
    follow theirs: an I- after O, or of another type than the word before,
    begins an entity.
    """
    return (
        may_continue(tag)
        and may_be_continued(previous)
        and type_of(tag) == type_of(previous)
    )


def may_continue(tag):
    """Returns whether a tag continues an entity of its type before it."""
    return tag[0] in "IE"


def may_be_continued(tag):
    """Returns whether a tag leaves its entity open for the next word."""
    return tag[0] in "BI"


def find_entities(tags):
    """Returns the entities of one sentence, a list of `Entity`, in order."""
    starts, limits = [], []
    previous = OUTSIDE
    for index, tag in enumerate([*tags, OUTSIDE]):
        if not continues(previous, tag):
            if previous != OUTSIDE:
                limits.append(index)
            if tag != OUTSIDE:
                starts.append(index)
        previous = tag
    return [
        Entity(type_of(tags[start]), start, limit)
        for start, limit in zip(starts, limits)
    ]


def make_tags(entities, num_words, scheme):
    """Returns the tags of a sentence by a scheme, a list of `num_words`."""
    tags = [OUTSIDE] * num_words
    previous = None
    for entity in entities:
        letters = ["I"] * (entity.limit - entity.start)
        if scheme == BIOES:
            letters[-1] = "E"
        follows = previous is not None and (
            (previous.type, previous.limit) == (entity.type, entity.start)
        )
        if scheme != IOB1 or follows:
            letters[0] = "B"
        if scheme == BIOES and len(letters) == 1:
            letters[0] = "S"
        for index, letter in enumerate(letters, start=entity.start):
            tags[index] = f"{letter}-{entity.type}"
        previous = entity
    return tags


def breaches(tags, scheme):
    """Returns the numbers of the words whose tags the scheme has not there."""
    wanted = make_tags(find_entities(tags), len(tags), scheme)
    return [index for index, tag in enumerate(tags) if tag != wanted[index]]


def detect_scheme(sentences):
    """Returns the scheme of tagged sentences.

    That is bioes where any tag has E- or S-, else of bio and iob1 the one
    with fewer breaches; of equals bio.

    Args:
        sentences: Lists of tags.
    """
    letters = {tag[0] for tags in sentences for tag in tags}
    if letters & {"E", "S"}:
        return BIOES
    return min(
        (BIO, IOB1),
        key=lambda scheme: sum(
            len(breaches(tags, scheme)) for tags in sentences
        ),
    )


def make_labels(sentences, scheme):
    """Returns all tags that a scheme has for the types in some sentences.

    Those that do not occur are among them: the B- of a type in iob1 may come
    first in the development set.

    Returns:
        A tuple: "O", and by the types' names the scheme's tags of each.
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
