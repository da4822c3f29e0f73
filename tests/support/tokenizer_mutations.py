"""Changes of tokenizers' folders, and what must become of each.

A mutation changes files of a base (tests/support/mutation_bases.py). Either it
is READ, and texts have the ids that `tokenizers` and transformers give them;
or it is REFUSED, by one line that names the setting or the file. There is no
third outcome. How it is decided:

- READ where the meaning is plain, that is, where `tokenizers` and transformers
  agree, and our tokenizers can do it; and whatever a released model uses.
- READ where no id can depend on the change.
- REFUSED where ids depend on it and our tokenizers do not do it, or where
  `tokenizers` and transformers differ and no released model tells who is
  right. (transformers makes a BertTokenizer of the vocabulary and of
  tokenizer_config.json; of a tokenizer.json's normalizer it takes nothing.)
"""

import copy
import json
from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from support import mutation_bases as bases
from support.mutation_bases import ALBERT_FILES
from support.mutation_bases import ALBERT_JSON
from support.mutation_bases import CAMEMBERT
from support.mutation_bases import CAMEMBERT_FILES
from support.mutation_bases import CASED
from support.mutation_bases import GOOGLE
from support.mutation_bases import MINILM
from support.mutation_bases import ROBERTA_FILES
from support.mutation_bases import ROBERTA_JSON
from support.mutation_bases import UNCASED
from support.mutation_bases import UNCASED_FILES
from support.mutation_bases import XLM_ROBERTA
from support.mutation_bases import XLM_ROBERTA_FILES
from support.mutation_bases import added_token

READ, REFUSED = "read", "refused"
# Whose ids ours must equal.
TOKENIZERS, TRANSFORMERS = "tokenizers", "transformers"
BOTH = (TOKENIZERS, TRANSFORMERS)
# Takes a key, an item or a file away.
ABSENT = object()

SETTINGS = "tokenizer_config.json"
JSON = "tokenizer.json"
CONFIG = "config.json"


class Mutation(NamedTuple):
    """A change of a base's folder.

    Attributes:
        name: Says what is changed.
        base: One of `mutation_bases.NAMES`.
        changes: {place: value}. A place is the name of a file, or "file: path"
            with keys and indices, separated by dots. A value may be ABSENT, or
            a function of the old value.
        outcome: READ or REFUSED.
        references: Whose ids ours equal, if it is READ; those of the base if
            there are none.
    """

    name: str
    base: str
    changes: dict[str, Any]
    outcome: str
    references: tuple[str, ...] = BOTH


def folder_of(mutation: Mutation) -> dict[str, Any]:
    """Returns the changed folder, as `mutation_bases` has folders."""
    folder = bases.make(mutation.base)
    for place, value in mutation.changes.items():
        file, _, path = place.partition(": ")
        *parents, last = [file, *filter(None, path.split("."))]
        inner = folder
        for key in parents:
            inner = inner[int(key) if isinstance(inner, list) else key]
        last = int(last) if isinstance(inner, list) else last
        if isinstance(value, Callable):
            old = inner[last] if isinstance(inner, list) else inner.get(last)
            value = value(old)
        if value is ABSENT:
            del inner[last]
        else:
            inner[last] = copy.deepcopy(value)
    return folder


def _shown(value, number):
    """Returns a value for a name; `number` tells apart what is long."""
    if value is ABSENT:
        return "absent"
    if isinstance(value, Callable):
        return f"changed, {number}"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) < 50:
        return text
    kind = value.get("type", "") if isinstance(value, dict) else ""
    return f"{kind or text[:40]}, {number}"


def _each(outcome, base, file, table, references=BOTH):
    """Returns a mutation of every value of {path in a file: values}."""
    return [
        Mutation(
            f"{base}: {file}: {path}: {_shown(value, number)}, {outcome}",
            base,
            {f"{file}: {path}": value},
            outcome,
            references,
        )
        for path, values in table.items()
        for number, value in enumerate(values, start=1)
    ]


def _one(outcome, base, name, changes, references=BOTH):
    return [Mutation(f"{base}: {name}", base, changes, outcome, references)]


def _appended(*items):
    return lambda old: [*(old or []), *items]


# -- WordPiece: tokenizer.json ------------------------------------------------

_NORMALIZERS = (
    {"type": "NFC"},
    {"type": "NFD"},
    {"type": "NFKC"},
    {"type": "NFKD"},
    {"type": "Nmt"},
    {"type": "Lowercase"},
    {"type": "StripAccents"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
    {"type": "Replace", "pattern": {"Regex": "[0-9]"}, "content": "0"},
    {"type": "Prepend", "prepend": "x"},
    {"type": "ByteLevel"},
    {"type": "Sequence", "normalizers": []},
)
_PRE_TOKENIZERS = (
    {"type": "Whitespace"},
    {"type": "WhitespaceSplit"},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Punctuation", "behavior": "Removed"},
    {"type": "Digits", "individual_digits": True},
    {"type": "CharDelimiterSplit", "delimiter": "-"},
    {"type": "UnicodeScripts"},
    {"type": "FixedLength", "length": 5},
    {
        "type": "Split",
        "pattern": {"String": "-"},
        "behavior": "Removed",
        "invert": False,
    },
    {"type": "Sequence", "pretokenizers": []},
)
_BERT_NORMALIZER = bases.make(UNCASED)[JSON]["normalizer"]
_BERT_SPLITS = {"type": "BertPreTokenizer"}
_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_METASPACE = {
    "type": "Metaspace",
    "replacement": "▁",
    "prepend_scheme": "always",
    "split": True,
}


def _sequence(kind, *steps):
    name = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers"}
    return {"type": "Sequence", name.get(kind, "processors"): list(steps)}


_CLS, _SEP = 6, 7
assert bases.make(UNCASED)["vocab.txt"].split("\n")[_CLS] == "[CLS]"
_BERT_PROCESSING = {
    "type": "BertProcessing",
    "sep": ["[SEP]", _SEP],
    "cls": ["[CLS]", _CLS],
}


def _special(token, type_id=0):
    return {"SpecialToken": {"id": token, "type_id": type_id}}


def _text(name, type_id=0):
    return {"Sequence": {"id": name, "type_id": type_id}}


def _uncased_json():
    table = {
        # A truncation's length is the caller's, its side the model's.
        "truncation": [
            {
                "direction": "Right",
                "max_length": 128,
                "strategy": strategy,
                "stride": stride,
            }
            for strategy, stride in (
                ("LongestFirst", 0),
                ("LongestFirst", 8),
                ("OnlyFirst", 0),
                ("OnlySecond", 0),
            )
        ],
        "padding": [
            {
                "strategy": strategy,
                "direction": direction,
                "pad_to_multiple_of": multiple,
                "pad_id": 0,
                "pad_type_id": 0,
                "pad_token": "[PAD]",
            }
            for strategy, direction, multiple in (
                ("BatchLongest", "Right", None),
                ("BatchLongest", "Left", 8),
                ({"Fixed": 128}, "Right", None),
            )
        ],
        "normalizer": [_sequence("normalizer", _BERT_NORMALIZER)],
        # Without, lower case alone decides; true is what lower case means.
        "normalizer.strip_accents": [True],
        "pre_tokenizer": [_sequence("pre_tokenizer", _BERT_SPLITS)],
        "post_processor": [
            _BERT_PROCESSING,
            _sequence("post_processor", _BERT_PROCESSING),
            lambda old: _sequence("post_processor", old),
        ],
        "post_processor.special_tokens": [
            lambda old: old | {"[MASK]": old["[SEP]"] | {"id": "[MASK]"}}
        ],
        "decoder": [None, {"type": "ByteFallback"}, {"type": "Fuse"}],
        "decoder.cleanup": [False],
        "decoder.prefix": ["@@"],
        # Files before tokenizers 0.12 do not name it.
        "model.type": [ABSENT],
        # An id that nothing has.
        "model.vocab": [lambda old: old | {"beyond": len(old) + 1}],
        "version": ["1.0"],
    }
    return _each(READ, UNCASED, JSON, table)


def _uncased_json_refused():
    other_models = [
        {"type": "WordLevel", "vocab": {"[UNK]": 0}, "unk_token": "[UNK]"},
        {"type": "Unknown"},
        None,
    ]
    table = {
        "truncation": [
            {
                "direction": "Left",
                "max_length": 128,
                "strategy": "LongestFirst",
                "stride": 0,
            }
        ],
        "normalizer": [
            None,
            *_NORMALIZERS,
            _sequence("normalizer", {"type": "NFKC"}, _BERT_NORMALIZER),
            _sequence("normalizer", _BERT_NORMALIZER, {"type": "NFC"}),
            {"type": "Lower"},
        ],
        "normalizer.clean_text": [False],
        "normalizer.handle_chinese_chars": [False],
        "normalizer.strip_accents": [False],
        "pre_tokenizer": [
            None,
            *_PRE_TOKENIZERS,
            _BYTE_LEVEL,
            _METASPACE,
            _sequence(
                "pre_tokenizer",
                _BERT_SPLITS,
                {"type": "Digits", "individual_digits": True},
            ),
            _sequence("pre_tokenizer", {"type": "Whitespace"}, _BERT_SPLITS),
        ],
        "post_processor": [
            None,
            _BERT_PROCESSING | {"sep": ["[SEP]", _CLS]},
            _BERT_PROCESSING | {"cls": ["[CLS]", _SEP]},
            _BERT_PROCESSING | {"sep": ["[MASK]", _SEP + 1]},
            {
                "type": "RobertaProcessing",
                "sep": ["[SEP]", _SEP],
                "cls": ["[CLS]", _CLS],
                "trim_offsets": True,
                "add_prefix_space": False,
            },
            {"type": "ByteLevel"},
            _sequence("post_processor"),
            _sequence("post_processor", _BERT_PROCESSING, _BERT_PROCESSING),
        ],
        "post_processor.single": [
            [_special("[CLS]"), _text("A")],
            [_text("A"), _special("[SEP]")],
            [_special("[SEP]"), _text("A"), _special("[CLS]")],
            [_special("[CLS]"), _text("A"), *[_special("[SEP]")] * 2],
            [_special("[CLS]"), _special("[CLS]"), _text("A")],
            [_special("[CLS]", 1), _text("A"), _special("[SEP]")],
            [_special("[CLS]"), _text("A", 1), _special("[SEP]", 1)],
            [_text("A")],
        ],
        "post_processor.pair": [
            lambda old: old[:-1],
            lambda old: [*old[:3], _special("[SEP]"), *old[3:]],
            lambda old: [*old[:3], _text("B"), _special("[SEP]")],
            lambda old: [*old[:3], _text("B", 1), _special("[SEP]")],
            lambda old: [old[0], _text("B"), old[2], _text("A", 1), old[4]],
            lambda old: [_special("[SEP]"), *old[1:]],
        ],
        "post_processor.special_tokens.[SEP].ids": [[_CLS], [_SEP, _SEP]],
        "post_processor.special_tokens.[CLS].ids": [[_SEP], []],
        "model": other_models,
        "model.unk_token": ["[MASK]", "[PAD]"],
        "model.continuing_subword_prefix": ["", "@@", "#"],
        "model.vocab": [
            ABSENT,
            {},
            lambda old: {
                token: index for token, index in old.items() if index != _SEP
            },
            lambda old: old | {"twice": 20},
        ],
    }
    return _each(REFUSED, UNCASED, JSON, table)


def _longest_words():
    """model.max_input_chars_per_word, which is 200 in Google's code.

    transformers' class has 100 whatever the file says, since version 5.
    """
    path = "model.max_input_chars_per_word"
    found = _each(READ, UNCASED, JSON, {path: [50, 99, 200]}, (TOKENIZERS,))
    for value in (50, 200):
        found += _one(
            READ,
            UNCASED,
            f"words of {value} characters, of no class",
            {
                f"{JSON}: {path}": value,
                f"{SETTINGS}: tokenizer_class": "PreTrainedTokenizerFast",
            },
        )
    return found


def _case():
    """The case, of which both files may speak.

    Where they disagree, a BertTokenizer of transformers obeys its settings, and
    `tokenizers` tokenizer.json. No released model is known to need either.
    """
    settings = f"{SETTINGS}: do_lower_case"
    lowercase = f"{JSON}: normalizer.lowercase"
    name = f"{SETTINGS}: tokenizer_class"
    found = _one(
        REFUSED, UNCASED, "json is cased, settings not", {lowercase: False}
    )
    found += _one(
        REFUSED, CASED, "json is uncased, settings not", {lowercase: True}
    )
    # Without a word in the settings, the class is uncased.
    found += _one(READ, UNCASED, "only json tells", {settings: ABSENT})
    found += _one(
        READ,
        CASED,
        "only json tells, of no class",
        {settings: ABSENT, name: "PreTrainedTokenizerFast"},
    )
    for value in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        # These have no case of their own: tokenizer.json has it.
        found += _one(
            READ,
            CASED,
            f"{value} of settings that say otherwise",
            {settings: True, name: value},
        )
        found += _one(READ, CASED, value, {name: value})
        found += _one(
            READ,
            UNCASED,
            f"{value} alone",
            {SETTINGS: {"tokenizer_class": value}},
        )
        found += _one(
            REFUSED,
            UNCASED,
            f"{value} without normalizer",
            {name: value, f"{JSON}: normalizer": None},
        )
    return found


def _vocabulary_files():
    """vocab.txt: as it is read alone, and beside a tokenizer.json."""

    def line(number, text):
        def change(old):
            lines = old.split("\n")
            lines[number : number + 1] = text
            return "\n".join(lines)

        return change

    def crlf(old):
        return old.replace("\n", "\r\n")

    found = []
    for base in (UNCASED_FILES, GOOGLE):
        change = {
            # The last of equal lines has the id; the first keeps the number.
            "a line twice": line(3, ["the"]),
            "a line twice, at the end": lambda old: old + "the\nquick\n",
            "a blank line": line(2, [""]),
            "two blank lines": line(2, ["", ""]),
            "a blank line at the end": lambda old: old + "\n",
            "blank lines at the end": lambda old: old + "\n\n\n",
            "a line of U+3000": line(3, ["\u3000"]),
            "a line of U+00A0": line(3, ["\u00a0"]),
            "a line of U+2028": line(3, ["\u2028"]),
            "a line of U+0085": line(3, ["\u0085"]),
            "no line end at the end": lambda old: old.removesuffix("\n"),
            "CRLF": crlf,
            "an unused line more": lambda old: old + "[unused99]\n",
        }
        for name, value in change.items():
            found += _one(
                READ,
                base,
                f"vocab.txt: {name}",
                {"vocab.txt": value},
                (TRANSFORMERS,),
            )
        refused = {
            "no [SEP]": lambda old: old.replace("[SEP]\n", "[sep]\n"),
            "no [UNK]": lambda old: old.replace("[UNK]\n", "[unk]\n"),
            "empty": "",
            "UTF-16": lambda old: old.encode("utf-16"),
            "Latin-1": lambda old: old.encode("latin-1", "replace"),
        }
        for name, value in refused.items():
            found += _one(
                REFUSED, base, f"vocab.txt: {name}", {"vocab.txt": value}
            )
    # Its first entry is [PAD] for everyone who reads UTF-8 with a mark. To
    # transformers it is another token, and [PAD] is added at the end. So the
    # reference is the base.
    found += _one(
        READ,
        GOOGLE,
        "vocab.txt: a byte order mark",
        {"vocab.txt": lambda old: "\ufeff" + old},
        (),
    )
    # transformers takes tokenizer.json.
    found += _one(
        READ,
        UNCASED,
        "vocab.txt of other order",
        {
            "vocab.txt": lambda old: (
                "\n".join([*old.split()[:9], *reversed(old.split()[9:])]) + "\n"
            )
        },
    )
    found += _one(
        READ,
        UNCASED,
        "vocab.txt with more",
        {"vocab.txt": lambda old: old + "x99\n"},
    )
    found += _one(
        READ, UNCASED, "vocab.txt with less", {"vocab.txt": line(20, [])}
    )
    found += _one(READ, UNCASED, "no vocab.txt", {"vocab.txt": ABSENT})
    found += _one(READ, UNCASED, "vocab.txt with CRLF", {"vocab.txt": crlf})
    found += _one(READ, UNCASED, "vocab.txt of others", {"vocab.txt": "a\nb\n"})
    found += _one(
        REFUSED, UNCASED_FILES, "no vocabulary", {"vocab.txt": ABSENT}
    )
    return found


# -- tokenizer_config.json ----------------------------------------------------

# Settings that no id depends on, of all classes.
_MEANINGLESS = {
    "model_max_length": [128, 512, 10**30, ABSENT],
    "max_len": [512],
    "padding_side": ["left", "right"],
    "truncation_side": ["right"],
    "clean_up_tokenization_spaces": [True, False],
    "chat_template": ["{{ messages }}", [{"name": "a", "template": "b"}]],
    "processor_class": ["AProcessor"],
    "name_or_path": ["bert-base-uncased"],
    "special_tokens_map_file": ["/home/user/special_tokens_map.json", None],
    "tokenizer_file": ["/home/user/tokenizer.json", None],
    "vocab_file": ["/home/user/vocab.txt"],
    "backend": ["tokenizers"],
    "is_local": [True],
    "local_files_only": [False],
    "use_fast": [True, False],
    "from_slow": [True],
    "verbose": [True],
    "max_length": [128],
    "stride": [0],
    "truncation_strategy": ["longest_first"],
    "pad_to_multiple_of": [None, 8],
    "pad_token_type_id": [0],
    "split_special_tokens": [False],
    "extra_special_tokens": [{}, [], None],
    "additional_special_tokens": [[], None],
    "added_tokens_decoder": [{}],
    "model_specific_special_tokens": [{}],
    "chat_control_tokens": [["<|end|>"]],
    "response_template": [None],
    "fast_tokenizer_files": [["tokenizer.json"]],
    "init_inputs": [[]],
    # These classes frame texts whatever it is.
    "add_bos_token": [True, False],
    "add_eos_token": [True, False],
    "a_private_note": ["note", {"of": "an owner"}],
}
_BERT_MEANINGLESS = {
    "do_basic_tokenize": [True],
    "never_split": [None],
    "tokenize_chinese_chars": [True, ABSENT],
    "strip_accents": [None, ABSENT],
    "model_input_names": [
        ["input_ids", "token_type_ids", "attention_mask"],
        # Zeros are fed for what is not there.
        ["input_ids", "attention_mask"],
    ],
    "wordpieces_prefix": ["##"],
    "auto_map": [{"AutoModel": "modeling.Model"}],
}


def _decoder_entry(content, **flags):
    token = added_token(0, content, **flags)
    del token["id"]
    return token


def _bert_settings():
    # true is what lower case means, and false what its absence does.
    found = _each(READ, UNCASED, SETTINGS, _MEANINGLESS | _BERT_MEANINGLESS)
    found += _each(READ, UNCASED, SETTINGS, {"strip_accents": [True]})
    found += _each(READ, CASED, SETTINGS, {"strip_accents": [None]})
    found += _each(
        READ, CASED, SETTINGS, {"strip_accents": [False]}, (TRANSFORMERS,)
    )
    refused = {
        "do_basic_tokenize": [False],
        "never_split": [["jumps"]],
        "tokenize_chinese_chars": [False],
        "strip_accents": [False],
        "truncation_side": ["left"],
        "split_special_tokens": [True],
        # Another token frames texts, or stands for unknown words.
        "cls_token": ["[MASK]", "[unused0]", "[SEP]"],
        "sep_token": ["[MASK]", "[CLS]"],
        "unk_token": ["[MASK]", "[PAD]"],
        "pad_token": [["[PAD]"], 0],
        "mask_token": [1, "[unused1]"],
        "do_lower_case": ["yes", 1],
    }
    for base in (UNCASED, UNCASED_FILES):
        found += _each(REFUSED, base, SETTINGS, refused)
    found += _each(REFUSED, CASED, SETTINGS, {"strip_accents": [True]})
    found += _each(
        READ, UNCASED_FILES, SETTINGS, _BERT_MEANINGLESS, (TRANSFORMERS,)
    )
    # A mask that is another entry, or names that the class has anyway.
    found += _each(
        READ,
        UNCASED,
        SETTINGS,
        {
            name: [ABSENT]
            for name in (
                "cls_token", "sep_token", "unk_token", "pad_token", "mask_token"
            )
        },
    )  # fmt: skip
    mask = _decoder_entry("[MASK]", lstrip=True)
    found += _one(
        READ,
        UNCASED_FILES,
        "a mask that takes the space before it",
        {f"{SETTINGS}: mask_token": {"__type": "AddedToken", **mask}},
        (TRANSFORMERS,),
    )
    tokens = bases.make(UNCASED)[SETTINGS]
    tokens = {key: tokens[key] for key in tokens if key.endswith("_token")}
    for base in (UNCASED, UNCASED_FILES):
        place = "special_tokens_map.json"
        found += _one(
            READ, base, f"{place} of the same", {place: tokens}, (TRANSFORMERS,)
        )
        found += _one(
            REFUSED,
            base,
            f"{place} of another [CLS]",
            {place: tokens | {"cls_token": "[MASK]"}},
        )
    # A class without settings of its own: tokenizer.json tells.
    for name, value in {
        "do_lower_case": False,
        "strip_accents": False,
        "tokenize_chinese_chars": False,
    }.items():
        found += _one(
            READ,
            UNCASED,
            f"{name} of no class",
            {
                f"{SETTINGS}: {name}": value,
                f"{SETTINGS}: tokenizer_class": "PreTrainedTokenizerFast",
            },
        )
    found += _one(READ, UNCASED, "no config.json", {CONFIG: ABSENT})
    found += _one(READ, UNCASED, "spare rows", {f"{CONFIG}: vocab_size": 1024})
    found += _one(READ, UNCASED, "no settings", {SETTINGS: ABSENT})
    found += _one(READ, UNCASED, "empty settings", {SETTINGS: {}})
    found += _one(
        READ, UNCASED_FILES, "empty settings", {SETTINGS: {}}, (TRANSFORMERS,)
    )
    found += _one(REFUSED, UNCASED, "settings are a list", {SETTINGS: []})
    found += _one(REFUSED, UNCASED, "settings are no JSON", {SETTINGS: "{"})
    found += _one(REFUSED, UNCASED, "json is a list", {JSON: []})
    found += _one(REFUSED, UNCASED, "json is cut", {JSON: '{"model": {'})
    found += _one(
        READ,
        CASED,
        "files, cased",
        {JSON: ABSENT},
        (TRANSFORMERS,),
    )
    return found


def _classes():
    """tokenizer_class, in both files that may name it."""
    found = []
    same = (
        "BertTokenizerFast", "DistilBertTokenizer", "DistilBertTokenizerFast",
        "ElectraTokenizer", "ElectraTokenizerFast",
        "PreTrainedTokenizerFast", "TokenizersBackend",
        # transformers has no such class: tokenizer.json tells.
        "ATokenizerOfTheirOwn",
    )  # fmt: skip
    found += _each(
        READ, UNCASED, SETTINGS, {"tokenizer_class": [*same, ABSENT, None]}
    )
    found += _each(
        READ,
        UNCASED_FILES,
        SETTINGS,
        {
            "tokenizer_class": [
                "BertTokenizerFast", "DistilBertTokenizer", "ElectraTokenizer",
                "ElectraTokenizerFast", ABSENT,
            ]
        },
        (TRANSFORMERS,),
    )  # fmt: skip
    foreign = (
        "BertJapaneseTokenizer", "PhobertTokenizer", "BertweetTokenizer",
        "XLNetTokenizer", "T5Tokenizer", "MPNetTokenizerFast",
        "CanineTokenizer", "HerbertTokenizer", "CharacterBertTokenizer",
    )  # fmt: skip
    found += _each(
        REFUSED,
        UNCASED_FILES,
        SETTINGS,
        {
            "tokenizer_class": [
                *foreign, "RobertaTokenizer", "AlbertTokenizer",
                "XLMRobertaTokenizer", ["BertTokenizer"], 1,
            ]
        },
    )  # fmt: skip
    # With a tokenizer.json, these are still read in ways of their own.
    found += _each(
        REFUSED,
        UNCASED,
        SETTINGS,
        {
            "tokenizer_class": [
                "BertJapaneseTokenizer", "PhobertTokenizer",
                "BertweetTokenizer", "XLNetTokenizer",
            ]
        },
    )  # fmt: skip
    japanese = {
        "tokenizer_class": "BertJapaneseTokenizer",
        "word_tokenizer_type": "mecab",
        "subword_tokenizer_type": "wordpiece",
        "mecab_kwargs": {"mecab_dic": "ipadic"},
        "do_lower_case": False,
    }
    found += _one(
        REFUSED,
        CASED,
        "cl-tohoku's settings",
        {
            JSON: ABSENT,
            SETTINGS: japanese,
        },
    )
    for name in ("BertTokenizer", "BertTokenizerFast", "ElectraTokenizer"):
        place = f"{CONFIG}: tokenizer_class"
        found += _one(READ, UNCASED, f"config.json names {name}", {place: name})
        found += _one(
            READ,
            UNCASED_FILES,
            f"config.json alone names {name}",
            {place: name, f"{SETTINGS}: tokenizer_class": ABSENT},
            (TRANSFORMERS,),
        )
    for name in foreign[:4]:
        found += _one(
            REFUSED,
            UNCASED_FILES,
            f"config.json names {name}",
            {
                f"{CONFIG}: tokenizer_class": name,
                f"{SETTINGS}: tokenizer_class": ABSENT,
            },
        )
        found += _one(
            REFUSED,
            GOOGLE,
            f"config.json names {name}",
            {f"{CONFIG}: tokenizer_class": name},
        )
    for model_type in ("distilbert", "electra"):
        for base in (UNCASED, UNCASED_FILES):
            name = "DistilBert" if model_type == "distilbert" else "Electra"
            found += _one(
                READ,
                base,
                f"{model_type}",
                {
                    f"{CONFIG}: model_type": model_type,
                    f"{CONFIG}: architectures": [f"{name}Model"],
                    f"{SETTINGS}: tokenizer_class": f"{name}Tokenizer",
                },
                BOTH if base == UNCASED else (TRANSFORMERS,),
            )
    return found


# -- Added tokens -------------------------------------------------------------


_E1, _NEW_WORD, _ENT, _TWO_WORDS = bases.ADDED


def _added_by_json(base, size):
    """Added tokens in tokenizer.json alone: new ones and entries."""
    flags = [
        {},
        {"special": False},
        {"lstrip": True},
        {"rstrip": True},
        {"lstrip": True, "rstrip": True},
        {"single_word": True},
        {"normalized": True},
        {"normalized": True, "special": False},
        {"normalized": True, "single_word": True, "special": False},
        {"single_word": True, "lstrip": True, "rstrip": True},
    ]
    found = []
    for flag in flags:
        tokens = [
            added_token(size + number, content, **flag)
            for number, content in enumerate(bases.ADDED)
        ]
        name = ", ".join(f"{key} {value}" for key, value in flag.items())
        found += _one(
            READ,
            base,
            f"added tokens: {name or 'special'}",
            {f"{JSON}: added_tokens": _appended(*tokens)},
        )
    place = f"{JSON}: added_tokens"
    for name, tokens in {
        "of each sort": [
            added_token(size, _E1),
            added_token(size + 1, _NEW_WORD, normalized=True, special=False),
            added_token(size + 2, _ENT, lstrip=True, special=False),
            added_token(size + 3, _TWO_WORDS, single_word=True),
        ],
        "one begins another": [
            added_token(size, "[E1]"),
            added_token(size + 1, "[E1] the"),
            added_token(size + 2, "[E"),
        ],
        "ends another": [
            added_token(size, "E1]"),
            added_token(size + 1, "[E1]"),
        ],
    }.items():
        found += _one(
            READ, base, f"added tokens: {name}", {place: _appended(*tokens)}
        )
    # Of the ids, `tokenizers` takes the next free ones, whatever is written.
    refused = {
        "without id": {"content": _E1},
        "beyond the vocabulary": added_token(size + 7, _E1),
        "of a taken id": added_token(10, _E1),
        "of no content": {"id": size, "special": True},
        "a number": 5,
        "of a negative id": added_token(-1, _E1),
    }
    for name, token in refused.items():
        found += _one(
            REFUSED, base, f"added token {name}", {place: _appended(token)}
        )
    found += _one(REFUSED, base, "added tokens are no list", {place: "[E1]"})
    return found


def _flags_of_special(base, index):
    """Flags of a special token: in texts they count where all are found."""
    place = f"{JSON}: added_tokens.{index}"
    return [
        mutation
        for flag, value in (
            ("lstrip", True),
            ("lstrip", False),
            ("rstrip", True),
            ("single_word", True),
            ("normalized", True),
            ("special", False),
        )
        for mutation in _one(
            READ,
            base,
            f"added_tokens.{index}.{flag} {value}",
            {f"{place}.{flag}": value},
            (TOKENIZERS,),
        )
    ]


def _added_by_settings(base, size):
    """Added tokens of which only the settings and older files know."""
    entry = _decoder_entry
    found = []
    references = (TRANSFORMERS,)
    named = {
        "additional_special_tokens": [
            [_E1],
            [_E1, _ENT],
            [{"__type": "AddedToken", **entry(_E1, lstrip=True)}],
        ],
        "extra_special_tokens": [
            [_E1, _ENT],
            {"entity_token": _E1},
            {"entity_token": _E1, "other": _ENT},
        ],
        "entity_token": [_E1],
        "added_tokens_decoder": [
            {str(size): entry(_E1)},
            {str(size): entry(_NEW_WORD, normalized=True, special=False)},
            {
                str(size): entry(_E1, lstrip=True, rstrip=True),
                str(size + 1): entry(_ENT, single_word=True, special=False),
                str(size + 2): entry(_TWO_WORDS, normalized=True),
            },
        ],
    }
    found += _each(READ, base, SETTINGS, named, references)
    # As transformers before version 5 writes them, in all three places.
    files = {
        "added_tokens.json": {_E1: size, _NEW_WORD: size + 1},
        "special_tokens_map.json": {"additional_special_tokens": [_E1]},
    }
    found += _one(
        READ,
        base,
        "added_tokens.json",
        {"added_tokens.json": files["added_tokens.json"]},
        references,
    )
    found += _one(
        READ,
        base,
        "special_tokens_map.json",
        {"special_tokens_map.json": files["special_tokens_map.json"]},
        references,
    )
    found += _one(READ, base, "both older files", files, references)
    found += _one(
        READ,
        base,
        "older files of nothing new",
        {"added_tokens.json": {}, "special_tokens_map.json": {}},
        references,
    )
    for name, value in {
        "added_tokens.json is a list": {"added_tokens.json": [_E1]},
        "added_tokens.json of no id": {"added_tokens.json": {_E1: "x"}},
        "special_tokens_map.json is a list": {"special_tokens_map.json": [_E1]},
    }.items():
        found += _one(REFUSED, base, name, value)
    found += _each(
        REFUSED,
        base,
        SETTINGS,
        {
            "added_tokens_decoder": [
                {"x": entry(_E1)},
                {str(size): _E1},
                [_E1],
                {str(size): {"special": True}},
                # Nobody gives it the id that is written here.
                {str(size + 7): entry(_E1)},
                {"20": entry(_E1, special=False)},
            ],
            "additional_special_tokens": [[5], "[E1]"],
            "extra_special_tokens": [5],
        },
    )
    return found


def _added():
    vocabulary_sizes = {
        base: len(bases.make(base)[JSON]["model"]["vocab"])
        for base in (UNCASED, CASED, ROBERTA_JSON, ALBERT_JSON, XLM_ROBERTA,
                     CAMEMBERT)
    }  # fmt: skip
    sizes = vocabulary_sizes
    found = []
    for base in (UNCASED, ROBERTA_JSON, XLM_ROBERTA):
        found += _added_by_json(base, sizes[base])
    for base in (CASED, ALBERT_JSON, CAMEMBERT):
        # The readings are the same; one of each outcome tells.
        found += [
            mutation
            for mutation in _added_by_json(base, sizes[base])
            if "each sort" in mutation.name or "taken" in mutation.name
        ]
    found += _flags_of_special(UNCASED, 4)
    found += _flags_of_special(ROBERTA_JSON, 4)
    found += _flags_of_special(XLM_ROBERTA, 4)
    found += _flags_of_special(ALBERT_JSON, 4)
    found += _added_by_settings(UNCASED, sizes[UNCASED])
    found += _added_by_settings(UNCASED_FILES, sizes[UNCASED])
    found += _added_by_settings(ROBERTA_JSON, sizes[ROBERTA_JSON])
    found += [
        mutation
        for base, size in (
            (ROBERTA_FILES, sizes[ROBERTA_JSON]),
            (XLM_ROBERTA, sizes[XLM_ROBERTA]),
            (XLM_ROBERTA_FILES, sizes[XLM_ROBERTA]),
            (ALBERT_FILES, sizes[ALBERT_JSON]),
        )
        for mutation in _added_by_settings(base, size)
        if mutation.outcome == READ
    ]
    found += _one(
        READ,
        UNCASED,
        "an added token that is an entry",
        {
            f"{JSON}: added_tokens": _appended(
                added_token(2, "[unused1]"), added_token(3, "[unused2]")
            )
        },
    )
    # transformers adds those that its settings or its class name.
    found += _one(
        READ,
        UNCASED,
        "added_tokens of none",
        {f"{JSON}: added_tokens": []},
        (TRANSFORMERS,),
    )
    return found


# -- Byte-level BPE -----------------------------------------------------------

_ROBERTA = bases.make(ROBERTA_JSON)
_ROBERTA_CLS = _ROBERTA["vocab.json"]["<s>"]
_ROBERTA_SEP = _ROBERTA["vocab.json"]["</s>"]


def _roberta_frame(num_between=2, type_id=0):
    cls, sep = _special("<s>"), _special("</s>", type_id)
    middle = [_special("</s>")] + [sep] * (num_between - 1)
    return {
        "type": "TemplateProcessing",
        "single": [cls, _text("A"), _special("</s>")],
        "pair": [cls, _text("A"), *middle, _text("B", type_id), sep],
        "special_tokens": {
            token: {"id": token, "ids": [index], "tokens": [token]}
            for token, index in (("<s>", _ROBERTA_CLS), ("</s>", _ROBERTA_SEP))
        },
    }


def _bpe():
    found = _each(
        READ,
        ROBERTA_JSON,
        JSON,
        {
            "normalizer": [_sequence("normalizer")],
            "pre_tokenizer": [_sequence("pre_tokenizer", _BYTE_LEVEL)],
            # Only offsets depend on it.
            "pre_tokenizer.trim_offsets": [False],
            "pre_tokenizer.use_regex": [ABSENT],
            "post_processor": [
                _roberta_frame(),
                _sequence("post_processor", _roberta_frame()),
            ],
            "post_processor.add_prefix_space": [True],
            "decoder": [None, {"type": "Fuse"}],
            "model.dropout": [0.0, 0, ABSENT],
            "model.unk_token": [None, "<unk>", ABSENT],
            "model.continuing_subword_prefix": [None, "", ABSENT],
            "model.end_of_word_suffix": [None, "", ABSENT],
            "model.fuse_unk": [True, ABSENT],
            "model.byte_fallback": [ABSENT],
            "model.ignore_merges": [ABSENT],
            "model.type": [ABSENT],
            "truncation": [
                {
                    "direction": "Right",
                    "max_length": 512,
                    "strategy": "LongestFirst",
                    "stride": 0,
                }
            ],
            "padding": [
                {
                    "strategy": "BatchLongest",
                    "direction": "Right",
                    "pad_to_multiple_of": None,
                    "pad_id": 1,
                    "pad_type_id": 0,
                    "pad_token": "<pad>",
                }
            ],
        },
    )
    found += _each(
        REFUSED,
        ROBERTA_JSON,
        JSON,
        {
            "normalizer": [*_NORMALIZERS[:-1], _BERT_NORMALIZER],
            "pre_tokenizer": [
                None,
                *_PRE_TOKENIZERS,
                _BERT_SPLITS,
                _METASPACE,
                _sequence(
                    "pre_tokenizer",
                    {"type": "Digits", "individual_digits": True},
                    _BYTE_LEVEL,
                ),
            ],
            "pre_tokenizer.use_regex": [False],
            "post_processor": [
                None,
                {"type": "ByteLevel", "trim_offsets": True},
                # As in Llama 3, and no RoBERTa.
                _sequence("post_processor", _BYTE_LEVEL, _roberta_frame()),
                _roberta_frame(num_between=1),
                _roberta_frame(num_between=3),
                {
                    "type": "BertProcessing",
                    "sep": ["</s>", _ROBERTA_SEP],
                    "cls": ["<s>", _ROBERTA_CLS],
                },
            ],
            "post_processor.sep": [
                ["</s>", _ROBERTA_CLS],
                ["<mask>", 4],
                ["</s>"],
            ],
            "post_processor.cls": [["<s>", _ROBERTA_SEP], ["<unk>", 3]],
            "model.dropout": [0.1, 1.0],
            "model.continuing_subword_prefix": ["##"],
            "model.end_of_word_suffix": ["</w>"],
            # Words that are entries skip the merges; bytes are all there.
            "model.ignore_merges": [True],
            "model.merges": [
                lambda old: [*old, "no entry"],
                [],
                [["a", "b", "c"]],
                ABSENT,
            ],
            "model.vocab": [
                {},
                lambda old: old | {"beyond": len(old) + 1},
            ],
            "truncation": [
                {
                    "direction": "Left",
                    "max_length": 512,
                    "strategy": "LongestFirst",
                    "stride": 0,
                }
            ],
        },
    )
    found += _one(
        READ,
        ROBERTA_JSON,
        "merges are pairs",
        {
            f"{JSON}: model.merges": lambda old: [
                merge.split(" ") for merge in old
            ]
        },
    )
    found += _one(
        READ,
        ROBERTA_JSON,
        "offsets with spaces",
        {
            f"{JSON}: post_processor.trim_offsets": False,
            f"{SETTINGS}: trim_offsets": False,
        },
    )
    # Every byte is an entry: the fallback for unknown ones is never used.
    found += _each(
        READ, ROBERTA_JSON, JSON, {"model.byte_fallback": [True]}, (TOKENIZERS,)
    )
    # The space before the first word: the settings make the tokenizer in
    # transformers, tokenizer.json in `tokenizers`.
    place = f"{JSON}: pre_tokenizer.add_prefix_space"
    settings = f"{SETTINGS}: add_prefix_space"
    name = f"{SETTINGS}: tokenizer_class"
    for base in (ROBERTA_JSON, ROBERTA_FILES):
        changes = {settings: True}
        if base == ROBERTA_JSON:
            changes[place] = True
        found += _one(
            READ,
            base,
            "add_prefix_space",
            changes,
            BOTH if base == ROBERTA_JSON else (TRANSFORMERS,),
        )
    for value in ("PreTrainedTokenizerFast", "TokenizersBackend"):
        found += _one(
            READ,
            ROBERTA_JSON,
            f"{value} of a space",
            {place: True, name: value},
        )
    found += _one(
        READ,
        ROBERTA_JSON,
        "settings of no class have a space",
        {settings: True, name: "PreTrainedTokenizerFast"},
    )
    found += _one(
        REFUSED, ROBERTA_JSON, "the settings have a space", {settings: True}
    )
    found += _one(REFUSED, ROBERTA_JSON, "json has a space", {place: True})
    found += _one(
        REFUSED,
        ROBERTA_JSON,
        "json has a space, the class none",
        {place: True, settings: ABSENT},
    )
    # Released folders of a model that says nothing.
    found += _one(
        READ,
        ROBERTA_JSON,
        "no settings",
        {SETTINGS: ABSENT},
    )
    found += _one(
        READ, ROBERTA_FILES, "no settings", {SETTINGS: ABSENT}, (TRANSFORMERS,)
    )
    found += _each(READ, ROBERTA_JSON, SETTINGS, _MEANINGLESS)
    found += _each(
        READ,
        ROBERTA_JSON,
        SETTINGS,
        {
            "errors": ["replace", "strict"],
            "trim_offsets": [True, ABSENT],
            "add_prefix_space": [ABSENT],
            "do_lower_case": [False],
            "model_input_names": [["input_ids", "attention_mask"]],
            "tokenizer_class": [
                "RobertaTokenizerFast", "PreTrainedTokenizerFast",
                "TokenizersBackend", ABSENT,
            ],
            **{
                token: [ABSENT]
                for token in (
                    "bos_token", "eos_token", "cls_token", "sep_token",
                    "unk_token", "pad_token",
                )
            },
        },
    )  # fmt: skip
    found += _each(
        READ,
        ROBERTA_FILES,
        SETTINGS,
        {
            "errors": ["replace"],
            "trim_offsets": [False, ABSENT],
            "add_prefix_space": [ABSENT],
            "tokenizer_class": ["RobertaTokenizerFast", ABSENT],
        },
        (TRANSFORMERS,),
    )
    # Released Longformers and RoBERTas in Bert's name: tokenizer.json tells.
    found += _each(
        READ,
        ROBERTA_JSON,
        SETTINGS,
        {"tokenizer_class": ["LongformerTokenizer", "BertTokenizerFast"]},
        (TOKENIZERS,),
    )
    for base in (ROBERTA_JSON, ROBERTA_FILES):
        found += _each(
            REFUSED,
            base,
            SETTINGS,
            {
                "truncation_side": ["left"],
                "split_special_tokens": [True],
                "cls_token": ["<mask>", "</s>"],
                "sep_token": ["<mask>"],
                "tokenizer_class": ["BertweetTokenizer", "PhobertTokenizer"],
            },
        )
    found += _each(
        REFUSED,
        ROBERTA_FILES,
        SETTINGS,
        {"tokenizer_class": ["GPT2Tokenizer", "CLIPTokenizer", "XLMTokenizer"]},
    )
    for name, change in {
        "CRLF": lambda old: old.replace("\n", "\r\n"),
        "no version": lambda old: old.split("\n", 1)[1],
    }.items():
        found += _one(
            READ,
            ROBERTA_FILES,
            f"merges.txt: {name}",
            {"merges.txt": change},
            (TRANSFORMERS,),
        )
    for name, change in {
        "a line of one entry": lambda old: old + "one\n",
        "a blank line at the end": lambda old: old + "\n",
        "a line of three": lambda old: old + "a b c\n",
        "an entry that is none": lambda old: old + "no entry\n",
    }.items():
        found += _one(
            REFUSED,
            ROBERTA_FILES,
            f"merges.txt: {name}",
            {"merges.txt": change},
        )
    for file in ("merges.txt", "vocab.json"):
        found += _one(REFUSED, ROBERTA_FILES, f"no {file}", {file: ABSENT})
        found += _one(READ, ROBERTA_JSON, f"no {file}", {file: ABSENT})
    found += _one(
        READ,
        ROBERTA_JSON,
        "other merges.txt",
        {"merges.txt": "#version: 0.2\n"},
    )
    return found


# -- Unigrams -----------------------------------------------------------------

_SPLITS = {"type": "WhitespaceSplit"}
# Metaspace alone is the form of transformers' converters since 4.40.
# `tokenizers` and transformers 4 take it from the file. transformers 5 splits
# at white space first, whatever the file says, if the folder names a class.
_METASPACE_ALONE = {
    "pre_tokenizer": [_METASPACE, _sequence("pre_tokenizer", _METASPACE)]
}
_UNIGRAM_TABLE = {
    "decoder": [None],
    "model.byte_fallback": [ABSENT],
    "post_processor": [lambda old: _sequence("post_processor", old)],
    "padding": [
        {
            "strategy": "BatchLongest",
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 1,
            "pad_type_id": 0,
            "pad_token": "<pad>",
        }
    ],
    "truncation": [
        {
            "direction": "Right",
            "max_length": 512,
            "strategy": "LongestFirst",
            "stride": 0,
        }
    ],
}


def _space(**changes):
    return _sequence("pre_tokenizer", _SPLITS, _METASPACE | changes)


_OLD_SPACE = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
_UNIGRAM_REFUSED = {
    "normalizer": [
        {"type": "Lowercase"},
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
        lambda old: _sequence("normalizer", {"type": "StripAccents"}, old),
        _BERT_NORMALIZER,
    ],
    "pre_tokenizer": [
        None,
        _SPLITS,
        _BERT_SPLITS,
        _BYTE_LEVEL,
        _METASPACE | {"split": False},
        _METASPACE | {"prepend_scheme": "first"},
        _METASPACE | {"prepend_scheme": "never"},
        _space(replacement="_"),
        _space(prepend_scheme="never"),
        _space(prepend_scheme="first"),
        _sequence("pre_tokenizer", _METASPACE, {"type": "Punctuation"}),
        _sequence("pre_tokenizer", {"type": "Digits"}, _SPLITS, _METASPACE),
    ],
    "post_processor": [None],
    "post_processor.single": [
        lambda old: old[:-1],
        lambda old: old[1:],
        lambda old: [old[2], old[1], old[0]],
        lambda old: [*old, old[-1]],
    ],
    "post_processor.pair": [
        lambda old: old[:-1],
        lambda old: [*old[:3], old[2], *old[3:]],
    ],
    "model.unk_id": [None, 0, 7, 10**6],
    "model.vocab": [
        [],
        lambda old: [*old[:30], ["no score"], *old[30:]],
        ABSENT,
    ],
    "truncation": [
        {
            "direction": "Left",
            "max_length": 512,
            "strategy": "LongestFirst",
            "stride": 0,
        }
    ],
}


def _slow_form(old):
    """The normaliser of transformers' converters of a slow tokenizer."""
    return _sequence(
        "normalizer",
        old,
        {"type": "Strip", "strip_left": False, "strip_right": True},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
    )


def _unigrams():
    found = []
    for base in (XLM_ROBERTA, CAMEMBERT, MINILM):
        # A MiniLM's folder says BertTokenizerFast, of which transformers 5
        # makes a WordPiece tokenizer of the pieces: nothing but its name.
        references = (TOKENIZERS,) if base == MINILM else BOTH
        found += _one(READ, base, "as it is", {}, references)
        # transformers' classes rebuild these parts; they must be the same.
        found += _each(READ, base, JSON, _UNIGRAM_TABLE, references)
        found += _each(READ, base, JSON, _METASPACE_ALONE, (TOKENIZERS,))
        found += _each(
            READ,
            base,
            JSON,
            {
                "pre_tokenizer": [
                    _sequence("pre_tokenizer", _SPLITS, _OLD_SPACE)
                ],
                "normalizer": [
                    # Without a table of characters.
                    None,
                    lambda old: _sequence("normalizer", old),
                    lambda old: _sequence(
                        "normalizer",
                        {"type": "Replace", "pattern": {"String": "\n"},
                         "content": " "},
                        old,
                    ),
                    lambda old: _sequence(
                        "normalizer",
                        old,
                        {"type": "Replace", "pattern": {"Regex": " {2,}"},
                         "content": " "},
                    ),
                ],
            },
            references,
        )  # fmt: skip
        found += _one(
            READ,
            base,
            "the slow converter's form",
            {
                f"{JSON}: normalizer": _slow_form,
                f"{JSON}: pre_tokenizer": _METASPACE,
            },
            (TOKENIZERS,),
        )
        found += _each(REFUSED, base, JSON, _UNIGRAM_REFUSED)
        found += _each(REFUSED, base, JSON, {"model.byte_fallback": [True]})
    found += _each(
        READ,
        MINILM,
        SETTINGS,
        {
            "tokenizer_class": [
                "PreTrainedTokenizerFast", "XLMRobertaTokenizer",
                "XLMRobertaTokenizerFast", "TokenizersBackend",
            ],
        },
    )  # fmt: skip
    found += _each(
        READ,
        MINILM,
        SETTINGS,
        {
            "tokenizer_class": ["BertTokenizer"],
            "do_lower_case": [False, ABSENT],
        },
        (TOKENIZERS,),
    )
    found += _each(READ, XLM_ROBERTA, SETTINGS, _MEANINGLESS)
    found += _each(
        READ,
        XLM_ROBERTA,
        SETTINGS,
        {
            "tokenizer_class": [
                "XLMRobertaTokenizerFast", "PreTrainedTokenizerFast",
                "TokenizersBackend", ABSENT,
            ],
            "add_prefix_space": [True],
            "sp_model_kwargs": [{}],
            # Means nothing to the class.
            "do_lower_case": [True, False],
            "keep_accents": [True],
            "remove_space": [True],
            "model_input_names": [["input_ids", "attention_mask"]],
        },
    )  # fmt: skip
    for base in (XLM_ROBERTA_FILES, CAMEMBERT_FILES, ALBERT_FILES):
        found += _one(READ, base, "as it is", {}, (TRANSFORMERS,))
        found += _one(
            READ, base, "no settings", {SETTINGS: ABSENT}, (TRANSFORMERS,)
        )
        found += _each(
            READ,
            base,
            SETTINGS,
            {"tokenizer_class": [ABSENT], "sp_model_kwargs": [{}]},
            (TRANSFORMERS,),
        )
        model = (
            "spiece.model"
            if base == ALBERT_FILES
            else "sentencepiece.bpe.model"
        )
        found += _one(REFUSED, base, f"no {model}", {model: ABSENT})
        found += _one(REFUSED, base, f"an empty {model}", {model: b""})
        found += _one(
            REFUSED, base, f"a torn {model}", {model: lambda old: old[:999]}
        )
    for base in (
        XLM_ROBERTA,
        XLM_ROBERTA_FILES,
        CAMEMBERT,
        ALBERT_JSON,
        ALBERT_FILES,
    ):
        found += _each(
            REFUSED,
            base,
            SETTINGS,
            {
                "truncation_side": ["left"],
                "split_special_tokens": [True],
                "add_prefix_space": [False],
            },
        )
    for base in (XLM_ROBERTA, XLM_ROBERTA_FILES):
        found += _each(
            REFUSED,
            base,
            SETTINGS,
            {"bos_token": ["<mask>"], "eos_token": ["<mask>"]},
        )
    found += _one(
        READ,
        XLM_ROBERTA,
        "no sentencepiece.bpe.model",
        {"sentencepiece.bpe.model": ABSENT},
    )
    found += _one(
        READ,
        CAMEMBERT,
        "no sentencepiece.bpe.model",
        {"sentencepiece.bpe.model": ABSENT},
    )
    found += _each(
        READ,
        CAMEMBERT,
        SETTINGS,
        {
            "tokenizer_class": [
                "CamembertTokenizerFast", "PreTrainedTokenizerFast", ABSENT,
            ],
        },
    )  # fmt: skip
    found += _albert()
    return found


def _albert():
    found = _one(READ, ALBERT_JSON, "as it is", {})
    found += _each(READ, ALBERT_JSON, JSON, _UNIGRAM_TABLE)
    found += _each(READ, ALBERT_JSON, JSON, _METASPACE_ALONE, (TOKENIZERS,))
    found += _each(READ, ALBERT_JSON, SETTINGS, _MEANINGLESS)
    found += _each(
        READ,
        ALBERT_JSON,
        JSON,
        {
            "pre_tokenizer": [_sequence("pre_tokenizer", _SPLITS, _OLD_SPACE)],
            "normalizer.normalizers": [
                # Without a table of characters.
                lambda old: old[:-1],
                # As transformers' converter ends it.
                _appended(
                    {
                        "type": "Replace",
                        "pattern": {"Regex": " {2,}"},
                        "content": " ",
                    }
                ),
            ],
        },
    )
    found += _each(
        READ,
        ALBERT_JSON,
        SETTINGS,
        {
            "tokenizer_class": [
                "AlbertTokenizerFast", "PreTrainedTokenizerFast", ABSENT,
            ],
            "do_lower_case": [ABSENT],
            "keep_accents": [ABSENT],
            "remove_space": [True],
            "sp_model_kwargs": [{}],
            "add_prefix_space": [True],
            "trim_offsets": [True],
        },
    )  # fmt: skip
    found += _each(REFUSED, ALBERT_JSON, JSON, _UNIGRAM_REFUSED)
    found += _each(
        REFUSED,
        ALBERT_JSON,
        JSON,
        {
            # One step less, or in another order.
            "normalizer.normalizers": [
                [],
                lambda old: old[1:],
                lambda old: [old[0], *old[2:]],
                lambda old: [step for step in old if step["type"] != "NFKD"],
                lambda old: [
                    step for step in old if step["type"] != "StripAccents"
                ],
                lambda old: old[::-1],
                _appended({"type": "NFC"}),
            ],
        },
    )
    # The settings make transformers' tokenizer: both must say the same.
    lowercase = {
        f"{JSON}: normalizer.normalizers": lambda old: [
            step for step in old if step["type"] != "Lowercase"
        ]
    }
    accents = {
        f"{JSON}: normalizer.normalizers": lambda old: [
            step for step in old if step["type"] not in ("NFKD", "StripAccents")
        ]
    }
    for name, changes, settings in (
        ("cased", lowercase, {f"{SETTINGS}: do_lower_case": False}),
        ("accents", accents, {f"{SETTINGS}: keep_accents": True}),
    ):
        found += _one(READ, ALBERT_JSON, name, changes | settings)
        found += _one(REFUSED, ALBERT_JSON, f"{name}, only json", changes)
        found += _one(REFUSED, ALBERT_JSON, f"{name}, only settings", settings)
        found += _one(READ, ALBERT_FILES, name, settings, (TRANSFORMERS,))
    found += _one(
        READ, ALBERT_JSON, "no spiece.model", {"spiece.model": ABSENT}
    )
    return found


def _as_they_are():
    return [
        mutation
        for base in bases.NAMES
        if base
        in (UNCASED, CASED, UNCASED_FILES, GOOGLE, ROBERTA_JSON, ROBERTA_FILES)
        for mutation in _one(
            READ,
            base,
            "as it is",
            {},
            BOTH if JSON in bases.make(base) else (TRANSFORMERS,),
        )
    ]


MUTATIONS = [
    *_as_they_are(),
    *_uncased_json(),
    *_uncased_json_refused(),
    *_longest_words(),
    *_case(),
    *_vocabulary_files(),
    *_bert_settings(),
    *_classes(),
    *_added(),
    *_bpe(),
    *_unigrams(),
]
