"""Added tokens, wherever a folder's files tell of them."""

import json

import pytest

from bert_tf.text.tokenizers import files as tokenizer_files
from references import added_tokens as peer
from support import peers

NEXT = peer.NEXT


def flags(*names):
    return [name in names for name in peer.FLAGS]


A = {"[A]": [NEXT, *flags("lstrip")]}
A_AND_B = A | {"[B]": [NEXT + 1, *flags("normalized")]}
THE = {"the": [5, *flags("rstrip")]}
SPECIAL = flags("special")
# What transformers 5.23 finds.
FOUND = {
    "tokenizer.json": A_AND_B,
    "tokenizer.json, an entry": {"[E1]": [6, *flags()]} | A,
    "decoder": THE | A_AND_B,
    "decoder and tokenizer.json": THE | A_AND_B,
    "decoder without tokenizer.json": THE | A_AND_B,
    "decoder and older files": THE | A_AND_B,
    "extra list": {"[E1]": [6, *SPECIAL], "[X]": [NEXT, *SPECIAL]},
    "extra objects": {"[X]": [NEXT, *flags("lstrip")]},
    "extra dict": {"[X]": [NEXT, *SPECIAL]},
    "additional": {"[X]": [NEXT, *SPECIAL], "[Y]": [NEXT + 1, *SPECIAL]},
    "additional and extra": {"[Y]": [NEXT, *SPECIAL]},
    "by name": {"[X]": [NEXT, *SPECIAL], "[Y]": [NEXT + 1, *SPECIAL]},
    "added_tokens.json": {
        "[A]": [NEXT, *flags("normalized")],
        "[B]": [NEXT + 1, *flags("normalized")],
    },
    "older files": {
        "[MASK]": [4, *flags("lstrip", "special")],
        "[A]": [NEXT, *flags("normalized")],
        "[B]": [NEXT + 1, *flags("normalized")],
        "[C]": [NEXT + 2, *SPECIAL],
    },
    "a general class": A_AND_B | {"[X]": [NEXT + 2, *SPECIAL]},
}


@pytest.mark.parametrize("name", peer.FOLDERS)
def test_tokens_are_those_of_transformers(tmp_path, name):
    folder = peer.write(tmp_path / "x", peer.FOLDERS[name])
    spec = tokenizer_files.read(folder)
    vocabulary = spec.vocabulary
    found = {
        token.content: [
            vocabulary.index(token.content),
            *(getattr(token, flag) for flag in peer.FLAGS),
        ]
        for token in spec.added_tokens
    }
    assert found == FOUND[name]
    assert vocabulary.tokens[:NEXT] == peer.ENTRIES
    assert vocabulary.tokens[NEXT:] == tuple(
        content for content, (index, *_) in found.items() if index >= NEXT
    )
    for token in spec.added_tokens:
        assert token.is_piece == (token.content in peer.ENTRIES)


@pytest.mark.parametrize(
    ("contents", "match"),
    [
        (
            peer.in_json(peer.token("[A]", NEXT + 1)),
            f"tokenizer.json: .*'\\[A\\]' must have the id {NEXT}.*: 8",
        ),
        (
            peer.in_json(peer.token("[A]", 5)),
            f"tokenizer.json: .*'\\[A\\]' must have the id {NEXT}.*: 5",
        ),
        (
            peer.settings(added_tokens_decoder={"9": peer.token("[A]")}),
            f"config.json: .*'\\[A\\]' must have the id {NEXT}.*: 9",
        ),
        (
            {"added_tokens.json": {"[E1]": NEXT}},
            "added_tokens.json: .*'\\[E1\\]' must have the id 6",
        ),
        (
            peer.WITH | peer.settings(added_tokens_decoder={}),
            "config.json: `added_tokens_decoder` must have .*'\\[A\\]'.*none",
        ),
        (
            peer.WITH
            | peer.settings(
                added_tokens_decoder=peer.DECODER
                | {str(NEXT): peer.token("[A]")}
            ),
            "config.json: `added_tokens_decoder` must have .*'\\[A\\]'",
        ),
        (
            peer.WITH
            | peer.settings(
                tokenizer_class="TokenizersBackend",
                added_tokens_decoder={str(NEXT): peer.token("[A]")},
            ),
            "config.json: `added_tokens_decoder` must have .*'\\[A\\]'",
        ),
        (
            {"tokenizer.json": peer.TOKENIZER | {"added_tokens": {"a": 1}}},
            "tokenizer.json: `added_tokens` must be a list",
        ),
        (peer.in_json({"id": 7}), "tokenizer.json: `added_tokens` must have t"),
        (
            peer.in_json(peer.token("[A]", NEXT, lstrip=1)),
            "tokenizer.json: `added_tokens` must have tokens",
        ),
        (peer.in_json(peer.token("[A]")), "`added_tokens` must have the id"),
        (
            peer.settings(extra_special_tokens=[7]),
            "`extra_special_tokens` must",
        ),
        (
            peer.settings(mask_token=peer.token("<mask>")),
            r"config.json: `mask_token` must be \[MASK\].*'<mask>'",
        ),
        (
            peer.settings(added_tokens_decoder=[]),
            "config.json: `added_tokens_decoder` must be an object",
        ),
    ],
)
def test_tokens_that_are_not_plain_are_refused(tmp_path, contents, match):
    folder = peer.write(tmp_path / "x", contents)
    with pytest.raises(ValueError, match=match):
        tokenizer_files.read(folder)


def test_ids_of_lines_that_are_not_used_are_not_given_away(tmp_path):
    folder = peer.write(tmp_path / "x", {"added_tokens.json": {"[A]": NEXT}})
    (tmp_path / "x/vocab.txt").write_text("\n".join((*peer.ENTRIES, "the")))
    with pytest.raises(ValueError, match=rf"'\[A\]' must have the id {NEXT}"):
        tokenizer_files.read(folder)


@pytest.mark.peers
def test_transformers_finds_them(tmp_path):
    folders = [
        peer.write(tmp_path / str(number), contents)
        for number, contents in enumerate(peer.FOLDERS.values())
    ]
    found = json.loads(peers.run(peer.__file__, *folders))
    for name, tokens in zip(peer.FOLDERS, found, strict=True):
        # [MASK] is as by default, but where a file says otherwise.
        if tokens.get("[MASK]") == [4, *SPECIAL]:
            del tokens["[MASK]"]
        assert tokens == FOUND[name], name
