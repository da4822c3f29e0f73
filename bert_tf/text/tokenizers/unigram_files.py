"""The files of a SentencePiece unigram tokenizer.

spiece.model             ALBERT's pieces, in the order of their ids
sentencepiece.bpe.model  XLM-RoBERTa's, in another order, without <pad>, <mask>
tokenizer.json           pieces, and how texts are folded, split and framed
"""

import base64
import binascii
import struct
from typing import Any
from typing import NamedTuple

from bert_tf import files
from bert_tf.text.tokenizers import added_tokens as added_tokens_lib
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers import tokenizer_json
from bert_tf.text.tokenizers.added_tokens import AddedToken
from bert_tf.text.tokenizers.sentencepiece_model import CONTROL
from bert_tf.text.tokenizers.sentencepiece_model import NORMAL
from bert_tf.text.tokenizers.sentencepiece_model import SPACE
from bert_tf.text.tokenizers.sentencepiece_model import UNKNOWN
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.vocabulary import ALBERT
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import SpecialTokens
from bert_tf.text.vocabulary import Vocabulary

ALBERT_CLASS, XLM_ROBERTA_CLASS = "AlbertTokenizer", "XLMRobertaTokenizer"
# {tokenizer_class: its special tokens}
SPECIAL = {ALBERT_CLASS: ALBERT, XLM_ROBERTA_CLASS: ROBERTA}
# {tokenizer_class: the file of its pieces}
MODEL_FILES = {
    ALBERT_CLASS: "spiece.model",
    XLM_ROBERTA_CLASS: "sentencepiece.bpe.model",
}
# The name of the file in google-research/albert's releases.
_GOOGLE_FILE = "30k-clean.model"
ALL_MODEL_FILES = (*MODEL_FILES.values(), _GOOGLE_FILE)
SETTINGS_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"

# Values of `tokenizer_class` that leave the kind open.
_ANY_CLASS = (None, "PreTrainedTokenizer", "TokenizersBackend")
_NAME = "a unigram tokenizer"
# fairseq's file begins with these; its ids begin with the next four.
_FAIRSEQ = (ROBERTA.unk, ROBERTA.cls, ROBERTA.sep)
_XLM_ROBERTA = (ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk)
# How much the scores of pieces like "5," are lowered: google-research/albert
# splits these in two.
_DIGIT_COMMA = 100.0
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
    """

    path: str
    model: Model
    tokenizer_class: str
    do_lower_case: bool
    keep_accents: bool


def vocabulary_files(
    tokenizer_class: str, model: bytes
) -> dict[str, str | bytes]:
    """Returns {name: contents} of the file of the pieces.

    Args:
        tokenizer_class: One of `SPECIAL`.
        model: A model in the order of the ids.
    """
    pieces, charsmap = sentencepiece_model.parse(model)
    if tokenizer_class == ALBERT_CLASS:
        pieces = tuple(map(_likely, pieces))
    else:
        by_text = {piece.text: piece for piece in pieces}
        first = tuple(by_text[text] for text in _FAIRSEQ)
        left_out = {*_XLM_ROBERTA, ROBERTA.mask}
        pieces = first + tuple(
            piece for piece in pieces if piece.text not in left_out
        )
    written = sentencepiece_model.serialize(Model(pieces, charsmap))
    return {MODEL_FILES[tokenizer_class]: written}


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


def make_json(
    vocabulary: Vocabulary,
    model: Model,
    *,
    joins_quotes: bool,
    keep_accents: bool,
    do_lower_case: bool,
    added_tokens: tuple[AddedToken, ...] = (),
) -> dict[str, Any]:
    """Returns the contents of tokenizer.json.

    Args:
        vocabulary: The `Vocabulary`.
        model: Its `Model`.
        joins_quotes: As in `unigram.UnigramSpec`.
        keep_accents: Likewise.
        do_lower_case: Likewise.
        added_tokens: Likewise.
    """
    apart = added_tokens_lib.apart(added_tokens)
    special = vocabulary.special
    cls, sep = special.cls, special.sep
    steps = []
    if joins_quotes:
        steps += [_replace({"String": quotes}, '"') for quotes in ("``", "''")]
    if not keep_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if do_lower_case:
        steps.append({"type": "Lowercase"})
    if model.charsmap:
        encoded = base64.b64encode(model.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    first = [
        {"SpecialToken": {"id": cls, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": sep, "type_id": 0}},
    ]
    between = [{"SpecialToken": {"id": sep, "type_id": 0}}]
    second = between * (special.num_between - 1) + [
        {"Sequence": {"id": "B", "type_id": special.second_segment}},
        {"SpecialToken": {"id": sep, "type_id": special.second_segment}},
    ]
    space = {
        "type": "Metaspace",
        "replacement": SPACE,
        "prepend_scheme": "always",
        "split": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens_lib.to_json(added_tokens, vocabulary),
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, space],
        },
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
                for token in (cls, sep)
            },
        },
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": vocabulary.unk_id,
            "vocab": [
                [piece.text, piece.score]
                for piece in model.pieces
                if piece.text not in apart
            ],
            "byte_fallback": False,
        },
    }


def _replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


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
    if files.exists(path):
        tokenizer = files.read_object(path)
        with files.errors_named(path):
            found = _read_json(path, tokenizer, name)
    else:
        found = _read_model(folder, settings, name)
    for field in ("do_lower_case", "keep_accents"):
        # These mean nothing for XLM-RoBERTa.
        if found.tokenizer_class == ALBERT_CLASS and settings.get(
            field, getattr(found, field)
        ) != getattr(found, field):
            raise ValueError(
                f"{folder}/{SETTINGS_FILE}: `{field}` must be "
                f"{getattr(found, field)}, as in {TOKENIZER_FILE}. "
                f"Received: {field}={settings[field]}."
            )
    return found


def _read_model(folder, settings, name):
    classes = {file: each for each, file in MODEL_FILES.items()}
    classes[_GOOGLE_FILE] = ALBERT_CLASS
    there = [
        file
        for file, each in classes.items()
        if name in (each, *_ANY_CLASS) and files.exists(f"{folder}/{file}")
    ]
    if not there:
        expected = MODEL_FILES.get(name, " or ".join(MODEL_FILES.values()))
        raise ValueError(f"{folder}: must hold {TOKENIZER_FILE} or {expected}.")
    path, name = f"{folder}/{there[0]}", classes[there[0]]
    contents = files.read_bytes(path, files.MAX_FOLDER_TEXT)
    with files.errors_named(path):
        pieces, charsmap = sentencepiece_model.parse(contents)
        sentencepiece_model.check_charsmap(charsmap)
        if name == XLM_ROBERTA_CLASS:
            first = tuple(piece.text for piece in pieces[: len(_FAIRSEQ)])
            if first != _FAIRSEQ:
                raise ValueError(
                    f"the first pieces must be {', '.join(_FAIRSEQ)}, as "
                    f"fairseq's. Received: {files.shortened(list(first))}."
                )
            pieces = (
                *(Piece(text, 0.0) for text in _XLM_ROBERTA),
                *pieces[len(_FAIRSEQ) :],
                Piece(ROBERTA.mask, 0.0),
            )
        else:
            pieces = tuple(map(unlikely, pieces))
        model = Model(tuple(pieces), charsmap)
    is_albert = name == ALBERT_CLASS
    return Found(
        path=path,
        model=model,
        tokenizer_class=name,
        do_lower_case=is_albert and settings.get("do_lower_case", True),
        keep_accents=not is_albert or settings.get("keep_accents", False),
    )


def typed(model: Model, special: SpecialTokens) -> Model:
    """Returns the model with types by which no text matches special tokens.

    All other pieces become normal ones, whatever their types were:
    tokenizer.json has no types either.
    """
    types = dict.fromkeys(special.names, CONTROL) | {special.unk: UNKNOWN}
    return model._replace(
        pieces=tuple(
            piece._replace(type=types.get(piece.text, NORMAL))
            for piece in model.pieces
        )
    )


def _read_json(path, tokenizer, name):
    tokenizer_json.check_truncation(tokenizer)
    model = tokenizer.get("model")
    if not isinstance(model, dict) or model.get("type") != "Unigram":
        raise ValueError(
            f"`model.type` must be Unigram in {_NAME}. Received: "
            f"{files.shortened(_type_of(model))}."
        )
    if model.get("byte_fallback"):
        raise ValueError(
            f"`model.byte_fallback` must be false in {_NAME}. Received: true."
        )
    pieces = _pieces(model.get("vocab"))
    texts = {piece.text for piece in pieces}
    added = _added(tokenizer.get("added_tokens"))
    if name not in SPECIAL:
        marks = texts | added.keys()
        name = ALBERT_CLASS if ALBERT.cls in marks else XLM_ROBERTA_CLASS
    special = SPECIAL[name]
    for content, token in sorted(added.items(), key=lambda pair: pair[1]["id"]):
        if content in special.names or token.get("special"):
            if content in texts:
                continue
            if token["id"] == len(pieces):
                pieces.append(Piece(content, 0.0))
                continue
            raise ValueError(
                "`added_tokens`: ids of tokens that are not in the vocabulary "
                f"must follow its {len(pieces):,}. Received: "
                f"{files.shortened(token)}."
            )
        # transformers writes a model's user-defined symbols like this.
        raise ValueError(
            "`added_tokens` must be special tokens: `tokenizers` splits texts "
            "at others, SentencePiece and bert_tf do not. Without the file, "
            f"{MODEL_FILES[name]} is read. Received: {files.shortened(token)}."
        )
    unk_id = model.get("unk_id")
    if (
        type(unk_id) is not int
        or not 0 <= unk_id < len(pieces)
        or pieces[unk_id].text != special.unk
    ):
        raise ValueError(
            f"`model.unk_id` must be that of {special.unk}. "
            f"Received: {files.shortened(unk_id)}."
        )
    charsmap, folds = _read_normalizer(tokenizer.get("normalizer"))
    is_albert = name == ALBERT_CLASS
    if folds["joins_quotes"] != is_albert or not (
        is_albert or (folds["keep_accents"] and not folds["do_lower_case"])
    ):
        raise ValueError(
            f"`normalizer` must be that of {name}, which "
            f"{'joins quotes' if is_albert else 'folds nothing'}. Received: "
            f"{', '.join(f'{k}={v}' for k, v in folds.items())}."
        )
    _check_pre_tokenizer(tokenizer.get("pre_tokenizer"))
    return Found(
        path=path,
        model=Model(tuple(pieces), charsmap),
        tokenizer_class=name,
        do_lower_case=folds["do_lower_case"],
        keep_accents=folds["keep_accents"],
    )


def _added(added):
    """Returns {content: token} of `added_tokens`."""
    found = {}
    for token in _list("added_tokens", added):
        is_good = (
            isinstance(token, dict)
            and isinstance(token.get("content"), str)
            and type(token.get("id")) is int
        )
        if not is_good:
            raise ValueError(
                "`added_tokens` must have `content` and `id`. "
                f"Received: {files.shortened(token)}."
            )
        found[token["content"]] = token
    return found


def _list(name, values):
    """Returns a list of the file; null counts as an empty one."""
    if values is not None and not isinstance(values, list):
        raise ValueError(
            f"`{name}` must be a list. Received: {files.shortened(values)}."
        )
    return values or []


def _type_of(part):
    """Returns the type of an object in the file; other values as they are."""
    return part.get("type") if isinstance(part, dict) else part


def _pieces(vocabulary):
    if not isinstance(vocabulary, list):
        raise ValueError("`model.vocab` must be a list of pieces with scores.")
    for number, pair in enumerate(vocabulary):
        is_good = (
            isinstance(pair, list)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and type(pair[1]) in (int, float)
        )
        if not is_good:
            raise ValueError(
                f"`model.vocab`: piece {number} must be a text and a score. "
                f"Received: {files.shortened(pair)}."
            )
    return [Piece(text, float(score)) for text, score in vocabulary]


def _read_normalizer(normalizer):
    """Returns the table of characters, and {what is folded: bool}."""
    steps = [normalizer] if isinstance(normalizer, dict) else []
    if steps and steps[0].get("type") == "Sequence":
        steps = _list("normalizers", steps[0].get("normalizers"))
    # In this order, each at most once; the joining of spaces may be anywhere.
    known = ("quotes", "quotes", "NFKD", "StripAccents", "Lowercase")
    order = [*known, "Precompiled"]
    charsmap, found = b"", []
    for step in steps:
        kind = _type_of(step)
        if kind == "Replace":
            pair = (step.get("pattern"), step.get("content"))
            if pair in _QUOTES:
                kind = "quotes"
            elif pair == ({"Regex": " {2,}"}, " "):
                # White space is joined anyway.
                continue
        if kind not in order:
            raise ValueError(
                "`normalizer` must have the steps of ALBERT or XLM-RoBERTa, in "
                f"their order. Received: {files.shortened(step)}."
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


def _check_pre_tokenizer(splits):
    steps = [splits]
    if isinstance(splits, dict) and splits.get("type") == "Sequence":
        steps = _list("pretokenizers", splits.get("pretokenizers"))
    kinds = [_type_of(step) for step in steps]
    if kinds != ["WhitespaceSplit", "Metaspace"]:
        raise ValueError(
            "`pre_tokenizer` must be WhitespaceSplit, then Metaspace. "
            f"Received: {files.shortened(kinds)}."
        )
    space = steps[1]
    scheme = space.get("prepend_scheme")
    if scheme is None:
        scheme = "always" if space.get("add_prefix_space", True) else "never"
    received = (space.get("replacement", SPACE), scheme)
    if received != (SPACE, "always"):
        raise ValueError(
            f"`pre_tokenizer` must set {SPACE} before every word. Received: "
            f"replacement={received[0]!r}, prepend_scheme={received[1]!r}."
        )
