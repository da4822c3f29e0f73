"""The files of a SentencePiece unigram tokenizer.

spiece.model             ALBERT's pieces, in the order of their ids
sentencepiece.bpe.model  of XLM-RoBERTa and CamemBERT, in other orders, without
                         <pad> and <mask>
tokenizer.json           pieces, and how texts are folded, split and framed
"""

import base64
import binascii
import dataclasses
import struct
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

from bert_tf import files
from bert_tf import messages
from bert_tf.text.tokenizers import added_token_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.sentencepiece_model import CONTROL
from bert_tf.text.tokenizers.sentencepiece_model import NORMAL
from bert_tf.text.tokenizers.sentencepiece_model import SPACE
from bert_tf.text.tokenizers.sentencepiece_model import UNKNOWN
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.tokenizers.tokenizer_json import SETTINGS_FILE
from bert_tf.text.tokenizers.tokenizer_json import TOKENIZER_FILE
from bert_tf.text.vocabulary import ALBERT
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

ALBERT_CLASS, XLM_ROBERTA_CLASS = "AlbertTokenizer", "XLMRobertaTokenizer"
CAMEMBERT_CLASS = "CamembertTokenizer"
# {tokenizer_class: its special tokens}
SPECIAL = {
    ALBERT_CLASS: ALBERT,
    XLM_ROBERTA_CLASS: ROBERTA,
    CAMEMBERT_CLASS: ROBERTA,
}
# {tokenizer_class: the file of its pieces}
MODEL_FILES = {
    ALBERT_CLASS: "spiece.model",
    XLM_ROBERTA_CLASS: "sentencepiece.bpe.model",
    CAMEMBERT_CLASS: "sentencepiece.bpe.model",
}
# The name of the file in google-research/albert's releases.
_GOOGLE_FILE = "30k-clean.model"
ALL_MODEL_FILES = (*MODEL_FILES.values(), _GOOGLE_FILE)

_NAME = "a unigram tokenizer"
# fairseq's files begin with these.
_FAIRSEQ = (ROBERTA.unk, ROBERTA.cls, ROBERTA.sep)
# {tokenizer_class: the pieces that its ids begin with instead}. CamemBERT's
# <s> and </s> have the ids behind these.
_FIRST = {
    ALBERT_CLASS: (Piece(ALBERT.pad, 0.0), Piece(ALBERT.unk, 0.0)),
    XLM_ROBERTA_CLASS: tuple(
        Piece(text, 0.0)
        for text in (ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk)
    ),
    CAMEMBERT_CLASS: (
        Piece("<s>NOTUSED", 0.0),
        Piece(ROBERTA.pad, 0.0),
        Piece("</s>NOTUSED", 0.0),
        Piece(ROBERTA.unk, 0.0),
        Piece("<unk>NOTUSED", -100.0),
    ),
}
# {tokenizer_class: how many pieces of fairseq's file those replace}
_NUM_REPLACED = {XLM_ROBERTA_CLASS: 3, CAMEMBERT_CLASS: 1}
# How much the scores of pieces like "5," are lowered: google-research/albert
# splits these in two.
_DIGIT_COMMA = 100.0
# Steps of a normaliser behind the model's table, by names of our own.
CLEANUP: dict[str, dict[str, Any]] = {
    # White space at the end.
    "strip": {"type": "Strip", "strip_left": False, "strip_right": True},
    # Several spaces become one, or a mark.
    "join": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
    "mark": {
        "type": "Replace",
        "pattern": {"Regex": " {2,}"},
        "content": SPACE,
    },
}
# Line ends become spaces: nothing to what splits at white space anyway.
_LINE_ENDS = {"type": "Replace", "pattern": {"String": "\n"}, "content": " "}
# Quotes that are joined: pattern and content of a normaliser's step.
_QUOTES = tuple(({"String": pair}, '"') for pair in ("``", "''"))


class Found(NamedTuple):
    """What the files of a folder say.

    Attributes:
        path: The file that holds the pieces.
        model: Its `Model`, the pieces in the order of their ids.
        tokenizer_class: One of `SPECIAL`.
        do_lower_case: As in `unigram.UnigramSpec`.
        keep_accents: Likewise.
        special: Its `SpecialTokens`.
        splits_at_white_space: As in `unigram.UnigramSpec`.
        cleanup: Likewise.
        added_tokens: Likewise.
    """

    path: str
    model: Model
    tokenizer_class: str
    do_lower_case: bool
    keep_accents: bool
    special: SpecialTokens
    splits_at_white_space: bool = True
    cleanup: tuple[str, ...] = ()
    added_tokens: tuple[AddedToken, ...] = ()


def vocabulary_files(
    tokenizer_class: str, model: bytes
) -> dict[str, str | bytes]:
    """Returns {name: contents} of the file of the pieces.

    Args:
        tokenizer_class: One of `SPECIAL`.
        model: A model in the order of the ids.
    """
    pieces, charsmap = sentencepiece_model.parse(model)
    special = SPECIAL[tokenizer_class].names
    # All but added tokens.
    pieces = tuple(
        piece
        for piece in pieces
        if piece.type != CONTROL or piece.text in special
    )
    if tokenizer_class == ALBERT_CLASS:
        pieces = tuple(map(_likely, pieces))
    else:
        by_text = {piece.text: piece for piece in pieces}
        num_replaced = _NUM_REPLACED[tokenizer_class]
        first = tuple(by_text[text] for text in _FAIRSEQ[:num_replaced])
        num_first = len(_FIRST[tokenizer_class])
        pieces = first + tuple(
            piece for piece in pieces[num_first:] if piece.text != ROBERTA.mask
        )
    written = sentencepiece_model.serialize(Model(pieces, charsmap))
    return {MODEL_FILES[tokenizer_class]: written}


def is_standard(tokenizer_class: str, vocabulary: Vocabulary) -> bool:
    """Returns whether the first ids and the frame are the class's own.

    Args:
        tokenizer_class: One of `SPECIAL`.
        vocabulary: The `Vocabulary`.
    """
    first = tuple(piece.text for piece in _FIRST[tokenizer_class])
    return (
        vocabulary.special == SPECIAL[tokenizer_class]
        and vocabulary.tokens[: len(first)] == first
    )


def _is_digit_comma(text):
    return len(text) > 1 and text[-1] == "," and text[-2].isdigit()


def _likely(piece):
    """Undoes `unlikely`, except for rounding."""
    if _is_digit_comma(piece.text) and piece.score <= -_DIGIT_COMMA:
        return piece._replace(score=piece.score + _DIGIT_COMMA)
    return piece


def unlikely(piece: Piece) -> Piece:
    """Returns ALBERT's piece, whose score is lowered if it is like "5,".

    google-research/albert splits such pieces in two. Hugging Face's
    tokenizer.json lowers their scores so that they are never the likeliest.
    """
    if not _is_digit_comma(piece.text):
        return piece
    # Rounded to float32, as in the file.
    (score,) = struct.unpack("f", struct.pack("f", piece.score - _DIGIT_COMMA))
    return piece._replace(score=score)


def normalizer_steps(
    *,
    joins_quotes: bool,
    keep_accents: bool,
    do_lower_case: bool,
    charsmap: bytes,
    cleanup: Iterable[str],
) -> list[dict[str, Any]]:
    """Returns the steps of the normaliser in tokenizer.json.

    Args:
        charsmap: The model's table of characters.
        joins_quotes, keep_accents, do_lower_case, cleanup: As in
            `unigram.UnigramSpec`.
    """
    steps: list[dict[str, Any]] = []
    if joins_quotes:
        steps += [
            {"type": "Replace", "pattern": pattern, "content": content}
            for pattern, content in _QUOTES
        ]
    if not keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if do_lower_case:
        steps.append({"type": "Lowercase"})
    if charsmap:
        encoded = base64.b64encode(charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    return [*steps, *(CLEANUP[name] for name in cleanup)]


def read(folder: str, settings: dict[str, Any]) -> Found:
    """Reads the files of a folder.

    If there is a tokenizer.json, the model's file is not read.

    Args:
        folder: The folder.
        settings: The contents of its tokenizer_config.json.

    Raises:
        ValueError: If a file is missing, damaged, or asks for what
            `UnigramSpec` does not support; the message names the file.
    """
    name = settings.get("tokenizer_class")
    name = None if name is None else name.removesuffix("Fast")
    path = f"{folder}/{TOKENIZER_FILE}"
    tokenizer = None
    if files.exists(path):
        tokenizer = files.read_object(path)
        with tokenizer_json.errors_named(path):
            found = _read_json(path, tokenizer, settings, name)
    else:
        found = _read_model(folder, settings, name)
    with messages.errors_named(f"{folder}/{SETTINGS_FILE}"):
        _check_settings(settings, found, name)
    pieces, charsmap = found.model
    entries, added = added_token_files.read(
        folder,
        settings,
        tokenizer,
        tuple(piece.text for piece in pieces),
        found.special,
        found.tokenizer_class,
    )
    new = tuple(Piece(text, 0.0) for text in entries[len(pieces) :])
    return found._replace(
        model=Model((*pieces, *new), charsmap), added_tokens=added
    )


def _check_settings(settings, found, name):
    """Checks that tokenizer_config.json asks for what the other files do."""
    expected: dict[str, Any] = {"add_prefix_space": True}
    if name == ALBERT_CLASS:
        # Without these, transformers takes its own defaults.
        settings = {"do_lower_case": True, "keep_accents": False} | settings
    if found.tokenizer_class == ALBERT_CLASS:
        expected["do_lower_case"] = found.do_lower_case
        expected["keep_accents"] = found.keep_accents
    special = found.special
    expected |= {
        "pad_token": special.pad,
        "unk_token": special.unk,
        "cls_token": special.cls,
        "sep_token": special.sep,
        "mask_token": special.mask,
    }
    if name in _NUM_REPLACED:
        # transformers frames texts with these.
        expected |= {"bos_token": special.cls, "eos_token": special.sep}
    for key, value in expected.items():
        received = settings.get(key)
        if _content(received) not in (None, value):
            raise ValueError(
                f"`{key}` must be {value!r}, as in the tokenizer's files. "
                f"Received: {key}={messages.shortened(received)}."
            )
    for key in ("add_bos_token", "add_eos_token"):
        if name not in SPECIAL and settings.get(key) is not None:
            raise ValueError(
                f"`{key}` must not be set: the frame of texts is that of "
                f"`post_processor`. Received: {key}={settings[key]!r}."
            )


def _content(token):
    """Returns the text of a token, which may be an object."""
    return token.get("content") if isinstance(token, dict) else token


def _read_model(folder, settings, name):
    classes = {file: each for each, file in reversed(MODEL_FILES.items())}
    classes[_GOOGLE_FILE] = ALBERT_CLASS
    if _is_camembert(folder, name):
        name = classes[MODEL_FILES[CAMEMBERT_CLASS]] = CAMEMBERT_CLASS
    there = [
        file
        for file, each in classes.items()
        if (name not in SPECIAL or name == each)
        and files.exists(f"{folder}/{file}")
    ]
    if not there:
        expected = MODEL_FILES.get(name, " or ".join({*MODEL_FILES.values()}))
        raise ValueError(f"{folder}: must hold {TOKENIZER_FILE} or {expected}.")
    path, name = f"{folder}/{there[0]}", classes[there[0]]
    contents = files.read_bytes(path, files.MAX_FOLDER_TEXT)
    with messages.errors_named(path):
        pieces, charsmap = sentencepiece_model.parse(contents)
        sentencepiece_model.check_charsmap(charsmap)
        if name == ALBERT_CLASS:
            pieces = tuple(map(unlikely, pieces))
        else:
            first = tuple(piece.text for piece in pieces[: len(_FAIRSEQ)])
            if first != _FAIRSEQ:
                raise ValueError(
                    f"the first pieces must be {', '.join(_FAIRSEQ)}, as "
                    f"fairseq's. Received: {messages.shortened(list(first))}."
                )
            pieces = (
                *_FIRST[name],
                *pieces[_NUM_REPLACED[name] :],
                Piece(ROBERTA.mask, 0.0),
            )
    is_albert = name == ALBERT_CLASS
    return Found(
        path=path,
        model=Model(tuple(pieces), charsmap),
        tokenizer_class=name,
        do_lower_case=is_albert and settings.get("do_lower_case", True),
        keep_accents=not is_albert or settings.get("keep_accents", False),
        special=SPECIAL[name],
    )


def _is_camembert(folder, name):
    """Returns whether a folder's class or, without one, its model says so."""
    path = f"{folder}/config.json"
    if name in SPECIAL or not files.exists(path):
        return name == CAMEMBERT_CLASS
    return files.read_object(path).get("model_type") == "camembert"


def typed(
    model: Model, special: SpecialTokens, added: Iterable[AddedToken]
) -> Model:
    """Returns the model with types by which no text matches special tokens.

    Added tokens that are no pieces are not matched, either. All others become
    normal ones, whatever their types were: tokenizer.json has no types either.
    """
    apart = [token.content for token in added if not token.is_piece]
    types = dict.fromkeys((*special.names, *apart), CONTROL)
    types[special.unk] = UNKNOWN
    return model._replace(
        pieces=tuple(
            piece._replace(type=types.get(piece.text, NORMAL))
            for piece in model.pieces
        )
    )


def _read_json(path, tokenizer, settings, name):
    tokenizer_json.check_truncation(tokenizer)
    model = tokenizer["model"]
    if model.get("byte_fallback"):
        raise ValueError(
            f"`model.byte_fallback` must be false in {_NAME}. Received: true."
        )
    pieces = [Piece(text, float(score)) for text, score in model["vocab"]]
    if not pieces:
        raise ValueError("`model.vocab` must have pieces. Received: none.")
    ids = {piece.text: number for number, piece in enumerate(pieces)}
    added = added_token_files.in_json(path, tokenizer)
    special = _special(
        tokenizer,
        settings,
        {each.token.content: each.number for each in added} | ids,
    )
    steps = _steps(tokenizer.get("normalizer"), "normalizers")
    charsmap, folds = _read_normalizer(steps)
    kind = _kind(folds, special, pieces, name)
    _check_class(name, special, model["unk_id"])
    splits = _splits_at_white_space(tokenizer.get("pre_tokenizer"))
    cleanup = _cleanup(steps, splits, charsmap)
    return Found(
        path=path,
        model=Model(tuple(pieces), charsmap),
        tokenizer_class=kind,
        do_lower_case=folds["do_lower_case"],
        keep_accents=folds["keep_accents"],
        special=special,
        splits_at_white_space=splits,
        cleanup=cleanup,
    )


def _special(tokenizer, settings, ids):
    """Returns the `SpecialTokens` of a file, given the ids of all entries."""
    frame = tokenizer_json.frame(tokenizer, ids)

    def named(key, usual):
        given = _content(settings.get(key))
        found = [text for text in usual if text in ids]
        return given if isinstance(given, str) else (found or usual)[0]

    unk_id = tokenizer["model"].get("unk_id")
    unk = named("unk_token", ("<unk>", "[UNK]"))
    if type(unk_id) is not int or unk_id != ids.get(unk):
        raise ValueError(
            f"`model.unk_id` must be that of {unk}. "
            f"Received: {messages.shortened(unk_id)}."
        )
    return dataclasses.replace(
        frame,
        pad=named("pad_token", ("<pad>", "[PAD]")),
        unk=unk,
        mask=named("mask_token", ("<mask>", "[MASK]")),
    )


def _kind(folds, special, pieces, name):
    """Returns which of `SPECIAL` a file's tokenizer is.

    Args:
        folds: What `_read_normalizer` returns.
        special: The `SpecialTokens`.
        pieces: The pieces.
        name: The `tokenizer_class`.
    """
    is_albert = folds["joins_quotes"]
    is_folded = folds["do_lower_case"] or not folds["keep_accents"]
    expected = name == ALBERT_CLASS if name in SPECIAL else is_albert
    if is_albert != expected or (is_folded and not is_albert):
        raise ValueError(
            "`normalizer` must join quotes in ALBERT's tokenizer, and fold "
            "nothing in XLM-RoBERTa's and others. Received: "
            f"tokenizer_class={name}, "
            f"{', '.join(f'{k}={v}' for k, v in folds.items())}."
        )
    if is_albert:
        return ALBERT_CLASS
    first = tuple(piece.text for piece in _FIRST[CAMEMBERT_CLASS])
    is_camembert = special == ROBERTA and first == tuple(
        piece.text for piece in pieces[: len(first)]
    )
    return CAMEMBERT_CLASS if is_camembert else XLM_ROBERTA_CLASS


def _check_class(name, special, unk_id):
    """Checks that transformers' class does what tokenizer.json says."""
    if name not in SPECIAL:
        return
    frames = [
        f"{each.num_between} SEP between, B in segment {each.second_segment}"
        for each in (SPECIAL[name], special)
    ]
    if frames[0] != frames[1]:
        raise ValueError(
            f"`post_processor` must frame a pair as {name} does: {frames[0]}. "
            f"Received: {frames[1]}."
        )
    expected = {ALBERT_CLASS: 1, XLM_ROBERTA_CLASS: 3}.get(name, unk_id)
    if unk_id != expected:
        raise ValueError(
            f"`model.unk_id` must be {expected} with the `tokenizer_class` "
            f"{name}. Received: {unk_id}."
        )


def _steps(part, key):
    """Returns the steps of a part of the file; null has none.

    Args:
        part: A step, or a sequence of steps.
        key: Where a sequence has them.
    """
    if part is None:
        return []
    if _type_of(part) != "Sequence":
        return [part]
    return [each for step in part.get(key) or () for each in _steps(step, key)]


def _type_of(part):
    """Returns the type of an object in the file; other values as they are."""
    return part.get("type") if isinstance(part, dict) else part


def _is_cleanup(step):
    """Returns whether a step is only about white space."""
    return (
        _type_of(step) == "Strip"
        or step == _LINE_ENDS
        or step in CLEANUP.values()
    )


def _cleanup(steps, splits_at_white_space, charsmap):
    """Returns which steps of `CLEANUP` a normaliser has, in their order.

    Args:
        steps: The steps of the normaliser.
        splits_at_white_space: Whether a WhitespaceSplit follows.
        charsmap: Its table of characters.
    """
    cleanup = [step for step in steps if _is_cleanup(step)]
    if splits_at_white_space and CLEANUP["mark"] not in cleanup:
        line_end = sentencepiece_model.replacements(charsmap, 1).get("\n", " ")
        if _LINE_ENDS not in cleanup or line_end == " ":
            # White space is joined, stripped and split at anyway.
            return ()
    found = [
        next((name for name, known in CLEANUP.items() if known == step), None)
        for step in cleanup
    ]
    if None in found or steps[len(steps) - len(cleanup) :] != cleanup:
        raise ValueError(
            "`normalizer`: Strip must keep the left side, and it and Replace "
            "of spaces must be the last steps, or `pre_tokenizer` must begin "
            f"with a WhitespaceSplit. Received: {messages.shortened(cleanup)}."
        )
    return tuple(found)


def _read_normalizer(steps):
    """Returns the table of characters, and {what is folded: bool}."""
    # In this order, each at most once.
    known = ("quotes", "quotes", "NFKD", "StripAccents", "Lowercase")
    order = [*known, "Precompiled"]
    charsmap, found = b"", []
    for step in steps:
        if _is_cleanup(step):
            continue
        kind = _type_of(step)
        if kind == "Replace" and (step.get("pattern"), step.get("content")) in (
            _QUOTES
        ):
            kind = "quotes"
        if kind not in order:
            raise ValueError(
                "`normalizer` must have the steps of ALBERT or XLM-RoBERTa, in "
                f"their order. Received: {messages.shortened(step)}."
            )
        del order[: order.index(kind) + 1]
        found.append(kind)
        if kind == "Precompiled":
            try:
                charsmap = base64.b64decode(step["precompiled_charsmap"])
            except (KeyError, TypeError, binascii.Error) as error:
                raise ValueError(
                    f"`precompiled_charsmap` must be base64: {error}."
                ) from error
            sentencepiece_model.check_charsmap(charsmap)
    if found.count("quotes") == 1 or (
        ("NFKD" in found) != ("StripAccents" in found)
    ):
        raise ValueError(
            "`normalizer` must have both steps for quotes or none, and NFKD "
            f"with StripAccents. Received: {', '.join(found)}."
        )
    return charsmap, {
        "joins_quotes": "quotes" in found,
        "keep_accents": "NFKD" not in found,
        "do_lower_case": "Lowercase" in found,
    }


def _splits_at_white_space(splits):
    """Returns whether a WhitespaceSplit precedes the Metaspace."""
    steps = _steps(splits, "pretokenizers")
    kinds = [_type_of(step) for step in steps]
    if kinds not in (["WhitespaceSplit", "Metaspace"], ["Metaspace"]):
        raise ValueError(
            "`pre_tokenizer` must be WhitespaceSplit, then Metaspace, or "
            f"Metaspace alone. Received: {messages.shortened(kinds)}."
        )
    space = steps[-1]
    if not space.get("add_prefix_space", True):
        scheme = "never"
    else:
        scheme = space.get("prepend_scheme", "always")
    received = {
        "replacement": space.get("replacement", SPACE),
        "prepend_scheme": scheme,
        "split": space.get("split", True),
    }
    expected = {"replacement": SPACE, "prepend_scheme": "always", "split": True}
    if received != expected:
        raise ValueError(
            f"`pre_tokenizer` must set {SPACE} before every word. Received: "
            f"{', '.join(f'{k}={v!r}' for k, v in received.items())}."
        )
    return len(steps) == 2
