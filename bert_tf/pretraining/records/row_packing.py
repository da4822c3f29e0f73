"""Packs several short examples into one row of a record.

Krell et al. 2021, "Efficient sequence packing without cross-contamination"
(arXiv 2107.02027): positions restart in each sequence, and attention stays
within a sequence (`features.SEQUENCE_IDS`). The examples and their masks are
those of unpacked records; only padding is removed.
"""

import numpy as np

from bert_tf import features
from bert_tf.pretraining import draws


def assign_rows(
    lengths: np.ndarray,
    num_predictions: np.ndarray,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    max_sequences_per_row: int,
) -> np.ndarray:
    """Chooses the row of every sequence: best fit, the longest first.

    A row has room for a sequence if its tokens and its predictions fit. It may
    have as many predictions as a sequence that fills it alone; none is dropped.

    Args:
        lengths: int [N], tokens of each sequence, at most L.
        num_predictions: int [N], predictions of each sequence, at most P.
        max_seq_length: L, tokens of a row.
        max_predictions_per_seq: P, predictions of a row.
        max_sequences_per_row: S.

    Returns:
        int64 [N], row numbers from 0 without a gap. Rows are in the order of
        their first sequences, whatever the lengths, so sequences in a random
        order give rows in a random order.
    """
    rows = np.zeros(len(lengths), np.int64)
    sizes = np.asarray(lengths).tolist()
    counts = np.asarray(num_predictions).tolist()
    # Open rows, by the number of tokens that still fit. The bits of `rooms`
    # say which of these lists have a row. The lowest bit that is large enough
    # belongs to the fullest row that fits.
    open_rows: list[list[int]] = [[] for _ in range(max_seq_length + 1)]
    rooms = 0
    predictions_left: list[int] = []
    sequences_left: list[int] = []
    begun_with: list[int] = []
    # Sequences of equal length come in a random order. As the row that was
    # opened last is filled first, their own order would leave the most padding
    # in the first rows.
    bits = draws.packing_bits(len(lengths))
    for number in np.lexsort((bits, -np.asarray(lengths))).tolist():
        size, count = sizes[number], counts[number]
        fitting = rooms >> size << size
        while fitting:
            room = (fitting & -fitting).bit_length() - 1
            row = open_rows[room][-1]
            if predictions_left[row] >= count:
                open_rows[room].pop()
                if not open_rows[room]:
                    rooms ^= 1 << room
                break
            fitting &= fitting - 1
        else:
            room, row = max_seq_length, len(predictions_left)
            predictions_left.append(max_predictions_per_seq)
            sequences_left.append(max_sequences_per_row)
            begun_with.append(number)
        rows[number] = row
        predictions_left[row] -= count
        sequences_left[row] -= 1
        room -= size
        if predictions_left[row] and sequences_left[row]:
            open_rows[room].append(row)
            rooms |= 1 << room
    return np.argsort(np.argsort(begun_with))[rows]


def join_rows(
    examples: dict, rows: np.ndarray, max_sequences_per_row: int, pad_id: int
) -> dict:
    """Puts sequences into their rows.

    Args:
        examples: `{name: [N, ...]}` as in records of one sequence, with or
            without masks and labels.
        rows: int64 [N], the row of each sequence, ascending from 0 without a
            gap. A row keeps the order of its sequences.
        max_sequences_per_row: S.
        pad_id: The id of padding.

    Returns:
        `{name: [rows, ...]}` as in `features.pretraining_record` with S
        sequences a row.
    """
    mask = examples[features.INPUT_MASK]
    num_rows = rows[-1] + 1
    lengths = mask.sum(axis=1)
    row_opener = np.searchsorted(rows, rows)
    # Where each sequence begins in its row, and its number there.
    before = np.cumsum(lengths) - lengths
    first = before - before[row_opener]
    number = np.arange(len(rows)) - row_opener

    sequence, column = np.nonzero(mask)
    place = rows[sequence], first[sequence] + column

    def in_rows(values, padding=0):
        joined = np.full((num_rows, mask.shape[1]), padding, np.int32)
        joined[place] = values
        return joined

    def by_sequence(values):
        joined = np.zeros((num_rows, max_sequences_per_row), np.int32)
        joined[rows, number] = values
        return joined

    joined = {
        features.INPUT_IDS: in_rows(
            examples[features.INPUT_IDS][sequence, column], pad_id
        ),
        features.INPUT_MASK: in_rows(1),
        features.SEGMENT_IDS: in_rows(
            examples[features.SEGMENT_IDS][sequence, column]
        ),
        features.POSITION_IDS: in_rows(column),
        features.SEQUENCE_IDS: in_rows(1 + number[sequence]),
        features.FIRST_POSITIONS: by_sequence(first),
    }
    if features.MASKED_LM_IDS in examples:
        joined |= _join_masks(examples, rows, first, num_rows)
    if features.NEXT_SENTENCE_LABELS in examples:
        joined[features.NEXT_SENTENCE_LABELS] = by_sequence(
            examples[features.NEXT_SENTENCE_LABELS][:, 0]
        )
    return joined


def _join_masks(examples, rows, first, num_rows):
    """Returns the predictions of each row, concatenated over its sequences."""
    weights = examples[features.MASKED_LM_WEIGHTS]
    sequence, slot = np.nonzero(weights)
    row = rows[sequence]
    place = row, np.arange(len(row)) - np.searchsorted(row, row)
    joined = {}
    for name, values in (
        (
            features.MASKED_LM_POSITIONS,
            first[:, None] + examples[features.MASKED_LM_POSITIONS],
        ),
        (features.MASKED_LM_IDS, examples[features.MASKED_LM_IDS]),
        (features.MASKED_LM_WEIGHTS, weights),
    ):
        joined[name] = np.zeros((num_rows, weights.shape[1]), values.dtype)
        joined[name][place] = values[sequence, slot]
    return joined
