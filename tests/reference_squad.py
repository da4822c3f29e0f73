"""Question answering in plain Python: offsets, windows, answers, scores.

Written from the rules, one character, token or candidate at a time, so that
a reader can verify it by eye. It serves as the oracle of the library.
"""

import unicodedata

import reference_text


def located_words(text, do_lower_case):
    """Returns the words as lists of (character, place in the text).

    Args:
        text: A str. Marks that lower-casing keeps must be in canonical order.
    """
    words, word = [], []

    def end_word():
        nonlocal word
        if word:
            words.append(word)
        word = []

    for place, character in enumerate(text):
        cleaned = reference_text.clean(character)
        if cleaned.isspace():
            end_word()
        if not cleaned.strip():
            continue
        if do_lower_case:
            cleaned = unicodedata.normalize("NFD", cleaned.lower())
        for part in cleaned:
            if do_lower_case and unicodedata.category(part) == "Mn":
                continue
            alone = reference_text.is_punctuation(part)
            alone = alone or reference_text.is_cjk(character)
            if alone:
                end_word()
            word.append((part, place))
            if alone:
                end_word()
    end_word()
    return words


def locate(text, entries, do_lower_case):
    """Returns (piece, start, limit) of every piece of every word."""
    located = []
    for word in located_words(text, do_lower_case):
        spelled = "".join(character for character, _ in word)
        # Which sigma it is depends on the whole word.
        if do_lower_case:
            spelled = _same_sigmas(spelled, text, do_lower_case, len(located))
        pieces = reference_text.wordpiece(spelled, entries)
        row, start = [], 0
        for piece in pieces:
            length = len(piece) - 2 * (start > 0)
            if pieces == ["[UNK]"]:
                length = len(word)
            last = word[start + length - 1][1]
            limit = last + 1
            while (
                do_lower_case
                and limit < len(text)
                and unicodedata.category(text[limit]) == "Mn"
                and not _stays(text[limit])
            ):
                limit += 1
            row.append((piece, word[start][1], limit))
            start += length
        located.append(row)
    return located


def _same_sigmas(spelled, text, do_lower_case, index):
    whole = reference_text.split_words(text, do_lower_case)[index]
    assert whole.replace("ς", "σ") == spelled.replace("ς", "σ")
    return whole


def _stays(mark):
    lower = unicodedata.normalize("NFD", mark.lower())
    return any(unicodedata.category(part) != "Mn" for part in lower)
