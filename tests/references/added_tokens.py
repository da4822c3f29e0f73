"""Folders whose files tell of added tokens, and what transformers finds there.

With an environment that has transformers, a program:

    python added_tokens.py FOLDER ...

prints JSON: of each folder {token: [id, flag, ...]}, without BERT's own.
"""

import json
import pathlib
import sys

ENTRIES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "[E1]")
NEXT = len(ENTRIES)
FLAGS = ("lstrip", "rstrip", "single_word", "normalized", "special")
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": True,
    },
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "BertProcessing",
        "sep": ["[SEP]", 3],
        "cls": ["[CLS]", 2],
    },
    "decoder": None,
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {token: index for index, token in enumerate(ENTRIES)},
    },
}


def token(content, index=None, **flags):
    """Returns an added token as files have it."""
    told = dict.fromkeys(FLAGS, False) | {"content": content} | flags
    return told if index is None else told | {"id": index}


def in_json(*tokens):
    return {"tokenizer.json": TOKENIZER | {"added_tokens": list(tokens)}}


def settings(**values):
    return {"tokenizer_config.json": values}


SPECIAL = {"special": True}
TYPED = {"__type": "AddedToken"}
ADDED = token("[A]", NEXT, lstrip=True)
JSON = in_json()
WITH = in_json(ADDED, token("[B]", NEXT + 1, normalized=True))
DECODER = {
    "5": token("the", rstrip=True),
    str(NEXT): token("[A]", lstrip=True),
    str(NEXT + 1): token("[B]", normalized=True),
}

# {name: {file: its contents}}; without tokenizer.json there is a vocab.txt.
FOLDERS = {
    "tokenizer.json": WITH,
    "tokenizer.json, an entry": in_json(token("[E1]", 6), ADDED),
    "decoder": JSON | settings(added_tokens_decoder=DECODER),
    "decoder and tokenizer.json": WITH | settings(added_tokens_decoder=DECODER),
    "decoder without tokenizer.json": settings(added_tokens_decoder=DECODER),
    "decoder and older files": settings(added_tokens_decoder=DECODER)
    | {
        "added_tokens.json": {"[C]": NEXT},
        "special_tokens_map.json": {"additional_special_tokens": ["[D]"]},
    },
    "extra list": JSON | settings(extra_special_tokens=["[X]", "[E1]"]),
    "extra objects": JSON
    | settings(extra_special_tokens=[token("[X]", lstrip=True) | TYPED]),
    "extra dict": JSON | settings(extra_special_tokens={"x_token": "[X]"}),
    "additional": settings(additional_special_tokens=["[X]", "[Y]"]),
    "additional and extra": settings(
        additional_special_tokens=["[X]"], extra_special_tokens=["[Y]"]
    ),
    "by name": JSON | settings(bos_token="[X]", image_token="[Y]"),
    "added_tokens.json": {"added_tokens.json": {"[A]": NEXT, "[B]": NEXT + 1}},
    "older files": {
        "added_tokens.json": {"[B]": NEXT + 1, "[A]": NEXT},
        "special_tokens_map.json": {
            "additional_special_tokens": ["[A]", "[C]"],
            "mask_token": token("[MASK]", lstrip=True),
        },
    },
    "a general class": WITH
    | settings(
        tokenizer_class="PreTrainedTokenizerFast",
        added_tokens_decoder={str(NEXT): token("[A]", lstrip=True)},
        extra_special_tokens=["[X]"],
    ),
}


def write(folder, contents):
    """Writes a folder of `FOLDERS`; returns its path."""
    folder = pathlib.Path(folder)
    folder.mkdir()
    if "tokenizer.json" not in contents:
        (folder / "vocab.txt").write_text("\n".join(ENTRIES))
    for name, values in contents.items():
        (folder / name).write_text(json.dumps(values))
    config = {"model_type": "bert", "type_vocab_size": 2}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def main():
    import transformers

    found = []
    for folder in sys.argv[1:]:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        found.append(
            {
                token.content: [index, *(getattr(token, f) for f in FLAGS)]
                for index, token in tokenizer.added_tokens_decoder.items()
                if token.content not in ENTRIES[:4]
            }
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
