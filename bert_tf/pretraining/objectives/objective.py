"""What an objective of pre-training declares of its examples."""

import dataclasses
from collections.abc import Callable

from bert_tf import features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """How documents are cut into examples, and what their label says.

    Args:
        name: As in the setting `objective` and in manifests.
        cut: `cut(block, settings, vocabulary) -> (Corpus, Cuts)` of a block,
            a `Corpus`: the corpus that the cuts are places in, and all
            examples, in no particular order. They leave room for the special
            tokens of the vocabulary.
        min_sentences: Sentences that a document must have for an example.
        needs_documents: Whether an example takes text of another document.
        needs_sentences: Whether a sentence that is too long loses its end; if
            not, it becomes several.
    """

    name: str
    cut: Callable
    min_sentences: int = 1
    needs_documents: bool = False
    needs_sentences: bool = True

    @property
    def label_meanings(self) -> tuple[str, ...]:
        """What the label's values say, from 0 on; () if there is no label.

        The label is int64 [1] in a record, or [S] in a row of S examples.
        """
        return features.SENTENCE_LABELS[self.name]
