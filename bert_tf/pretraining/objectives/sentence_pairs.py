"""Walks through documents and makes pairs of segments.

Devlin et al. 2018, appendix A.2, by the rules of google-research/bert. All
documents and passes are walked in step: first the first pair of each, then the
second, and so on. Every step is a few NumPy operations on all of them. The
objective defines how a step makes a pair.

Differs from BERT: the original draws from one random stream, so every choice
depends on all earlier ones. Here each draw is a function of its own place
(`draws`), and a random next sentence comes from the document's own block
(`corpus.blocks`). The distribution is the original's.
"""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from bert_tf.pretraining import draws
from bert_tf.pretraining.corpus.blocks import Corpus
from bert_tf.pretraining.objectives import cuts as cuts_lib
from bert_tf.pretraining.settings import Settings
from bert_tf.text.vocabulary import Vocabulary

# Draws made together: enough to make the cost of NumPy's calls negligible.
_DRAWS_AT_ONCE = 4096


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Walkers:
    """One walker for each document and pass; arrays [walkers].

    Args:
        document: int64, its number in the corpus.
        pass_number: int64.
        target: int64, how many tokens a pair should have.
        sentence: int64, the walker's position in the corpus' sentences.
        end: int64, the end of the document's sentences.
    """

    document: np.ndarray
    pass_number: np.ndarray
    target: np.ndarray
    sentence: np.ndarray
    end: np.ndarray

    def take(self, chosen: np.ndarray) -> "Walkers":
        return Walkers(
            **{name: values[chosen] for name, values in vars(self).items()}
        )


def make_pairs(
    corpus: Corpus,
    settings: Settings,
    vocabulary: Vocabulary,
    *,
    step: Callable,
    min_sentences: int = 1,
) -> tuple[Corpus, cuts_lib.Cuts]:
    """Cuts the documents of one block into pairs, in every pass.

    Args:
        corpus: The block.
        settings: The settings.
        vocabulary: Its special tokens determine how much room a pair has.
        step: `step(corpus, walkers, draw)` makes the next pair of every
            walker; `draw(what)` returns their draws. It returns the two
            segments as `segment` does, the label, and the sentence at which
            each walker continues.
        min_sentences: Documents with fewer sentences are skipped.

    Returns:
        The block, and its `Cuts`, in no particular order.
    """
    seed = settings.random_seed
    room = settings.max_seq_length - vocabulary.special.count(2)
    walkers = _first_walkers(corpus, settings, room)
    walkers = walkers.take(walkers.end - walkers.sentence >= min_sentences)
    ordinal = 0
    ahead = _DrawsAhead(corpus, walkers, seed, ordinal)
    parts: list[dict[str, np.ndarray]] = []
    while not parts or len(walkers.document):
        if ordinal == ahead.end:
            ahead = _DrawsAhead(corpus, walkers, seed, ordinal)
        draw = functools.partial(ahead.draw, ordinal)
        a, b, label, sentence = step(corpus, walkers, draw)
        parts.append(
            {
                "a_start": a[0],
                "a_length": a[1],
                "b_start": b[0],
                "b_length": b[1],
                "label": label,
                "document": walkers.document,
                "pass_number": walkers.pass_number,
                "ordinal": np.full(len(label), ordinal),
            }
        )
        walkers = dataclasses.replace(walkers, sentence=sentence)
        left = sentence < walkers.end
        walkers = walkers.take(left)
        ahead.take(left)
        ordinal += 1
    pairs = cuts_lib.concatenate(parts)
    keys = corpus.document_keys[pairs["document"]]
    pairs |= _truncated(pairs, keys, settings, room)
    return corpus, cuts_lib.with_randomness(pairs, corpus, seed)


class _DrawsAhead:
    """The draws of the walkers' next steps.

    With few walkers, the draws of many steps are made at once: a handful of
    draws takes as long as hundreds, and a long document has thousands of
    pairs.

    Args:
        corpus: The block.
        walkers: The `Walkers`.
        seed: In [0, 2**32).
        ordinal: The number of the first step.

    Attributes:
        end: The number of the first step without draws here.
    """

    def __init__(
        self, corpus: Corpus, walkers: Walkers, seed: int, ordinal: int
    ) -> None:
        num_walkers = len(walkers.document)
        self._first = ordinal
        self.end = ordinal + max(1, _DRAWS_AT_ONCE // max(1, num_walkers))
        self._draw = functools.partial(
            draws.draw,
            seed=seed,
            document_key=corpus.document_keys[walkers.document],
            pass_number=walkers.pass_number,
            ordinal=np.arange(ordinal, self.end)[:, None],
        )
        self._columns = np.arange(num_walkers)
        # {what: four words, each an array [steps, walkers]}
        self._words: dict[int, tuple[np.ndarray, ...]] = {}

    def draw(self, ordinal: int, what: int) -> tuple[np.ndarray, ...]:
        """Returns the words of `draws.draw` for each remaining walker."""
        if what not in self._words:
            self._words[what] = self._draw(what)
        row = ordinal - self._first
        return tuple(word[row][self._columns] for word in self._words[what])

    def take(self, chosen: np.ndarray) -> None:
        """Keeps only the chosen walkers, as `Walkers.take` does."""
        self._columns = self._columns[chosen]


def segment(
    corpus: Corpus, first: np.ndarray, last: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns (start, length) in tokens of the sentences [first, last)."""
    start = corpus.sentence_starts[first]
    return start, corpus.sentence_starts[last] - start


def sentences_until(
    corpus: Corpus,
    first: np.ndarray,
    num_tokens: np.ndarray,
    end: np.ndarray,
    fewest: int = 1,
) -> np.ndarray:
    """Returns where the sentences from `first` on reach `num_tokens` tokens.

    At least `fewest` sentences are taken, unless `end` comes first.
    """
    starts = corpus.sentence_starts
    reached = np.searchsorted(starts, starts[first] + num_tokens)
    return np.minimum(np.maximum(reached, first + fewest), end)


def _first_walkers(corpus, settings, room):
    """Returns the walkers at the starts of their documents."""
    num_documents = corpus.num_documents
    document = np.tile(np.arange(num_documents), settings.dupe_factor)
    pass_number = np.repeat(np.arange(settings.dupe_factor), num_documents)
    # Most pairs fill the sequence. Short ones lessen the mismatch between
    # pre-training and fine-tuning. The length is drawn once per document.
    bits = draws.draw(
        draws.TARGET,
        settings.random_seed,
        corpus.document_keys[document],
        pass_number,
    )
    is_short = draws.happens(bits[0], settings.short_seq_prob)
    short = 2 + draws.below(bits[1], room - 1)
    return Walkers(
        document=document,
        pass_number=pass_number,
        target=np.where(is_short, short, room),
        sentence=corpus.document_starts[document],
        end=corpus.document_starts[document + 1],
    )


def _truncated(pairs, keys, settings, room):
    """Returns the starts and lengths of pairs, truncated to `room` tokens.

    The original drops tokens one by one: from the longer segment (from B if
    they are equally long), at its front or its end with equal probability.
    Each segment thus keeps its length or about half of the room. One coin is
    tossed for each dropped token; the heads are dropped at the front.
    """
    a_length, b_length = pairs["a_length"], pairs["b_length"]
    is_long = a_length + b_length > room
    a_kept = np.minimum(a_length, np.maximum(room - b_length, (room + 1) // 2))
    a_kept = np.where(is_long, a_kept, a_length)
    b_kept = np.where(is_long, room - a_kept, b_length)

    def heads(num_coins, segment_id):
        """Returns the number of heads for each pair: int64 [pairs]."""
        num_draws = -(-num_coins // 128)
        # The pair that each draw of 128 bits is for.
        pair = np.repeat(np.arange(len(num_coins)), num_draws)
        nth = np.arange(len(pair)) - np.repeat(
            np.cumsum(num_draws) - num_draws, num_draws
        )
        words = draws.draw(
            draws.TRUNCATION + 2 * nth + segment_id,
            settings.random_seed,
            keys[pair],
            pairs["pass_number"][pair],
            pairs["ordinal"][pair],
        )
        totals = np.zeros(len(num_coins), np.int64)
        for number, word in enumerate(words):
            coins = num_coins[pair] - 128 * nth - 32 * number
            used = (1 << np.clip(coins, 0, 32)) - 1
            np.add.at(totals, pair, _count_ones(word.astype(np.int64) & used))
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
