"""Splits prose into sentences, by rules for all scripts of Unicode.

Rules, not a model. A full stop, question mark or exclamation mark ends a
sentence if white space follows, and then a character that can begin a sentence.
The exceptions are English abbreviations and initials before the mark. Marks
that have no other use in their scripts (the ideographic full stop, the danda,
the Arabic question mark) need no white space. Thai and Lao have no such marks,
and are not split.
"""

import re
import unicodedata
from collections.abc import Iterator

# Version of the rules. Version 1 was for English only.
VERSION = 2

# Unicode's property Sentence_Terminal, which unicodedata lacks: version 14, and
# the Khmer marks and vertical forms that were added later.
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
    """Returns hexadecimal ranges as the inside of a character class."""
    return re.sub(
        r"\s*(\w+)", lambda found: chr(int(found[1], 16)), ranges
    ).strip()


# These marks also occur in numbers, in abbreviations and inside sentences, so
# the next character decides. East Asian full stops may lack the space.
_AMBIGUOUS = ".!?\u203c\u203d\u2047\u2048\u2049\u2e2e"
_WIDE_FULL_STOPS = "\ufe52\uff0e"
# Some marks close a quotation in German and open one in English.
_OPENING = "\"'“”‘(\\[«»‹›„‚「『（［【〈《〔｢"
_CLOSING = "\"'”’)\\]»›“‘«‹」』）］】〉》〕｣"
# Marks, closing quotes or brackets (French has a space before »), and a space.
_BOUNDARY = re.compile(
    rf"(?P<mark>[{_characters(_SENTENCE_TERMINAL)}]+)[{_CLOSING}]*"
    r"(?: »(?= ))?(?P<space> ?)"
)
# From the first kana letter on, scripts may omit the space after a mark.
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
# These may end a sentence, unless a number follows.
_BEFORE_NUMBER = frozenset(
    """
    apr art aug ch chap dec feb jan jul jun mar no nov oct op sept
    """.split()  # noqa: SIM905
)
# The longest word that is examined, and how far back the word before it is
# searched. It bounds the time for text without sentences.
_MAX_WORD = 40
_INITIALS = re.compile(r"([^\W\d_]\.)*[^\W\d_]$")


def split_text(text: str) -> Iterator[str]:
    """Yields the sentences of a text whose lines are paragraphs."""
    for paragraph in text.split("\n"):
        yield from split_sentences(paragraph)


def split_sentences(paragraph: str) -> list[str]:
    """Splits one paragraph of prose, in time linear in its length.

    Args:
        paragraph: str. Any white space, even a line end, counts as one space.

    Returns:
        A list of str without surrounding space; [] for a blank paragraph.
        Joined with the spaces between them, they are the paragraph.
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
        # "(!), ...": the sentence continues after a comma.
        return not is_number and unicodedata.category(first)[0] != "P"
    if not _can_begin(first):
        return False
    if not match["space"]:
        return mark != "." and first >= _FIRST_UNSPACED
    return match["mark"] != "." or not _goes_on(text, start, match)


def _can_begin(character):
    """Returns whether a character can begin a sentence.

    Capitals, digits and letters of scripts without case can.
    """
    category = unicodedata.category(character)
    # Spanish ordinals cannot. Georgian is written without its capitals.
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
    # "J. Smith", "U.S. Navy", but "vitamin C. It": an initial follows a
    # capitalised word or begins the sentence.
    if _INITIALS.match(word) and word[-1].isupper():
        end = match.start() - len(word)
        before = text[max(start, end - _MAX_WORD) : end].split()
        return not before or before[-1][0].isupper() or len(word) > 1
    return False
