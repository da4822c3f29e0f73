"""Added tokens: entries of a vocabulary that are found in texts as they are.

Hugging Face's `tokenizers` looks for them before a text is split into words.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

# What is looked for in texts: nothing, added tokens but not the model's own
# five special tokens, or these too, as transformers does.
NONE, ADDED, ALL = "none", "added", "all"
CHOICES = (NONE, ADDED, ALL)


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
        is_wordpiece: Whether the tokenizer is BERT's or MPNet's. In all kinds
            but BERT's a mask takes the space before it, like the word it
            replaces.
    """
    is_bert = is_wordpiece and special.mask == BERT.mask
    return AddedToken(
        content=content,
        lstrip=content == special.mask and not is_bert,
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


def check_choice(tokens_in_text: str) -> None:
    """Raises `ValueError` unless it is one of `CHOICES`."""
    if tokens_in_text not in CHOICES:
        raise ValueError(
            f"`tokens_in_text` must be one of {', '.join(CHOICES)}. "
            f"Received: tokens_in_text={tokens_in_text!r}."
        )


def looked_for(
    tokens: Iterable[AddedToken], vocabulary: Vocabulary, tokens_in_text: str
) -> tuple[AddedToken, ...]:
    """Returns the tokens that are looked for in texts, the special ones first.

    Args:
        tokens: The added tokens of a spec.
        vocabulary: Its `Vocabulary`.
        tokens_in_text: One of `CHOICES`.
    """
    if tokens_in_text == NONE:
        return ()
    found = with_defaults(tokens, vocabulary)
    if tokens_in_text == ADDED:
        own = vocabulary.special.names
        found = tuple(token for token in found if token.content not in own)
    return tuple(sorted(found, key=lambda token: not token.special))


def with_defaults(
    tokens: Iterable[AddedToken], vocabulary: Vocabulary
) -> tuple[AddedToken, ...]:
    """Returns all five special tokens, and then the others by their ids.

    Args:
        tokens: The added tokens of a spec.
        vocabulary: Its `Vocabulary`.
    """
    special = vocabulary.special
    others = sorted(tokens, key=lambda token: vocabulary.index(token.content))
    by_content = {
        name: default(name, special, vocabulary.is_wordpiece)
        for name in special.names
    } | {token.content: token for token in others}
    return tuple(by_content.values())


def settings(
    tokens: Iterable[AddedToken], tokens_in_text: str
) -> dict[str, Any]:
    """Returns {name: JSON-able value}, without what is as by default.

    Args:
        tokens: The added tokens of a spec.
        tokens_in_text: One of `CHOICES`.
    """
    found: dict[str, Any] = {}
    if tokens:
        found["added_tokens"] = [dataclasses.asdict(each) for each in tokens]
    if tokens_in_text != ADDED:
        found["tokens_in_text"] = tokens_in_text
    return found


def to_json(
    tokens: Iterable[AddedToken], vocabulary: Vocabulary
) -> list[dict[str, Any]]:
    """Returns the `added_tokens` of tokenizer.json: these and the special ones.

    Args:
        tokens: The added tokens of a spec.
        vocabulary: Its `Vocabulary`.
    """
    listed = with_defaults(tokens, vocabulary)
    no_pieces = apart(tokens)
    if not vocabulary.is_wordpiece or no_pieces:
        # `tokenizers` numbers those that its model lacks as they come.
        listed = sorted(listed, key=lambda t: vocabulary.index(t.content))
    return [
        {
            "id": vocabulary.index(token.content),
            "content": token.content,
            "single_word": token.single_word,
            "lstrip": token.lstrip,
            "rstrip": token.rstrip,
            "normalized": token.normalized,
            "special": token.special,
        }
        for token in listed
    ]


def apart(tokens: Iterable[AddedToken]) -> frozenset[str]:
    """Returns the contents of the tokens that no word is split into."""
    return frozenset(token.content for token in tokens if not token.is_piece)
