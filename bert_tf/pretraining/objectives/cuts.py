"""Examples as they are cut from a corpus: positions, not yet tokens."""

import dataclasses

import numpy as np

from bert_tf.pretraining import draws
from bert_tf.pretraining.corpus.blocks import Corpus


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cuts:
    """Examples of one or two segments; every field is an array [examples].

    Args:
        a_start: int64, where segment A begins in the corpus' tokens.
        a_length: int64, its number of tokens after truncation.
        b_start: int64, where segment B begins.
        b_length: int64; 0 if there is no segment B.
        label: bool, the objective's label of the two segments.
        document: int64, the document's number in the corpus.
        pass_number: int64.
        ordinal: int64, tells apart the examples of a document and pass.
        order: uint64, random: examples sorted by it are shuffled.
        seeds: int64 [examples, 2], random seeds for masking the example.
    """

    a_start: np.ndarray
    a_length: np.ndarray
    b_start: np.ndarray
    b_length: np.ndarray
    label: np.ndarray
    document: np.ndarray
    pass_number: np.ndarray
    ordinal: np.ndarray
    order: np.ndarray
    seeds: np.ndarray

    def __len__(self):
        return len(self.a_start)

    def shuffled(self) -> "Cuts":
        """Returns the examples sorted by `order`, as in the records."""
        # The other keys break ties of examples that share all 64 bits.
        indices = np.lexsort(
            (self.ordinal, self.pass_number, self.document, self.order)
        )
        return Cuts(
            **{name: values[indices] for name, values in vars(self).items()}
        )


def concatenate(fields: list[dict]) -> dict:
    """Concatenates a list of {name: array}, name by name."""
    return {
        name: np.concatenate([each[name] for each in fields])
        for name in fields[0]
    }


def with_randomness(fields: dict, corpus: Corpus, seed: int) -> Cuts:
    """Returns `Cuts` of these fields, with `order` and `seeds` drawn."""
    bits = draws.draw(
        draws.EXAMPLE,
        seed,
        corpus.document_keys[fields["document"]],
        fields["pass_number"],
        fields["ordinal"],
    )
    return Cuts(
        **fields,
        order=bits[0] << np.uint64(32) | bits[1],
        seeds=np.stack(bits[2:], axis=-1).astype(np.int64),
    )
