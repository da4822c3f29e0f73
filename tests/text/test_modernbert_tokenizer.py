"""ModernBERT's tokenizer against `tokenizers`: ids, offsets, files.

    BERT_TF_TEXT_FILES=wiki.txt.xz:books.txt.xz \\
        python -m pytest -m peers tests/text/test_modernbert_tokenizer.py

With much text, the first 5 MB of each of these files.
"""

import dataclasses
import itertools
import json
import os
import unicodedata

import pytest
import tensorflow as tf
import tokenizers

from bert_tf import streams
from bert_tf.text.preprocessor import Preprocessor
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.tokenizers import nfc
from support import modernbert_tokenizer
from support.paths import ROOT

LINES = (ROOT / "docs" / "families.md").read_text("utf-8").splitlines()
CODE = (ROOT / "tests" / "text" / "test_bpe.py").read_text("utf-8")
NUM_PIECES = 600
BATCH_SIZE = 2000
TEXT_FILES = [
    path for path in os.environ.get("BERT_TF_TEXT_FILES", "").split(":") if path
]
NUM_BYTES = 5_000_000
# Letters of Unicode 16, which TensorFlow composes and `tokenizers` does not.
# The last one is no character, and is dropped.
OTHERS = {0x113C2, 0x1611E, 0x16D67, 0xFDD0}


@pytest.fixture(scope="module")
def contents():
    lines = [*LINES, CODE, *itertools.chain(*map(read_lines, TEXT_FILES))]
    return modernbert_tokenizer.make(lines, NUM_PIECES)


def read_lines(path):
    with streams.open_bytes(path) as stream:
        text = stream.read(NUM_BYTES).decode("utf-8", "ignore")
    return [line for line in text.split("\n") if line]


@pytest.fixture(scope="module")
def spec(contents, tmp_path_factory):
    folder = tmp_path_factory.mktemp("modernbert")
    write(folder, contents)
    return tokenizer_files.read(str(folder))


def write(folder, contents, settings=modernbert_tokenizer.SETTINGS):
    (folder / "tokenizer.json").write_text(json.dumps(contents))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture(scope="module")
def differing(spec):
    """Returns a function of texts: those that `tokenizers` reads otherwise.

    That is, with other ids or, by default, other offsets.
    """
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
    # A template does not trim.
    tokenizer = dataclasses.replace(
        spec, trim_offsets=False, tokens_in_text="all"
    ).make()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(texts):
        ids, offsets = tokenizer.tokenize_with_offsets(texts)
        values = (ids, offsets.starts, offsets.limits)
        return [each.merge_dims(1, 2) for each in values]

    def compare(texts, with_offsets=True):
        found = []
        for first in range(0, len(texts), BATCH_SIZE):
            batch = texts[first : first + BATCH_SIZE]
            values = tokenize(tf.constant([text.encode() for text in batch]))
            rows = zip(*(each.to_list() for each in values), strict=True)
            wanted = theirs.encode_batch(batch)
            for text, row, want in zip(batch, rows, wanted, strict=True):
                ids, *offsets = row
                is_same = ids == want.ids[1:-1]
                if with_offsets:
                    offsets = list(zip(*offsets, strict=True))
                    is_same = is_same and offsets == want.offsets[1:-1]
                if not is_same:
                    found.append(text)
        return found

    return compare


def of_every_code_point(pattern, codes=range(0x110000)):
    return [
        pattern.replace("*", chr(code))
        for code in codes
        if not 0xD800 <= code < 0xE000
    ]


def test_the_form_is_modernbert_s(spec, contents):
    assert spec.nfc
    assert spec.vocabulary.special == dataclasses.replace(
        tokenizer_files.Vocabulary(tokens=spec.vocabulary.tokens).special,
        second_segment=0,
    )
    assert len(spec.vocabulary) == (NUM_PIECES + modernbert_tokenizer.NUM_ADDED)
    # What we write says the same to `tokenizers`.
    ours = spec.tokenizer_json
    assert ours["added_tokens"] == contents["added_tokens"]
    for part in ("normalizer", "pre_tokenizer", "post_processor"):
        assert ours[part] == contents[part]
    assert ours["model"]["vocab"] == contents["model"]["vocab"]


def test_folders_are_written_and_read_again(spec, tmp_path):
    tokenizer_files.write(str(tmp_path / "a"), spec)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    again = tokenizer_files.read(str(tmp_path / "a"))
    assert again == spec
    assert tokenizer_files.describe(again)["settings"]["nfc"] is True


def test_texts_and_pairs_are_framed_as_in_bert(spec):
    pair = (tf.constant(["a cat"]), tf.constant(["a dog"]))
    inputs = Preprocessor(spec, 16)(pair)
    theirs = tokenizers.Tokenizer.from_str(json.dumps(spec.tokenizer_json))
    want = theirs.encode("a cat", "a dog")
    ids = inputs["input_ids"].numpy()[0].tolist()
    assert ids[: len(want.ids)] == want.ids
    assert {*ids[len(want.ids) :]} == {spec.vocabulary.pad_id}
    assert not inputs["segment_ids"].numpy().any()


def test_runs_of_spaces_and_code(differing):
    runs = [" " * count for count in range(1, 41)]
    tabs = ["\t" * count for count in range(1, 9)]
    around = [("a", "b"), ("", "b"), ("a", ""), ("x\n", "\n"), (".", "é")]
    texts = [
        before + run + after
        for run in (*runs, *tabs, " \t ", "  \t  ", "\xa0 ", " \xa0")
        for before, after in around
    ]
    texts += [CODE[:3000], *CODE.split("\n"), *LINES]
    assert differing(texts) == []


def test_added_tokens_beside_letters(spec, differing):
    tokens = [token.content for token in spec.added_tokens]
    tokens = [*spec.vocabulary.special.names, *tokens[:30], "[unused7]"]
    texts = [
        before + token + after
        for token in tokens
        for before in ("", "a", "a ", "a  ", "\n ", "e\u0301", "\u0301", "[")
        for after in ("", "b", " b", "  b", "\u0301", "]")
    ]
    texts += [
        "".join(pair) for pair in itertools.product(tokens[:12], repeat=2)
    ]
    assert differing(texts) == []


def test_special_tokens_are_text_by_default(spec):
    tokenizer = spec.make()
    found = tokenizer.tokenize(tf.constant(["a [MASK]<|endoftext|>"]))
    ids = found.merge_dims(1, 2).to_list()[0]
    assert spec.vocabulary.mask_id not in ids
    assert spec.vocabulary.index("<|endoftext|>") in ids


def test_letters_and_marks(differing):
    letters = ["a", "e", "\u0131", "\u1100", "\uac00", "\u05d0", " ", "1"]
    marks = "\u0301\u0323\u0345\u1161\u11a8\u05bc\u200d"
    texts = [
        f"x{letter}{''.join(each)} y"
        for letter in letters
        for each in itertools.product(marks, repeat=3)
    ]
    assert differing(texts) == []
    # Longer runs than any language has are sorted in parts.
    run = "a" + "\u0301\u0323" * 5000
    composed = nfc.compose(tf.constant([run])).numpy()[0].decode()
    assert len(composed) == len(run) - 1


def check_code_points(differing, codes):
    pattern = "a* b 1**2  *x .*"
    # `tokenizers` is off by one where NFC makes several characters of one.
    several = {
        pattern.replace("*", character)
        for character in map(chr, codes)
        if len(unicodedata.normalize("NFC", character)) > 1
    }
    texts = of_every_code_point(pattern, codes)
    others = {pattern.replace("*", chr(code)) for code in OTHERS}
    assert {*differing(texts)} <= several | others
    assert {*differing([*several], with_offsets=False)} <= others


def test_code_points_in_context(differing):
    check_code_points(differing, range(0x3400))


@pytest.mark.slow
def test_every_code_point(differing):
    check_code_points(differing, range(0x110000))


@pytest.mark.peers
@pytest.mark.parametrize(
    "path", TEXT_FILES or sorted((ROOT / "docs").glob("*.md"))
)
def test_much_text(differing, path):
    assert differing(read_lines(path)) == []


def test_plain_text_is_what_nfc_leaves_alone():
    texts = of_every_code_point("a*")
    is_plain = tf.strings.regex_full_match(texts, nfc.PLAIN).numpy()
    for text, plain in zip(texts, is_plain, strict=True):
        if plain:
            assert unicodedata.normalize("NFC", text) == text
