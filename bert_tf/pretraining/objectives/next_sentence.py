"""Next sentence (BERT): B follows A, or is text from another document.

Devlin et al. 2018, section 3.1, by the rules of google-research/bert.
"""

import functools

import numpy as np

from bert_tf.pretraining import draws
from bert_tf.pretraining.objectives import sentence_pairs
from bert_tf.pretraining.objectives.objective import Objective

# Tries of the original to draw a document other than the current one.
_NUM_TRIES = 10


def _step(corpus, walkers, draw):
    document_starts = corpus.document_starts
    first, target = walkers.sentence, walkers.target
    bits = draw(draws.PAIR)
    # The chunk is sentences [first, last). A gets one or more from its front.
    last = sentence_pairs.sentences_until(corpus, first, target, walkers.end)
    count = last - first
    a_end = first + 1 + np.where(count > 1, draws.below(bits[0], count - 1), 0)
    a = sentence_pairs.segment(corpus, first, a_end)

    is_random = (count == 1) | draws.happens(bits[1], 0.5)
    other = draws.below(bits[2], corpus.num_documents)
    # The few walkers that drew their own document try again. If every try
    # fails, they keep it, as the original does: the "random" next sentence is
    # then from the same document. With only one document, retrying is useless.
    for attempt in range(1, _NUM_TRIES if corpus.num_documents > 1 else 1):
        again = other == walkers.document
        if not again.any():
            break
        tries = draw(draws.OTHER_DOCUMENT + attempt // 4)[attempt % 4]
        other = np.where(again, draws.below(tries, corpus.num_documents), other)
    other_size = document_starts[other + 1] - document_starts[other]
    random_first = document_starts[other] + draws.below(bits[3], other_size)
    random_last = sentence_pairs.sentences_until(
        corpus, random_first, target - a[1], document_starts[other + 1]
    )
    b = sentence_pairs.segment(
        corpus,
        np.where(is_random, random_first, a_end),
        np.where(is_random, random_last, last),
    )
    # Sentences of the chunk that a random B replaced are used by later pairs.
    return a, b, is_random, np.where(is_random, a_end, last)


OBJECTIVE = Objective(
    name="next_sentence",
    cut=functools.partial(sentence_pairs.make_pairs, step=_step),
    needs_documents=True,
)
