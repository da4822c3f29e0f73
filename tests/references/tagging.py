"""Tagging in plain Python: windows, where each word is tagged, entities.

Written from the rules, one piece at a time, so that a reader can verify it by
eye. It serves as the oracle of the library.
"""

from references import text as reference_text


def windows(words, tags, entries, max_seq_length):
    """Returns every window of a sentence.

    Args:
        words: Its words; lower-cased here.
        tags: Their tags, of any kind.
        entries: A set of the vocabulary's entries.
        max_seq_length: Longest sequence.

    Returns:
        A list of dictionaries: `tokens`, a list of strings; `labels`, {place
        of a token: tag} of the words that are tagged in this window.
    """
    pieces, first_pieces = [], {}
    for number, word in enumerate(words):
        own = [
            piece
            for part in reference_text.split_words(word, True)
            for piece in reference_text.wordpiece(part, entries)
        ]
        if own:
            first_pieces[len(pieces)] = number
        pieces += own

    room = max_seq_length - 2
    step = -(-room // 2)
    spans = []
    start = 0
    while True:
        spans.append((start, min(start + room, len(pieces))))
        if spans[-1][1] == len(pieces):
            break
        start += step

    made = [
        {"tokens": ["[CLS]", *pieces[start:limit], "[SEP]"], "labels": {}}
        for start, limit in spans
    ]
    for piece, number in first_pieces.items():
        shown = [
            # Most context on the poorer side; of equals the first window.
            (-min(piece - start, limit - 1 - piece), index)
            for index, (start, limit) in enumerate(spans)
            if start <= piece < limit
        ]
        index = min(shown)[1]
        made[index]["labels"][piece - spans[index][0] + 1] = tags[number]
    return made


def find_entities(tags):
    """Returns the entities of one sentence: (type, first word, word after)."""
    entities, start = [], 0
    previous = "O"
    for index, tag in enumerate([*tags, "O"]):
        # As seqeval has it: what does not continue begins anew.
        continues = (
            tag[0] in "IEL" and previous[0] in "BI" and tag[2:] == previous[2:]
        )
        if not continues:
            if previous != "O":
                entities.append((previous[2:], start, index))
            start = index
        previous = tag
    return entities
