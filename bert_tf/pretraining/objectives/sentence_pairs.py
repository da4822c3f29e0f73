"""Cuts documents into pairs of segments for next-sentence prediction.

Devlin et al. 2018, appendix A.2, by the rules of google-research/bert. All
documents and passes are walked in step: the first pair of each, the second,
and so on, every step a few NumPy operations on all of them. A pair is four
numbers, where its segments begin in the corpus' tokens and how long they are;
tokens are not copied here.

Differs from BERT: the original draws all randomness from one stream, so that
every choice depends on all before it. Here each draw is a function of (seed,
pass, document, number of the pair, what is drawn), through Philox, and a
random next sentence comes from the document's own block, a fixed subset of
the corpus (`block_range`). So the examples of a block depend on nothing outside
it, and builders that work through blocks in parallel, with interruptions, or
on a cluster make the same ones. In distribution it is the original's: a
corpus of up to `BLOCK_TOKENS` is one block, and in larger ones each block is a
random sample of thousands of documents.
"""

import dataclasses

import numpy as np

from bert_tf.philox import philox

# Tokens of a block, about 13 MB of English. With its pairs of ten passes it
# takes some 250 MB of memory.
BLOCK_TOKENS = 3 << 20

# Devlin et al. 2018; ALBERT (Lan et al. 2020, section 3.1): two segments in a
# row, swapped or not; RoBERTa (Liu et al. 2019, section 4.2): one segment of as
# many sentences as fit, without a label.
OBJECTIVES = ("next_sentence", "sentence_order", "full_sentences")

# How often the original draws for a document other than the current one.
_NUM_TRIES = 10

# What is drawn: the last word of the Philox counter.
_DRAW_BLOCK = 0
_DRAW_TARGET = 1
_DRAW_PAIR = 2
_DRAW_EXAMPLE = 3
_DRAW_TRIES = 4  # and the next ones: four tries each
_DRAW_TRUNCATION = 16  # and all beyond: 128 tokens each, segments in turn


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairSettings:
    """How documents are cut into pairs.

    Args:
        max_seq_length: L, tokens of an example, [CLS] and [SEP]s counted.
        short_seq_prob: Share of documents, drawn anew in each pass, whose
            pairs are cut for a random shorter length; in [0, 1].
        dupe_factor: Number of passes over the corpus.
        random_seed: In [0, 2**32).
        objective: One of `OBJECTIVES`.

    Raises:
        ValueError: If a value is out of its range; it names the field.
    """

    max_seq_length: int = 128
    short_seq_prob: float = 0.1
    dupe_factor: int = 10
    random_seed: int = 12345
    objective: str = "next_sentence"

    def __post_init__(self):
        for name, is_valid, expected in (
            # [CLS] A [SEP] B [SEP], each segment with a token.
            ("max_seq_length", self.max_seq_length >= 5, "at least 5"),
            ("short_seq_prob", 0 <= self.short_seq_prob <= 1, "in [0, 1]"),
            ("dupe_factor", self.dupe_factor >= 1, "positive"),
            ("random_seed", 0 <= self.random_seed < 2**32, "in [0, 2**32)"),
            (
                "objective",
                self.objective in OBJECTIVES,
                f"one of {', '.join(OBJECTIVES)}",
            ),
        ):
            if not is_valid:
                raise ValueError(
                    f"`{name}` must be {expected}. "
                    f"Received: {name}={getattr(self, name)}."
                )

    @property
    def max_num_tokens(self):
        return self.max_seq_length - 3


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Pairs:
    """Pairs of segments; every field is an array [pairs].

    Args:
        a_start: int64, where segment A begins in the corpus' tokens.
        a_length: int64, its tokens, after truncation.
        b_start: int64, where segment B begins.
        b_length: int64.
        is_random: bool, whether B is a random next sentence, or with the
            objective "sentence_order" the two are swapped.
        document: int64, the document's number in the corpus.
        pass_number: int64.
        ordinal: int64, the number of the pair in its document and pass.
        order: uint64, random: examples sorted by it are shuffled.
        seeds: int64 [pairs, 2], random, of the masking of the example.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    is_random: np.ndarray
    document: np.ndarray
    pass_number: np.ndarray
    ordinal: np.ndarray
    order: np.ndarray
    seeds: np.ndarray

    def __len__(self):
        return len(self.a_start)

    def take(self, indices):
        """Returns the pairs at `indices`, in that order."""
        return Pairs(
            **{
                field.name: getattr(self, field.name)[indices]
                for field in dataclasses.fields(self)
            }
        )

    def shuffled(self):
        """Returns the pairs in the order of the records: by `order`."""
        # The other keys tell apart what has the same 64 bits by chance.
        return self.take(
            np.lexsort(
                (self.ordinal, self.pass_number, self.document, self.order)
            )
        )


def num_blocks(num_tokens, block_tokens=BLOCK_TOKENS):
    """Returns how many blocks a corpus is divided in."""
    return max(1, -(-num_tokens // block_tokens))


def block_bits(document_keys):
    """Returns what chooses the block of each document: uint32 [documents].

    A hash of the document's key, so that the reader of any part of the input
    knows it.
    """
    bits = draw(0, 0, document_keys, 0, _DRAW_BLOCK)
    return bits[0].astype(np.uint32)


def block_range(block, num_blocks):
    """Returns the bits that belong to a block: from the first, below the last.

    Args:
        block: The number of the block.
        num_blocks: How many there are.
    """
    return tuple(
        -(-(number << 32) // num_blocks) for number in (block, block + 1)
    )


def make_pairs(corpus, settings):
    """Cuts the documents of one block into pairs, in every pass.

    Args:
        corpus: The block, a `Corpus`.
        settings: A `PairSettings`.

    Returns:
        `Pairs`, in no particular order.
    """
    seed = settings.random_seed
    walkers = _first_walkers(corpus, settings)
    make_step = (
        _ordered_step if settings.objective == "sentence_order" else _pair_step
    )
    ordinal = 0
    steps = []
    while not steps or len(walkers.document):
        step, next_sentence = make_step(corpus, walkers, ordinal, seed)
        steps.append(step)
        walkers = walkers.advanced(next_sentence)
        ordinal += 1
    pairs = {
        name: np.concatenate([step[name] for step in steps])
        for name in steps[0]
    }
    keys = corpus.document_keys[pairs["document"]]
    pairs |= _truncated(pairs, keys, settings)
    return with_randomness(pairs, corpus, seed)


def with_randomness(pairs, corpus, seed):
    """Returns the `Pairs` of all fields but their own randomness."""
    bits = draw(
        seed,
        pairs["pass_number"],
        corpus.document_keys[pairs["document"]],
        pairs["ordinal"],
        _DRAW_EXAMPLE,
    )
    return Pairs(
        **pairs,
        order=bits[0] << np.uint64(32) | bits[1],
        seeds=np.stack(bits[2:], axis=-1).astype(np.int64),
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Walkers:
    """One walker for each document and pass; arrays [walkers].

    Args:
        document: int64, its number in the corpus.
        pass_number: int64.
        target: int64, how many tokens a pair should have.
        sentence: int64, where the walker stands in the corpus' sentences.
        end: int64, the end of the document's sentences.
    """

    document: np.ndarray
    pass_number: np.ndarray
    target: np.ndarray
    sentence: np.ndarray
    end: np.ndarray

    def advanced(self, sentence):
        """Returns those that are not at their end, at their new places."""
        goes_on = sentence < self.end
        return _Walkers(
            document=self.document[goes_on],
            pass_number=self.pass_number[goes_on],
            target=self.target[goes_on],
            sentence=sentence[goes_on],
            end=self.end[goes_on],
        )


def _first_walkers(corpus, settings):
    num_documents = corpus.num_documents
    document = np.tile(np.arange(num_documents), settings.dupe_factor)
    pass_number = np.repeat(np.arange(settings.dupe_factor), num_documents)
    # Mostly the pairs fill the sequence; the short ones lessen the mismatch
    # between pre-training and fine-tuning. Drawn once for a whole document.
    bits = draw(
        settings.random_seed,
        pass_number,
        corpus.document_keys[document],
        0,
        _DRAW_TARGET,
    )
    longest = settings.max_num_tokens
    is_short = bits[0] < round(settings.short_seq_prob * 2**32)
    walkers = _Walkers(
        document=document,
        pass_number=pass_number,
        target=np.where(is_short, 2 + below(bits[1], longest - 1), longest),
        sentence=corpus.document_starts[document],
        end=corpus.document_starts[document + 1],
    )
    if settings.objective == "sentence_order":
        # One sentence has no order.
        walkers = walkers.advanced(
            np.where(
                walkers.end - walkers.sentence > 1,
                walkers.sentence,
                walkers.end,
            )
        )
    return walkers


def _ordered_step(corpus, walkers, ordinal, seed):
    """Makes the next pair of every walker: two segments in a row, or swapped.

    Differs from ALBERT: a chunk has two sentences at least, and the last one
    takes a sentence that would be left alone; there, a chunk of one sentence
    gets a random second segment and the label of swapped ones.

    Returns:
        As `_pair_step`.
    """
    token_starts = corpus.sentence_starts
    first = walkers.sentence
    keys = corpus.document_keys[walkers.document]
    bits = draw(seed, walkers.pass_number, keys, ordinal, _DRAW_PAIR)
    last = np.searchsorted(token_starts, token_starts[first] + walkers.target)
    last = np.minimum(np.maximum(last, first + 2), walkers.end)
    last = np.where(walkers.end - last == 1, walkers.end, last)
    middle = first + 1 + below(bits[0], last - first - 1)
    starts = token_starts[first], token_starts[middle]
    lengths = starts[1] - starts[0], token_starts[last] - starts[1]
    is_swapped = bits[1] < 2**31
    pairs = {
        "a_start": np.where(is_swapped, starts[1], starts[0]),
        "a_length": np.where(is_swapped, lengths[1], lengths[0]),
        "b_start": np.where(is_swapped, starts[0], starts[1]),
        "b_length": np.where(is_swapped, lengths[0], lengths[1]),
        "is_random": is_swapped,
        "document": walkers.document,
        "pass_number": walkers.pass_number,
        "ordinal": np.full(len(first), ordinal),
    }
    return pairs, last


def _pair_step(corpus, walkers, ordinal, seed):
    """Makes the next pair of every walker.

    Returns:
        The fields of `Pairs` as far as they are known, lengths before
        truncation; and the sentence at which each walker goes on.
    """
    token_starts = corpus.sentence_starts
    document_starts = corpus.document_starts
    first, target = walkers.sentence, walkers.target

    def draw_pair(number):
        keys = corpus.document_keys[walkers.document]
        return draw(seed, walkers.pass_number, keys, ordinal, number)

    def sentences_until(start, num_tokens, end):
        """The end of as many sentences from `start` as make `num_tokens`."""
        reached = np.searchsorted(
            token_starts, token_starts[start] + num_tokens
        )
        return np.minimum(np.maximum(reached, start + 1), end)

    bits = draw_pair(_DRAW_PAIR)
    # The chunk: sentences [first, last), of which A gets some from the front.
    last = sentences_until(first, target, walkers.end)
    count = last - first
    a_end = first + 1 + np.where(count > 1, below(bits[0], count - 1), 0)
    a_length = token_starts[a_end] - token_starts[first]

    is_random = (count == 1) | (bits[1] < 2**31)
    other = below(bits[2], corpus.num_documents)
    # The few that drew their own document try again. Should they do so to the
    # end, they keep it, as the original does: a "random" next sentence of the
    # same document. Where there is only one, trying is no use.
    for attempt in range(1, _NUM_TRIES if corpus.num_documents > 1 else 1):
        again = other == walkers.document
        if not again.any():
            break
        tries = draw_pair(_DRAW_TRIES + attempt // 4)[attempt % 4]
        other = np.where(again, below(tries, corpus.num_documents), other)
    other_size = document_starts[other + 1] - document_starts[other]
    random_first = document_starts[other] + below(bits[3], other_size)
    random_last = sentences_until(
        random_first, target - a_length, document_starts[other + 1]
    )

    b_first = np.where(is_random, random_first, a_end)
    b_last = np.where(is_random, random_last, last)
    pairs = {
        "a_start": token_starts[first],
        "a_length": a_length,
        "b_start": token_starts[b_first],
        "b_length": token_starts[b_last] - token_starts[b_first],
        "is_random": is_random,
        "document": walkers.document,
        "pass_number": walkers.pass_number,
        "ordinal": np.full(len(first), ordinal),
    }
    # The sentences of the chunk that a random B displaced are put back.
    return pairs, np.where(is_random, a_end, last)


def _truncated(pairs, keys, settings):
    """Returns the four numbers of pairs that fit into the sequence.

    The original drops tokens one by one: from the longer segment (from B if
    they are equally long), at its front or its end with equal chances. That
    leaves each segment its length or about half of the room, and drops at the
    front as many tokens as so many coins show heads.
    """
    room = settings.max_num_tokens
    a_length, b_length = pairs["a_length"], pairs["b_length"]
    is_long = a_length + b_length > room
    a_kept = np.minimum(a_length, np.maximum(room - b_length, (room + 1) // 2))
    a_kept = np.where(is_long, a_kept, a_length)
    b_kept = np.where(is_long, room - a_kept, b_length)

    def heads(num_coins, segment):
        """How many of the coins show heads, for each pair: int64 [pairs]."""
        num_draws = -(-num_coins // 128)
        # One row for each draw of 128 bits, of the pairs that need some.
        rows = np.repeat(np.arange(len(num_coins)), num_draws)
        nth = np.arange(len(rows)) - np.repeat(
            np.cumsum(num_draws) - num_draws, num_draws
        )
        words = draw(
            settings.random_seed,
            pairs["pass_number"][rows],
            keys[rows],
            pairs["ordinal"][rows],
            _DRAW_TRUNCATION + 2 * nth + segment,
        )
        totals = np.zeros(len(num_coins), np.int64)
        for number, word in enumerate(words):
            coins = num_coins[rows] - 128 * nth - 32 * number
            used = (1 << np.clip(coins, 0, 32)) - 1
            np.add.at(totals, rows, _count_ones(word.astype(np.int64) & used))
        return totals

    return {
        "a_start": pairs["a_start"] + heads(a_length - a_kept, 0),
        "a_length": a_kept,
        "b_start": pairs["b_start"] + heads(b_length - b_kept, 1),
        "b_length": b_kept,
    }


_ONES_IN_16_BITS = (
    np.unpackbits(np.arange(1 << 16, dtype=np.uint16).view(np.uint8))
    .reshape(1 << 16, 16)
    .sum(axis=1)
)


def _count_ones(words):
    """Returns how many of each word's 32 bits are set."""
    return _ONES_IN_16_BITS[words & 0xFFFF] + _ONES_IN_16_BITS[words >> 16]


def draw(seed, pass_number, document_key, ordinal, number):
    """Returns four words of 32 random bits for each document key.

    Everything that a draw is a function of has bits of its own in the key or
    the counter of Philox, so no two draws share their bits.
    """
    document_key = np.asarray(document_key, np.uint64)
    return philox(
        (
            document_key & np.uint64(0xFFFFFFFF),
            document_key >> np.uint64(32),
            np.asarray(ordinal, np.uint64),
            np.asarray(number, np.uint64),
        ),
        (np.asarray(seed, np.uint64), np.asarray(pass_number, np.uint64)),
    )


def below(bits, limit):
    """Returns int64 in [0, limit) from words of 32 random bits.

    Uneven by at most limit / 2**32, relatively.
    """
    product = bits * np.asarray(limit, np.uint64)
    return (product >> np.uint64(32)).astype(np.int64)
