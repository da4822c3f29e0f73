"""The files of a byte-level BPE tokenizer.

vocab.json        {entry: id}
merges.txt        two entries per line, with a space between, as learned
tokenizer.json    both, and how texts are split and framed

Entries are bytes, written as visible characters: GPT-2's `BYTES`.
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from bert_tf import files
from bert_tf import messages
from bert_tf.text.tokenizers import added_token_files
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers import tokenizer_classes
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.tokenizer_json import SETTINGS_FILE
from bert_tf.text.tokenizers.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"

_VERSION = "#version"
_NAME = "byte-level BPE"


def _bytes_by_character():
    """Returns {character: byte}: visible Latin-1 itself, others from U+100."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    found = {chr(byte): byte for byte in visible}
    others = [byte for byte in range(256) if byte not in visible]
    return found | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTES: dict[str, int] = _bytes_by_character()


class Found(NamedTuple):
    """What the files of a folder say.

    Attributes:
        path: The file that holds the vocabulary.
        tokens: The entries, in the order of their ids.
        merges: Pairs of entries, in order.
        add_prefix_space: As in `bpe.BpeSpec`.
        trim_offsets: Likewise.
        nfc: Likewise.
        special: The special tokens, and how they frame texts.
        added_tokens: As in `bpe.BpeSpec`.
    """

    path: str
    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]
    add_prefix_space: bool
    trim_offsets: bool
    nfc: bool = False
    special: SpecialTokens = ROBERTA
    added_tokens: tuple[AddedToken, ...] = ()


def to_bytes(token: str) -> bytes:
    """Returns the bytes that an entry spells; of others, their UTF-8."""
    if all(character in BYTES for character in token):
        return bytes(BYTES[character] for character in token)
    return token.encode("utf-8", "replace")


def ids_of(
    vocabulary: Vocabulary, added_tokens: Iterable[AddedToken] = ()
) -> dict[str, int]:
    """Returns {entry: id}, without added tokens that are no pieces.

    Behind these are only other ones, such as ModernBERT's special tokens.
    """
    apart = map(vocabulary.index, added_tokens_lib.apart(added_tokens))
    tokens = vocabulary.tokens[: min(apart, default=None)]
    return {token: index for index, token in enumerate(tokens)}


def check(vocabulary: Vocabulary, merges: Sequence[tuple[str, str]]) -> None:
    """Checks that all bytes, and all parts and results of merges, are entries.

    Raises:
        ValueError: If one is not, or there is no merge.
    """
    entries = set(vocabulary.tokens)
    for character, byte in BYTES.items():
        if character not in entries:
            raise ValueError(
                "the vocabulary must have an entry for each of the 256 bytes. "
                f"It has none for {byte:#04x}, {character!r}."
            )
    if not merges:
        raise ValueError("`merges` must hold a merge. Received none.")
    for number, (first, second) in enumerate(merges, start=1):
        for token in (first, second, first + second):
            if token not in entries:
                raise ValueError(
                    f"merge {number}, "
                    f"{messages.shortened(f'{first} {second}')}: "
                    "the vocabulary must have the entry "
                    f"{messages.shortened(token)}."
                )


def merges_to_text(merges: Iterable[tuple[str, str]]) -> str:
    """Returns the contents of merges.txt."""
    lines = [f"{_VERSION}: 0.2", *map(" ".join, merges)]
    return "".join(f"{line}\n" for line in lines)


def read(folder: str, settings: dict[str, Any]) -> Found:
    """Reads the files of a folder.

    If there is a tokenizer.json, the other two are not read.

    Args:
        folder: The folder.
        settings: The contents of its tokenizer_config.json.

    Raises:
        ValueError: If a file is missing, damaged, or asks for what `BpeSpec`
            does not support; the message names the file.
    """
    settings_path = f"{folder}/{SETTINGS_FILE}"
    with messages.errors_named(settings_path):
        _check_values(settings, _SETTINGS)
    path = f"{folder}/{TOKENIZER_FILE}"
    tokenizer = None
    if files.exists(path):
        tokenizer = files.read_object(path)
        with tokenizer_json.errors_named(path):
            found = _read_json(path, tokenizer)
            found = found._replace(special=_special(path, tokenizer, found))
        if tokenizer_classes.is_rebuilt(settings, tokenizer_classes.BPE):
            with messages.errors_named(settings_path):
                _check_agreement(folder, settings, found)
    else:
        path = f"{folder}/{VOCABULARY_FILE}"
        for name in (VOCABULARY_FILE, MERGES_FILE):
            if not files.exists(f"{folder}/{name}"):
                raise ValueError(
                    f"{folder}: must hold {VOCABULARY_FILE} and {MERGES_FILE}, "
                    f"or {TOKENIZER_FILE}. It has no {name}."
                )
        vocabulary = files.read_object(path)
        with messages.errors_named(path):
            tokens = tokenizer_json.by_id(vocabulary)
        found = Found(
            path=path,
            tokens=tokens,
            merges=_read_merges(f"{folder}/{MERGES_FILE}"),
            add_prefix_space=settings.get("add_prefix_space", False),
            trim_offsets=settings.get("trim_offsets", True),
        )
    tokens, added = added_token_files.read(
        folder,
        settings,
        tokenizer,
        found.tokens,
        found.special,
        tokenizer_classes.BPE,
    )
    if tokenizer is not None:
        with messages.errors_named(path):
            found = found._replace(
                special=_framed(tokenizer, tokens, found.special)
            )
    if not found.nfc:
        # There is no normaliser: the flag means nothing.
        added = tuple(
            dataclasses.replace(token, normalized=False) for token in added
        )
    return found._replace(tokens=tokens, added_tokens=added)


def _special(path, tokenizer, found):
    """Returns the special tokens by the names that are there."""
    added = added_token_files.in_json(path, tokenizer)
    names = {*found.tokens, *(each.token.content for each in added)}
    return (
        BERT if {*BERT.names} <= names and ROBERTA.cls not in names else ROBERTA
    )


def _check_agreement(folder, settings, found):
    """Checks that the settings, which transformers obeys, say the same."""
    name = settings.get("tokenizer_class")
    if name is not None and (found.nfc or found.special != ROBERTA):
        raise ValueError(
            "`tokenizer_class` must be PreTrainedTokenizerFast for a "
            f"{TOKENIZER_FILE} with NFC, or with {BERT.cls} and {BERT.sep}: "
            f"transformers' {tokenizer_classes.BPE} has neither. Received: "
            f"{messages.shortened(name)}."
        )
    has_defaults = tokenizer_classes.has_defaults(folder, settings)
    for name, default in (("add_prefix_space", False), ("trim_offsets", True)):
        expected = getattr(found, name)
        received = settings.get(name, default if has_defaults else expected)
        tokenizer_classes.check_same(settings, name, received, expected)


# {setting: the values that it may have}
_SETTINGS = {
    "add_prefix_space": (False, True),
    "trim_offsets": (False, True),
}
# `unk_token`, `fuse_unk` and `byte_fallback` are for what is no entry: here all
# bytes are.
_MODEL = {
    "dropout": (None, 0, 0.0),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "ignore_merges": (False,),
}
_PRE_TOKENIZER = {
    "type": ("ByteLevel",),
    "add_prefix_space": (False, True),
    "use_regex": (True,),
}


def _check_values(values, allowed, place=""):
    for name, good in allowed.items():
        value = values.get(name, good[0])
        if not any(
            type(value) is type(each) and value == each for each in good
        ):
            raise ValueError(
                f"`{place}{name}` must be "
                f"{' or '.join(map(repr, good))} in {_NAME}. Received: "
                f"{messages.shortened(value)}."
            )


def _read_json(path, tokenizer):
    tokenizer_json.check_truncation(tokenizer)
    normalizer = tokenizer_json.part(tokenizer, "normalizer")["type"]
    if normalizer not in (None, "NFC"):
        raise ValueError(
            f"`normalizer` must be null or NFC in {_NAME}. Received: "
            f"{messages.shortened(tokenizer['normalizer'])}."
        )
    # Otherwise the folder would be another kind's.
    model = tokenizer["model"]
    _check_values(model, _MODEL, "model.")
    splits = tokenizer_json.part(tokenizer, "pre_tokenizer")
    _check_values(splits, _PRE_TOKENIZER, "pre_tokenizer.")
    frames = tokenizer_json.part(tokenizer, "post_processor")
    return Found(
        path=path,
        tokens=tokenizer_json.tokens_of(tokenizer),
        merges=parse_merges(model["merges"]),
        # Older files do not have it; this is the default of `tokenizers`.
        add_prefix_space=splits.get("add_prefix_space", True),
        # A template does not tell.
        trim_offsets=frames.get("trim_offsets", True),
        nfc=normalizer is not None,
    )


def _framed(tokenizer, tokens, special):
    """Returns the special tokens with the segment of the file's frame."""
    ids = {token: index for index, token in enumerate(tokens)}
    missing = [token for token in special.names if token not in ids]
    # The vocabulary's own check tells of those.
    if missing:
        return special
    segment = tokenizer_json.second_segment(tokenizer, special, ids)
    if segment and special == ROBERTA:
        raise ValueError(
            "`post_processor` must give both texts the segment 0. "
            f"Received: {segment}."
        )
    return dataclasses.replace(special, second_segment=segment)


def parse_merges(merges: Any) -> tuple[tuple[str, str], ...]:
    """Returns the pairs of `model.merges` in tokenizer.json.

    Raises:
        ValueError: If one is no pair.
    """
    return tuple(
        _pair(f"merge {number}", merge)
        for number, merge in enumerate(merges, start=1)
    )


def _pair(place, merge):
    pair = merge.split(" ") if isinstance(merge, str) else merge
    if len(pair) != 2 or not all(pair):
        raise ValueError(
            f"{place}: must be two entries, 'a b' or ['a', 'b']. "
            f"Received: {messages.shortened(merge)}."
        )
    return pair[0], pair[1]


def _read_merges(path):
    text = files.read_text(path, files.MAX_FOLDER_TEXT)
    # Not splitlines(): entries may hold what it takes for line ends.
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return tuple(
        _pair(f"{path}, line {number}", line.removesuffix("\r"))
        for number, line in enumerate(lines, start=1)
        if not line.startswith(_VERSION)
    )
