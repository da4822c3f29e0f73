"""Splits prose into sentences, by rules for all scripts of Unicode.

Rules, not a model. A full stop, question or exclamation mark ends a sentence
when white space and then something that can begin one follow, unless the word
before is an abbreviation (of English) or an initial. The marks of scripts that
use them for nothing else (the ideographic full stop, the danda, the Arabic
question mark) end one with or without white space. Thai and Lao, which have no
such marks, stay as they are.
"""

import re
import unicodedata
from collections.abc import Iterator

# Of the rules; the first were of English alone.
VERSION = 2

# Unicode's property Sentence_Terminal, which unicodedata does not know: version
# 14, the Khmer marks and the vertical forms that came later.
_SENTENCE_TERMINAL = """
    21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362
    1367-1368 166e 1735-1736 17d4-17d5 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b
    1b5e-1b5f 1b7d-1b7e 1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 2e2e 2e3c
    2e53-2e54 3002 a4ff a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9
    aa5d-aa5f aaf0-aaf1 abeb fe12 fe15-fe16 fe52 fe56-fe57 ff01 ff0e ff1f ff61
    10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 110be-110c1 11141-11143
    111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 1144b-1144c
    115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 11a42-11a43
    11a9b-11a9c 11c41-11c42 11ef7-11ef8 16a6e-16a6f 16af5 16b37-16b38 16b44
    16e98 1bc9f 1da88
"""


def _characters(ranges):
    """Returns hexadecimal ranges as a regular expression's class has them."""
    return re.sub(
        r"\s*(\w+)", lambda found: chr(int(found[1], 16)), ranges
    ).strip()


# Of these, which stand in numbers and abbreviations or inside a sentence too,
# what follows tells; the full stops of East Asia may lack the blank.
_AMBIGUOUS = ".!?\u203c\u203d\u2047\u2048\u2049\u2e2e"
_WIDE_FULL_STOPS = "\ufe52\uff0e"
# A mark after a quotation's end in German, or its beginning in English.
_OPENING = "\"'“”‘(\\[«»‹›„‚「『（［【〈《〔｢"
_CLOSING = "\"'”’)\\]»›“‘«‹」』）］】〉》〕｣"
# Marks, closing quotes or brackets (» after a space is French), and the space.
_BOUNDARY = re.compile(
    rf"(?P<mark>[{_characters(_SENTENCE_TERMINAL)}]+)[{_CLOSING}]*"
    r"(?: »(?= ))?(?P<space> ?)"
)
# From the first letter of the kana on, scripts may set no blank after a mark.
_FIRST_UNSPACED = "\u3041"
_BEGINNING = re.compile(rf"(?:« |[{_OPENING}])?[¿¡]?(.)")
_LAST_WORD = re.compile(rf"[^\s{_OPENING}]*$")
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
_INITIALS = re.compile(r"([^\W\d_]\.)*[^\W\d_]$")


def split_text(text: str) -> Iterator[str]:
    """Yields the sentences of a text, whose lines are paragraphs."""
    for paragraph in text.split("\n"):
        yield from split_sentences(paragraph)


def split_sentences(paragraph: str) -> list[str]:
    """Splits one paragraph of prose, in time linear in its length.

    Args:
        paragraph: str. White space, line ends too, counts as single spaces.

    Returns:
        A list of str without space around them; [] for a blank paragraph.
        Joined, with the spaces between them, they are the paragraph.
    """
    text = " ".join(paragraph.split())
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        if _is_end(text, start, match):
            sentences.append(text[start : match.start("space")])
            start = match.end()
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _is_end(text, start, match):
    beginning = _BEGINNING.match(text, match.end())
    if beginning is None:
        return False
    first = beginning[1]
    mark = match["mark"][-1]
    if mark not in _AMBIGUOUS:
        is_number = mark in _WIDE_FULL_STOPS and first.isdigit()
        # "(!), ...": a comma goes on.
        return not is_number and unicodedata.category(first)[0] != "P"
    if not _can_begin(first):
        return False
    if not match["space"]:
        return mark != "." and first >= _FIRST_UNSPACED
    return match["mark"] != "." or not _goes_on(text, start, match)


def _can_begin(character):
    """Returns whether a sentence can begin: a capital, a number, no case."""
    category = unicodedata.category(character)
    # The ordinals of Spanish, and Georgian, which writes without its capitals.
    return (category in ("Lu", "Lt", "Lo", "Nd") and character not in "ªº") or (
        "ა" <= character <= "ჿ"
    )


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
    if _INITIALS.match(word) and word[-1].isupper():
        end = match.start() - len(word)
        before = text[max(start, end - _MAX_WORD) : end].split()
        return not before or before[-1][0].isupper() or len(word) > 1
    return False
