"""Answers from the logits of windows: candidates, ranked, cited.

The rules are google-research/bert's, but for the text of an answer: that is
the characters of the original that its pieces were made from, where the
original aligns words by their letters and sometimes gives whole words.
"""

import dataclasses
import math

import numpy as np
from keras import ops

from bert_tf import features
from bert_tf.tasks.question_answering import windows as squad_windows

# The score of no answer less that of the best, where there is no other.
NO_ANSWER_AT_ALL = 1_000_000.0
# Logits of padding.
_PADDING_LOGIT = -1e9


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquadAnswers:
    """What a model answers to every question, by their ids.

    Args:
        texts: The best answers.
        nbest: Lists of the best answers, as dictionaries of `text`,
            `probability`, `start_logit` and `end_logit`; with
            `version_2_with_negative` the text may be "", no answer.
        spans: Of each entry of `nbest` the characters of the text that it
            is, (start, limit), or (-1, -1) for no answer.
        null_odds: With `version_2_with_negative`, by how much no answer
            scores higher than the best answer.
    """

    texts: dict[str, str]
    nbest: dict[str, list]
    spans: dict[str, list]
    null_odds: dict[str, float]

    def predictions(self, task):
        """Returns {id: text}, "" where `task` prefers no answer."""
        return {
            name: ""
            if self.null_odds.get(name, -math.inf)
            > task.null_score_diff_threshold
            else text
            for name, text in self.texts.items()
        }


def stacked_outputs(model, max_seq_length):
    """Returns the model as `fine_tuning.Predictor` takes it.

    Differs from BERT: padding is no candidate. There its logits may take the
    places of others among the n best, as many as the sequence is long.

    Args:
        model: A `BertSpanPredictor`, or what is called as one.
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
            is_token_BL[:, :, None], logits_BLK, _PADDING_LOGIT
        )
        after = max_seq_length - ops.shape(logits_BLK)[1]
        return ops.pad(
            logits_BLK,
            [[0, 0], [0, after], [0, 0]],
            constant_values=_PADDING_LOGIT,
        )

    return call


def find_answers(task, source, logits):
    """Finds the answers to all questions.

    Args:
        task: A `SquadTask`.
        source: The `WindowSource`.
        logits: float32 `[N, L, 2]`, of every window in the source's order.

    Returns:
        `SquadAnswers`.
    """
    examples = source.examples
    texts, nbest, cited, null_odds = {}, {}, {}, {}
    places = source.places()
    row = 0
    for index, name in enumerate(examples.ids):
        windows = []
        for _ in range(source.num_windows[index]):
            windows.append((logits[row], next(places)))
            row += 1
        spans = _ranked_spans(task, windows)
        entries, cited[name] = _cited(task, spans, examples.context(index))
        nbest[name] = entries
        best = next((entry for entry in entries if entry["text"]), None)
        texts[name] = best["text"] if best else ""
        if task.version_2_with_negative:
            if best is None:
                null_odds[name] = NO_ANSWER_AT_ALL
            else:
                # Of the windows, that which is surest that there is one.
                null_odds[name] = (
                    min(_null_logits(*window)[0] for window in windows)
                    - best["start_logit"]
                    - best["end_logit"]
                )
    return SquadAnswers(
        texts=texts, nbest=nbest, spans=cited, null_odds=null_odds
    )


def _null_logits(logits, places):
    start, end = float(logits[0, 0]), float(logits[0, 1])
    return start + end, start, end, None, None


def _ranked_spans(task, windows):
    """Returns (score, start logit, end logit, start, limit), best first.

    The start and limit are places in the text, None for no answer.
    """
    spans = []
    for logits, places in windows:
        spans += _spans_of_window(task, logits, places)
    if task.version_2_with_negative:
        nulls = [_null_logits(*window) for window in windows]
        spans.append(min(nulls, key=lambda null: null[0]))
    # The sort is stable: of equals the first window's comes first.
    return sorted(spans, key=lambda span: -span[0])


def _spans_of_window(task, logits, places):
    # Sums are in float64, as the original's.
    logits = logits.astype(np.float64)
    starts, ends = (
        np.argsort(-logits[:, column], kind="stable")[: task.n_best_size]
        for column in (0, 1)
    )
    is_context = places[squad_windows.STARTS] >= 0
    fits = (
        places[squad_windows.IS_MAX_CONTEXT][starts][:, None]
        & is_context[ends][None, :]
        & (ends[None, :] >= starts[:, None])
        & (ends[None, :] - starts[:, None] < task.max_answer_length)
    )
    return [
        (
            float(logits[starts[i], 0] + logits[ends[j], 1]),
            float(logits[starts[i], 0]),
            float(logits[ends[j], 1]),
            int(places[squad_windows.STARTS][starts[i]]),
            int(places[squad_windows.LIMITS][ends[j]]),
        )
        for i, j in np.argwhere(fits)
    ]


def _cited(task, spans, context):
    """Returns the first spans of different texts, and where they stand.

    Returns:
        The entries of nbest, and a list of (start, limit).
    """
    chosen = {}
    null = None
    for span in spans:
        start, limit = span[3:]
        text = "" if start is None else context[start:limit]
        if start is None:
            null = span
        if len(chosen) < task.n_best_size and text not in chosen:
            chosen[text] = span
    if null is not None:
        chosen.setdefault("", null)
    if not chosen:
        chosen[""] = (0.0, 0.0, 0.0, None, None)
    scores = np.array([score for score, *_ in chosen.values()])
    probabilities = np.exp(scores - np.max(scores))
    probabilities /= np.sum(probabilities)
    entries = [
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
    places = [
        (-1, -1) if start is None else (start, limit)
        for *_, start, limit in chosen.values()
    ]
    return entries, places
