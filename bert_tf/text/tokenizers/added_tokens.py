"""Added tokens: entries of a vocabulary that are found in texts as they are.

Hugging Face's `tokenizers` looks for them before a text is split into words.
"""

import dataclasses
from collections.abc import Iterable

from bert_tf.text.vocabulary import SpecialTokens


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedToken:
    """An entry that is looked for in texts; its id is that of the vocabulary.

    Args:
        content: The entry.
        lstrip: Whether it takes the white space before it.
        rstrip: Whether it takes the white space behind it.
        single_word: Whether it is only found where no letter, digit or
            underscore precedes or follows it.
        normalized: Whether it is looked for in the normalised text (lower
            case, no accents, ...), as the normaliser makes it, not in the
            text as it is.
        special: Whether `tokenizers` calls it special.
        is_piece: Whether words are also split into it: the tokenizer's model
            has the entry, too.
    """

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False
    is_piece: bool = False


def default(
    content: str, special: SpecialTokens, is_wordpiece: bool
) -> AddedToken:
    """Returns a special token as its kind of tokenizer has it by default.

    Args:
        content: One of the five special tokens.
        special: The `SpecialTokens`.
        is_wordpiece: Whether the tokenizer is BERT's. In the other kinds a
            mask takes the space before it, like the word it replaces.
    """
    return AddedToken(
        content=content,
        lstrip=content == special.mask and not is_wordpiece,
        special=True,
        is_piece=True,
    )


def without_defaults(
    tokens: Iterable[AddedToken], special: SpecialTokens, is_wordpiece: bool
) -> tuple[AddedToken, ...]:
    """Returns the tokens but for special ones that are as by default."""
    return tuple(
        token
        for token in tokens
        if token.content not in special.names
        or dataclasses.replace(token, is_piece=True)
        != default(token.content, special, is_wordpiece)
    )
