"""tokenizer.json, from which Hugging Face's `tokenizers` reads a tokenizer.

`tokenizers` then gives the same ids as ours, except for:

- a special token in a text, such as "[SEP]": it is a token there, text here by
  default;
- a capital sigma at the end of a word, which has a lower case of its own;
- characters of private use, which are dropped there;
- punctuation, accents and formats that are newer than its Unicode tables, and
  the 256 ideographs from U+2B820, which it does not separate;
- a pair that is cut to an odd number of tokens: here A keeps the odd one
  (`packing.pack`), with its `enable_truncation` B does.
"""

from typing import Any

from bert_tf import files
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.vocabulary import Vocabulary

WORDPIECE = "WordPiece"
_PRE_TOKENIZER = {"type": "BertPreTokenizer"}
_RIGHT = "Right"


def make_wordpiece(
    vocabulary: Vocabulary,
    do_lower_case: bool,
    max_chars_per_word: int,
    added_tokens: tuple[AddedToken, ...] = (),
) -> dict[str, Any]:
    """Returns the contents of the file for BERT's tokenizer.

    Args:
        vocabulary: A `Vocabulary`.
        do_lower_case: Whether texts lose case and accents.
        max_chars_per_word: Longer words are unknown.
        added_tokens: As in `WordpieceSpec`.
    """
    apart = added_tokens_lib.apart(added_tokens)
    ids = {
        token: index
        for index, token in enumerate(vocabulary.tokens)
        if token not in apart
    }
    cls_token, sep_token = vocabulary_lib.CLS_TOKEN, vocabulary_lib.SEP_TOKEN
    first = [_special(cls_token, 0), _sequence("A", 0), _special(sep_token, 0)]
    second = [_sequence("B", 1), _special(sep_token, 1)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens_lib.to_json(added_tokens, vocabulary),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": bool(do_lower_case),
        },
        "pre_tokenizer": _PRE_TOKENIZER,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": first,
            "pair": first + second,
            "special_tokens": {
                token: {
                    "id": token,
                    "ids": [vocabulary.index(token)],
                    "tokens": [token],
                }
                for token in (cls_token, sep_token)
            },
        },
        "decoder": {
            "type": "WordPiece",
            "prefix": vocabulary_lib.CONTINUATION,
            "cleanup": True,
        },
        "model": {
            "type": "WordPiece",
            "unk_token": vocabulary_lib.UNK_TOKEN,
            "continuing_subword_prefix": vocabulary_lib.CONTINUATION,
            "max_input_chars_per_word": max_chars_per_word,
            "vocab": ids,
        },
    }


def _special(token, segment):
    return {"SpecialToken": {"id": token, "type_id": segment}}


def _sequence(name, segment):
    return {"Sequence": {"id": name, "type_id": segment}}


def model_type(tokenizer: dict[str, Any]) -> Any:
    """Returns the type of a file's `model`.

    Args:
        tokenizer: The contents of the file.
    """
    model = tokenizer.get("model")
    if not isinstance(model, dict):
        return model
    # Older files do not name the type.
    return model.get("type", "BPE" if "merges" in model else WORDPIECE)


def check_truncation(tokenizer: dict[str, Any]) -> None:
    """Checks that a file keeps the first pieces of long texts, as we do.

    Padding is not checked: on whichever side it is, a text has the results of
    the text without padding here.

    Args:
        tokenizer: The contents of the file.

    Raises:
        ValueError: If it keeps the last pieces.
    """
    truncation = tokenizer.get("truncation")
    if isinstance(truncation, dict):
        truncation = truncation.get("direction", _RIGHT)
    if truncation not in (None, _RIGHT):
        raise ValueError(
            f"`truncation` must be null or have the direction {_RIGHT!r}. "
            f"Received: {files.shortened(tokenizer['truncation'])}."
        )


def wordpiece_tokens(tokenizer: dict[str, Any]) -> tuple[str, ...]:
    """Returns the entries of a file's vocabulary, in the order of their ids.

    Args:
        tokenizer: The contents of the file.

    Raises:
        ValueError: If the tokenizer is not a WordPiece tokenizer.
    """
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model_type(tokenizer) != WORDPIECE:
        received = model.get("type") if isinstance(model, dict) else model
        raise ValueError(
            "`model` must be of the type WordPiece, as BERT's is. Received: "
            f"{files.shortened(received)}."
        )
    prefix = model.get("continuing_subword_prefix", vocabulary_lib.CONTINUATION)
    if prefix != vocabulary_lib.CONTINUATION:
        raise ValueError(
            "`continuing_subword_prefix` must be "
            f"{vocabulary_lib.CONTINUATION!r}. "
            f"Received: {files.shortened(prefix)}."
        )
    return tokens_of(tokenizer)


def check_wordpiece(tokenizer: dict[str, Any]) -> None:
    """Checks that a file splits and truncates texts as BERT's tokenizer does.

    Args:
        tokenizer: The contents of the file.

    Raises:
        ValueError: If it looks for tokens other than special ones before it
            splits texts, or splits or truncates them differently.
    """
    check_truncation(tokenizer)
    for token in _added_tokens(tokenizer):
        is_special = token["content"] in vocabulary_lib.SPECIAL_TOKENS
        # `tokenizers` itself always writes `special`.
        if not (is_special or token.get("special", True)):
            raise ValueError(
                "`added_tokens` must be special tokens: others are not looked "
                f"for in texts. Received: {files.shortened(token['content'])}."
            )
    splits = tokenizer.get("pre_tokenizer", _PRE_TOKENIZER)
    if splits != _PRE_TOKENIZER:
        raise ValueError(
            "`pre_tokenizer` must be a BertPreTokenizer. "
            f"Received: {files.shortened(splits)}."
        )


def tokens_of(tokenizer: dict[str, Any]) -> tuple[str, ...]:
    """Returns the entries of a file whose `model` maps entries to ids.

    Args:
        tokenizer: The contents of the file, with a `model`.

    Raises:
        ValueError: If the ids, those of `added_tokens` included, are not 0, 1,
            2 and so on.
    """
    vocabulary = tokenizer["model"].get("vocab")
    if not isinstance(vocabulary, dict):
        raise ValueError("`model` must have a `vocab`, tokens and their ids.")
    ids = dict(vocabulary)
    for token in _added_tokens(tokenizer):
        ids.setdefault(token["content"], token.get("id"))
    return by_id(ids)


def _added_tokens(tokenizer):
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list) or not all(
        isinstance(token, dict) and isinstance(token.get("content"), str)
        for token in added
    ):
        raise ValueError("`added_tokens` must be a list of tokens and ids.")
    return added


def by_id(ids: dict[str, Any]) -> tuple[str, ...]:
    """Returns the entries of {entry: id} in the order of their ids.

    Raises:
        ValueError: If the ids are not 0, 1, 2 and so on.
    """
    tokens = {
        index: token for token, index in ids.items() if type(index) is int
    }
    if tokens.keys() != set(range(len(ids))):
        raise ValueError(
            "the ids of the vocabulary must be 0, 1, 2, ..., each once."
        )
    return tuple(tokens[index] for index in range(len(ids)))
