"""Pairs of segments: the rules, the randomness, the statistics."""

import random

import numpy as np
import pytest

from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.objectives import next_sentence
from bert_tf.pretraining.objectives import sentence_pairs
from bert_tf.pretraining.settings import Settings
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import pretraining as reference
from support.pretraining_data import make_corpus

VOCABULARY = Vocabulary(tokens=SPECIAL_TOKENS)


def all_pairs(corpus, settings):
    _, pairs = next_sentence.OBJECTIVE.cut(corpus, settings, VOCABULARY)
    return pairs


def rows_of(pairs):
    """Returns the pairs as a sorted list of tuples."""
    columns = [
        getattr(pairs, name).tolist()
        for name in (
            "document",
            "pass_number",
            "ordinal",
            "a_start",
            "a_length",
            "b_start",
            "b_length",
            "label",
            "order",
            "seeds",
        )
    ]
    return sorted(zip(*columns))


def test_every_pair_follows_the_rules(monkeypatch):
    """Walks every document again, in loops, along the choices made."""
    monkeypatch.setattr(
        sentence_pairs, "_truncated", lambda pairs, keys, settings, room: {}
    )
    corpus = make_corpus(37, seed=1)
    settings = Settings(max_seq_length=33, short_seq_prob=0.0, dupe_factor=3)
    starts = corpus.sentence_starts.tolist()
    bounds = corpus.document_starts.tolist()
    document_of = np.repeat(np.arange(37), np.diff(bounds)).tolist()
    place = {}
    for row in rows_of(all_pairs(corpus, settings)):
        document, pass_number, ordinal, a, a_length, b, b_length, label = row[
            :8
        ]
        first = place.get((document, pass_number), bounds[document])
        assert a == starts[first]
        # The chunk: up to the target of 30 tokens, or the document's end.
        last = first + 1
        while last < bounds[document + 1] and starts[last] - a < 30:
            last += 1
        a_end = starts.index(a + a_length)
        assert first < a_end <= max(first + 1, last - 1)
        if label:
            b_first = starts.index(b)
            other = document_of[b_first]
            assert other != document
            b_last = b_first + 1
            while (
                b_last < bounds[other + 1]
                and starts[b_last] - b < 30 - a_length
            ):
                b_last += 1
            assert b_length == starts[b_last] - b
            first = a_end
        else:
            assert last - first > 1
            assert (b, b + b_length) == (starts[a_end], starts[last])
            first = last
        place[document, pass_number] = first
    assert place == {
        (document, pass_number): bounds[document + 1]
        for document in range(37)
        for pass_number in range(3)
    }


@pytest.mark.parametrize("room", [2, 7, 30])
def test_truncation_leaves_what_dropping_one_by_one_leaves(room):
    settings = Settings(max_seq_length=room + 3)
    lengths = [(a, b) for a in range(1, 50) for b in range(1, 50)]
    a_length, b_length = np.array(lengths).T
    zero = np.zeros(len(lengths), np.int64)
    pairs = {
        "a_start": zero,
        "a_length": a_length,
        "b_start": zero,
        "b_length": b_length,
        "pass_number": zero,
        "ordinal": np.arange(len(lengths)),
    }
    kept = sentence_pairs._truncated(pairs, zero, settings, room)
    rng = random.Random(1)
    for row, (a, b) in enumerate(lengths):
        expected = reference.truncate([0] * a, [0] * b, room, rng)
        assert kept["a_length"][row] == len(expected[0])
        assert kept["b_length"][row] == len(expected[1])
        assert 0 <= kept["a_start"][row] <= a - len(expected[0])
        assert 0 <= kept["b_start"][row] <= b - len(expected[1])


def test_truncation_drops_at_front_and_end_with_equal_chances():
    num_pairs, num_dropped = 4000, 333
    count = np.full(num_pairs, 1)
    pairs = {
        "a_start": 0 * count,
        "a_length": (num_dropped + 9) * count,
        "b_start": 0 * count,
        "b_length": count,
        "pass_number": 0 * count,
        "ordinal": np.arange(num_pairs),
    }
    kept = sentence_pairs._truncated(
        pairs, 0 * count, Settings(max_seq_length=13), 10
    )
    assert (kept["a_length"] == 9).all()
    # A binomial: its mean, and its variance.
    dropped_at_front = kept["a_start"]
    assert dropped_at_front.mean() == pytest.approx(
        num_dropped / 2, abs=4.5 * (num_dropped / 4 / num_pairs) ** 0.5
    )
    assert dropped_at_front.var() == pytest.approx(num_dropped / 4, rel=0.1)
    assert not kept["b_start"].any()


def test_segments_stay_within_their_document_and_fit():
    corpus = make_corpus(50, seed=2, max_tokens=40)
    pairs = all_pairs(corpus, Settings(max_seq_length=24, dupe_factor=4))
    assert (pairs.a_length >= 1).all()
    assert (pairs.b_length >= 1).all()
    assert (pairs.a_length + pairs.b_length <= 21).all()
    edges = corpus.sentence_starts[corpus.document_starts]

    def document_at(token):
        return np.searchsorted(edges, token, side="right") - 1

    a_end = pairs.a_start + pairs.a_length - 1
    b_end = pairs.b_start + pairs.b_length - 1
    np.testing.assert_array_equal(document_at(pairs.a_start), pairs.document)
    np.testing.assert_array_equal(document_at(a_end), pairs.document)
    of_b = document_at(pairs.b_start)
    np.testing.assert_array_equal(document_at(b_end), of_b)
    np.testing.assert_array_equal(of_b != pairs.document, pairs.label)


def test_one_document_is_its_own_random_next_sentence():
    corpus = make_corpus(1, seed=3, max_sentences=200)
    pairs = all_pairs(corpus, Settings(max_seq_length=40))
    assert 0.3 < pairs.label.mean() < 0.7
    assert (pairs.document == 0).all()


def test_no_document_makes_no_pair():
    pairs = all_pairs(make_corpus(0, seed=3), Settings())
    assert len(pairs.shuffled()) == 0


def test_blocks_are_a_hash_of_the_key_and_small_corpora_are_one():
    assert blocks.num_blocks(3, block_tokens=10) == 1
    assert blocks.num_blocks(39, block_tokens=10) == 4
    assert blocks.block_range(0, 1) == (0, 1 << 32)
    ranges = [blocks.block_range(block, 7) for block in range(7)]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 1 << 32
    assert all(a[1] == b[0] for a, b in zip(ranges, ranges[1:]))
    keys = np.arange(3000, dtype=np.uint64) << np.uint64(20)
    assert [blocks.block_of(a, 7) for a, _ in ranges] == list(range(7))
    bits = blocks.block_bits(keys)
    counts = [((bits >= a) & (bits < b)).sum() for a, b in ranges]
    assert sum(counts) == 3000
    assert min(counts) > 340
    assert max(counts) < 520
    np.testing.assert_array_equal(blocks.block_bits(keys[1500:]), bits[1500:])


def test_same_seed_same_pairs_other_seed_others():
    corpus = make_corpus(20, seed=5)
    first = rows_of(all_pairs(corpus, Settings(random_seed=7)))
    assert rows_of(all_pairs(corpus, Settings(random_seed=7))) == first
    other = rows_of(all_pairs(corpus, Settings(random_seed=8)))
    assert not {row[-2] for row in first} & {row[-2] for row in other}


def test_a_pass_does_not_depend_on_the_number_of_passes():
    corpus = make_corpus(20, seed=6)
    few = rows_of(all_pairs(corpus, Settings(dupe_factor=2)))
    many = rows_of(all_pairs(corpus, Settings(dupe_factor=5)))
    assert [row for row in many if row[1] < 2] == few
    passes = [[row[3:9] for row in many if row[1] == n] for n in range(5)]
    assert passes[0] != passes[1]


def test_draws_of_a_long_document_are_made_together(monkeypatch):
    """One call of NumPy's for each pair took a millisecond."""
    corpus = make_corpus(2, seed=8, max_sentences=4000)
    settings = Settings(max_seq_length=32)
    num_calls = 0
    draw = sentence_pairs.draws.draw

    def counted(*args, **kwargs):
        nonlocal num_calls
        num_calls += 1
        return draw(*args, **kwargs)

    monkeypatch.setattr(sentence_pairs.draws, "draw", counted)
    pairs = rows_of(all_pairs(corpus, settings))
    assert num_calls < 100 < max(row[2] for row in pairs)
    monkeypatch.setattr(sentence_pairs, "_DRAWS_AT_ONCE", 1)
    assert rows_of(all_pairs(corpus, settings)) == pairs


def test_shuffled_is_sorted_by_order():
    pairs = all_pairs(make_corpus(20, seed=7), Settings()).shuffled()
    assert (np.diff(pairs.order.astype(object)) > 0).all()
    # Neighbours are of different documents, mostly.
    assert (np.diff(pairs.document) != 0).mean() > 0.8


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_seq_length", 4),
        ("short_seq_prob", -0.1),
        ("short_seq_prob", 1.1),
        ("dupe_factor", 0),
        ("random_seed", -1),
        ("random_seed", 2**32),
    ],
)
def test_bad_settings_name_the_field(field, value):
    with pytest.raises(ValueError, match=f"{field}\\b.*{field}={value}"):
        Settings(**{field: value})
