"""Cuts documents into sequences of full sentences (RoBERTa's FULL-SENTENCES).

Liu et al. 2019, section 4.2: each sequence holds as many consecutive sentences
as fit, from one or more documents, with a [SEP] between documents. There are
no pairs and no label. The documents of a block are first shuffled, once for
all passes.
"""

import numpy as np

from bert_tf.pretraining import draws
from bert_tf.pretraining.corpus.blocks import Corpus
from bert_tf.pretraining.corpus.blocks import starts_of
from bert_tf.pretraining.objectives import cuts as cuts_lib
from bert_tf.pretraining.objectives.objective import Objective
from bert_tf.pretraining.settings import Settings


def _cut(corpus, settings, vocabulary):
    arranged = arrange(
        corpus,
        vocabulary.sep_id,
        settings.max_seq_length,
        settings.random_seed,
    )
    return arranged, make_sequences(arranged, settings)


OBJECTIVE = Objective(name="full_sentences", cut=_cut, needs_sentences=False)


def arrange(
    corpus: Corpus, sep_id: int, max_seq_length: int, random_seed: int
) -> Corpus:
    """Returns a block as one text: shuffled, [SEP] between documents.

    Args:
        corpus: A block, a `Corpus`.
        sep_id: The id of [SEP].
        max_seq_length: L. A sentence that is too long is split.
        random_seed: In [0, 2**32).

    Returns:
        A `Corpus` of the same documents in another order. Every document but
        the last ends with a sentence that is a single [SEP].
    """
    bits = draws.draw(draws.ARRANGEMENT, random_seed, corpus.document_keys)
    order = np.lexsort((corpus.document_keys, bits[1], bits[0]))
    lengths = np.diff(corpus.sentence_starts)
    room = max_seq_length - 2
    tokens, sentences, counts = [], [], []
    for document in order:
        first, last = corpus.document_starts[document : document + 2]
        begin, end = corpus.sentence_starts[[first, last]]
        num_pieces = -(-lengths[first:last] // room)
        pieces = np.full(num_pieces.sum(), room)
        # The last piece of each sentence is the remainder.
        pieces[np.cumsum(num_pieces) - 1] = lengths[first:last] - room * (
            num_pieces - 1
        )
        tokens += [corpus.tokens[begin:end], [sep_id]]
        sentences += [pieces, [1]]
        counts.append(len(pieces) + 1)
    # No document follows the last one.
    counts = np.array(counts, np.int64)
    counts[-1:] -= 1
    nothing = np.zeros(0, np.int64)
    return Corpus(
        tokens=np.concatenate([nothing, *tokens[:-1]]).astype(np.int32),
        sentence_starts=starts_of(np.concatenate([nothing, *sentences[:-1]])),
        document_starts=starts_of(counts),
        document_keys=corpus.document_keys[order],
    )


def make_sequences(corpus: Corpus, settings: Settings) -> cuts_lib.Cuts:
    """Cuts an arranged block into sequences, in every pass.

    With probability `short_seq_prob`, a sequence is cut to a random shorter
    length. Passes differ only by these short sequences and by their masks:
    the sequences between two short ones are mostly the same in all passes.

    Args:
        corpus: As `arrange` returns it.
        settings: The `Settings`.

    Returns:
        `Cuts` whose segment B is empty, in no particular order.
    """
    starts = corpus.sentence_starts
    num_sentences = len(starts) - 1
    room = settings.max_seq_length - 2
    lengths = np.diff(starts)
    document = np.repeat(
        np.arange(corpus.num_documents), np.diff(corpus.document_starts)
    )
    ordinal = np.arange(num_sentences) - corpus.document_starts[document]
    # The last sentence of every document but the last one is [SEP].
    is_sep = np.zeros(num_sentences, bool)
    is_sep[corpus.document_starts[1:-1] - 1] = True
    fields = []
    for pass_number in range(settings.dupe_factor):
        bits = draws.draw(
            draws.SEQUENCE,
            settings.random_seed,
            corpus.document_keys[document],
            pass_number,
            ordinal,
        )
        is_short = draws.happens(bits[0], settings.short_seq_prob)
        target = np.where(is_short, 1 + draws.below(bits[1], room), room)
        # Where a sequence that begins at this sentence would end.
        end = np.searchsorted(starts, starts[:-1] + target, side="right") - 1
        end = np.maximum(end, np.arange(num_sentences) + 1).tolist()
        first, place = [], 0
        while place < num_sentences:
            # A sequence does not begin with the [SEP] of a document.
            if not is_sep[place]:
                first.append(place)
                place = end[place]
            else:
                place += 1
        first = np.array(first, np.int64)
        last = np.array(end, np.int64)[first]
        # It does not end with one either: `pack` adds the last [SEP].
        last -= is_sep[last - 1]
        nothing = np.zeros_like(first)
        fields.append(
            {
                "a_start": starts[first],
                "a_length": starts[last] - starts[first],
                "b_start": nothing,
                "b_length": nothing,
                "label": nothing.astype(bool),
                "document": document[first],
                "pass_number": np.full(len(first), pass_number),
                "ordinal": ordinal[first],
            }
        )
    assert (lengths <= room).all()
    return cuts_lib.with_randomness(
        cuts_lib.concatenate(fields), corpus, settings.random_seed
    )
