"""Splits English prose into sentences.

Rules, not a model: a full stop, question or exclamation mark ends a sentence
when white space and then something that can begin one follow, unless the word
before is an abbreviation or an initial.
"""

import re
from collections.abc import Iterator

# Marks, closing quotes or brackets, space, and what can begin a sentence. Of a
# row of marks only the first begins a match, and nothing is read twice.
_BOUNDARY = re.compile(
    r"""(?P<mark>[.!?](?<![.!?]{2})[.!?]*+)["'”’)\]]*+(?P<space>\s+)"""
    r"""(?=["'“‘(\[]?[A-Z0-9])"""
)
_LAST_WORD = re.compile(r"[^\s(\[\"'“‘]*$")
# A name, a number or a noun follows: never the end of a sentence.
_BEFORE_MORE = frozenset(
    """
    adm al approx capt cf col dr e.g eq eqs fig figs gen gov hon i.e lt maj
    messrs mr mrs ms nos p pp prof ref refs rep rev sec sen sgt st viz vol
    vols vs
    """.split()  # noqa: SIM905
)
# These may end one, if what follows is no number.
_BEFORE_NUMBER = frozenset(
    """
    apr art aug ch chap dec feb jan jul jun mar no nov oct op sept
    """.split()  # noqa: SIM905
)
# The longest word that is looked at, and how far back the one before it is
# looked for: a text without a sentence must not take for ever.
_MAX_WORD = 40
_INITIALS = re.compile(r"([A-Za-z]\.)*[A-Z]$")


def split_text(text: str) -> Iterator[str]:
    """Yields the sentences of a text, whose lines are paragraphs."""
    for paragraph in text.split("\n"):
        yield from split_sentences(paragraph)


def split_sentences(paragraph: str) -> list[str]:
    """Splits one paragraph of English prose.

    Args:
        paragraph: str. White space, line ends too, counts as single spaces.

    Returns:
        A list of str without space around them; [] for a blank paragraph.
        Joined by spaces they are the paragraph.
    """
    text = " ".join(paragraph.split())
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        if match["mark"] == "." and _goes_on(text, start, match):
            continue
        sentences.append(text[start : match.start("space")])
        start = match.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _goes_on(text, start, match):
    near = max(start, match.start() - _MAX_WORD)
    found = _LAST_WORD.search(text, near, match.start())
    word = found.group() if found else ""
    if word.lower() in _BEFORE_MORE:
        return True
    if word.lower() in _BEFORE_NUMBER:
        return text[match.end()].isdigit()
    # "J. Smith", "U.S. Navy", but "vitamin C. It": an initial follows a name
    # or begins the sentence.
    if _INITIALS.match(word):
        end = match.start() - len(word)
        before = text[max(start, end - _MAX_WORD) : end].split()
        return not before or before[-1][0].isupper() or len(word) > 1
    return False
