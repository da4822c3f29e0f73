"""Vocabulary and settings of the tokenizer in a folder.

tokenizer_config.json    kind, special tokens, case, longest sequence
tokenizer.json           everything, for `tokenizers`; since version 5,
                         transformers writes the vocabulary only here
vocab.txt                WordPiece, one entry per line
vocab.json, merges.txt   byte-level BPE
spiece.model             SentencePiece's unigrams of ALBERT
sentencepiece.bpe.model  SentencePiece's unigrams of XLM-RoBERTa

A new kind is a module with a `Spec` and a function that reads it from a folder,
and one entry in `OTHER_KINDS`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import added_token_files
from bert_tf.text.tokenizers import added_tokens
from bert_tf.text.tokenizers import bpe
from bert_tf.text.tokenizers import tokenizer_classes
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers import unigram
from bert_tf.text.tokenizers import unigram_files
from bert_tf.text.tokenizers import wordpiece_files
from bert_tf.text.tokenizers.tokenizer import Spec
from bert_tf.text.tokenizers.tokenizer_json import SETTINGS_FILE
from bert_tf.text.tokenizers.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY_FILE = wordpiece_files.VOCABULARY_FILE
CONFIG_FILE = "config.json"

SPECIAL_TOKENS = added_token_files.SPECIAL_TOKENS


class Kind(NamedTuple):
    """A kind of tokenizer other than WordPiece.

    Attributes:
        classes: The names of `tokenizer_class` that mean it, without "Fast".
        vocabulary_files: The files that hold its vocabulary, besides
            tokenizer.json; one of them tells the kind if nothing else does.
        read: Function of (folder, contents of tokenizer_config.json); returns
            the `Spec`.
    """

    classes: tuple[str, ...]
    vocabulary_files: tuple[str, ...]
    read: Callable[[str, dict[str, Any]], Spec]


# {`model.type` in tokenizer.json: the kind}.
OTHER_KINDS: dict[str, Kind] = {
    "BPE": Kind(
        classes=(bpe.BpeSpec.tokenizer_class, "LongformerTokenizer"),
        vocabulary_files=(bpe.VOCABULARY_FILE, bpe.MERGES_FILE),
        read=bpe.read,
    ),
    "Unigram": Kind(
        classes=tuple(unigram_files.SPECIAL),
        vocabulary_files=unigram_files.ALL_MODEL_FILES,
        read=unigram.read,
    ),
}

# Which tokens are found in texts, if not as by default.
_TOKENS_IN_TEXT = "tokens_in_text"
# {setting: (check of a value, description of a valid one)}
_CHECKS = {
    _TOKENS_IN_TEXT: (
        lambda value: value in added_tokens.CHOICES,
        f"one of {', '.join(added_tokens.CHOICES)}",
    ),
    "do_lower_case": (
        lambda value: type(value) is bool,
        "true or false",
    ),
    "tokenizer_class": (
        lambda value: type(value) is str,
        "the name of a class",
    ),
    # transformers writes 10^30 for a length that it does not know.
    "model_max_length": (
        lambda value: type(value) in (int, float) and 0 < value < math.inf,
        "a positive number",
    ),
    # Which end of a long text a model was trained on: `packing` keeps the
    # first pieces, of all kinds of tokenizers.
    "truncation_side": (
        lambda value: value == "right",
        "right",
    ),
    # Added tokens in texts would be text.
    "split_special_tokens": (
        lambda value: value is False,
        "false",
    ),
}


def vocabulary_files() -> tuple[str, ...]:
    """Returns the names of all files that hold the vocabulary of any kind."""
    others = [kind.vocabulary_files for kind in OTHER_KINDS.values()]
    return (VOCABULARY_FILE, TOKENIZER_FILE, *sum(others, ()))


def is_wordpiece(folder: str) -> bool:
    """Returns whether no file of a folder indicates another kind."""
    return _other_kind(folder, own_settings(folder)) is None


def _other_kind(folder, settings):
    """Returns the `Kind` that a folder's files indicate; None for WordPiece.

    The first of these decides: tokenizer.json, `tokenizer_class`, vocab.txt,
    the other files of vocabularies. Kinds that are not supported count as
    WordPiece, which refuses them.
    """
    path = f"{folder}/{TOKENIZER_FILE}"
    if files.exists(path):
        name = tokenizer_json.model_type(files.read_object(path))
        return OTHER_KINDS.get(name) if isinstance(name, str) else None
    name = tokenizer_classes.base(settings.get("tokenizer_class", ""))
    for kind in OTHER_KINDS.values():
        if name in kind.classes:
            return kind
    if name in tokenizer_classes.CLASSES:
        return None
    if files.exists(f"{folder}/{VOCABULARY_FILE}"):
        return None
    for kind in OTHER_KINDS.values():
        if any(
            files.exists(f"{folder}/{name}") for name in kind.vocabulary_files
        ):
            return kind
    return None


def vocabulary_path(folder: str) -> str | None:
    """Returns the file that holds the vocabulary, or None without one."""
    for name in vocabulary_files():
        if files.exists(f"{folder}/{name}"):
            return f"{folder}/{name}"
    return None


def read_vocabulary(folder: str) -> Vocabulary | None:
    """Returns the `Vocabulary` of a folder, or None where there is none.

    Raises:
        ValueError: As in `read`.
    """
    if vocabulary_path(folder) is None:
        return None
    return read(folder).vocabulary


def own_settings(folder: str) -> dict[str, Any]:
    """Returns the contents of tokenizer_config.json, checked.

    The class is that of config.json if it has none.

    Raises:
        ValueError: If the file is damaged.
    """
    settings = {}
    path = f"{folder}/{SETTINGS_FILE}"
    if files.exists(path):
        settings = files.checked(path, files.read_object(path), _CHECKS)
    if "tokenizer_class" not in settings:
        path = f"{folder}/{CONFIG_FILE}"
        name = _class_in(path)
        if name is not None:
            settings["tokenizer_class"] = name
    return settings


def _class_in(path):
    """Returns the `tokenizer_class` of a file, if any."""
    return (
        files.read_object(path).get("tokenizer_class")
        if files.exists(path)
        else None
    )


def _check_classes(folder):
    """Checks that the folder's tokenizer is none that bert_tf does not have."""
    known = (
        *tokenizer_classes.CLASSES,
        *tokenizer_classes.GENERAL,
        *(name for kind in OTHER_KINDS.values() for name in kind.classes),
    )
    has_json = files.exists(f"{folder}/{TOKENIZER_FILE}")
    for path in (f"{folder}/{SETTINGS_FILE}", f"{folder}/{CONFIG_FILE}"):
        name = _class_in(path)
        # transformers takes tokenizer.json for classes that it does not have.
        is_read = (
            name is None
            or isinstance(name, str)
            and (
                tokenizer_classes.base(name) in known
                or has_json
                and not tokenizer_classes.is_foreign(name)
            )
        )
        if not is_read:
            names = sorted(set(tokenizer_classes.CLASSES.values()))
            raise ValueError(
                f"{path}: `tokenizer_class` must be one of {', '.join(names)}, "
                "or another name of these tokenizers. "
                f"Received: tokenizer_class={messages.shortened(name)}."
            )


def read_settings(folder: str) -> dict[str, Any]:
    """Returns the contents of tokenizer_config.json, a dictionary.

    `do_lower_case` is the tokenizer's where other files tell it;
    `tokenizer_class` may be that of config.json. {} without any of the files.

    Raises:
        ValueError: If a file is damaged or its tokenizer is not supported; the
            message names the file.
    """
    settings = own_settings(folder)
    if files.exists(f"{folder}/{TOKENIZER_FILE}") or (
        _other_kind(folder, settings) and vocabulary_path(folder)
    ):
        settings["do_lower_case"] = read(folder).do_lower_case
    return settings


def read(
    folder: str,
    vocabulary: Vocabulary | None = None,
    do_lower_case: bool | None = None,
) -> Spec:
    """Reads the tokenizer of a folder.

    Args:
        folder: The folder.
        vocabulary: The `Vocabulary`; None for the folder's own.
        do_lower_case: Whether texts are lower-cased; None for what the
            settings say or, without them (Google's releases), what the
            vocabulary suggests.

    Returns:
        The spec of the tokenizer.

    Raises:
        ValueError: If the vocabulary is missing or bad, the tokenizer is not
            supported, or the case contradicts the vocabulary or is unclear;
            the message names the folder.
    """
    settings = own_settings(folder)
    _check_classes(folder)
    kind = _other_kind(folder, settings)
    if kind is not None:
        return _read_other(kind, folder, settings, vocabulary, do_lower_case)
    found = wordpiece_files.read(folder, settings, do_lower_case)
    added = found.added_tokens
    if vocabulary is None:
        vocabulary = found.vocabulary
    else:
        added = tuple(
            token for token in added if token.content in vocabulary.tokens
        )
    if vocabulary is None:
        raise ValueError(
            f"{folder}: must hold the vocabulary of a tokenizer, one of "
            f"{', '.join(vocabulary_files())}."
        )
    do_lower_case = found.do_lower_case
    if do_lower_case is None:
        do_lower_case = not vocabulary.is_cased
        if do_lower_case and vocabulary.capitalized:
            raise ValueError(
                f"{folder}: nothing tells whether texts are lower-cased. "
                f"{len(vocabulary.capitalized):,} of {len(vocabulary):,} "
                "entries of the vocabulary have capitals: more than an uncased "
                "one has, fewer than a cased one. Write a "
                f'{SETTINGS_FILE} with {{"do_lower_case": true}} or false '
                "there."
            )
    path = f"{folder}/{SETTINGS_FILE}"
    with messages.errors_named(path if files.exists(path) else folder):
        spec = WordpieceSpec(
            vocabulary,
            do_lower_case,
            added_tokens=added,
            max_chars_per_word=found.max_chars_per_word,
        )
        return with_tokens_in_text(
            spec, settings.get(_TOKENS_IN_TEXT, added_tokens.ADDED)
        )


def with_tokens_in_text(tokenizer: Any, choice: str) -> Any:
    """Returns a spec that finds other tokens in texts.

    Args:
        tokenizer: The spec.
        choice: One of `added_tokens.CHOICES`.
    """
    return dataclasses.replace(tokenizer, tokens_in_text=choice)


def _read_other(kind, folder, settings, vocabulary, do_lower_case):
    spec = with_tokens_in_text(
        kind.read(folder, settings),
        settings.get(_TOKENS_IN_TEXT, added_tokens.ADDED),
    )
    if do_lower_case not in (None, spec.do_lower_case):
        raise ValueError(
            f"{folder}: `do_lower_case` must be {spec.do_lower_case} with a "
            f"{spec.tokenizer_class}. Received: do_lower_case={do_lower_case}."
        )
    if vocabulary not in (None, spec.vocabulary):
        raise ValueError(
            f"{folder}: `vocab_file` must be the folder's own with a "
            f"{spec.tokenizer_class}. Received: vocab_file={vocabulary.path}."
        )
    return spec


def from_vocabulary_file(path: str, do_lower_case: bool | None) -> Spec:
    """Returns the tokenizer's spec for a vocabulary file or a tokenizer folder.

    Args:
        path: A file with one entry per line, or a folder that holds the files
            of a tokenizer of any kind.
        do_lower_case: Whether texts are lower-cased; None for what the folder
            says, or True for a file.

    Raises:
        ValueError: If the file makes no vocabulary, or `do_lower_case`
            contradicts it.
    """
    if files.is_folder(path):
        return read(str(path).rstrip("/"), do_lower_case=do_lower_case)
    if do_lower_case is None:
        do_lower_case = True
    return WordpieceSpec(vocabulary_lib.load_vocabulary(path), do_lower_case)


def settings_of(tokenizer: Spec) -> dict[str, Any]:
    """Returns the contents of tokenizer_config.json for a tokenizer."""
    choice = tokenizer.tokens_in_text
    return {
        "tokenizer_class": tokenizer.tokenizer_class,
        "do_lower_case": bool(tokenizer.do_lower_case),
        # transformers does not know it: it finds all.
        **({_TOKENS_IN_TEXT: choice} if choice != added_tokens.ADDED else {}),
        **tokenizer.folder_settings,
        **dict(zip(SPECIAL_TOKENS, tokenizer.vocabulary.special.names)),
    }


def has_segments_by_default(tokenizer: Spec) -> bool:
    """Returns whether transformers' class of a tokenizer gives the segments.

    AlbertTokenizer leaves them out unless tokenizer_config.json names them.
    """
    return isinstance(tokenizer, WordpieceSpec)


def write(folder: str, tokenizer: Spec) -> None:
    """Writes the files of a tokenizer into a folder, all or none.

    `from_vocabulary_file` and transformers' AutoTokenizer can read them.

    Args:
        folder: A folder that does not exist or is empty.
        tokenizer: The spec.

    Raises:
        ValueError: If the folder is not empty.
    """
    texts = {SETTINGS_FILE: files.to_json(settings_of(tokenizer))}
    if tokenizer.tokenizer_json is not None:
        texts[TOKENIZER_FILE] = files.to_json(tokenizer.tokenizer_json)
    with atomic.whole_folder(folder) as temporary:
        for name, text in (texts | tokenizer.vocabulary_files).items():
            data = text if isinstance(text, bytes) else text.encode("utf-8")
            atomic.write_bytes(f"{temporary}/{name}", data)


def class_name(settings: dict[str, Any]) -> str:
    """Returns the `tokenizer_class` in settings, as one name per kind."""
    name = settings.get("tokenizer_class") or tokenizer_classes.WORDPIECE
    base = tokenizer_classes.base(name)
    if base in tokenizer_classes.GENERAL:
        return tokenizer_classes.WORDPIECE
    return tokenizer_classes.CLASSES.get(base, name)


def describe(tokenizer: Spec) -> dict[str, Any] | None:
    """Returns the description of a tokenizer besides vocabulary and case.

    It is stored in manifests and training states, and must be equal where they
    belong together.

    Returns:
        None for WordPiece without added tokens, as in files that are older
        than these and the other kinds. `fast` is not part of it: the ids mean
        the same to a model, and no model folder or program knows of it.
    """
    settings = dict(tokenizer.settings)
    # Nor is this, which older files do not have: such words are rare.
    for name in ("fast", "max_chars_per_word"):
        settings.pop(name, None)
    if tokenizer.tokens_in_text != added_tokens.ALL:
        # Nor how the model's own special tokens would be found: none is.
        own = tokenizer.vocabulary.special.names
        others = [
            token
            for token in settings.pop("added_tokens", [])
            if token["content"] not in own or not token["is_piece"]
        ]
        settings |= {"added_tokens": others} if others else {}
    if isinstance(tokenizer, WordpieceSpec) and not settings:
        return None
    return {
        "tokenizer_class": tokenizer.tokenizer_class,
        "settings": settings,
    }


def are_alike(tokenizer: Spec, other: Spec) -> bool:
    """Returns whether two tokenizers have equal ids and descriptions."""
    return (
        tokenizer.vocabulary == other.vocabulary
        and tokenizer.do_lower_case == other.do_lower_case
        and describe(tokenizer) == describe(other)
    )
