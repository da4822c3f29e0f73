"""An oracle of the pre-training data, in loops that a reader can verify.

Written from the paper's description and google-research/bert's rules: one
stream of Python's `random`, tokens as strings, one example after another.
Nothing here is shared with the library.
"""

import dataclasses


@dataclasses.dataclass
class Example:
    """One example: tokens before masking, and what was done to them."""

    tokens: list
    segment_ids: list
    is_random: bool
    masked_tokens: list = None
    positions: list = None
    labels: list = None


def make_examples(documents, vocabulary, rng, **settings):
    """Returns the examples of all passes over `documents`, shuffled.

    Args:
        documents: Lists of sentences, each a list of tokens.
        vocabulary: All tokens.
        rng: A `random.Random`.
        **settings: max_seq_length, dupe_factor, short_seq_prob,
            masked_lm_prob, max_predictions_per_seq, do_whole_word_mask.
    """
    documents = [document for document in documents if document]
    rng.shuffle(documents)
    examples = []
    for _ in range(settings["dupe_factor"]):
        for index in range(len(documents)):
            examples += document_examples(
                documents,
                index,
                rng,
                settings["max_seq_length"],
                settings["short_seq_prob"],
            )
    for example in examples:
        mask(
            example,
            vocabulary,
            rng,
            settings["masked_lm_prob"],
            settings["max_predictions_per_seq"],
            settings["do_whole_word_mask"],
        )
    rng.shuffle(examples)
    return examples


def document_examples(documents, index, rng, max_seq_length, short_seq_prob):
    document = documents[index]
    room = max_seq_length - 3
    target = room
    if rng.random() < short_seq_prob:
        target = rng.randint(2, room)
    examples = []
    chunk = []
    place = 0
    while place < len(document):
        chunk.append(document[place])
        is_last = place == len(document) - 1
        if is_last or sum(map(len, chunk)) >= target:
            a_end = 1
            if len(chunk) >= 2:
                a_end = rng.randint(1, len(chunk) - 1)
            a = sum(chunk[:a_end], [])
            is_random = len(chunk) == 1 or rng.random() < 0.5
            if is_random:
                b = random_segment(documents, index, rng, target - len(a))
                place -= len(chunk) - a_end
            else:
                b = sum(chunk[a_end:], [])
            a, b = truncate(list(a), list(b), room, rng)
            examples.append(
                Example(
                    tokens=["[CLS]", *a, "[SEP]", *b, "[SEP]"],
                    segment_ids=[0] * (len(a) + 2) + [1] * (len(b) + 1),
                    is_random=is_random,
                )
            )
            chunk = []
        place += 1
    return examples


def random_segment(documents, index, rng, target):
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != index:
            break
    segment = []
    start = rng.randint(0, len(documents[other]) - 1)
    for sentence in documents[other][start:]:
        segment += sentence
        if len(segment) >= target:
            break
    return segment


def truncate(a, b, room, rng):
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        if rng.random() < 0.5:
            del longer[0]
        else:
            longer.pop()
    return a, b


def num_predictions(length, masked_lm_prob, max_predictions):
    return min(max_predictions, max(1, int(round(length * masked_lm_prob))))


def words_of(tokens, do_whole_word_mask):
    """Returns the candidates: lists of positions that are masked together.

    A "##" piece that opens a segment is a word of its own.
    """
    words = []
    for position, token in enumerate(tokens):
        if token in ("[CLS]", "[SEP]"):
            continue
        continues = (
            do_whole_word_mask
            and token.startswith("##")
            and tokens[position - 1] not in ("[CLS]", "[SEP]")
        )
        if continues:
            words[-1].append(position)
        else:
            words.append([position])
    return words


def take_words(words, limit):
    """Returns the positions of the words taken, in the order given."""
    taken = []
    for word in words:
        if len(taken) >= limit:
            break
        if len(taken) + len(word) <= limit:
            taken += word
    return taken


def mask(
    example,
    vocabulary,
    rng,
    masked_lm_prob,
    max_predictions,
    do_whole_word_mask,
):
    words = words_of(example.tokens, do_whole_word_mask)
    rng.shuffle(words)
    limit = num_predictions(
        len(example.tokens), masked_lm_prob, max_predictions
    )
    example.masked_tokens = list(example.tokens)
    example.positions = sorted(take_words(words, limit))
    example.labels = [example.tokens[p] for p in example.positions]
    for position in example.positions:
        if rng.random() < 0.8:
            example.masked_tokens[position] = "[MASK]"
        elif rng.random() < 0.5:
            pass
        else:
            example.masked_tokens[position] = rng.choice(vocabulary)
