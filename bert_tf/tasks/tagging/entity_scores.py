"""Precision, recall and F1 of entities, as seqeval counts them.

An entity is found if its first word, its last word and its type are right.
Entities end with their sentence. The counts equal those of seqeval in its
default mode, for all tags of bio, iob1 and bioes, valid or not. That mode does
not know bilou, which is counted as bioes with E for L and S for U.

In bio and iob1 the counts also equal those of the Perl script conlleval, which
prints its ratios in percent. In other schemes it may join two entities of one
type: to it, B- right after E- begins none, and it does not know S-.
"""

import collections
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from bert_tf.tasks.tagging import entity_tags

_NAMES = ("precision", "recall", "f1")


def score_tags(
    predicted: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Scores the tags of all sentences.

    Args:
        predicted: The list of tags of each sentence.
        wanted: The right tags, in lists of the same lengths.

    Returns:
        {name: float}, each in [0, 1], and 0 where it is not defined:
        `precision`, `recall` and `f1` of all entities together,
        `token_accuracy`, the share of words with the right tag, and for every
        type of entity `<type>_precision`, `<type>_recall` and `<type>_f1`.
    """
    num_right, num_predicted, num_wanted = (
        collections.Counter[str]() for _ in range(3)
    )
    num_words = num_hits = 0
    entities_of = map(entity_tags.find_entities, (predicted, wanted))
    for tags, right_tags, entities, right_entities in zip(
        predicted, wanted, *entities_of, strict=True
    ):
        num_words += len(right_tags)
        num_hits += sum(
            tag == right for tag, right in zip(tags, right_tags, strict=True)
        )
        num_predicted.update(entity.type for entity in entities)
        num_wanted.update(entity.type for entity in right_entities)
        num_right.update(
            entity.type for entity in set(entities) & set(right_entities)
        )
    scores = _ratios(
        "", num_right.total(), num_predicted.total(), num_wanted.total()
    )
    scores["token_accuracy"] = _ratio(num_hits, num_words)
    for type_ in sorted({*num_predicted, *num_wanted}):
        scores |= _ratios(
            f"{type_}_",
            num_right[type_],
            num_predicted[type_],
            num_wanted[type_],
        )
    return scores


def entity_f1(
    found: Sequence[AbstractSet[Any]], wanted: Sequence[AbstractSet[Any]]
) -> float:
    """Returns the F1 of entities, from 0 to 1; 0 where there are none.

    Args:
        found, wanted: The set of entities of each sentence, in any form.
    """
    num_right = sum(len(a & b) for a, b in zip(found, wanted))
    return _ratio(2 * num_right, sum(map(len, (*found, *wanted))))


def _ratios(prefix, num_right, num_predicted, num_wanted):
    values = (
        _ratio(num_right, num_predicted),
        _ratio(num_right, num_wanted),
        _ratio(2 * num_right, num_predicted + num_wanted),
    )
    return {f"{prefix}{name}": value for name, value in zip(_NAMES, values)}


def _ratio(part, whole):
    return part / whole if whole else 0.0
