"""Masked language modelling: what is chosen, and what becomes of it."""

import collections
import functools
import itertools
import types

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from bert_tf import features
from bert_tf.text import masking
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from references import pretraining as reference
from support.masking import VOCABULARY
from support.masking import make_inputs
from support.masking import mask_tokens


def chosen_of(masked, row):
    count = int(masked[features.MASKED_LM_WEIGHTS][row].sum())
    return masked[features.MASKED_LM_POSITIONS][row, :count].tolist()


@pytest.mark.parametrize("whole_words", [False, True])
def test_dtypes_and_shapes(whole_words):
    masked = mask_tokens(
        *make_inputs(3, 13, seed=1),
        max_predictions_per_seq=7,
        do_whole_word_mask=whole_words,
    )
    assert {
        name: (value.dtype.name, value.shape) for name, value in masked.items()
    } == {
        "input_ids": ("int32", (3, 13)),
        "masked_lm_positions": ("int32", (3, 7)),
        "masked_lm_ids": ("int32", (3, 7)),
        "masked_lm_weights": ("float32", (3, 7)),
    }


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("seq_length, most", [(29, 3), (37, 20), (11, 13)])
def test_rules_hold_for_every_example(whole_words, seq_length, most):
    ids, mask, seeds = make_inputs(300, seq_length, seed=2)
    masked = mask_tokens(
        ids,
        mask,
        seeds,
        max_predictions_per_seq=most,
        masked_lm_prob=0.3,
        do_whole_word_mask=whole_words,
    )
    for row in range(len(ids)):
        length = mask[row].sum()
        limit = reference.num_predictions(length, 0.3, most)
        positions = chosen_of(masked, row)
        count = len(positions)
        assert positions == sorted(set(positions))
        labels = masked[features.MASKED_LM_IDS][row]
        assert labels[:count].tolist() == ids[row, positions].tolist()
        assert VOCABULARY.cls_id not in labels
        assert VOCABULARY.sep_id not in labels
        assert all(position < length for position in positions)
        # What is not chosen is untouched; what lies beyond is 0.
        restored = masked[features.INPUT_IDS][row].copy()
        restored[positions] = labels[:count]
        assert restored.tolist() == ids[row].tolist()
        assert masked[features.MASKED_LM_WEIGHTS][row].tolist() == [
            1.0
        ] * count + [0.0] * (most - count)
        assert not masked[features.MASKED_LM_POSITIONS][row, count:].any()
        assert not labels[count:].any()

        tokens = [VOCABULARY.tokens[i] for i in ids[row, :length]]
        words = reference.words_of(tokens, whole_words)
        taken = [word for word in words if set(word) & set(positions)]
        assert sorted(sum(taken, [])) == positions
        # No word that was left out would still have fitted.
        left = [word for word in words if word not in taken]
        assert count <= limit
        assert all(count + len(word) > limit for word in left)


@pytest.mark.parametrize(
    "length, expected",
    # Halves go to the even neighbour: 1.5, 4.5, 7.5, 10.5. 133 is 19.95.
    [(3, 1), (10, 2), (30, 4), (50, 8), (70, 10), (133, 20), (512, 20)],
)
def test_number_of_predictions_is_pythons_round(length, expected):
    assert masking.Rules().num_predictions([length]).numpy() == [expected]
    assert reference.num_predictions(length, 0.15, 20) == expected


def test_number_of_predictions_of_all_lengths():
    lengths = range(3, 600)
    for share in (0.05, 0.15, 0.35):
        rules = masking.Rules(masked_lm_prob=share, max_predictions_per_seq=90)
        assert rules.num_predictions(list(lengths)).numpy().tolist() == [
            reference.num_predictions(length, share, 90) for length in lengths
        ]


def test_words_that_overflow_are_skipped_in_order():
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 6, (500, 19)).astype(np.int32)
    limits = rng.integers(1, 15, 500).astype(np.int32)
    is_taken = masking._take_while_they_fit(
        tf.constant(sizes), tf.constant(limits)
    ).numpy()
    for row in range(len(sizes)):
        words = [[index] * size for index, size in enumerate(sizes[row])]
        taken = reference.take_words(words, limits[row])
        assert np.flatnonzero(is_taken[row]).tolist() == sorted(set(taken))


def test_each_position_is_chosen_equally_often():
    ids, mask, _ = make_inputs(1, 41, seed=4)
    ids[0, 1:], mask[0] = VOCABULARY.index("w3"), 1
    ids[0, 17] = ids[0, 40] = VOCABULARY.sep_id
    num_rows = 20_000
    seeds = np.random.default_rng(5).integers(0, 2**32, (num_rows, 2))
    masked = mask_tokens(
        np.repeat(ids, num_rows, axis=0), np.repeat(mask, num_rows, 0), seeds
    )
    count = masking.Rules().num_predictions([41]).numpy()[0]
    assert (masked[features.MASKED_LM_WEIGHTS].sum(axis=1) == count).all()
    positions = masked[features.MASKED_LM_POSITIONS][:, :count]
    share = np.bincount(positions.ravel(), minlength=41) / num_rows
    candidates = [p for p in range(41) if p not in (0, 17, 40)]
    expected = count / len(candidates)
    error = (expected * (1 - expected) / num_rows) ** 0.5
    np.testing.assert_allclose(share[candidates], expected, atol=4.5 * error)
    assert not share[[0, 17, 40]].any()


@pytest.mark.parametrize("whole_words", [False, True])
def test_80_10_10_and_random_entries_of_the_whole_vocabulary(whole_words):
    ids, mask, seeds = make_inputs(6000, 61, seed=6)
    masked = mask_tokens(ids, mask, seeds, do_whole_word_mask=whole_words)
    rows, slots = np.nonzero(masked[features.MASKED_LM_WEIGHTS])
    positions = masked[features.MASKED_LM_POSITIONS][rows, slots]
    now = masked[features.INPUT_IDS][rows, positions]
    labels = masked[features.MASKED_LM_IDS][rows, slots]
    size = len(VOCABULARY)
    # A random entry is [MASK], or the token itself, once in `size` times.
    expected = {
        "mask": 0.8 + 0.1 / size,
        "same": 0.1 + 0.1 / size,
    }
    received = {
        "mask": (now == VOCABULARY.mask_id).mean(),
        "same": (now == labels).mean(),
    }
    for name, share in expected.items():
        error = (share * (1 - share) / len(now)) ** 0.5
        assert received[name] == pytest.approx(share, abs=4.5 * error), name
    drawn = now[(now != VOCABULARY.mask_id) & (now != labels)]
    counts = np.bincount(drawn, minlength=size)
    counts = np.delete(counts, VOCABULARY.mask_id)
    # The whole vocabulary, [CLS], [SEP] and [PAD] too.
    np.testing.assert_allclose(
        counts, counts.mean(), atol=4.5 * counts.mean() ** 0.5
    )


def test_random_entries_of_roberta_are_no_padding():
    """Its positions are counted by ids."""
    vocabulary = Vocabulary(
        tokens=("<s>", "<pad>", "</s>", "<unk>", *"abc", "<mask>"),
        special=ROBERTA,
        is_wordpiece=False,
    )
    ids = np.full((500, 22), vocabulary.index("b"), np.int32)
    ids[:, 0], ids[:, -1] = vocabulary.cls_id, vocabulary.sep_id
    masked = masking.mask_tokens(
        tf.constant(ids),
        tf.ones_like(ids),
        np.random.default_rng(7).integers(0, 2**32, (500, 2)),
        # Nothing else is asked of it.
        types.SimpleNamespace(vocabulary=vocabulary),
        masking.Rules(masked_lm_prob=1.0),
    )
    counts = np.bincount(masked[features.INPUT_IDS].numpy()[:, 1:-1].ravel())
    assert not counts[:4].any()
    # A tenth of them, of four entries each.
    assert (abs(counts[[4, 6]] - 250) < 4.5 * 250**0.5).all()


def test_electras_rule_masks_85_of_100_and_draws_nothing():
    ids, mask, seeds = make_inputs(3000, 61, seed=21)
    masked = mask_tokens(ids, mask, seeds, masking_rule="electra")
    rows, slots = np.nonzero(masked[features.MASKED_LM_WEIGHTS])
    positions = masked[features.MASKED_LM_POSITIONS][rows, slots]
    now = masked[features.INPUT_IDS][rows, positions]
    labels = masked[features.MASKED_LM_IDS][rows, slots]
    is_mask = now == VOCABULARY.mask_id
    assert (is_mask | (now == labels)).all()
    # Of the tokens, [MASK] itself is none.
    error = (0.85 * 0.15 / len(now)) ** 0.5
    assert is_mask.mean() == pytest.approx(0.85, abs=4.5 * error)
    # The choice is BERT's.
    usual = mask_tokens(ids, mask, seeds)
    np.testing.assert_array_equal(
        masked[features.MASKED_LM_POSITIONS],
        usual[features.MASKED_LM_POSITIONS],
    )


def test_robertas_rule_chooses_15_of_100_of_all_tokens():
    length, num_rows = 29, 20_000
    ids = np.full((1, length + 2), VOCABULARY.index("w3"), np.int32)
    ids[0, [0, 14, length - 1]] = VOCABULARY.cls_id, *[VOCABULARY.sep_id] * 2
    mask = (np.arange(length + 2) < length).astype(np.int32)[None]
    seeds = np.random.default_rng(22).integers(0, 2**32, (num_rows, 2))
    masked = mask_tokens(
        np.repeat(ids, num_rows, axis=0),
        np.repeat(mask, num_rows, axis=0),
        seeds,
        max_predictions_per_seq=6,
        masking_rule="roberta",
    )
    # 4.35 tokens: 5 with a chance of 0.35, else 4.
    counts = masked[features.MASKED_LM_WEIGHTS].sum(axis=1)
    assert set(counts) == {4, 5}
    error = (0.35 * 0.65 / num_rows) ** 0.5
    assert np.mean(counts == 5) == pytest.approx(0.35, abs=4.5 * error)
    # Special tokens as often as the others, and padding never.
    rows, slots = np.nonzero(masked[features.MASKED_LM_WEIGHTS])
    positions = masked[features.MASKED_LM_POSITIONS][rows, slots]
    share = np.bincount(positions, minlength=length + 2) / num_rows
    error = (0.15 * 0.85 / num_rows) ** 0.5
    np.testing.assert_allclose(share[:length], 0.15, atol=4.5 * error)
    assert not share[length:].any()
    # 80/10/10, and none of the first 4 is drawn.
    now = masked[features.INPUT_IDS][rows, positions]
    labels = masked[features.MASKED_LM_IDS][rows, slots]
    assert (labels == ids[0, positions]).all()
    size = len(VOCABULARY) - 4
    is_mask = now == VOCABULARY.mask_id
    for found, share in (
        (is_mask, 0.8 + 0.1 / size),
        (now == labels, 0.1 + 0.1 / size * (labels >= 4).mean()),
    ):
        error = (share * (1 - share) / len(now)) ** 0.5
        assert found.mean() == pytest.approx(share, abs=4.5 * error)
    drawn = now[~is_mask & (now != labels)]
    assert drawn.min() == 5
    assert set(drawn) == set(range(5, len(VOCABULARY)))


def test_a_short_text_may_have_no_mask_by_robertas_rule():
    ids = np.full((400, 3), VOCABULARY.index("w3"), np.int32)
    seeds = np.random.default_rng(23).integers(0, 2**32, (400, 2))
    masked = mask_tokens(ids, np.ones_like(ids), seeds, masking_rule="roberta")
    counts = masked[features.MASKED_LM_WEIGHTS].sum(axis=1)
    assert set(counts) == {0, 1}
    assert counts.mean() == pytest.approx(0.45, abs=0.12)


def test_the_table_of_span_lengths_is_geometric():
    bits = masking.random_words(
        np.arange(50_000), masking.Stream.UNITS, (7, 11)
    )[1]
    lengths = 1 + np.searchsorted(masking._SPAN_ENDS, bits, side="right")
    counts = np.bincount(lengths, minlength=11)[1:]
    shares = 0.2 * 0.8 ** np.arange(10)
    shares /= shares.sum()
    mean = shares @ np.arange(1, 11)
    assert mean == pytest.approx(3.8, abs=0.01)
    assert lengths.mean() == pytest.approx(mean, abs=0.06)
    assert scipy.stats.chisquare(counts, shares * len(bits)).pvalue > 1e-3


def test_example_is_masked_alike_in_any_batch_and_inside_tf_data():
    ids, mask, seeds = make_inputs(7, 23, seed=7)
    whole = mask_tokens(ids, mask, seeds, do_whole_word_mask=True)
    single = mask_tokens(
        ids[4:5], mask[4:5], seeds[4:5], do_whole_word_mask=True
    )
    rules = masking.Rules(do_whole_word_mask=True)
    mapped = (
        tf.data.Dataset.from_tensor_slices((ids, mask, seeds))
        .batch(3)
        .map(
            lambda ids, mask, seeds: masking.mask_tokens(
                ids, mask, seeds, WordpieceSpec(VOCABULARY), rules
            )
        )
        .unbatch()
        .batch(7)
        .get_single_element()
    )
    for name, value in whole.items():
        np.testing.assert_array_equal(mapped[name], value)
        np.testing.assert_array_equal(single[name], value[4:5])


def test_other_seeds_mask_otherwise():
    ids, mask, seeds = make_inputs(50, 31, seed=8)
    first = mask_tokens(ids, mask, seeds)
    for column in (0, 1):
        other_seeds = seeds.copy()
        other_seeds[:, column] ^= 1
        other = mask_tokens(ids, mask, other_seeds)
        differ = (
            first[features.MASKED_LM_POSITIONS]
            != other[features.MASKED_LM_POSITIONS]
        ).any(axis=1)
        assert differ.mean() > 0.5


def test_example_without_candidates_gets_no_prediction():
    ids = np.array(
        [[VOCABULARY.cls_id, VOCABULARY.sep_id, VOCABULARY.sep_id, 0]], np.int32
    )
    mask = np.array([[1, 1, 1, 0]], np.int32)
    for whole_words in (False, True):
        masked = mask_tokens(
            ids, mask, [[1, 2]], do_whole_word_mask=whole_words
        )
        assert masked[features.INPUT_IDS].tolist() == ids.tolist()
        assert not masked[features.MASKED_LM_WEIGHTS].any()


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_predictions_per_seq", 0),
        ("masked_lm_prob", 0.0),
        ("masked_lm_prob", 1.5),
        ("masking_rule", "xlnet"),
    ],
)
def test_bad_rules_name_the_field(field, value):
    with pytest.raises(ValueError, match=f"`{field}`.*{field}={value!r}"):
        masking.Rules(**{field: value})


def test_robertas_rule_takes_no_whole_words():
    with pytest.raises(ValueError, match="`do_span_mask` must not come with"):
        masking.Rules(do_span_mask=True, masking_rule="roberta")


def test_spans_are_whole_words_up_to_the_limit():
    ids, mask, seeds = make_inputs(300, 41, seed=12)
    rules = {"max_predictions_per_seq": 9, "masked_lm_prob": 0.3}
    masked = mask_tokens(ids, mask, seeds, do_span_mask=True, **rules)
    lengths = mask.sum(axis=1)
    cut_words = 0
    differs = []
    for row in range(300):
        tokens = [VOCABULARY.tokens[i] for i in ids[row, : lengths[row]]]
        chosen = set(chosen_of(masked, row))
        limit = reference.num_predictions(lengths[row], 0.3, 9)
        assert len(chosen) == min(limit, lengths[row] - 3)
        # Of the words only one, in the last span, is cut by the limit.
        words = [set(word) for word in reference.words_of(tokens, True)]
        assert set().union(*words) >= chosen
        partly = [word for word in words if word & chosen and word - chosen]
        assert len(partly) <= 1
        cut_words += len(partly)
        now = masked["input_ids"][row]
        is_mask = {p: now[p] == VOCABULARY.mask_id for p in chosen}
        differs += [
            is_mask[p] != is_mask[p + 1] for p in chosen if p + 1 in chosen
        ]
    # One decision for each run of neighbours; a random entry can be [MASK].
    assert np.mean(differs) < 0.015
    assert cut_words < 150


def ngrams_of(tokens, order, lengths, limit):
    """Returns the positions that n-grams choose: google-research/albert's rule.

    Args:
        tokens: Of a sequence.
        order: The numbers of its words as they are tried.
        lengths: The words that each n-gram begins with.
        limit: The most tokens.
    """
    words = reference.words_of(tokens, True)
    seps = np.cumsum([token == "[SEP]" for token in tokens])
    chosen = set()
    for first in order:
        if len(chosen) >= limit:
            break
        ngram = [
            word
            for word in words[first : first + lengths[first]]
            if seps[word[0]] == seps[words[first][0]]
        ]
        while ngram and len(chosen) + sum(map(len, ngram)) > limit:
            ngram.pop()
        positions = {position for word in ngram for position in word}
        if not positions & chosen:
            chosen |= positions
    return sorted(chosen)


def test_ngrams_are_those_of_the_rule_for_the_same_random_bits():
    ids, mask, seeds = make_inputs(300, 41, seed=16)
    rules = {"max_predictions_per_seq": 9, "masked_lm_prob": 0.3}
    masked = mask_tokens(ids, mask, seeds, do_ngram_mask=True, **rules)
    order_bits = masking._random_bits(tf.constant(seeds), 0, 41).numpy()
    key = seeds[:, :1], seeds[:, 1:]
    ngram_bits = masking.random_words(tf.range(41), 2, key)[0].numpy()
    all_lengths = []
    for row in range(300):
        length = mask[row].sum()
        tokens = [VOCABULARY.tokens[i] for i in ids[row, :length]]
        num_words = len(reference.words_of(tokens, True))
        bits = ngram_bits[row, :num_words]
        lengths = 1 + np.searchsorted(np.array([6, 9]) / 11, bits / 2**32)
        expected = ngrams_of(
            tokens,
            np.argsort(-order_bits[row, :num_words]),
            lengths,
            reference.num_predictions(length, 0.3, 9),
        )
        assert chosen_of(masked, row) == expected
        all_lengths += lengths.tolist()
    # 1, 2 and 3 words in proportion to 1, 1/2 and 1/3 (Lan et al. 2020).
    found = np.bincount(all_lengths)[1:]
    expected = np.array([6, 3, 2]) / 11 * len(all_lengths)
    assert scipy.stats.chisquare(found, expected).pvalue > 0.001


def test_ngrams_end_with_what_fits():
    # One word of five pieces, and room for two: nothing can be chosen.
    piece = VOCABULARY.index("##p1")
    word = [VOCABULARY.index("w1"), *[piece] * 4]
    ids = np.array([[VOCABULARY.cls_id, *word, VOCABULARY.sep_id]], np.int32)
    masked = mask_tokens(
        ids,
        np.ones_like(ids),
        np.array([[1, 2]]),
        do_ngram_mask=True,
        masked_lm_prob=0.3,
    )
    assert not masked["masked_lm_weights"].any()
    np.testing.assert_array_equal(masked["input_ids"], ids)


# The first span's length in words, from 1 to 10 (Joshi et al. 2020).
def span_lengths(p):
    """Returns the shares of spans of 1 to 10 words, geometric and cut."""
    return [p * (1 - p) ** n / (1 - (1 - p) ** 10) for n in range(10)]


def probability_of(words, num_words, p=0.2):
    """Returns how likely these words are the ones that spans choose.

    A span begins at a word that is not chosen, each as likely as another, and
    is cut where the sentence ends or as many words are chosen as may be.

    Args:
        words: The numbers of all words that are chosen.
        num_words: Words of the sentence.
        p: Of the geometric distribution of the spans' lengths.
    """
    words = frozenset(words)
    lengths = span_lengths(p)

    @functools.cache
    def finish(chosen):
        if chosen == words:
            return 1.0
        total = 0.0
        for anchor in words - chosen:
            for length, share in enumerate(lengths, 1):
                span = range(anchor, min(anchor + length, num_words))
                new = [word for word in span if word not in chosen]
                after = chosen.union(new[: len(words) - len(chosen)])
                if after <= words:
                    total += share / (num_words - len(chosen)) * finish(after)
        return total

    return finish(frozenset())


def choose_words(num_rows, num_words, num_chosen, seed):
    """Returns int [num_rows, num_chosen]: words that are chosen in spans."""
    ids = np.full((num_rows, num_words + 2), VOCABULARY.index("w3"), np.int32)
    ids[:, 0], ids[:, -1] = VOCABULARY.cls_id, VOCABULARY.sep_id
    masked = mask_tokens(
        ids,
        np.ones_like(ids),
        np.random.default_rng(seed).integers(0, 2**32, (num_rows, 2)),
        do_span_mask=True,
        max_predictions_per_seq=num_chosen,
        masked_lm_prob=1.0,
    )
    assert masked["masked_lm_weights"].all()
    return masked["masked_lm_positions"] - 1


def test_spans_have_geometric_lengths_and_begin_anywhere():
    chosen = choose_words(20_000, 9, 4, seed=13)
    sets = list(itertools.combinations(range(9), 4))
    expected = [probability_of(words, 9) for words in sets]
    assert sum(expected) == pytest.approx(1)
    found = collections.Counter(map(tuple, chosen.tolist()))
    observed = [found[words] for words in sets]
    test = scipy.stats.chisquare(observed, np.multiply(expected, 20_000))
    assert test.pvalue > 0.001

    def log_likelihood(p):
        return np.dot(
            observed, np.log([probability_of(words, 9, p) for words in sets])
        )

    # Nearby values of p, which the test above passes, are less likely by far.
    for p in (0.18, 0.22):
        assert log_likelihood(0.2) - log_likelihood(p) > 5


def test_spans_are_of_ten_words_at_most():
    # Eleven neighbours are more than a span: were lengths not cut at 10, every
    # tenth row would be such.
    num_rows, num_words = 4000, 62
    chosen = choose_words(num_rows, num_words, 11, seed=14)
    # Apart from the sentence's end, it is the same everywhere.
    runs = (chosen[:, -1] - chosen[:, 0] == 10) & (chosen[:, -1] < 61)
    expected = 51 * probability_of(range(20, 31), num_words)
    assert 0.002 < expected < 0.03
    test = scipy.stats.binomtest(int(runs.sum()), num_rows, expected)
    assert test.pvalue > 0.001
