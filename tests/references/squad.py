"""Question answering in plain Python: offsets, windows, answers, scores.

Written from the rules, one character, token or candidate at a time, so that
a reader can verify it by eye. It serves as the oracle of the library.
"""

import math
import unicodedata

import numpy as np
import tensorflow as tf

from bert_tf.tasks.question_answering.answers import cut_windows
from references import text as reference_text


def located_words(text, do_lower_case):
    """Returns the words as lists of (character, place in the text).

    Args:
        text: A str. Marks that lower-casing keeps must be in canonical order.
    """
    words, word = [], []

    def end_word():
        nonlocal word
        if word:
            words.append(word)
        word = []

    for place, character in enumerate(text):
        cleaned = reference_text.clean(character)
        if cleaned.isspace():
            end_word()
        if not cleaned.strip():
            continue
        if do_lower_case:
            cleaned = unicodedata.normalize("NFD", cleaned.lower())
        for part in cleaned:
            if do_lower_case and unicodedata.category(part) == "Mn":
                continue
            alone = reference_text.is_punctuation(part)
            alone = alone or reference_text.is_cjk(character)
            if alone:
                end_word()
            word.append((part, place))
            if alone:
                end_word()
    end_word()
    return words


def locate(text, entries, do_lower_case):
    """Returns (piece, start, limit) of every piece of every word."""
    located = []
    for word in located_words(text, do_lower_case):
        spelled = "".join(character for character, _ in word)
        # Which sigma it is depends on the whole word.
        if do_lower_case:
            spelled = _same_sigmas(spelled, text, do_lower_case, len(located))
        pieces = reference_text.wordpiece(spelled, entries)
        row, start = [], 0
        for piece in pieces:
            length = len(piece) - 2 * (start > 0)
            if pieces == ["[UNK]"]:
                length = len(word)
            last = word[start + length - 1][1]
            limit = last + 1
            while (
                do_lower_case
                and limit < len(text)
                and unicodedata.category(text[limit]) == "Mn"
                and not _stays(text[limit])
            ):
                limit += 1
            row.append((piece, word[start][1], limit))
            start += length
        located.append(row)
    return located


def _same_sigmas(spelled, text, do_lower_case, index):
    whole = reference_text.split_words(text, do_lower_case)[index]
    assert whole.replace("ς", "σ") == spelled.replace("ς", "σ")
    return whole


def _stays(mark):
    lower = unicodedata.normalize("NFD", mark.lower())
    return any(unicodedata.category(part) != "Mn" for part in lower)


def windows(
    question, context, span, entries, max_seq_length, doc_stride, max_query
):
    """Returns every window: tokens, places, labels, as the original's loops.

    Args:
        question, context: Strings, lower-cased here.
        span: (start, limit) of the answer, or (-1, -1).
        entries: A set of the vocabulary's entries.

    Returns:
        A list of dictionaries: `tokens`, a list of strings; `places`, {place
        of a token: (start, limit) in the context}; `is_max_context`, {place
        of a token: bool}; `label`, the places of the answer's ends.
    """
    asked = [p for word in locate(question, entries, True) for p, _, _ in word]
    asked = asked[:max_query]
    pieces = [
        piece for word in locate(context, entries, True) for piece in word
    ]
    room = max_seq_length - len(asked) - 3
    spans = []
    start = 0
    while True:
        length = min(len(pieces) - start, room)
        spans.append((start, length))
        if start + length == len(pieces):
            break
        start += min(length, doc_stride)

    touched = [
        index
        for index, (_, start, limit) in enumerate(pieces)
        if start < span[1] and limit > span[0]
    ]
    found = []
    for number, (start, length) in enumerate(spans):
        shown = range(start, start + length)
        offset = len(asked) + 2 - start
        label = (0, 0)
        if touched and touched[0] in shown and touched[-1] in shown:
            label = (touched[0] + offset, touched[-1] + offset)
        tokens = ["[CLS]", *asked, "[SEP]"]
        tokens += [*(pieces[index][0] for index in shown), "[SEP]"]
        found.append(
            {
                "tokens": tokens,
                "places": {
                    index + offset: pieces[index][1:] for index in shown
                },
                "is_max_context": {
                    index + offset: _best_window(spans, index) == number
                    for index in shown
                },
                "label": label,
            }
        )
    return found


def _best_window(spans, index):
    best, best_score = None, None
    for number, (start, length) in enumerate(spans):
        end = start + length - 1
        if not start <= index <= end:
            continue
        score = min(index - start, end - index) + 0.01 * length
        if best_score is None or score > best_score:
            best, best_score = number, score
    return best


def nbest(
    context, shown, start_logits, end_logits, n_best, max_length, version_2
):
    """Returns ([(text, probability, start logit, end logit)], null odds).

    Args:
        context: The text.
        shown: The windows of one question, as `windows` gives them.
        start_logits, end_logits: Of each window a list of floats.
        n_best, max_length: Limits of the candidates and of their pieces.
        version_2: Whether there may be no answer.
    """
    candidates = []
    null = None
    for window, starts, ends in zip(shown, start_logits, end_logits):
        if null is None or starts[0] + ends[0] < null[0]:
            null = (starts[0] + ends[0], starts[0], ends[0], "")
        for start in _best_places(starts, n_best):
            for end in _best_places(ends, n_best):
                if start not in window["places"]:
                    continue
                if end not in window["places"]:
                    continue
                if not window["is_max_context"][start]:
                    continue
                if end < start or end - start + 1 > max_length:
                    continue
                first = window["places"][start][0]
                limit = window["places"][end][1]
                candidates.append(
                    (
                        starts[start] + ends[end],
                        starts[start],
                        ends[end],
                        context[first:limit],
                    )
                )
    if version_2:
        candidates.append(null)
    candidates.sort(key=lambda candidate: candidate[0], reverse=True)
    kept = []
    for candidate in candidates:
        if len(kept) < n_best and candidate[3] not in [c[3] for c in kept]:
            kept.append(candidate)
    if version_2 and null[3] not in [c[3] for c in kept]:
        kept.append(null)
    if not kept:
        kept = [(0.0, 0.0, 0.0, "")]
    total = sum(math.exp(candidate[0]) for candidate in kept)
    best = next((c for c in kept if c[3]), None)
    odds = None
    if version_2:
        odds = null[0] - best[1] - best[2] if best else 1_000_000.0
    return [
        (text, math.exp(score) / total, start, end)
        for score, start, end, text in kept
    ], odds


def _best_places(logits, n_best):
    ranked = sorted(range(len(logits)), key=lambda i: logits[i], reverse=True)
    return ranked[:n_best]


def find_answers(task, source, logits):
    """Answers all questions as google-research/bert does, in NumPy.

    The windows are the library's; what is chosen in them is not.

    Args:
        task: A `SquadTask`.
        source: A `WindowSource`.
        logits: float32 `[N, L, 2]`, of its windows.

    Returns:
        Three dictionaries by the questions' ids: the entries of nbest, as of
        `SquadAnswers`; their (start, limit); and the null odds.
    """
    entries, spans, odds = {}, {}, {}
    contexts = [
        source.examples.context(index)
        for index in range(len(source.examples.ids))
    ]
    windows = cut_windows(
        source.maker,
        tf.constant(source.examples.questions),
        tf.constant(contexts),
    )
    found = (logits, *places(windows))
    rows = windows.rows.numpy()
    for index, name in enumerate(source.examples.ids):
        context = contexts[index]
        own, *others = (values[rows == index] for values in found)
        ranked = [
            span
            for window in zip(own, *others)
            for span in _spans_of_window(task, *window)
        ]
        nulls = [
            (float(a) + float(b), float(a), float(b)) for a, b in own[:, 0]
        ]
        null = (*min(nulls, key=lambda null: null[0]), None, None)
        if task.version_2_with_negative:
            ranked.append(null)
        # The sort is stable: of equals the first window's comes first.
        ranked.sort(key=lambda span: -span[0])
        chosen = {}
        for span in ranked:
            start, limit = span[3:]
            text = "" if start is None else context[start:limit]
            if len(chosen) < task.n_best_size and text not in chosen:
                chosen[text] = span
        if task.version_2_with_negative:
            chosen.setdefault("", null)
        if not chosen:
            chosen[""] = (0.0, 0.0, 0.0, None, None)
        scores = np.array([score for score, *_ in chosen.values()])
        probabilities = np.exp(scores - np.max(scores))
        probabilities /= np.sum(probabilities)
        entries[name] = [
            {
                "text": text,
                "probability": float(probability),
                "start_logit": start_logit,
                "end_logit": end_logit,
            }
            for (text, (_, start_logit, end_logit, *_)), probability in zip(
                chosen.items(), probabilities
            )
        ]
        spans[name] = [
            (-1, -1) if start is None else (start, limit)
            for *_, start, limit in chosen.values()
        ]
        if task.version_2_with_negative:
            best = next((e for e in entries[name] if e["text"]), None)
            odds[name] = 1_000_000.0
            if best is not None:
                odds[name] = null[0] - best["start_logit"] - best["end_logit"]
    return entries, spans, odds


def places(windows):
    """Returns starts, limits and what has most context, each `[N, L]`."""
    pieces = windows.packed["pieces"].numpy()
    return (
        *(
            np.append(values.flat_values.numpy(), -1)[pieces]
            for values in (windows.offsets.starts, windows.offsets.limits)
        ),
        windows.packed["is_max_context"].numpy(),
    )


def _spans_of_window(task, logits, starts, limits, is_max_context):
    # Sums are in float64, as the original's.
    logits = logits.astype(np.float64)
    first, last = (
        np.argsort(-logits[:, column], kind="stable")[: task.n_best_size]
        for column in (0, 1)
    )
    length = last[None, :] - first[:, None]
    fits = is_max_context[first][:, None] & (starts[last] >= 0)[None, :]
    fits &= (length >= 0) & (length < task.max_answer_length)
    return [
        (
            float(logits[first[i], 0] + logits[last[j], 1]),
            float(logits[first[i], 0]),
            float(logits[last[j], 1]),
            int(starts[first[i]]),
            int(limits[last[j]]),
        )
        for i, j in np.argwhere(fits)
    ]
