"""The sections of a report on answers to questions about texts."""

import collections
import math
import re
from typing import Any

import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.question_answering import scores as squad_scores
from bert_tf.tasks.question_answering.answers import SquadAnswers
from bert_tf.tasks.question_answering.files import SquadExamples

# The other results are counts and thresholds, which the sections show.
SCORES = (
    "exact_match",
    "exact",
    "f1",
    "HasAns_exact",
    "HasAns_f1",
    "NoAns_exact",
    "NoAns_f1",
)

_QUESTION_WORD = re.compile(
    r"\b(how many|how much|how|what|when|where|which|who(?:m|se)?|why)\b"
)
# The most words of an answer in each group, and the group's name.
_LENGTHS = (
    (0, "no answer"),
    (1, "1"),
    (2, "2"),
    (4, "3 or 4"),
    (8, "5 to 8"),
    (math.inf, "9 or more"),
)
_NONE = tables.Markdown("*none*")
# Characters of the text that are shown before and after an answer.
_CHARACTERS_AROUND = 80


def sections(
    task: Any,
    examples: SquadExamples,
    answers: SquadAnswers,
    results: dict[str, float],
) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`.

    Args:
        task: A `SquadTask`.
        examples: `SquadExamples` with answers.
        answers: The `SquadAnswers` to them.
        results: {name: float}, the official scores of these answers.

    Returns:
        A list of (heading, Markdown): the scores by question word and by the
        length of the first right answer; for SQuAD 2.0, how many questions
        were answered, and the thresholds of no answer; and the worst errors.
    """
    assert examples.answers is not None
    predictions = list(answers.predictions(task).values())
    question_scores = (
        squad_scores.question_scores_2_0
        if task.version_2_with_negative
        else squad_scores.question_scores_1_1
    )
    exact, partial = (
        100 * np.array(values, np.float64)
        for values in question_scores(predictions, examples.answers)
    )
    words = list(map(_question_word, examples.questions))
    lengths = [_length(own) for own in examples.answers]
    order = [word for word, _ in collections.Counter(words).most_common()]
    parts = [
        ("Questions", _groups("question", words, order, exact, partial)),
        (
            "Lengths of the first right answer",
            _groups(
                "words", lengths, [name for _, name in _LENGTHS], exact, partial
            ),
        ),
    ]
    if task.version_2_with_negative:
        parts += [
            ("Answered or not", _answered(predictions, examples.answers)),
            ("Thresholds of no answer", _thresholds(results)),
        ]
    worst = _worst(examples, answers, predictions, exact, partial)
    return [*parts, ("Worst errors", worst)]


def _question_word(question):
    """Returns the first question word, e.g. "how many", or "other"."""
    found = _QUESTION_WORD.search(question.lower())
    if found is None:
        return "other"
    return "who" if found[0].startswith("who") else found[0]


def _length(answers):
    length = len(answers[0].split()) if answers else 0
    return next(name for limit, name in _LENGTHS if length <= limit)


def _groups(name, groups, order, exact, partial):
    """Returns the table of the mean scores of each group of questions."""
    groups = np.array(groups)
    rows = []
    for group in order:
        is_in = groups == group
        if np.any(is_in):
            means = (
                float(np.mean(scores[is_in])) for scores in (exact, partial)
            )
            rows.append((group, np.sum(is_in), *means))
    return tables.table((name, "questions", "exact match", "F1"), rows)


def _answered(predictions, answers):
    counts = collections.Counter(
        (bool(own), bool(prediction))
        for own, prediction in zip(answers, predictions)
    )
    rows = [
        (name, counts[is_answerable, True], counts[is_answerable, False])
        for name, is_answerable in (
            ("has an answer", True),
            ("has no answer", False),
        )
    ]
    return tables.table(("", "answered", "not answered"), rows)


def _thresholds(results):
    rows = [
        (
            "used",
            results["null_score_diff_threshold"],
            results["exact"],
            results["f1"],
        ),
        (
            "best for exact match",
            results["best_exact_thresh"],
            results["best_exact"],
            "",
        ),
        ("best for F1", results["best_f1_thresh"], "", results["best_f1"]),
    ]
    return tables.table(("", "threshold", "exact match", "F1"), rows)


def _worst(examples, answers, predictions, exact, partial):
    entries, probabilities = [], []
    for name, prediction in zip(examples.ids, predictions):
        texts = [entry["text"] for entry in answers.nbest[name]]
        entries.append(texts.index(prediction))
        probabilities.append(answers.nbest[name][entries[-1]]["probability"])
    # Answers without any right word come before all others.
    badness = np.array(probabilities) + (partial == 0)
    rows = []
    for index in tables.worst(badness, exact == 0).tolist():
        name, right = examples.ids[index], examples.answers[index]
        context = examples.context(index)
        start, limit = answers.spans[name][entries[index]]
        if start < 0 and right:
            start = context.find(right[0])
            limit = start + len(right[0])
        rows.append(
            (
                name,
                examples.questions[index],
                " / ".join(dict.fromkeys(right)) or _NONE,
                predictions[index] or _NONE,
                float(partial[index]),
                probabilities[index],
                _excerpt(context, start, limit),
            )
        )
    header = (
        "id",
        "question",
        "right answers",
        "answer",
        "F1",
        "probability",
        "text around the answer or, without one, around the right answer",
    )
    return tables.errors_table(header, rows)


def _excerpt(context, start, limit):
    """Returns the text around a span, in bold; without one, its beginning."""
    if start < 0:
        start = limit = 0
    first = max(start - _CHARACTERS_AROUND, 0)
    last = limit + _CHARACTERS_AROUND
    before, span, after = map(
        tables.quote,
        (context[first:start], context[start:limit], context[limit:last]),
    )
    return tables.Markdown(
        ("…" if first > 0 else "")
        + before
        + (f"**{span}**" if span else "")
        + after
        + ("…" if last < len(context) else "")
    )
