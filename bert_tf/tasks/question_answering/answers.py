"""Answers from the logits of windows: ranked spans, and their texts.

Everything is in TensorFlow operations, so that evaluation, files of predictions
and exported models choose alike. The rules are google-research/bert's, except
for an answer's text. Here it is exactly the characters that its pieces were
made from; google-research/bert aligns words by their letters, and sometimes
gives whole words.

Letters: B questions, N windows of all questions, L sequence length, C
candidates, S spans of all questions, T different texts of them, K entries of
an n-best list.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from bert_tf import features
from bert_tf import progress_bar
from bert_tf.features import Tensor
from bert_tf.tasks.question_answering import windows as squad_windows
from bert_tf.tasks.question_answering.windows import WindowMaker
from bert_tf.tasks.question_answering.windows import WindowSource
from bert_tf.text.offsets import Offsets

# `null_odds` where "no answer" is the only candidate.
NO_ANSWER_AT_ALL = 1_000_000.0
# Logits of padding.
PADDING_LOGIT = -1e9
# Questions are answered in groups of about this many windows.
_MOST_WINDOWS = 64

# Texts are told apart by a polynomial hash of their characters, modulo 2^64:
# spans may be many and long, so only the chosen ones become strings.
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 2**64)
_ROW_FACTOR = 0xC2B2AE3D27D4EB4F


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadAnswers:
    """A model's answers, by question id.

    Args:
        texts: The best answers.
        nbest: Lists of the best answers, as dictionaries of `text`,
            `probability`, `start_logit` and `end_logit`; with
            `version_2_with_negative` the text may be "", no answer.
        spans: For each entry of `nbest`, its characters in the context as
            (start, limit), or (-1, -1) for no answer.
        null_odds: With `version_2_with_negative`, the empty answer's score
            minus the best span's.
    """

    texts: dict[str, str]
    nbest: dict[str, list]
    spans: dict[str, list]
    null_odds: dict[str, float]

    def predictions(self, task: Any) -> dict[str, str]:
        """Returns {id: text}, "" where `task` prefers no answer."""
        return {
            name: ""
            if self.null_odds.get(name, -math.inf)
            > task.null_score_diff_threshold
            else text
            for name, text in self.texts.items()
        }

    def best(self, name: str) -> dict[str, Any]:
        """Returns the best answer to a question that has one, as `entry`."""
        spans = self.spans[name]
        place = next(i for i, (start, _) in enumerate(spans) if start >= 0)
        best, (start, end) = self.nbest[name][place], spans[place]
        return entry(best["text"], start, end, best["probability"])


def entry(text: str, start: int, end: int, score: float) -> dict[str, Any]:
    """Returns an answer as a predictor gives it; places are of characters."""
    return {"text": text, "start": start, "end": end, "score": score}


class Windows(NamedTuple):
    """The windows of some questions, N in all.

    Attributes:
        contexts: string `[B]`.
        offsets: `Offsets` of their pieces, `[B, (pieces)]`.
        packed: From `WindowMaker.pack`.
        rows: int32 `[N]`: each window's question, ascending.
        is_cut: bool `[B]`: whether the question has too many windows.
    """

    contexts: tf.Tensor
    offsets: Offsets
    packed: dict[str, tf.Tensor]
    rows: tf.Tensor
    is_cut: tf.Tensor


def cut_windows(
    maker: WindowMaker, questions: tf.Tensor, contexts: tf.Tensor
) -> Windows:
    """Returns all `Windows` of questions.

    Args:
        maker: A `WindowMaker`.
        questions: string `[B]`.
        contexts: string `[B]`, valid UTF-8.
    """
    question, context, offsets = maker.tokenize(questions, contexts)
    counts = [
        tf.cast(pieces.row_lengths(), tf.int32)
        for pieces in (question, context)
    ]
    num_windows = maker.num_windows(*counts)
    rows = tf.repeat(tf.range(tf.size(num_windows)), num_windows)
    number = tf.range(tf.size(rows)) - tf.gather(
        tf.cumsum(num_windows, exclusive=True), rows
    )
    return Windows(
        contexts=contexts,
        offsets=offsets,
        packed=maker.pack(question, context, rows, number),
        rows=rows,
        is_cut=maker.is_cut(*counts),
    )


def stacked_outputs(
    model: keras.Model, max_seq_length: int
) -> Callable[..., Tensor]:
    """Returns the model as `tuning.predictor.Predictor` takes it.

    Differs from BERT: padding is never a candidate. In the original its logits
    may displace others from the n best, more of them in longer sequences.

    Args:
        model: A `BertSpanPredictor`, or a callable like one.
        max_seq_length: L; shorter batches are filled up.

    Returns:
        A function whose outputs are float32 `[B, L, 2]`: the logits of starts
        and ends.
    """

    def call(inputs, training):
        outputs = model(inputs, training=training)
        logits_BLK = ops.stack(
            [outputs[name] for name in squad_windows.OUTPUTS], axis=-1
        )
        is_token_BL = ops.cast(inputs[features.INPUT_MASK], "bool")
        logits_BLK = ops.where(
            is_token_BL[:, :, None], logits_BLK, PADDING_LOGIT
        )
        after = max_seq_length - ops.shape(logits_BLK)[1]
        return ops.pad(
            logits_BLK,
            [[0, 0], [0, after], [0, 0]],
            constant_values=PADDING_LOGIT,
        )

    return call


def find_answers(
    task: Any, source: WindowSource, logits: np.ndarray
) -> SquadAnswers:
    """Finds the answers to all questions.

    Args:
        task: A `SquadTask`.
        source: The `WindowSource`.
        logits: float32 `[N, L, 2]`, for every window in the source's order.

    Returns:
        `SquadAnswers`.
    """
    examples = source.examples
    choose_some = _chooser(
        # The threshold has no influence here: one trace serves all.
        dataclasses.replace(task, null_score_diff_threshold=0.0),
        source.maker,
        logits.shape[1],
    )
    texts, nbest, spans, null_odds = {}, {}, {}, {}
    limits = np.cumsum(source.num_windows)
    groups = list(_groups(limits))
    with progress_bar.track(groups, "choose answers", len(groups)) as tracked:
        for first, last in tracked:
            first_window = limits[first - 1] if first else 0
            found = choose_some(
                examples.questions[first:last],
                [examples.context(index) for index in range(first, last)],
                logits[first_window : limits[last - 1]],
            )
            found = {name: value.numpy() for name, value in found.items()}
            for row, name in enumerate(examples.ids[first:last]):
                nbest[name], spans[name] = _entries(found, row)
                # "" if "no answer" is the only candidate.
                texts[name] = nbest[name][found["best"][row]]["text"]
                if task.version_2_with_negative:
                    null_odds[name] = float(found["null_odds"][row])
    return SquadAnswers(
        texts=texts, nbest=nbest, spans=spans, null_odds=null_odds
    )


def _groups(limits):
    """Yields (first, last + 1) of the questions that are answered together.

    Args:
        limits: int `[B]`: the number of the window after each question's last.
    """
    first = 0
    while first < len(limits):
        window = limits[first - 1] if first else 0
        last = int(np.searchsorted(limits, window + _MOST_WINDOWS))
        # A single question may have more windows.
        last = min(max(last, first + 1), len(limits))
        yield first, last
        first = last


@functools.lru_cache(maxsize=4)
def _chooser(task, maker, length):
    """Returns `choose` for strings, traced once for all evaluations."""
    strings = tf.TensorSpec([None], tf.string)

    @tf.function(
        autograph=False,
        input_signature=[
            strings,
            strings,
            tf.TensorSpec([None, length, 2], tf.float32),
        ],
    )
    def choose_some(questions, contexts, logits):
        windows = cut_windows(maker, questions, contexts)
        return choose(task, windows, logits)

    return choose_some


def _entries(found, row):
    """Returns a question's entries of nbest, and a list of (start, limit)."""
    count = found["num_entries"][row]
    columns = [
        found[name][row, :count].tolist()
        for name in ("texts", "start_logits", "end_logits", "starts", "limits")
    ]
    scores = found["scores"][row, :count]
    # Infinite logits give NaN, as NaN itself does.
    with np.errstate(invalid="ignore"):
        probabilities = np.exp(scores - np.max(scores))
        probabilities /= np.sum(probabilities)
    entries = [
        {
            "text": text.decode(),
            "probability": probability,
            "start_logit": start_logit,
            "end_logit": end_logit,
        }
        for probability, text, start_logit, end_logit, _, _ in zip(
            probabilities.tolist(), *columns
        )
    ]
    return entries, list(zip(*columns[3:]))


def num_entries(task: Any) -> int:
    """Returns K: the n best, and perhaps "no answer" after them."""
    return task.n_best_size + task.version_2_with_negative


def choose(
    task: Any, windows: Windows, logits: tf.Tensor
) -> dict[str, tf.Tensor]:
    """Chooses the n best answers to questions, "no answer" included.

    Args:
        task: A `SquadTask`.
        windows: The questions' `Windows`.
        logits: float32 `[N, L, 2]`, of starts and ends.

    Returns:
        A dictionary. The entries are different texts, the best first,
        `[B, K]`: `texts` string; `starts` and `limits` int32, in characters of
        the context; `start_logits` and `end_logits` float64; and `scores`
        float64, their sum. "No answer" has the text "" and the start and limit
        -1; beyond the last entry, scores are -inf. Values of a question,
        `[B]`: `num_entries` int32; `best` int32, the first entry that is an
        answer; and with `version_2_with_negative` `null_odds` float64, the
        empty answer's score minus that entry's.
    """
    num_rows = tf.size(windows.contexts)
    offsets = windows.offsets
    nothing = tf.size(offsets.starts.flat_values)
    spans = find_spans(task, windows, logits)
    nulls = _null_logits(task, windows, logits)
    # "No answer" comes last, so that it ranks last among equal scores.
    row = tf.concat([spans.row, tf.range(num_rows)], axis=0)
    first = tf.concat([spans.first, tf.fill([num_rows], nothing)], axis=0)
    last = tf.concat([spans.last, tf.fill([num_rows], nothing)], axis=0)
    logits = tf.concat([spans.logits, nulls], axis=0)
    score = tf.reduce_sum(logits, axis=1)

    order = tf.argsort(score, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(row, order), stable=True))
    key = _keys_of_texts(windows, row, first, last)
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

    # From here on [B, K]; without an entry the index is that after the last.
    is_entry = chosen < tf.size(row)
    first, last = (
        tf.gather(tf.concat([pieces, [nothing]], axis=0), chosen)
        for pieces in (first, last)
    )
    logits = tf.gather(
        tf.concat([logits, tf.zeros([1, 2], tf.float64)], axis=0), chosen
    )
    is_null = is_entry & tf.equal(first, nothing)
    if not task.version_2_with_negative:
        # "No answer" is then the only entry: there was no span.
        logits = tf.where(
            is_null[:, :, tf.newaxis], tf.zeros_like(logits), logits
        )
    byte_starts = _look_up(offsets.byte_starts, first, 0)
    byte_limits = _look_up(offsets.byte_limits, last, 0)
    is_answer = is_entry & ~is_null
    best = tf.argmax(is_answer, axis=1, output_type=tf.int32)
    found = {
        "texts": tf.strings.substr(
            windows.contexts[:, tf.newaxis],
            byte_starts,
            byte_limits - byte_starts,
        ),
        "starts": _look_up(offsets.starts, first, -1),
        "limits": _look_up(offsets.limits, last, -1),
        "start_logits": logits[:, :, 0],
        "end_logits": logits[:, :, 1],
        "scores": tf.where(is_entry, tf.reduce_sum(logits, axis=2), -math.inf),
        "num_entries": tf.reduce_sum(tf.cast(is_entry, tf.int32), axis=1),
        "best": best,
    }
    if task.version_2_with_negative:
        best_logits = tf.gather(logits, best, batch_dims=1)
        odds = tf.reduce_sum(nulls, axis=1) - best_logits[:, 0]
        found["null_odds"] = tf.where(
            tf.gather(is_answer, best, batch_dims=1),
            odds - best_logits[:, 1],
            tf.constant(NO_ANSWER_AT_ALL, tf.float64),
        )
    return found


class Spans(NamedTuple):
    """The spans that may be answers, S in all.

    Attributes:
        row: int32 `[S]`: the question's number, not sorted.
        logits: float64 `[S, 2]`, of start and end: in this dtype sums equal
            those of google-research/bert.
        first, last: int32 `[S]`: numbers of pieces, counted over all contexts.
    """

    row: tf.Tensor
    logits: tf.Tensor
    first: tf.Tensor
    last: tf.Tensor


def find_spans(task: Any, windows: Windows, logits: tf.Tensor) -> Spans:
    """Returns the `Spans` of the likeliest starts and ends of each window.

    Args:
        task, windows, logits: See `choose`.
    """
    nothing = tf.size(windows.offsets.starts.flat_values)
    count = tf.minimum(task.n_best_size, tf.shape(logits)[1])
    start_logits_NC, starts_NC = tf.math.top_k(logits[:, :, 0], count)
    end_logits_NC, ends_NC = tf.math.top_k(logits[:, :, 1], count)
    pieces_NL = windows.packed[squad_windows.PIECES]
    first_NC = tf.gather(pieces_NL, starts_NC, batch_dims=1)
    last_NC = tf.gather(pieces_NL, ends_NC, batch_dims=1)
    may_start_NC = tf.gather(
        windows.packed[squad_windows.IS_MAX_CONTEXT], starts_NC, batch_dims=1
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
    end_S = tf.gather(places, [0, 2], axis=1)
    # A space may be a piece of no character, and a span of nothing else is no
    # answer.
    num_before = tf.cumsum(
        tf.pad(
            tf.cast(
                windows.offsets.starts.flat_values
                < windows.offsets.limits.flat_values,
                tf.int32,
            ),
            [[1, 0]],
        )
    )
    has_text_S = tf.gather(
        num_before, tf.gather_nd(first_NC, start_S)
    ) < tf.gather(num_before, tf.gather_nd(last_NC, end_S) + 1)
    places, start_S, end_S = (
        tf.boolean_mask(values, has_text_S)
        for values in (places, start_S, end_S)
    )
    logits_S2 = tf.stack(
        [
            tf.gather_nd(start_logits_NC, start_S),
            tf.gather_nd(end_logits_NC, end_S),
        ],
        axis=1,
    )
    return Spans(
        row=tf.gather(windows.rows, places[:, 0]),
        logits=tf.cast(logits_S2, tf.float64),
        first=tf.gather_nd(first_NC, start_S),
        last=tf.gather_nd(last_NC, end_S),
    )


def _null_logits(task, windows, logits):
    """Returns the logits of no answer, float64 [B, 2]; -inf if not allowed.

    They are those of the window that scores no answer lowest, of equal ones
    the first.
    """
    num_rows = tf.size(windows.contexts)
    if not task.version_2_with_negative:
        return tf.fill([num_rows, 2], tf.constant(-math.inf, tf.float64))
    logits_N2 = tf.cast(logits[:, 0], tf.float64)
    # unsorted_segment_min is never infinite: it starts at the largest number.
    score_N = tf.minimum(tf.reduce_sum(logits_N2, axis=1), tf.float64.max)
    least_B = tf.math.unsorted_segment_min(score_N, windows.rows, num_rows)
    # NaN is not above anything, so every question keeps some window.
    is_above_N = score_N > tf.gather(least_B, windows.rows)
    number_N = tf.range(tf.size(score_N))
    first_B = tf.math.unsorted_segment_min(
        tf.where(is_above_N, tf.size(score_N), number_N),
        windows.rows,
        num_rows,
    )
    return tf.gather(logits_N2, first_B)


def _keys_of_texts(windows, row, first, last):
    """Returns int64 `[S]`, equal for equal texts in the same row."""
    characters = tf.strings.unicode_decode(windows.contexts, "UTF-8")
    powers = tf.pow(
        _int64(_BASE), tf.range(tf.size(characters.flat_values, tf.int64))
    )
    sums = tf.cumsum(tf.cast(characters.flat_values + 1, tf.int64) * powers)
    sums = tf.concat([tf.zeros([1], tf.int64), sums], axis=0)
    row_start = tf.gather(characters.row_starts(), row)
    start, limit = (
        row_start + tf.cast(_look_up(values, pieces, 0), tf.int64)
        for values, pieces in (
            (windows.offsets.starts, first),
            (windows.offsets.limits, last),
        )
    )
    key = tf.gather(sums, limit) - tf.gather(sums, start)
    # Divide out the text's position.
    key *= tf.pow(_int64(_INVERSE), start)
    return key + _int64(_ROW_FACTOR) * tf.cast(row, tf.int64)


def _first_of_rows(task, chosen, row, is_null, num_rows):
    """Returns int32 [B, K]: the first spans of each row, padded with S.

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


def _look_up(values, pieces, of_nothing):
    """Returns the values of pieces, `of_nothing` for the one after the last."""
    return tf.gather(
        tf.concat([values.flat_values, [of_nothing]], axis=0), pieces
    )


def _int64(value):
    """Returns an unsigned number of 64 bits as a signed one."""
    return tf.constant(value - (value >> 63 << 64), tf.int64)
