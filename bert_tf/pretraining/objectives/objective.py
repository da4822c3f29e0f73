"""The properties of a pre-training objective."""

import dataclasses
from collections.abc import Callable

from bert_tf import features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """How documents are cut into examples, and what their label means.

    Args:
        name: The name in the setting `objective` and in manifests.
        cut: `cut(block, settings, vocabulary) -> (Corpus, Cuts)`. It takes a
            block as a `Corpus`. It returns the corpus that the cuts index,
            and all examples, in no particular order. They leave room for the
            special tokens of the vocabulary.
        min_sentences: Fewest sentences of a document that yields an example.
        needs_documents: Whether an example takes text from another document.
        needs_sentences: Whether a sentence that is too long loses its end. If
            not, it is split.
    """

    name: str
    cut: Callable
    min_sentences: int = 1
    needs_documents: bool = False
    needs_sentences: bool = True

    @property
    def label_meanings(self) -> tuple[str, ...]:
        """The meanings of labels 0, 1, ...; () if there is no label.

        The label is int64 [1] in a record, or [S] in a row of S examples.
        """
        return features.SENTENCE_LABELS[self.name]
