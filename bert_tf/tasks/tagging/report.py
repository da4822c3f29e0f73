"""The sections of a report on tagged words."""

import collections
import itertools
from collections.abc import Sequence

import numpy as np

from bert_tf.tasks import tables
from bert_tf.tasks.tagging import entity_scores
from bert_tf.tasks.tagging import entity_tags
from bert_tf.tasks.tagging.files import TaggingExamples
from bert_tf.tasks.task import Task

# The scores of all entities together; those by type have a table.
SCORES = ("eval_precision", "eval_recall", "eval_f1", "eval_token_accuracy")

# Words that are shown before and after a wrong entity.
_WORDS_AROUND = 8
_MAX_WORDS = 80


def sections(
    task: Task, examples: TaggingExamples, tags: Sequence[str]
) -> list[tuple[str, str]]:
    """Returns the sections for `tuning.report.write`.

    Args:
        task: A `TaggingTask`.
        examples: `TaggingExamples` with tags.
        tags: The predicted tags of their W words.

    Returns:
        A list of (heading, Markdown): the scores of every type of entity; the
        confusion matrix of the words by the types of their tags; and the
        sentences with the most wrong entities.
    """
    sentences = list(zip(*map(examples.by_sentence, (tags, examples.tags))))
    num_found, num_wanted = (collections.Counter[str]() for _ in range(2))
    num_wrong = []
    entities = [
        (set(found), set(wanted))
        for found, wanted in zip(
            *map(entity_tags.find_entities, zip(*sentences))
        )
    ]
    for found, wanted in entities:
        num_found.update(entity.type for entity in found)
        num_wanted.update(entity.type for entity in wanted)
        num_wrong.append(len(found ^ wanted))
    scores = entity_scores.score_tags(*zip(*sentences))
    return [
        ("Entities", _types(num_wanted, num_found, scores)),
        ("Confusion of words", _confusion(task, examples, tags)),
        ("Worst errors", _worst(examples, entities, np.array(num_wrong))),
    ]


def _types(num_wanted, num_found, scores):
    rows = [
        (
            type_ or "all",
            num_wanted[type_] if type_ else num_wanted.total(),
            num_found[type_] if type_ else num_found.total(),
            *(
                scores[f"{type_}_{name}" if type_ else name]
                for name in ("precision", "recall", "f1")
            ),
        )
        for type_ in (*sorted({*num_wanted, *num_found}), "")
    ]
    header = ("type", "entities", "predicted", "precision", "recall", "F1")
    return tables.table(header, rows)


def _confusion(task, examples, tags):
    types = {entity_tags.type_of(tag) for tag in task.labels} - {""}
    names = [*sorted(types), entity_tags.OUTSIDE]
    # A type may be named O, too; only the tag "O" is outside.
    ids = {
        tag: names.index(entity_tags.type_of(tag))
        for tag in task.labels
        if tag != entity_tags.OUTSIDE
    }
    ids[entity_tags.OUTSIDE] = len(types)
    return tables.confusions(
        names,
        [ids[tag] for tag in tags],
        [ids[tag] for tag in examples.tags],
    )


def _worst(examples, entities, num_wrong):
    words_of = examples.by_sentence(examples.words)
    rows = []
    for index in tables.worst(num_wrong, num_wrong > 0):
        words = words_of[index]
        found, wanted = entities[index]
        rows.append(
            (
                index + 1,
                num_wrong[index],
                _shown_words(words, found ^ wanted),
                _listed(words, wanted - found),
                _listed(words, found - wanted),
            )
        )
    header = ("sentence", "errors", "words", "missed", "wrongly found")
    return tables.errors_table(header, rows)


def _shown_words(words, entities):
    """Returns a cell: the words around some entities, which are bold."""
    is_inside, is_near = np.zeros([2, len(words)], bool)
    for entity in entities:
        is_inside[entity.start : entity.limit] = True
        first = max(entity.start - _WORDS_AROUND, 0)
        is_near[first : entity.limit + _WORDS_AROUND] = True
    is_near &= np.cumsum(is_near) <= _MAX_WORDS
    is_inside &= is_near
    runs = []
    for (is_shown, is_bold), run in itertools.groupby(
        range(len(words)), key=lambda place: (is_near[place], is_inside[place])
    ):
        text = tables.quote(" ".join(words[place] for place in run))
        if not is_shown:
            text = "…"
        elif is_bold:
            text = f"**{text}**"
        runs.append(text)
    return tables.Markdown(" ".join(runs))


def _listed(words, entities):
    return "; ".join(
        f"{' '.join(words[entity.start : entity.limit])} ({entity.type})"
        for entity in sorted(entities, key=lambda entity: entity.start)
    )
