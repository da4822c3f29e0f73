"""The added tokens that the files of a folder tell of.

tokenizer.json           `added_tokens`
tokenizer_config.json    `added_tokens_decoder`, special tokens by name,
                         `extra_special_tokens`, `additional_special_tokens`
special_tokens_map.json  special tokens by name, in older folders
added_tokens.json        {token: id}, in older folders

transformers 5.23 takes the older files only without `added_tokens_decoder`. It
gives a token the id of the model's vocabulary or, beyond that, the next one,
whatever id the file says.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

from bert_tf import files
from bert_tf import messages
from bert_tf.text.tokenizers import tokenizer_classes
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.tokenizer_json import SETTINGS_FILE
from bert_tf.text.tokenizers.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.vocabulary import SpecialTokens

SPECIAL_FILE = "special_tokens_map.json"
IDS_FILE = "added_tokens.json"

_DECODER = "added_tokens_decoder"
_EXTRA = "extra_special_tokens"
_ADDITIONAL = "additional_special_tokens"
# What settings call the special tokens, in the order of `SpecialTokens.names`.
SPECIAL_TOKENS = (
    "pad_token",
    "unk_token",
    "cls_token",
    "sep_token",
    "mask_token",
)
# In the order in which transformers adds those that the vocabulary lacks.
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token")
_NAMED += ("pad_token", "cls_token", "mask_token")
_FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")


class Listed(NamedTuple):
    """An added token of a file.

    Attributes:
        token: The `AddedToken`; `is_piece` is not known yet.
        number: The id that the file says, if any.
        place: The file, for messages.
    """

    token: AddedToken
    number: int | None
    place: str


def read(
    folder: str,
    settings: dict[str, Any],
    tokenizer: dict[str, Any] | None,
    entries: tuple[str, ...],
    special: SpecialTokens,
    kind: str,
) -> tuple[tuple[str, ...], tuple[AddedToken, ...]]:
    """Returns all entries of a folder's vocabulary, and its added tokens.

    Args:
        folder: The folder.
        settings: The contents of its tokenizer_config.json, {} without one.
        tokenizer: The contents of its tokenizer.json, if any.
        entries: The entries of the tokenizer's model, in the order of their
            ids. Added tokens that are none of them follow.
        special: The kind's `SpecialTokens`.
        kind: The kind, as in `tokenizer_classes.CLASSES`.

    Returns:
        Entries and `AddedToken`s, in the order of their ids.

    Raises:
        ValueError: If a token is damaged, its id is not the one that
            transformers gives it, one of the five special tokens has another
            name, or tokenizer.json contradicts `added_tokens_decoder`. The
            message names the file.
    """
    settings = _merged(folder, settings)
    path = f"{folder}/{TOKENIZER_FILE}"
    with messages.errors_named(path):
        listed_there = in_json(path, tokenizer or {})
    if _DECODER in settings:
        decoder = list(_in_decoder(folder, settings[_DECODER]))
    else:
        decoder = sorted(
            {
                listed.number: listed
                for listed in [*_in_ids_file(folder, settings), *listed_there]
            }.values(),
            key=lambda listed: listed.number,
        )
    named = list(_named(folder, settings, special))
    listed = [*decoder, *named, *_extra(folder, settings)]
    is_rebuilt = tokenizer_classes.is_rebuilt(settings, kind)
    if _DECODER in settings:
        _check_agreement(folder, listed_there, listed, special, is_rebuilt)
    if not is_rebuilt:
        # These are the first, with the flags of the settings.
        told = {each.token.content: each for each in decoder}
        first = [told.get(each.token.content, each) for each in listed_there]
        listed = [*first, *listed]
    return _placed(listed, entries, {each.token.content for each in named})


def _merged(folder, settings):
    """Returns the settings with those of special_tokens_map.json."""
    settings = dict(settings)
    if not settings.get(_EXTRA):
        settings[_EXTRA] = settings.pop(_ADDITIONAL, None)
    path = f"{folder}/{SPECIAL_FILE}"
    if settings.get(_DECODER) is None:
        settings.pop(_DECODER, None)
        if files.exists(path):
            settings |= files.read_object(path)
    return settings


def in_json(path: str, tokenizer: dict[str, Any]) -> list[Listed]:
    """Returns the `added_tokens` of a tokenizer.json.

    Args:
        path: The file, for messages.
        tokenizer: Its contents.
    """
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list):
        raise ValueError(
            "`added_tokens` must be a list. Received: "
            f"{messages.shortened(added)}."
        )
    found = []
    for value in added:
        token = _token("added_tokens", value)
        index = value.get("id") if isinstance(value, dict) else None
        found.append(Listed(token, _index("added_tokens", index), path))
    return found


def _in_decoder(folder, decoder):
    path = f"{folder}/{SETTINGS_FILE}"
    with messages.errors_named(path):
        if not isinstance(decoder, dict) or not all(
            isinstance(value, dict) for value in decoder.values()
        ):
            raise ValueError(
                f"`{_DECODER}` must be an object of ids and tokens, which are "
                f"objects. Received: {messages.shortened(decoder)}."
            )
        found = [
            Listed(_token(_DECODER, value), _index(_DECODER, index), path)
            for index, value in decoder.items()
        ]
    return sorted(found, key=lambda listed: listed.number)


def _in_ids_file(folder, settings):
    path = f"{folder}/{IDS_FILE}"
    if not files.exists(path):
        return
    special = {
        _content(value)
        for value in [
            *(settings.get(name) for name in _NAMED),
            *_values(settings[_EXTRA]),
        ]
    }
    for content, index in files.read_object(path).items():
        is_special = content in special
        token = AddedToken(
            content=content, normalized=not is_special, special=is_special
        )
        with messages.errors_named(path):
            yield Listed(token, _index("id", index), path)


def _named(folder, settings, special):
    """Yields the special tokens that the settings name, except by default."""
    path = f"{folder}/{SETTINGS_FILE}"
    own = dict(zip(SPECIAL_TOKENS, special.names, strict=True))
    others = {
        name: value
        for name, value in settings.items()
        if name.endswith("_token")
        and name not in _NAMED
        and isinstance(value, str | dict)
    }
    with messages.errors_named(path):
        for name, value in {
            **{name: settings.get(name) for name in _NAMED},
            **others,
        }.items():
            if value is None:
                continue
            token = _token(name, value, is_special=True)
            if token.content != own.get(name, token.content):
                raise ValueError(
                    f"`{name}` must be {own[name]}, as in this kind of "
                    "tokenizer. Received: "
                    f"{messages.shortened(token.content)}. "
                    f"Rename it to {own[name]} in all files of the folder."
                )
            # By default they are as `added_tokens.default` has them.
            if token.content not in special.names or isinstance(value, dict):
                yield Listed(token, None, path)


def _extra(folder, settings):
    # One of the two names counts.
    extra = settings[_EXTRA] or settings.get(_ADDITIONAL)
    path = f"{folder}/{SETTINGS_FILE}"
    with messages.errors_named(path):
        for value in _values(extra):
            yield Listed(_token(_EXTRA, value, is_special=True), None, path)


def _values(extra):
    if isinstance(extra, dict):
        return list(extra.values())
    if not isinstance(extra, list | None):
        raise ValueError(
            f"`{_EXTRA}` must be a list or an object of tokens. "
            f"Received: {messages.shortened(extra)}."
        )
    return extra or []


def _content(value):
    return value.get("content") if isinstance(value, dict) else value


def _token(name, value, is_special=False):
    """Returns the `AddedToken` of a string or an object."""
    told = value if isinstance(value, dict) else {"content": value}
    content = told.get("content")
    flags = {flag: told[flag] for flag in _FLAGS if flag in told}
    if not isinstance(content, str) or not all(
        type(flag) is bool for flag in flags.values()
    ):
        raise ValueError(
            f"`{name}` must have tokens: strings, or objects with `content` "
            f"and flags. Received: {messages.shortened(value)}."
        )
    flags.setdefault("special", is_special)
    flags.setdefault("normalized", not flags["special"])
    return AddedToken(content=content, **flags)


def _index(name, index):
    if isinstance(index, str) and index.isdecimal():
        index = int(index)
    if type(index) is not int:
        raise ValueError(
            f"`{name}` must have the id of each token. "
            f"Received: {messages.shortened(index)}."
        )
    return index


def _check_agreement(
    folder: str,
    in_json: Iterable[Listed],
    listed: Iterable[Listed],
    special: SpecialTokens,
    is_rebuilt: bool,
) -> None:
    """Checks that `tokenizers` and transformers find the same tokens.

    A class that is not rebuilt also has those of tokenizer.json alone.
    """
    found: dict[str, AddedToken] = {}
    for each in listed:
        found.setdefault(each.token.content, each.token)
    for each in in_json:
        content = each.token.content
        if content in special.names or (
            content not in found and not is_rebuilt
        ):
            continue
        if found.get(content) != each.token:
            raise ValueError(
                f"{folder}/{SETTINGS_FILE}: `{_DECODER}` must have the added "
                f"token {messages.shortened(content)} as {TOKENIZER_FILE} has "
                "it. "
                f"Received: {found.get(content, 'none')}. Save the tokenizer "
                "again with transformers."
            )


def _placed(listed, entries, named):
    """Returns all entries, and the tokens with `is_piece`, by their ids."""
    ids = {entry: index for index, entry in enumerate(entries)}
    model_ids = dict(ids)
    next_id = len(model_ids)
    found: dict[str, AddedToken] = {}
    for token, index, place in listed:
        content = token.content
        if not content:
            continue
        if content not in ids:
            ids[content] = next_id
            next_id += 1
        if index not in (None, ids[content]) or (
            # The places of entries that are there twice, or blank.
            content not in model_ids and ids[content] < len(entries)
        ):
            raise ValueError(
                f"{place}: the added token {messages.shortened(content)} must "
                f"have the id {ids[content]}, which transformers gives it. "
                f"Received: {index}. Save tokenizer and model again, with ids "
                "that follow one another."
            )
        found.setdefault(
            content,
            dataclasses.replace(
                token,
                special=token.special or content in named,
                is_piece=content in model_ids,
            ),
        )
    added = tuple(sorted(found.values(), key=lambda token: ids[token.content]))
    new = tuple(t.content for t in added if not t.is_piece)
    return entries + new, added
