"""Chooses and corrupts the tokens that masked language modelling predicts.

Follows Devlin et al. 2018, section 3.1 and appendix A.1, and the rules of
google-research/bert. One batched TensorFlow function serves the builder of
records, which calls it eagerly, and dynamic masking inside tf.data. Its
randomness is a function of one seed per example: an example is masked the same
way in every batch, order and process.

Letters: B batch, L sequence length, P predictions per sequence, K words that
are looked at.
"""

import enum
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.philox import philox
from bert_tf.text.masking_rules import MASKING_RULES
from bert_tf.text.masking_rules import Rules
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary

# Thresholds on 32 random bits, by the masking rule: below the first a chosen
# token becomes [MASK], below the second it stays, above a random entry.
_ACTIONS = {
    rule: (round(masked * 2**32), round((masked + kept) * 2**32))
    for rule, (masked, kept) in MASKING_RULES.items()
}
# RoBERTa's random entries are never the first ones, its special tokens.
_NUM_ROBERTA_SPECIAL = 4


# The lengths of spans: thresholds on 32 random bits, from 1 word to 10.
_SPAN_WEIGHTS = 0.2 * 0.8 ** np.arange(10)
_SPAN_ENDS = np.round(
    np.cumsum(_SPAN_WEIGHTS / _SPAN_WEIGHTS.sum())[:-1] * 2**32
).astype(np.int64)
_MAX_SPAN_DRAWS = 10_000
# Likewise for n-grams, in proportion to 1, 1/2 and 1/3.
_NGRAM_ENDS = np.round(np.array([6, 9]) / 11 * 2**32).astype(np.int64)


class Stream(enum.IntEnum):
    """What random bits are used for: every use has its own stream.

    Records and resumed runs depend on the numbers: never change one.
    """

    # The order in which tokens, or words, are tried.
    ORDER = 0
    # What becomes of a chosen token, and the random entry.
    PREDICTIONS = 1
    # Where spans are and how long; how long n-grams are.
    UNITS = 2
    # The seeds of the sequences of packed rows.
    SEQUENCES = 3
    # What ELECTRA's generator samples.
    REPLACEMENTS = 4
    # How many tokens RoBERTa's rule chooses.
    NUM_CHOSEN = 5


def mask_tokens(
    input_ids: tf.Tensor,
    input_mask: tf.Tensor,
    seeds: tf.Tensor,
    tokenizer: Spec,
    rules: Rules,
) -> dict[str, tf.Tensor]:
    """Chooses tokens of each sequence, and corrupts them.

    Every token but [CLS], [SEP] and padding is a candidate. They are shuffled
    and taken in that order until `rules.num_predictions` are chosen; with
    whole words, a word that would exceed that number is passed over. Each
    chosen token becomes [MASK] with probability 0.8, stays with 0.1, and
    becomes a random entry with 0.1, independently of the others.

    With spans, random words that are not chosen yet begin spans of random
    lengths until the limit is reached. The last span is cut at the limit, and
    none extends beyond a [SEP].

    With n-grams, every word, in random order, begins one. The n-gram is
    shortened to the words that fit below the limit and before the next [SEP].
    It is passed over if none fits or one of its words is chosen already.

    `Rules.masking_rule` has two other rules. ELECTRA's differs from the
    original, which may draw a position twice: here none is.

    Differs from BERT: with whole words, a piece right after [CLS] or [SEP]
    whose word was cut in two by truncation is a word of its own. The original
    joins it to the last word before the [SEP].

    Args:
        input_ids: int32 [B, L].
        input_mask: int32 [B, L]: 1 on tokens and 0 on padding.
        seeds: int64 [B, 2], each value in `[0, 2**32)`. Together with the
            tokens they determine the choice.
        tokenizer: The spec of the tokenizer. Random entries are drawn from its
            whole vocabulary, for RoBERTa from what follows the first special
            tokens.
        rules: The `Rules`.

    Returns:
        A dictionary: `input_ids` int32 [B, L], corrupted;
        `masked_lm_positions` int32 [B, P], ascending; `masked_lm_ids` int32
        [B, P], the original ids; `masked_lm_weights` float32 [B, P], 1 on
        predictions. Beyond the chosen tokens these three are 0.
    """
    vocabulary = tokenizer.vocabulary
    num_predictions = rules.max_predictions_per_seq
    order_bits = _random_bits(seeds, Stream.ORDER, tf.shape(input_ids)[1])
    # Each prediction has bits for its action and bits for its random entry.
    prediction_bits = _random_bits(
        seeds, Stream.PREDICTIONS, 2 * num_predictions
    )
    action_bits, entry_bits = prediction_bits[:, ::2], prediction_bits[:, 1::2]
    if rules.chooses_all:
        is_chosen = _choose_of_all(input_mask, order_bits, seeds, rules)
    elif rules.do_span_mask:
        is_chosen = _choose_spans(
            input_ids, input_mask, seeds, tokenizer, rules
        )
    elif rules.do_ngram_mask:
        is_chosen = _choose_ngrams(
            input_ids, input_mask, order_bits, seeds, tokenizer, rules
        )
    else:
        is_chosen = _choose(input_ids, input_mask, order_bits, tokenizer, rules)
    places = tf.cast(tf.where(is_chosen), tf.int32)
    ranks = tf.cumsum(tf.cast(is_chosen, tf.int32), axis=1) - 1
    slots = tf.stack([places[:, 0], tf.gather_nd(ranks, places)], axis=-1)
    labels = tf.gather_nd(input_ids, places)

    action_slots = slots
    if rules.do_span_mask:
        # Neighbours share one decision, by the number of their run.
        starts_run = is_chosen & ~tf.pad(is_chosen[:, :-1], [[0, 0], [1, 0]])
        runs = tf.cumsum(tf.cast(starts_run, tf.int32), axis=1) - 1
        action_slots = tf.stack(
            [places[:, 0], tf.gather_nd(runs, places)], axis=-1
        )
    actions = tf.gather_nd(action_bits, action_slots)
    first = first_entry(vocabulary)
    if rules.chooses_all:
        first = max(first, _NUM_ROBERTA_SPECIAL)
    entries = first + _scaled(
        tf.gather_nd(entry_bits, slots), len(vocabulary) - first
    )
    mask_below, keep_below = _ACTIONS[rules.masking_rule]
    replacements = tf.where(
        actions < mask_below,
        vocabulary.mask_id,
        tf.where(actions < keep_below, labels, entries),
    )

    return corrupted(input_ids, places, replacements, slots, labels, rules)


def random_words(
    number: tf.Tensor, stream: tf.Tensor, key: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Returns random bits as a function of integers in `[0, 2**32)`.

    Args:
        number: An integer, or a tensor of any integer type; broadcasts, as
            the others do.
        stream: Likewise: a `Stream`, or any integer if the keys are for another
            use.
        key: Two integers or tensors, likewise.

    Returns:
        Four int64 tensors, each of 32 random bits.
    """
    number, stream, key_0, key_1 = (
        tf.cast(value, tf.uint64) for value in (number, stream, *key)
    )
    zero = tf.constant(0, tf.uint64)
    words = philox(
        (number, stream, zero, zero),
        (key_0, key_1),
        right_shift=tf.bitwise.right_shift,
    )
    return [tf.cast(word, tf.int64) for word in words]


def corrupted(
    input_ids: tf.Tensor,
    places: tf.Tensor,
    replacements: tf.Tensor,
    slots: tf.Tensor,
    labels: tf.Tensor,
    rules: Rules,
) -> dict[str, tf.Tensor]:
    """Returns what `mask_tokens` does, for N chosen tokens.

    Args:
        input_ids: int32 [B, L].
        places: int32 [N, 2]: row and position of each token.
        replacements: int32 [N]: what each becomes.
        slots: int32 [N, 2]: row and number of each prediction.
        labels: int32 [N]: the original ids.
        rules: The `Rules`.
    """
    shape = tf.stack([tf.shape(input_ids)[0], rules.max_predictions_per_seq])
    return {
        features.INPUT_IDS: tf.tensor_scatter_nd_update(
            input_ids, places, replacements
        ),
        features.MASKED_LM_POSITIONS: tf.scatter_nd(slots, places[:, 1], shape),
        features.MASKED_LM_IDS: tf.scatter_nd(slots, labels, shape),
        features.MASKED_LM_WEIGHTS: tf.scatter_nd(
            slots, tf.ones_like(labels, tf.float32), shape
        ),
    }


def _choose(input_ids, input_mask, order_bits, tokenizer, rules):
    """Returns bool [B, L]: the tokens that are to be predicted.

    Words are tried in the order of `order_bits`, int64 [B, L].
    """
    is_special = _is_special(input_ids, tokenizer.vocabulary)
    is_candidate = (input_mask > 0) & ~is_special
    seq_length = tf.shape(input_ids)[1]
    if rules.do_whole_word_mask:
        word_index = _word_index(input_ids, is_candidate, is_special, tokenizer)
        word_sizes = _count_by_word(is_candidate, word_index)
        num_looked_at = seq_length
    else:
        # Every candidate is a word of one token, numbered by its position.
        word_sizes = tf.cast(is_candidate, tf.int32)
        num_looked_at = tf.minimum(rules.max_predictions_per_seq, seq_length)

    # Shuffle by random keys; numbers without a word come last.
    shuffle_keys = tf.where(word_sizes > 0, order_bits, tf.int64.min)
    order = tf.math.top_k(shuffle_keys, num_looked_at).indices
    sizes_in_order = tf.gather(word_sizes, order, batch_dims=1)
    limit = rules.num_predictions(tf.reduce_sum(input_mask, axis=1))
    is_taken = _take_while_they_fit(sizes_in_order, limit)

    rows = tf.zeros_like(order) + tf.range(tf.shape(order)[0])[:, None]
    taken_words = tf.scatter_nd(
        tf.stack([rows, order], axis=-1),
        tf.cast(is_taken, tf.int32),
        tf.shape(input_ids),
    )
    is_chosen = taken_words > 0
    if rules.do_whole_word_mask:
        is_chosen = is_candidate & tf.gather(
            is_chosen, tf.maximum(word_index, 0), batch_dims=1
        )
    return is_chosen


def _choose_of_all(input_mask, order_bits, seeds, rules):
    """Returns bool [B, L]: the tokens that RoBERTa's rule chooses.

    Tokens are tried in the order of `order_bits`, int64 [B, L].
    """
    bits = random_words(0, Stream.NUM_CHOSEN, (seeds[:, 0], seeds[:, 1]))[0]
    lengths = tf.reduce_sum(input_mask, axis=1)
    share = tf.cast(lengths, tf.float64) * rules.masked_lm_prob
    count = tf.cast(share + tf.cast(bits, tf.float64) * 2.0**-32, tf.int32)
    count = tf.minimum(count, rules.num_predictions(lengths))
    keys = tf.where(input_mask > 0, order_bits, tf.int64.min)
    order = tf.argsort(keys, axis=1, direction="DESCENDING", stable=True)
    ranks = tf.argsort(order, axis=1)
    return (ranks < count[:, None]) & (input_mask > 0)


def _choose_spans(input_ids, input_mask, seeds, tokenizer, rules):
    """Returns bool [B, L]: the tokens of spans that are to be predicted."""
    is_special = _is_special(input_ids, tokenizer.vocabulary)
    is_candidate = (input_mask > 0) & ~is_special
    word_index = _word_index(input_ids, is_candidate, is_special, tokenizer)
    # The number of the stretch between special tokens that a token is in.
    stretch = tf.cumsum(tf.cast(is_special, tf.int32), axis=1)
    num_words = tf.reduce_max(word_index, axis=1) + 1
    limit = tf.minimum(
        rules.num_predictions(tf.reduce_sum(input_mask, axis=1)),
        tf.reduce_sum(tf.cast(is_candidate, tf.int32), axis=1),
    )
    span_ends = tf.constant(_SPAN_ENDS)

    def is_short(is_chosen):
        return tf.reduce_sum(tf.cast(is_chosen, tf.int32), axis=1) < limit

    def add_span(draw, is_chosen):
        anchor_bits, length_bits, _, _ = random_words(
            draw, Stream.UNITS, (seeds[:, 0], seeds[:, 1])
        )
        anchor = _scaled(anchor_bits, num_words)
        length = 1 + tf.searchsorted(span_ends, length_bits, side="right")
        is_anchor = is_candidate & (word_index == anchor[:, None])
        is_free = ~tf.reduce_any(is_anchor & is_chosen, axis=1)
        anchor_stretch = tf.reduce_max(tf.where(is_anchor, stretch, -1), axis=1)
        is_new = (
            is_candidate
            & ~is_chosen
            & (word_index >= anchor[:, None])
            & (word_index < (anchor + length)[:, None])
            & (stretch == anchor_stretch[:, None])
            & is_free[:, None]
        )
        num_left = limit - tf.reduce_sum(tf.cast(is_chosen, tf.int32), axis=1)
        rank = tf.cumsum(tf.cast(is_new, tf.int32), axis=1)
        return draw + 1, is_chosen | (is_new & (rank <= num_left[:, None]))

    # A span is found as long as one word is free. The bound on the draws is
    # only for safety, far above what is ever needed.
    _, is_chosen = tf.while_loop(
        lambda draw, is_chosen: (
            (draw < _MAX_SPAN_DRAWS) & tf.reduce_any(is_short(is_chosen))
        ),
        add_span,
        (0, tf.zeros_like(is_candidate)),
    )
    return is_chosen


def _choose_ngrams(input_ids, input_mask, order_bits, seeds, tokenizer, rules):
    """Returns bool [B, L]: the tokens of n-grams that are to be predicted.

    Words are tried in the order of `order_bits`, int64 [B, L].
    """
    is_special = _is_special(input_ids, tokenizer.vocabulary)
    is_candidate = (input_mask > 0) & ~is_special
    word_index = _word_index(input_ids, is_candidate, is_special, tokenizer)
    # The number of the stretch between special tokens that a token is in.
    stretch = tf.cumsum(tf.cast(is_special, tf.int32), axis=1)
    num_words = (
        tf.reduce_max(tf.where(is_candidate, word_index, -1), axis=1) + 1
    )
    is_word = tf.range(tf.shape(input_ids)[1]) < num_words[:, None]
    order = tf.argsort(
        tf.where(is_word, order_bits, tf.int64.min), direction="DESCENDING"
    )
    limit = rules.num_predictions(tf.reduce_sum(input_mask, axis=1))
    last_round = tf.reduce_max(num_words)
    ngram_ends = tf.constant(_NGRAM_ENDS)

    def num_left(is_chosen):
        return limit - tf.reduce_sum(tf.cast(is_chosen, tf.int32), axis=1)

    def add_ngram(number, is_chosen):
        anchor = order[:, number]
        # The word's own bits, wherever it is in the order.
        bits = random_words(anchor, Stream.UNITS, (seeds[:, 0], seeds[:, 1]))[0]
        length = 1 + tf.searchsorted(ngram_ends, bits, side="right")
        is_anchor = is_candidate & (word_index == anchor[:, None])
        anchor_stretch = tf.reduce_max(tf.where(is_anchor, stretch, -1), axis=1)
        is_near = is_candidate & (stretch == anchor_stretch[:, None])
        is_near &= (number < num_words)[:, None]
        left = num_left(is_chosen)
        is_new = tf.zeros_like(is_chosen)
        for n in range(1, len(_NGRAM_ENDS) + 2):
            is_longer = (
                is_near
                & (word_index >= anchor[:, None])
                & (word_index < (anchor + n)[:, None])
            )
            fits = tf.reduce_sum(tf.cast(is_longer, tf.int32), axis=1) <= left
            is_new = tf.where(
                (fits & (n <= length))[:, None], is_longer, is_new
            )
        is_free = ~tf.reduce_any(is_new & is_chosen, axis=1)
        return number + 1, is_chosen | (is_new & is_free[:, None])

    _, is_chosen = tf.while_loop(
        lambda number, is_chosen: (
            (number < last_round) & tf.reduce_any(num_left(is_chosen) > 0)
        ),
        add_ngram,
        (0, tf.zeros_like(is_candidate)),
    )
    return is_chosen


def _random_bits(seeds, stream, size):
    """Returns int64 [B, size], each of 32 random bits.

    The bits of a place do not depend on the size.
    """
    blocks = tf.range((size + 3) // 4)
    words = random_words(blocks, stream, (seeds[:, :1], seeds[:, 1:]))
    bits = tf.reshape(tf.stack(words, axis=-1), [tf.shape(seeds)[0], -1])
    return bits[:, :size]


def _scaled(bits, limit):
    """Returns int32: 32 random bits, int64, as numbers in [0, limit)."""
    return tf.cast(
        tf.bitwise.right_shift(bits * tf.cast(limit, tf.int64), 32), tf.int32
    )


def first_entry(vocabulary: Vocabulary) -> int:
    """Returns the first id that random entries are drawn from.

    RoBERTa counts positions by ids: a <pad> in a text would shift all later
    positions. So <s>, <pad>, </s> and <unk> are never drawn, as in fairseq.
    """
    if vocabulary.special != ROBERTA:
        return 0
    return next(
        index
        for index, token in enumerate(vocabulary.tokens)
        if token not in ROBERTA.names
    )


def _is_special(input_ids, vocabulary):
    """Returns bool [B, L]: which tokens are the vocabulary's cls or sep."""
    return (input_ids == vocabulary.cls_id) | (input_ids == vocabulary.sep_id)


def _word_index(input_ids, is_candidate, is_special, tokenizer):
    """Returns int32 [B, L]: the number of the word that a token belongs to."""
    follows_special = tf.pad(is_special[:, :-1], [[0, 0], [1, 0]])
    starts_word = is_candidate & (
        follows_special | tokenizer.starts_word(input_ids)
    )
    return tf.cumsum(tf.cast(starts_word, tf.int32), axis=1) - 1


def _count_by_word(is_candidate, word_index):
    """Returns int32 [B, L]: how many tokens word 0, 1, ... has; 0 beyond."""
    places = tf.where(is_candidate)
    words = tf.gather_nd(word_index, places)
    return tf.scatter_nd(
        tf.stack([tf.cast(places[:, 0], tf.int32), words], axis=-1),
        tf.ones_like(words),
        tf.shape(word_index),
    )


def _take_while_they_fit(sizes, limit):
    """Returns bool [B, K]: the words that are taken, skipping those too long.

    The rule is sequential: a word is taken if it still fits. But the room only
    shrinks, so a word that did not fit once never will. Each round takes all
    words up to the first that does not fit, which is then out. There are about
    as many rounds as the longest word has pieces.

    Args:
        sizes: int32 [B, K], tokens of each word; 0 where there is no word.
        limit: int32 [B], the most tokens taken.
    """

    def take_prefix(is_taken, is_open, left):
        filled = tf.cumsum(tf.where(is_open, sizes, 0), axis=1)
        # The sum only grows, so this is a prefix of the open words.
        taken_now = is_open & (filled <= left[:, None])
        left -= tf.reduce_sum(tf.where(taken_now, sizes, 0), axis=1)
        is_open &= ~taken_now & (sizes <= left[:, None])
        return is_taken | taken_now, is_open, left

    is_taken, _, _ = tf.while_loop(
        lambda is_taken, is_open, left: tf.reduce_any(is_open),
        take_prefix,
        (
            tf.zeros_like(sizes, tf.bool),
            (sizes > 0) & (sizes <= limit[:, None]),
            limit,
        ),
    )
    return is_taken
