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

from collections.abc import Mapping
from typing import Any

from bert_tf import files
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

WORDPIECE = "WordPiece"
# The list in a "Sequence", by the part of the file.
_LISTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
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
        if token.strip() and token not in apart
    }
    cls_token, sep_token = vocabulary_lib.CLS_TOKEN, vocabulary_lib.SEP_TOKEN
    first = [_special(cls_token, 0), _sequence("A", 0), _special(sep_token, 0)]
    segment = vocabulary.special.second_segment
    second = [_sequence("B", segment), _special(sep_token, segment)]
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


def part(tokenizer: dict[str, Any], name: str) -> dict[str, Any]:
    """Returns a part of a file, or the only part of its sequence.

    Args:
        tokenizer: The contents of the file.
        name: "normalizer", "pre_tokenizer" or "post_processor".

    Returns:
        The part, which has a `type`: None if there is no part.
    """
    found = tokenizer.get(name)
    while isinstance(found, dict) and found.get("type") == "Sequence":
        steps = found.get(_LISTS[name])
        if not isinstance(steps, list) or len(steps) > 1:
            break
        found = steps[0] if steps else None
    return found if isinstance(found, dict) else {"type": found}


def second_segment(
    tokenizer: dict[str, Any], special: SpecialTokens, ids: Mapping[str, int]
) -> int:
    """Checks how a file frames texts; returns the segment of B.

    Args:
        tokenizer: The contents of the file.
        special: The kind's `SpecialTokens`.
        ids: {special token: its id}.

    Raises:
        ValueError: If texts or pairs are framed by other tokens, or have other
            segments than 0 for A and the same one for B and what follows it.
    """
    processor = part(tokenizer, "post_processor")
    cls, sep = ids[special.cls], ids[special.sep]
    single = [(cls, 0), ("A", 0), (sep, 0)]
    between = [(sep, 0)] * (special.num_between - 1)
    framed = _frames(processor)
    for segment in (0, 1):
        pair = [*single, *between, ("B", segment), (sep, segment)]
        if framed == (single, pair):
            return segment
    texts = " ".join([special.cls, "A", special.sep])
    pairs = " ".join([texts, *[special.sep] * len(between), "B", special.sep])
    raise ValueError(
        f"`post_processor` must frame texts as {texts} and pairs as {pairs}, "
        f"with the ids {cls} and {sep}. "
        f"Received: {files.shortened(tokenizer.get('post_processor'))}."
    )


def _frames(processor):
    """Returns how texts and pairs are framed: lists of (id or name, segment).

    None if that is not known.
    """
    try:
        if processor["type"] == "TemplateProcessing":
            return tuple(
                [
                    piece
                    for step in processor[name]
                    for piece in _pieces(step, processor["special_tokens"])
                ]
                for name in ("single", "pair")
            )
        cls, sep = processor["cls"][1], processor["sep"][1]
    except (AttributeError, KeyError, IndexError, TypeError, ValueError):
        return None
    single = [(cls, 0), ("A", 0), (sep, 0)]
    if processor["type"] == "BertProcessing":
        return single, [*single, ("B", 1), (sep, 1)]
    if processor["type"] == "RobertaProcessing":
        return single, [*single, (sep, 0), ("B", 0), (sep, 0)]
    return None


def _pieces(step, special_tokens):
    ((kind, value),) = step.items()
    if kind == "Sequence":
        return [(value["id"], value["type_id"])]
    return [
        (index, value["type_id"])
        for index in special_tokens[value["id"]]["ids"]
    ]


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


def tokens_of(tokenizer: dict[str, Any]) -> tuple[str, ...]:
    """Returns the entries of a file whose `model` maps entries to ids.

    Args:
        tokenizer: The contents of the file, with a `model`.

    Raises:
        ValueError: If the ids are not 0, 1, 2 and so on.
    """
    return by_id(vocabulary_of(tokenizer))


def vocabulary_of(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Returns the `vocab` of a file's `model`, {entry: id}.

    Raises:
        ValueError: If there is none.
    """
    vocabulary = tokenizer["model"].get("vocab")
    if not isinstance(vocabulary, dict):
        raise ValueError("`model` must have a `vocab`, tokens and their ids.")
    return vocabulary
