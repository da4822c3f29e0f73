"""Answers chosen from the logits of windows, in TensorFlow's operations.

The rules are those of `tasks.question_answering.answers`, which chooses in
Python: n-best spans of different texts, best first, and among them no answer.

Letters: B questions, N windows of all questions, L sequence length, C
candidates, S spans of all questions, K entries of an n-best list.
"""

import math

import tensorflow as tf

from bert_tf import features
from bert_tf.tasks.question_answering import answers as squad_answers
from bert_tf.tasks.question_answering import task as squad
from bert_tf.tasks.question_answering import windows as squad_windows

# Texts are told apart by a polynomial of their characters, modulo 2^64: spans
# may be many and long, and only the chosen ones are spelled out.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_OF_ROW = 0xC2B2AE3D27D4EB4F


def num_entries(task):
    """Returns K: no answer may come after the n best."""
    return task.n_best_size + task.version_2_with_negative


def choose(task, contexts, context, offsets, windows, row_of_window, logits):
    """Chooses the answers to questions.

    Args:
        task: A `SquadTask`.
        contexts: string `[B]`, valid UTF-8.
        context: Their pieces, as of `WindowMaker.tokenize`.
        offsets: The pieces' places, likewise.
        windows: What `WindowMaker.pack` returned.
        row_of_window: int32 `[N]`: each window's question, ascending.
        logits: float32 `[N, L, 2]`, of starts and ends.

    Returns:
        {output: tensor}; see `QuestionAnswering`.
    """
    num_rows = tf.size(contexts)
    nothing = tf.size(context.flat_values)
    row, score, first, last = _find_spans(
        task, nothing, windows, row_of_window, logits
    )
    # No answer stands last in each row, so that it is the last of equals.
    nulls = tf.fill([num_rows], tf.constant(-math.inf, tf.float64))
    if task.version_2_with_negative:
        null_logits = tf.cast(logits[:, 0], tf.float64)
        nulls = tf.math.unsorted_segment_min(
            tf.reduce_sum(null_logits, axis=1), row_of_window, num_rows
        )
    no_piece = tf.fill([num_rows], nothing)
    row = tf.concat([row, tf.range(num_rows)], axis=0)
    score = tf.concat([score, nulls], axis=0)
    first = tf.concat([first, no_piece], axis=0)
    last = tf.concat([last, no_piece], axis=0)

    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(row, order), stable=True))
    key = _keys_of_texts(contexts, offsets, row, first, last)
    _, index = tf.unique(tf.gather(key, order))
    num_texts = tf.reduce_max(tf.concat([[-1], index], axis=0)) + 1
    chosen = tf.gather(
        order,
        tf.math.unsorted_segment_min(
            tf.range(tf.size(order)), index, num_texts
        ),
    )
    chosen = _first_of_rows(
        task, chosen, row, tf.gather(first, chosen) == nothing, num_rows
    )

    # From here on [B, K]; what is no entry is span S.
    score = tf.concat([score, [-math.inf]], axis=0)
    first = tf.concat([first, [nothing]], axis=0)
    last = tf.concat([last, [nothing]], axis=0)
    is_entry = chosen < tf.size(score) - 1
    first, last = tf.gather(first, chosen), tf.gather(last, chosen)
    score = tf.gather(score, chosen)
    is_null = is_entry & tf.equal(first, nothing)
    if not task.version_2_with_negative:
        # The only entry: there was no span.
        score = tf.where(is_null, tf.zeros_like(score), score)
    byte_starts = _look_up(offsets.byte_starts, first, 0)
    byte_limits = _look_up(offsets.byte_limits, last, 0)
    entries = {
        "answers": tf.strings.substr(
            contexts[:, tf.newaxis], byte_starts, byte_limits - byte_starts
        ),
        "starts": _look_up(offsets.starts, first, -1),
        "limits": _look_up(offsets.limits, last, -1),
        "scores": tf.cast(tf.nn.softmax(score), tf.float32),
    }
    place, null_odds = _place_of_answer(task, score, is_entry, is_null, nulls)
    answers = {
        name: tf.gather(value, place, batch_dims=1)
        for name, value in entries.items()
    }
    if task.version_2_with_negative:
        answers["null_odds"] = null_odds
    return answers | {f"nbest_{name}": value for name, value in entries.items()}


def _find_spans(task, nothing, windows, row_of_window, logits):
    """Returns of each span its row, score, first and last piece, `[S]`."""
    count = tf.minimum(task.n_best_size, tf.shape(logits)[1])
    start_logits_NC, starts_NC = tf.math.top_k(logits[:, :, 0], count)
    end_logits_NC, ends_NC = tf.math.top_k(logits[:, :, 1], count)
    pieces_NL = windows[squad_windows.PIECES]
    first_NC = tf.gather(pieces_NL, starts_NC, batch_dims=1)
    last_NC = tf.gather(pieces_NL, ends_NC, batch_dims=1)
    may_start_NC = tf.gather(
        windows[squad_windows.IS_MAX_CONTEXT], starts_NC, batch_dims=1
    )
    distance_NCC = ends_NC[:, tf.newaxis, :] - starts_NC[:, :, tf.newaxis]
    fits_NCC = (
        may_start_NC[:, :, tf.newaxis]
        & (last_NC < nothing)[:, tf.newaxis, :]
        & (distance_NCC >= 0)
        & (distance_NCC < task.max_answer_length)
    )
    places = tf.where(fits_NCC)
    start_S = places[:, :2]
    end_S = tf.stack([places[:, 0], places[:, 2]], axis=1)
    # Sums are in float64, as where Python chooses.
    score_S = tf.cast(tf.gather_nd(start_logits_NC, start_S), tf.float64)
    score_S += tf.cast(tf.gather_nd(end_logits_NC, end_S), tf.float64)
    return (
        tf.gather(row_of_window, places[:, 0]),
        score_S,
        tf.gather_nd(first_NC, start_S),
        tf.gather_nd(last_NC, end_S),
    )


def _keys_of_texts(contexts, offsets, row, first, last):
    """Returns int64 `[S]`, the same for the same text in the same row."""
    characters = tf.strings.unicode_decode(contexts, "UTF-8")
    powers = tf.pow(
        _int64(_BASE), tf.range(tf.size(characters.flat_values, tf.int64))
    )
    sums = tf.cumsum(tf.cast(characters.flat_values + 1, tf.int64) * powers)
    sums = tf.concat([tf.zeros([1], tf.int64), sums], axis=0)
    row_start = tf.gather(characters.row_starts(), row)
    start = row_start + tf.cast(_look_up(offsets.starts, first, 0), tf.int64)
    limit = row_start + tf.cast(_look_up(offsets.limits, last, 0), tf.int64)
    key = tf.gather(sums, limit) - tf.gather(sums, start)
    # The text's place is divided out.
    key *= tf.pow(_int64(_INVERSE), start)
    return key + _int64(_OF_ROW) * tf.cast(row, tf.int64)


def _first_of_rows(task, chosen, row, is_null, num_rows):
    """Returns int32 [B, K]: of each row the first spans, then their number.

    Args:
        task: The `SquadTask`.
        chosen: int32 `[T]`: spans of different texts, by row, best first.
        row: int32 `[S]`: the rows of all spans.
        is_null: bool `[T]`: which of those chosen are no answer.
        num_rows: B.
    """
    row_of_text = tf.gather(row, chosen)
    ones = tf.ones_like(row_of_text)
    count = tf.math.unsorted_segment_sum(ones, row_of_text, num_rows)
    rank = tf.range(tf.size(chosen)) - tf.gather(
        tf.cumsum(count, exclusive=True), row_of_text
    )
    stays = rank < task.n_best_size
    if task.version_2_with_negative:
        stays |= is_null
    else:
        stays &= ~is_null | tf.equal(rank, 0)
    count = tf.math.unsorted_segment_sum(
        tf.cast(stays, tf.int32), row_of_text, num_rows
    )
    entries = tf.RaggedTensor.from_row_lengths(
        tf.boolean_mask(chosen, stays), count, validate=False
    )
    return entries.to_tensor(
        default_value=tf.size(row), shape=[None, num_entries(task)]
    )


def _place_of_answer(task, score, is_entry, is_null, nulls):
    """Returns which entry is the answer, int32 `[B]`, and the null odds."""
    if not task.version_2_with_negative:
        return tf.zeros_like(nulls, tf.int32), None
    null_place = tf.argmax(is_null, axis=1, output_type=tf.int32)
    best = tf.cast(is_null[:, 0], tf.int32)
    best_score = tf.gather(score, best, batch_dims=1)
    has_best = tf.gather(is_entry, best, batch_dims=1)
    odds = tf.where(
        has_best,
        nulls - best_score,
        tf.constant(squad_answers.NO_ANSWER_AT_ALL, tf.float64),
    )
    is_answered = has_best & (odds <= task.null_score_diff_threshold)
    return tf.where(is_answered, best, null_place), tf.cast(odds, tf.float32)


def _look_up(values, pieces, of_nothing):
    """Returns the values of pieces; of the number after the last another."""
    return tf.gather(
        tf.concat([values.flat_values, [of_nothing]], axis=0), pieces
    )


def _int64(value):
    """Returns an unsigned number of 64 bits as one with a sign."""
    return tf.constant(value - (value >> 63 << 64), tf.int64)


def decode_ids(task, inputs, outputs):
    """Returns the answers to model inputs: places of tokens.

    Args:
        task: A `SquadTask`.
        inputs: The model inputs, int32 `[B, L]`: one window a row.
        outputs: The model's.
    """
    length_B1 = tf.reduce_sum(
        inputs[features.INPUT_MASK], axis=1, keepdims=True
    )
    place_L = tf.range(tf.shape(inputs[features.INPUT_MASK])[1])
    found = task.decode(
        outputs,
        tf.equal(inputs[features.SEGMENT_IDS], 1) & (place_L < length_B1 - 1),
    )
    return {name: outputs[name] for name in squad.OUTPUTS} | {
        "token_starts": found["starts"],
        "token_ends": found["ends"],
        # Of no candidate -inf, which JSON cannot hold.
        "token_scores": tf.maximum(found["scores"], tf.float32.min),
        "null_scores": found["null_scores"],
    }
