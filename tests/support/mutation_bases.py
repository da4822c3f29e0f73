"""Folders with the tokenizers of released models, of tiny vocabularies.

A folder here is {name of a file: its contents}: bytes, text, or what a JSON
file holds. They are as the Hub has them: tokenizer_config.json is a few lines,
and tokenizer.json, where there is one, says everything.
"""

import base64
import copy
import functools
import json

from bert_tf.text.learners import byte_bpe
from bert_tf.text.learners import unigram as unigram_learner
from bert_tf.text.tokenizers import bpe_files
from bert_tf.text.tokenizers import sentencepiece_model
from bert_tf.text.tokenizers.sentencepiece_model import CONTROL
from bert_tf.text.tokenizers.sentencepiece_model import UNKNOWN
from bert_tf.text.tokenizers.sentencepiece_model import Model
from bert_tf.text.tokenizers.sentencepiece_model import Piece
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import ALBERT
from bert_tf.text.vocabulary import BERT
from bert_tf.text.vocabulary import ROBERTA
from bert_tf.text.vocabulary import Vocabulary
from support import mutation_lines

# Names of the bases: one kind each. "... files" have no tokenizer.json.
UNCASED, CASED = "uncased", "cased"
UNCASED_FILES, GOOGLE = "uncased files", "google"
ROBERTA_JSON, ROBERTA_FILES = "roberta", "roberta files"
ALBERT_JSON, ALBERT_FILES = "albert", "albert files"
XLM_ROBERTA, XLM_ROBERTA_FILES = "xlm-roberta", "xlm-roberta files"
CAMEMBERT, CAMEMBERT_FILES = "camembert", "camembert files"
# paraphrase-multilingual-MiniLM-L12-v2: XLM-R's unigrams beside a BertModel.
MINILM = "minilm"

MAX_LENGTH = 512
# What mutations add to a vocabulary and look for in texts.
ADDED = ("[E1]", "NewWord", "<ent/>", "fox jump")

_WORDS = (
    "the", "quick", "brown", "fox", "jump", "jumps", "over", "lazy", "dog",
    "cat", "new", "word", "un", "in", "cafe", "naive", "русских", "ent",
    "The", "Quick", "New", "Word", "It", "café", "##s", "##ing", "##ed",
    "##able", "##aff", "##er", "##word", "##cat", "##99",
)  # fmt: skip


def _characters():
    """Returns most characters of the lines; the others stay unknown."""
    text = "".join((*mutation_lines.REAL, *mutation_lines.ODD))
    found = sorted(set(text + text.lower()))
    return [
        character
        for character in found
        if character.isprintable()
        and not character.isspace()
        and (ord(character) < 0x80 or ord(character) % 5)
    ]


@functools.cache
def _wordpiece(is_cased):
    unused = [f"[unused{number}]" for number in range(4)]
    first = [BERT.pad, *unused, BERT.unk, BERT.cls, BERT.sep, BERT.mask]
    pieces = _characters()
    words = [*pieces, *(f"##{piece}" for piece in pieces), *_WORDS]
    if not is_cased:
        words = [word for word in words if word == word.lower()]
    tokens = tuple(dict.fromkeys((*first, *words)))
    vocabulary = Vocabulary(tokens=tokens)
    return {
        "config.json": {
            "model_type": "bert",
            "architectures": ["BertModel"],
            "vocab_size": len(tokens),
            "max_position_embeddings": MAX_LENGTH,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": not is_cased,
            "strip_accents": None,
            "tokenize_chinese_chars": True,
            "model_max_length": MAX_LENGTH,
            "pad_token": BERT.pad,
            "unk_token": BERT.unk,
            "cls_token": BERT.cls,
            "sep_token": BERT.sep,
            "mask_token": BERT.mask,
        },
        "tokenizer.json": WordpieceSpec(
            vocabulary, not is_cased, max_chars_per_word=100
        ).tokenizer_json,
        "vocab.txt": "".join(f"{token}\n" for token in tokens),
    }


def _fairseq_settings(name):
    mask = {
        "__type": "AddedToken",
        "content": ROBERTA.mask,
        "lstrip": True,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
    }
    return {
        "tokenizer_class": name,
        "model_max_length": MAX_LENGTH,
        "bos_token": ROBERTA.cls,
        "eos_token": ROBERTA.sep,
        "pad_token": ROBERTA.pad,
        "unk_token": ROBERTA.unk,
        "cls_token": ROBERTA.cls,
        "sep_token": ROBERTA.sep,
        "mask_token": mask,
    }


def _fairseq_config(model_type, architecture, vocab_size):
    return {
        "model_type": model_type,
        "architectures": [architecture],
        "vocab_size": vocab_size,
        "max_position_embeddings": MAX_LENGTH + 2,
        "pad_token_id": 1,
    }


@functools.cache
def _roberta():
    spec = byte_bpe.learn([list(mutation_lines.REAL)] * 2, 400, ["lines"])
    vocabulary = spec.vocabulary
    return {
        "config.json": _fairseq_config(
            "roberta", "RobertaModel", len(vocabulary)
        ),
        "tokenizer_config.json": {
            **_fairseq_settings("RobertaTokenizer"),
            "add_prefix_space": False,
            "trim_offsets": True,
        },
        "tokenizer.json": spec.tokenizer_json,
        "vocab.json": bpe_files.ids_of(vocabulary),
        "merges.txt": bpe_files.merges_to_text(spec.merges),
    }


@functools.cache
def _learned(is_albert):
    spec = unigram_learner.learn(
        [list(mutation_lines.REAL)], 500, is_albert, ["lines"]
    )
    return spec, sentencepiece_model.parse(spec.model)


@functools.cache
def _albert():
    spec, _ = _learned(True)
    (pieces,) = spec.vocabulary_files.values()
    return {
        "config.json": {
            "model_type": "albert",
            "architectures": ["AlbertModel"],
            "vocab_size": len(spec.vocabulary),
            "max_position_embeddings": MAX_LENGTH,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "AlbertTokenizer",
            "do_lower_case": True,
            "keep_accents": False,
            "model_max_length": MAX_LENGTH,
            "bos_token": ALBERT.cls,
            "eos_token": ALBERT.sep,
            "pad_token": ALBERT.pad,
            "unk_token": ALBERT.unk,
            "cls_token": ALBERT.cls,
            "sep_token": ALBERT.sep,
            "mask_token": {
                "__type": "AddedToken",
                "content": ALBERT.mask,
                "lstrip": True,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
            },
        },
        "tokenizer.json": spec.tokenizer_json,
        "spiece.model": pieces,
    }


@functools.cache
def _fairseq_unigrams(is_camembert):
    """Returns (pieces by their ids, the file of SentencePiece)."""
    _, (pieces, charsmap) = _learned(False)
    words = [piece for piece in pieces if piece.text not in ALBERT.names]
    # fairseq's file: <unk> <s> </s>; camembert-base's begins with its own.
    control = [(ROBERTA.cls, CONTROL), (ROBERTA.sep, CONTROL)]
    first = [Piece(ROBERTA.unk, 0.0, UNKNOWN)]
    first += [Piece(text, 0.0, type_) for text, type_ in control]
    file = sentencepiece_model.serialize(Model((*first, *words), charsmap))
    if is_camembert:
        before = ["<s>NOTUSED", ROBERTA.pad, "</s>NOTUSED", ROBERTA.unk]
        before = [Piece(text, 0.0) for text in before]
        before += [Piece("<unk>NOTUSED", -100.0), *first[1:]]
    else:
        before = [ROBERTA.cls, ROBERTA.pad, ROBERTA.sep, ROBERTA.unk]
        before = [Piece(text, 0.0) for text in before]
    by_id = (*before, *words, Piece(ROBERTA.mask, 0.0))
    return by_id, charsmap, file


def _fairseq_json(is_camembert):
    pieces, charsmap, _ = _fairseq_unigrams(is_camembert)
    ids = {piece.text: index for index, piece in enumerate(pieces)}
    cls, sep = (
        {"SpecialToken": {"id": t, "type_id": 0}} for t in ("<s>", "</s>")
    )
    first, second = ({"Sequence": {"id": t, "type_id": 0}} for t in "AB")
    space = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    }
    special = list(ROBERTA.names)
    if is_camembert:
        special += ["<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"]
    steps = {"type": "Precompiled"}
    steps["precompiled_charsmap"] = base64.b64encode(charsmap).decode()
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(ids[token], token, lstrip=token == ROBERTA.mask)
            for token in sorted(special, key=ids.__getitem__)
        ],
        "normalizer": steps,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, space],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, sep, second, sep],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in ("<s>", "</s>")
            },
        },
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": ids[ROBERTA.unk],
            "vocab": [[piece.text, piece.score] for piece in pieces],
            "byte_fallback": False,
        },
    }


def _xlm_roberta(is_camembert):
    pieces, _, file = _fairseq_unigrams(is_camembert)
    name = "Camembert" if is_camembert else "XLMRoberta"
    model_type = "camembert" if is_camembert else "xlm-roberta"
    return {
        "config.json": _fairseq_config(model_type, f"{name}Model", len(pieces)),
        "tokenizer_config.json": _fairseq_settings(f"{name}Tokenizer"),
        "tokenizer.json": _fairseq_json(is_camembert),
        "sentencepiece.bpe.model": file,
    }


def _minilm():
    folder = _xlm_roberta(False)
    del folder["sentencepiece.bpe.model"]
    folder["config.json"] = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": folder["config.json"]["vocab_size"],
        "max_position_embeddings": MAX_LENGTH,
    }
    folder["tokenizer_config.json"] |= {
        "tokenizer_class": "BertTokenizerFast",
        "do_lower_case": True,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
    }
    return folder


def added_token(index, content, **flags):
    """Returns an entry of `added_tokens` of a tokenizer.json."""
    return {
        "id": index,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    } | flags


def _without(folder, *names):
    return {name: value for name, value in folder.items() if name not in names}


_MAKERS = {
    UNCASED: lambda: _wordpiece(False),
    CASED: lambda: _wordpiece(True),
    UNCASED_FILES: lambda: _without(_wordpiece(False), "tokenizer.json"),
    # Google's releases have no settings; the model is named for transformers.
    GOOGLE: lambda: _without(
        _wordpiece(False), "tokenizer.json", "tokenizer_config.json"
    ),
    ROBERTA_JSON: _roberta,
    ROBERTA_FILES: lambda: _without(_roberta(), "tokenizer.json"),
    ALBERT_JSON: _albert,
    ALBERT_FILES: lambda: _without(_albert(), "tokenizer.json"),
    XLM_ROBERTA: lambda: _xlm_roberta(False),
    XLM_ROBERTA_FILES: lambda: _without(_xlm_roberta(False), "tokenizer.json"),
    CAMEMBERT: lambda: _xlm_roberta(True),
    CAMEMBERT_FILES: lambda: _without(_xlm_roberta(True), "tokenizer.json"),
    MINILM: _minilm,
}
NAMES = tuple(_MAKERS)


def make(name):
    """Returns a base's folder, to be changed at will."""
    return copy.deepcopy(_MAKERS[name]())


def special_of(name):
    """Returns the `SpecialTokens` of a base."""
    if name in (UNCASED, CASED, UNCASED_FILES, GOOGLE):
        return BERT
    return ALBERT if name in (ALBERT_JSON, ALBERT_FILES) else ROBERTA


@functools.cache
def lines_of(name):
    """Returns the lines for the tokenizers of a base."""
    return mutation_lines.lines_with([*special_of(name).names, *ADDED])


def write(folder, path):
    """Writes a folder's files into a new directory."""
    path.mkdir()
    for name, value in folder.items():
        if not isinstance(value, (bytes, str)):
            value = json.dumps(value, ensure_ascii=False)
        if isinstance(value, str):
            value = value.encode("utf-8")
        (path / name).write_bytes(value)
    return path
