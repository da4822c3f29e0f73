"""The interface of tokenizers of every kind."""

from collections.abc import Hashable
from typing import Any
from typing import Protocol

import tensorflow as tf

from bert_tf.text.offsets import Offsets
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.vocabulary import Vocabulary


class Spec(Hashable, Protocol):
    """Describes a tokenizer; frozen, hashable and picklable.

    Attributes:
        vocabulary: The `Vocabulary`: entries in the order of their ids.
        do_lower_case: Whether texts are lower-cased.
        added_tokens: The `AddedToken`s that may be found in texts.
        tokens_in_text: Which tokens are: one of `added_tokens.CHOICES`.
        settings: {name: JSON-able value} of everything else that determines
            the ids of a text.
        tokenizer_class: What transformers calls the kind, in
            tokenizer_config.json.
        folder_settings: {name: JSON-able value} of other entries there that
            the kind needs.
        vocabulary_files: {name: contents} of the files in a folder that hold
            the vocabulary, besides tokenizer.json; str, or bytes of a binary
            file.
        tokenizer_json: The contents of tokenizer.json for Hugging Face's
            `tokenizers`; None if it does not have the kind.
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def do_lower_case(self) -> bool: ...

    @property
    def added_tokens(self) -> tuple[AddedToken, ...]: ...

    @property
    def tokens_in_text(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def tokenizer_class(self) -> str: ...

    @property
    def folder_settings(self) -> dict[str, Any]: ...

    @property
    def vocabulary_files(self) -> dict[str, str | bytes]: ...

    @property
    def tokenizer_json(self) -> dict[str, Any] | None: ...

    def make(self) -> "Tokenizer":
        """Returns the tokenizer."""

    def starts_word(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns bool `[B, L]`: whether a word starts there.

        Words also start after special tokens; the caller handles that.

        Args:
            ids: int32 `[B, L]`, of whole sequences: the answer may depend on
                the preceding id.
        """

    def spell(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns what entries of the vocabulary add to a text.

        Args:
            tokens: string, of any shape.

        Returns:
            string, of the same shape; a space precedes what begins a word.
        """


class Tokenizer(Hashable, Protocol):
    """Strings to ids, as TensorFlow operations: a `tf.Module`.

    Attributes:
        spec: The `Spec`.
    """

    @property
    def spec(self) -> Spec: ...

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of the words of every text.

        Args:
            texts: string `[B]`, UTF-8.

        Returns:
            RaggedTensor int32 `[B, (words), (pieces)]`.
        """

    def tokenize_with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, Offsets]:
        """Returns what `tokenize` does, and where the pieces come from."""

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of every text: string `[B, (words)]`."""

    def for_words(self) -> "Tokenizer":
        """Returns the tokenizer of words that are given one by one.

        Its `tokenize` takes words instead of texts, and spells each as in the
        middle of a text. Its `split_words` finds words as in data for tagging.
        Its `tokenize_with_offsets` finds the same words and tokenizes each like
        `tokenize`.
        """
