"""Sentence order (ALBERT): two consecutive segments, perhaps swapped.

Lan et al. 2020, section 3.1.

Differs from ALBERT: a chunk has at least two sentences, and the last chunk
also takes a single sentence that would be left over. In ALBERT a chunk of one
sentence gets a random second segment and the label of a swapped pair.
"""

import functools

import numpy as np

from bert_tf.pretraining import draws
from bert_tf.pretraining.objectives import sentence_pairs
from bert_tf.pretraining.objectives.objective import Objective

# One sentence has no order.
_MIN_SENTENCES = 2


def _step(corpus, walkers, draw):
    first = walkers.sentence
    bits = draw(draws.PAIR)
    last = sentence_pairs.sentences_until(
        corpus, first, walkers.target, walkers.end, _MIN_SENTENCES
    )
    last = np.where(walkers.end - last == 1, walkers.end, last)
    middle = first + 1 + draws.below(bits[0], last - first - 1)
    is_swapped = draws.happens(bits[1], 0.5)
    in_order = (
        sentence_pairs.segment(corpus, first, middle),
        sentence_pairs.segment(corpus, middle, last),
    )
    a = np.where(is_swapped, in_order[1], in_order[0])
    b = np.where(is_swapped, in_order[0], in_order[1])
    return a, b, is_swapped, last


OBJECTIVE = Objective(
    name="sentence_order",
    cut=functools.partial(
        sentence_pairs.make_pairs, step=_step, min_sentences=_MIN_SENTENCES
    ),
    min_sentences=_MIN_SENTENCES,
)
