"""The files of a WordPiece tokenizer.

vocab.txt              one entry per line
tokenizer.json         the entries, and how texts are folded, split and framed
tokenizer_config.json  case, accents, special tokens, longest sequence

Where there are both, tokenizer.json counts.
"""

import dataclasses
import functools
import logging
from typing import Any
from typing import NamedTuple

from bert_tf import files
from bert_tf import messages
from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import added_token_files
from bert_tf.text.tokenizers import tokenizer_classes
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.tokenizer_json import SETTINGS_FILE
from bert_tf.text.tokenizers.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.tokenizers.wordpiece import MAX_CHARS_PER_WORD
from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import CONTINUATION
from bert_tf.text.vocabulary import Vocabulary

VOCABULARY_FILE = "vocab.txt"

_logger = logging.getLogger(__name__)

# {setting of tokenizer_config.json: (its name in tokenizer.json, what it is
# without one)}. In transformers, a missing `do_lower_case` is true.
_SETTINGS = {
    "do_lower_case": ("lowercase", True),
    "strip_accents": ("strip_accents", None),
    "tokenize_chinese_chars": ("handle_chinese_chars", True),
}
# {setting that transformers 4 obeyed: its values that change nothing}
_IDLE = {
    "do_basic_tokenize": (None, True),
    "never_split": (None, []),
    "word_tokenizer_type": (None, "basic"),
    "subword_tokenizer_type": (None, "wordpiece"),
}
# {setting of `model` in tokenizer.json: its only value}
_MODEL = {"unk_token": BERT.unk, "continuing_subword_prefix": CONTINUATION}
# `tokenizers` has this limit where a file has none.
_MAX_CHARS_PER_WORD = 100


class Found(NamedTuple):
    """What the files of a folder say.

    Attributes:
        vocabulary: The `Vocabulary`, added tokens included; None without any.
        added_tokens: The `AddedToken`s.
        do_lower_case: Whether texts are lower-cased; None if nothing tells.
        max_chars_per_word: As in `wordpiece.WordpieceSpec`.
    """

    vocabulary: Vocabulary | None
    added_tokens: tuple[AddedToken, ...]
    do_lower_case: bool | None
    max_chars_per_word: int


def read(
    folder: str, settings: dict[str, Any], do_lower_case: bool | None = None
) -> Found:
    """Reads the files of a folder.

    Args:
        folder: The folder.
        settings: The contents of its tokenizer_config.json.
        do_lower_case: Whether texts are lower-cased, whatever the files say;
            None for what they say.

    Raises:
        ValueError: If a file is damaged, asks for what is not supported, or
            contradicts another; the message names the file.
    """
    path = f"{folder}/{TOKENIZER_FILE}"
    tokenizer = files.read_object(path) if files.exists(path) else None
    settings_path = f"{folder}/{SETTINGS_FILE}"
    with messages.errors_named(
        settings_path if files.exists(settings_path) else folder
    ):
        _check_idle(settings)
    entries, max_chars = None, MAX_CHARS_PER_WORD
    if tokenizer is not None:
        with messages.errors_named(path):
            model = _model(tokenizer)
            max_chars = _max_chars(model)
            entries = _entries(tokenizer)
    vocabulary_path = f"{folder}/{VOCABULARY_FILE}"
    if files.exists(vocabulary_path):
        own = _from_text(vocabulary_path, entries)
        if own is not None:
            entries, path = own, vocabulary_path
    special = vocabulary_lib.special_of(entries or ())
    kind = tokenizer_classes.of_wordpiece(special)
    if entries is not None:
        _check_class(folder, settings, kind)
    case = _case(folder, settings, tokenizer, kind, do_lower_case)
    if special == BERT:
        segment = _second_segment(folder, settings, tokenizer)
        special = dataclasses.replace(special, second_segment=segment)
    if entries is None:
        return Found(None, (), case, max_chars)
    entries, added = added_token_files.read(
        folder,
        settings,
        tokenizer,
        entries,
        special,
        kind,
    )
    with messages.errors_named(path):
        vocabulary = Vocabulary(tokens=entries, path=path, special=special)
    if tokenizer is not None:
        _check_frame(f"{folder}/{TOKENIZER_FILE}", tokenizer, vocabulary)
    return Found(vocabulary, added, case, max_chars)


def _check_class(folder, settings, kind):
    """Checks that the class is of a vocabulary that begins like this one."""
    name = tokenizer_classes.base(settings.get("tokenizer_class") or kind)
    others = {tokenizer_classes.WORDPIECE, tokenizer_classes.MPNET} - {kind}
    if tokenizer_classes.CLASSES.get(name) in others:
        raise ValueError(
            f"{folder}/{SETTINGS_FILE}: `tokenizer_class` must be {kind} for "
            f"this vocabulary. Received: {messages.shortened(name)}."
        )


def _check_idle(settings):
    for name, values in _IDLE.items():
        if settings.get(name) not in values:
            raise ValueError(
                f"the tokenizer's `{name}` must be {values[1]!r}, as in "
                "BERT's tokenizer. "
                f"Received: {name}={messages.shortened(settings[name])}."
            )


def _case(folder, settings, tokenizer, kind, do_lower_case):
    """Returns whether texts are lower-cased, None if nothing tells.

    Checks the rest of what a normaliser does.
    """
    path = f"{folder}/{SETTINGS_FILE}"
    path = path if files.exists(path) else folder
    told = {
        name: settings.get(name, default)
        for name, (_, default) in _SETTINGS.items()
    }
    if tokenizer is None:
        told["do_lower_case"] = settings.get("do_lower_case")
    else:
        json_path = f"{folder}/{TOKENIZER_FILE}"
        with messages.errors_named(json_path):
            in_json = _normalizer(tokenizer)
        if tokenizer_classes.is_rebuilt(settings, kind):
            if not tokenizer_classes.has_defaults(folder, settings):
                told = in_json | settings
            with messages.errors_named(path):
                _check_agreement(settings, told, in_json, do_lower_case)
        told, path = in_json, json_path
    if do_lower_case is not None:
        told["do_lower_case"] = do_lower_case
    with messages.errors_named(path):
        _check_folding(told)
    return told["do_lower_case"]


def _check_agreement(settings, told, in_json, do_lower_case):
    """Checks that the settings, which transformers obeys, say the same."""
    for name in _SETTINGS:
        received, expected = _folding(told)[name], _folding(in_json)[name]
        if name == "do_lower_case" and do_lower_case is not None:
            # It was given, whatever the files say.
            continue
        tokenizer_classes.check_same(settings, name, received, expected)


def _normalizer(tokenizer):
    """Returns {setting: its value} of tokenizer.json."""
    normalizer = tokenizer_json.part(tokenizer, "normalizer")
    if normalizer["type"] != "BertNormalizer" or not normalizer.get(
        "clean_text", True
    ):
        raise ValueError(
            "`normalizer` must be a BertNormalizer with clean_text=true. "
            f"Received: normalizer={messages.shortened(normalizer)}."
        )
    return {
        name: normalizer.get(its_name, default)
        for name, (its_name, default) in _SETTINGS.items()
    }


def _folding(told):
    """Returns settings with the accents as they are dropped in effect."""
    accents = told["strip_accents"]
    accents = told["do_lower_case"] if accents is None else accents
    return told | {"strip_accents": accents}


def _check_folding(told):
    for name, values in (
        ("strip_accents", (None, told["do_lower_case"])),
        ("tokenize_chinese_chars", (True,)),
    ):
        if told[name] not in values:
            raise ValueError(
                f"the tokenizer's `{name}` must be {values[0]!r}, as in BERT's "
                f"tokenizer. Received: {name}={messages.shortened(told[name])}."
            )


def _second_segment(folder, settings, tokenizer):
    """Returns the segment of B, which is 0 if the model is given no segments.

    Models without segments keep BERT's, which they do not look at.
    """
    path = f"{folder}/config.json"
    if files.exists(path):
        config = files.read_object(path)
        usual = 0 if config.get("model_type") == "distilbert" else 2
        if config.get("type_vocab_size", usual) in (0, 1):
            return BERT.second_segment
    with messages.errors_named(f"{folder}/{SETTINGS_FILE}"):
        # Without tokenizer.json, transformers cannot make a general class.
        is_told = tokenizer is not None or "model_input_names" in settings
        return int(not is_told or tokenizer_classes.gives_segments(settings))


def _model(tokenizer):
    model = tokenizer.get("model")
    if not isinstance(model, dict) or (
        tokenizer_json.model_type(tokenizer) != tokenizer_json.WORDPIECE
    ):
        received = model.get("type") if isinstance(model, dict) else model
        raise ValueError(
            "`model.type` must be WordPiece, BPE or Unigram. Received: "
            f"{messages.shortened(received)}."
        )
    for name, value in _MODEL.items():
        if model.get(name, value) != value:
            raise ValueError(
                f"`model.{name}` must be {value!r}. "
                f"Received: {messages.shortened(model[name])}."
            )
    splits = tokenizer_json.part(tokenizer, "pre_tokenizer")
    if splits["type"] != "BertPreTokenizer":
        raise ValueError(
            "`pre_tokenizer` must be a BertPreTokenizer. "
            f"Received: {messages.shortened(tokenizer.get('pre_tokenizer'))}."
        )
    tokenizer_json.check_truncation(tokenizer)
    return model


def _max_chars(model):
    max_chars = model.get("max_input_chars_per_word", _MAX_CHARS_PER_WORD)
    if type(max_chars) is not int or not 1 <= max_chars <= MAX_CHARS_PER_WORD:
        raise ValueError(
            "`model.max_input_chars_per_word` must be 1 to "
            f"{MAX_CHARS_PER_WORD}. Received: {messages.shortened(max_chars)}."
        )
    return max_chars


def _entries(tokenizer):
    """Returns the entries in the order of their ids, "" where there is none."""
    ids = tokenizer_json.vocabulary_of(tokenizer)
    if not ids or not all(
        type(index) is int and 0 <= index < 2 * len(ids)
        for index in ids.values()
    ):
        raise ValueError(
            "the ids of the vocabulary must be 0, 1, 2, ..., each once."
        )
    entries = [""] * (max(ids.values()) + 1)
    for token, index in ids.items():
        if entries[index]:
            raise ValueError(
                f"the id {index} must be of one entry. Received: "
                f"{messages.shortened([entries[index], token])}."
            )
        entries[index] = token
    return tuple(entries)


def _from_text(path, in_json):
    """Returns the entries of vocab.txt, None if those of tokenizer.json count.

    If both mean the same, vocab.txt also has the lines that are never used.
    """
    if in_json is None:
        return vocabulary_lib.load_vocabulary(path).tokens
    try:
        entries = vocabulary_lib.load_vocabulary(path).tokens
    except ValueError as error:
        _warn_of_vocabulary(path, str(error))
        return None
    if _ids(entries) == _ids(in_json):
        return entries
    _warn_of_vocabulary(path, "its entries are others")
    return None


def _ids(entries):
    return {token: i for i, token in enumerate(entries) if token.strip()}


# Cached to warn once per process.
@functools.cache
def _warn_of_vocabulary(path, reason):
    _logger.warning(
        "%s is not read, but %s, as in transformers: %s.",
        path,
        TOKENIZER_FILE,
        reason,
    )


def _check_frame(path, tokenizer, vocabulary):
    special = vocabulary.special
    ids = {token: vocabulary.index(token) for token in special.names}
    with messages.errors_named(path):
        segment = tokenizer_json.second_segment(tokenizer, special, ids)
        if segment < special.second_segment:
            raise ValueError(
                "`post_processor` must give the second text the segment "
                f"{special.second_segment}. Received: {segment}."
            )
