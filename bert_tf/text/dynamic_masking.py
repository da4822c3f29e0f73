"""Chooses the tokens to predict while records are read.

Dynamic masking (RoBERTa) by the rules and the function of `masking`, for rows
of one or several sequences; and the next tokens of left-to-right models.
"""

import numpy as np
import tensorflow as tf

from bert_tf import features
from bert_tf.features import Batch
from bert_tf.philox import halves
from bert_tf.text import masking
from bert_tf.text.tokenizers.tokenizer import Spec


def example_seeds(seed: int, numbers: tf.Tensor) -> tf.Tensor:
    """Returns seeds for masking that differs in each epoch.

    Args:
        seed: An integer in [0, 2**32).
        numbers: int64 [B], the numbers of the examples in training, counted
            over all epochs, so that a resumed run masks like an unbroken one.

    Returns:
        int64 [B, 2], for `masking.mask_tokens`.
    """
    low, high = halves(tf.cast(numbers, tf.uint64), tf.bitwise.right_shift)
    words = masking.random_words(low, high, (np.uint64(seed), 0))
    return tf.stack(words[:2], axis=-1)


def mask_examples(
    examples: Batch, seeds: tf.Tensor, tokenizer: Spec, rules: masking.Rules
) -> dict[str, tf.Tensor]:
    """Masks a batch of unmasked records: dynamic masking (RoBERTa).

    Liu et al. 2019, section 4.1. For `tf.data.Dataset.map`.

    If rows hold several sequences, each is masked as if it were alone. All
    predictions of a row together must fit in its P.

    Args:
        examples: `{name: [B, ...]}` with `input_ids` and `input_mask`, int32
            [B, L]. Packed rows also have `sequence_ids` [B, L] and
            `first_positions` [B, S]. Other entries are kept.
        seeds: int64 [B, 2], see `example_seeds`.
        tokenizer: The spec of the tokenizer.
        rules: The `masking.Rules`.

    Returns:
        The same dictionary with what `masking.mask_tokens` returns.
    """
    if features.SEQUENCE_IDS in examples:
        masked = _mask_packed(examples, seeds, tokenizer, rules)
    else:
        ids, mask = examples[features.INPUT_IDS], examples[features.INPUT_MASK]
        masked = masking.mask_tokens(ids, mask, seeds, tokenizer, rules)
    return {**examples, **masked}


def draw_replacements(
    examples: Batch, seeds: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Adds the random numbers that ELECTRA samples its replacements with.

    Like the masks, they depend only on the example. So the samples do not
    depend on the number of devices or of accumulation steps, a resumed run
    draws like an unbroken one, and an evaluation always draws the same. For
    `tf.data.Dataset.map`.

    Args:
        examples: `{name: [B, ...]}` with the predictions.
        seeds: int64 [B, 2], see `example_seeds`.

    Returns:
        The same dictionary with `replacement_draws` int32 [B, P, 2], uniform
        in [0, 2**23).
    """
    num_slots = examples[features.MASKED_LM_POSITIONS].shape[1]
    words = masking.random_words(
        tf.range(num_slots),
        masking.Stream.REPLACEMENTS,
        (seeds[:, :1], seeds[:, 1:]),
    )
    draws = tf.bitwise.right_shift(tf.stack(words[:2], axis=-1), 9)
    return {**examples, features.REPLACEMENT_DRAWS: tf.cast(draws, tf.int32)}


def predict_next_tokens(examples: Batch) -> dict[str, tf.Tensor]:
    """Makes every token the prediction of the one before it.

    This is what a left-to-right language model learns (Devlin et al. 2018,
    section 5.1, "LTR"), in the form of masked predictions: the first L - 1 of
    L positions predict. [SEP] is predicted too; padding and, in packed rows,
    the next sequence are not. For `tf.data.Dataset.map`.

    Args:
        examples: `{name: [B, ...]}` of records, packed or not; masks in them
            are undone.

    Returns:
        The same dictionary with `input_ids` int32 [B, L] and the predictions,
        [B, L - 1].
    """
    input_ids = examples[features.INPUT_IDS]
    if features.MASKED_LM_IDS in examples:
        places = tf.cast(
            tf.where(examples[features.MASKED_LM_WEIGHTS] > 0), tf.int32
        )
        positions = tf.gather_nd(examples[features.MASKED_LM_POSITIONS], places)
        input_ids = tf.tensor_scatter_nd_update(
            input_ids,
            tf.stack([places[:, 0], positions], axis=-1),
            tf.gather_nd(examples[features.MASKED_LM_IDS], places),
        )
    is_predicted = examples[features.INPUT_MASK][:, 1:] > 0
    sequence_ids = examples.get(features.SEQUENCE_IDS)
    if sequence_ids is not None:
        is_predicted &= sequence_ids[:, 1:] == sequence_ids[:, :-1]
    ids = tf.where(is_predicted, input_ids[:, 1:], 0)
    positions = tf.range(tf.shape(ids)[1])
    return {
        **examples,
        features.INPUT_IDS: input_ids,
        features.MASKED_LM_POSITIONS: tf.where(is_predicted, positions, 0),
        features.MASKED_LM_IDS: ids,
        features.MASKED_LM_WEIGHTS: tf.cast(is_predicted, tf.float32),
    }


def _mask_packed(examples, seeds, tokenizer, rules):
    """Does what `masking.mask_tokens` does, for rows of several sequences."""
    input_ids = examples[features.INPUT_IDS]
    first_positions = examples[features.FIRST_POSITIONS]
    length = tf.shape(input_ids)[1]

    # Put every sequence in a row of its own: N rows in all.
    numbers = tf.range(tf.shape(first_positions)[1])
    exists = (first_positions > 0) | (numbers == 0)
    places = tf.cast(tf.where(exists), tf.int32)
    rows, numbers = places[:, 0], places[:, 1]
    first = tf.gather_nd(first_positions, places)
    columns = tf.minimum(first[:, None] + tf.range(length), length - 1)
    is_own = (
        tf.gather(examples[features.SEQUENCE_IDS], rows) == numbers[:, None] + 1
    )
    lengths = tf.reduce_sum(tf.cast(is_own, tf.int32), axis=1)
    masked = masking.mask_tokens(
        tf.gather(tf.gather(input_ids, rows), columns, batch_dims=1),
        tf.sequence_mask(lengths, length, tf.int32),
        _sequence_seeds(tf.gather(seeds, rows), numbers),
        tokenizer,
        rules,
    )

    # Put the predictions back into their rows, one after the other.
    is_prediction = masked[features.MASKED_LM_WEIGHTS] > 0
    picked = tf.cast(tf.where(is_prediction), tf.int32)
    row = tf.gather(rows, picked[:, 0])
    positions = tf.gather_nd(masked[features.MASKED_LM_POSITIONS], picked)
    tokens = tf.gather_nd(
        masked[features.INPUT_IDS], tf.stack([picked[:, 0], positions], axis=-1)
    )
    labels = tf.gather_nd(masked[features.MASKED_LM_IDS], picked)
    positions += tf.gather(first, picked[:, 0])
    # `row` is sorted, so this is where the predictions of each row begin.
    row_start = tf.searchsorted(row, row)
    # An error if a row has more predictions than there is room for.
    slots = tf.stack([row, tf.range(tf.size(row)) - row_start], axis=-1)
    return masking.corrupted(
        input_ids,
        tf.stack([row, positions], axis=-1),
        tokens,
        slots,
        labels,
        rules,
    )


def _sequence_seeds(seeds, numbers):
    """Returns int64 [N, 2], seeds of the sequences of packed rows."""
    words = masking.random_words(
        numbers, masking.Stream.SEQUENCES, tf.unstack(seeds, num=2, axis=1)
    )
    return tf.stack(words[:2], axis=-1)
