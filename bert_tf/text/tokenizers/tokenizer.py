"""What the library asks of a tokenizer, whatever its kind."""

from collections.abc import Hashable
from typing import Any
from typing import Protocol

import tensorflow as tf

from bert_tf.text.offsets import Offsets
from bert_tf.text.vocabulary import Vocabulary


class Spec(Hashable, Protocol):
    """What a tokenizer is made of; frozen, hashed and pickled.

    Attributes:
        vocabulary: The `Vocabulary`: entries in the order of their ids.
        do_lower_case: Whether texts are lower-cased.
        settings: {name: JSON-able value} of what else the ids of a text are
            a function of.
        tokenizer_class: What transformers calls the kind, in
            tokenizer_config.json.
        folder_settings: {name: JSON-able value} of what else stands there
            for the kind.
        vocabulary_files: {name: contents} of the files in a folder that hold
            the vocabulary, beside tokenizer.json; str, or bytes of a binary
            file.
        tokenizer_json: What Hugging Face's `tokenizers` reads the kind from,
            in tokenizer.json; None if it cannot.
    """

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def do_lower_case(self) -> bool: ...

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

        The caller knows that one does after a special token.

        Args:
            ids: int32 `[B, L]`, of whole sequences: what stands before an id
                may tell what it is.
        """

    def spell(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns what entries of the vocabulary add to a text.

        Args:
            tokens: string, of any shape.

        Returns:
            string, of the same shape: with a space before what begins a word.
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
        """Returns the tokenizer of texts whose words are given one by one.

        Of it `tokenize` takes a word for each text, and spells it as in the
        middle of one. The words that `split_words` finds are those that data of
        tagging have; `tokenize_with_offsets` finds these, and tokenizes each of
        them like `tokenize`.
        """
