"""The tokenizer of google-research/bert in plain Python, from its rules.

Written from the rules, one character at a time, so that a reader can verify
it by eye. It serves as the oracle of the tokenizer in the graph.
"""

import unicodedata

_CJK_RANGES = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_cjk(character):
    code_point = ord(character)
    return any(first <= code_point <= last for first, last in _CJK_RANGES)


def is_punctuation(character):
    if character.isascii():
        return character.isprintable() and not (
            character.isalnum() or character == " "
        )
    return unicodedata.category(character).startswith("P")


def clean(text):
    """Drops NUL, U+FFFD and controls; white space becomes a space."""
    kept = []
    for character in text:
        category = unicodedata.category(character)
        if character in " \t\n\r" or category == "Zs":
            kept.append(" ")
        elif character != "\ufffd" and category not in ("Cc", "Cf"):
            kept.append(character)
    return "".join(kept)


def split_words(text, do_lower_case):
    """Returns the words of a str, or of bytes in nearly UTF-8."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "ignore")
    text = "".join(
        f" {character} " if is_cjk(character) else character
        for character in clean(text)
    )
    words = []
    for token in text.split():
        if do_lower_case:
            token = unicodedata.normalize("NFD", token.lower())
            token = "".join(
                character
                for character in token
                if unicodedata.category(character) != "Mn"
            )
        word = ""
        for character in token:
            if is_punctuation(character):
                words += [word, character]
                word = ""
            else:
                word += character
        words.append(word)
    return [word for word in words if word]


def wordpiece(word, tokens, max_chars=200):
    """Returns the longest pieces from the left, or ["[UNK]"].

    Args:
        tokens: A set of the vocabulary's entries.
    """
    if len(word) > max_chars:
        return ["[UNK]"]
    pieces = []
    start = 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in tokens:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def tokenize(text, tokens, do_lower_case):
    """Returns the pieces of every word of the text."""
    return [
        wordpiece(word, tokens) for word in split_words(text, do_lower_case)
    ]


def truncate_pair(a, b, max_tokens):
    """Returns the lists without what the longer loses at its end; tie: b."""
    a, b = list(a), list(b)
    while len(a) + len(b) > max_tokens:
        longer = a if len(a) > len(b) else b
        longer.pop()
    return a, b


def learn_pieces(word_counts, num_pieces):
    """Merges the most frequent pair of neighbours, counting anew each time.

    Returns the pieces of two and more characters in the order learned, and
    stops where no pair occurs twice.
    """
    spelled = {
        word: [word[0], *("##" + character for character in word[1:])]
        for word in word_counts
    }
    learned = []
    while len(learned) < num_pieces:
        counts = {}
        for word, pieces in spelled.items():
            for pair in zip(pieces, pieces[1:]):
                counts[pair] = counts.get(pair, 0) + word_counts[word]
        if not counts:
            break
        left, right = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[left, right] < 2:
            break
        merged = left + right[2:]
        if merged not in learned:
            learned.append(merged)
        for pieces in spelled.values():
            for position in range(len(pieces) - 1):
                if pieces[position : position + 2] == [left, right]:
                    pieces[position : position + 2] = [merged]
    return learned
