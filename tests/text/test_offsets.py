"""Offsets of pieces in the string that they were made from, and back."""

import random
import unicodedata

import pytest
import tensorflow as tf

from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import squad as reference_squad
from references import text as reference_text
from support.tokenizer_texts import ASSIGNED
from support.tokenizer_texts import CASES
from support.tokenizer_texts import GOLDEN
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.tokenizer_texts import tokenizer_of

# White space, controls, formats, marks, letters that become two or none,
# sigmas, ideographs, jamo, emoji.
NASTY = [
    *"aAzZ09 .,'-$\t\n\r\x00\x0b\x1c\x7f\x85\xa0\xad",
    *"ΑΣΣσς\u0345\u0301\u0308\u0307\u0323\u093e\u20dd\u034f",
    *"İıIßẞÉéǅⱯꟀ\U00010570½²ﬁＡ２",
    *"\u200b\u200d\ufeff\ufffd\u180e\u1680\u2003\u2028\u3000\U000e0041",
    *"中國豈\U0002f800カ가각ᄀ\u1161\u11a8😀\U0001f3fb「。।",
    "[SEP]",
    "[UNK]",
    "x" * 201,
    "unaffable",
]


def located(tokenizer, texts):
    """Returns (piece, start, limit), and the ranges in bytes, of all words."""
    ids, offsets = tokenizer.tokenize_with_offsets(encode(texts))
    tokens = tokenizer.vocabulary.tokens
    columns = [to_lists(ids), *(to_lists(part) for part in offsets)]
    rows, byte_rows = [], []
    for row in zip(*columns, strict=True):
        words = [list(zip(*word, strict=True)) for word in zip(*row)]
        rows.append(
            [[(tokens[i], *ends) for i, *ends, _, _ in word] for word in words]
        )
        byte_rows.append([ends[3:] for word in words for ends in word])
    return rows, byte_rows


def reorders(text):
    """Whether canonical order exchanges marks that lower-casing keeps."""
    kept = [
        unicodedata.combining(part)
        for character in text
        for part in unicodedata.normalize("NFD", character)
        if unicodedata.category(part) != "Mn"
    ]
    return any(a > b > 0 for a, b in zip(kept, kept[1:]))


def assert_located(texts, case):
    tokenizer = tokenizer_of(case)
    entries = set(tokenizer.vocabulary.tokens)
    rows, byte_rows = located(tokenizer, texts)
    for text, row, byte_row in zip(texts, rows, byte_rows, strict=True):
        want = reference_squad.locate(text, entries, case == "uncased")
        assert row == want, ascii(text)
        # The same places in bytes.
        flat = [piece for word in row for piece in word]
        for (_, start, limit), ends in zip(flat, byte_row, strict=True):
            first = len(text[:start].encode())
            assert ends == (first, first + len(text[start:limit].encode()))


@pytest.mark.parametrize("case", CASES)
def test_golden_lines(case):
    assert_located([line["text"] for line in GOLDEN["lines"]], case)


@pytest.mark.parametrize("case", CASES)
def test_assigned_code_points(case):
    # Letters without case and symbols are many and alike: one in 200.
    chosen = [
        character
        for character in ASSIGNED
        if unicodedata.category(character) not in ("Lo", "So", "Co")
        or ord(character) % 200 == 0
    ]
    assert_located([f"a{char}b {char} Σ{char}" for char in chosen], case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_assigned_code_point(case):
    assert_located([f"a{char}b {char} Σ{char}" for char in ASSIGNED], case)


@pytest.mark.parametrize("case", CASES)
def test_random_lines(case):
    generator = random.Random(4)
    texts = [
        "".join(
            generator.choice(NASTY if generator.random() < 0.9 else ASSIGNED)
            for _ in range(generator.randint(0, 14))
        )
        for _ in range(2000)
    ]
    chosen = [text for text in texts if not reorders(text)]
    assert len(chosen) > 1990
    assert_located(chosen, case)


def test_dropped_characters_are_spanned_and_accents_belong_to_letters():
    pieces = ["co", "##op", "cafe", "i", "각", "ᄀ", "##ᅡ", "##ᆨ"]
    vocabulary = Vocabulary(tokens=(*SPECIAL_TOKENS, *pieces))
    tokenizer = WordpieceSpec(vocabulary).make()
    texts = ["C\u200bO\xadop", " cafe\u0301\u0323! ", "İ", "각", "\u0301i"]

    rows, _ = located(tokenizer, texts)

    assert rows == [
        [[("co", 0, 3), ("##op", 4, 6)]],
        [[("cafe", 1, 7)], [("[UNK]", 7, 8)]],
        [[("i", 0, 1)]],
        [[("ᄀ", 0, 1), ("##ᅡ", 0, 1), ("##ᆨ", 0, 1)]],
        [[("i", 1, 2)]],
    ]


def test_unknown_and_over_long_words_are_spanned_whole():
    tokenizer = WordpieceSpec(
        Vocabulary(tokens=(*SPECIAL_TOKENS, "a", "##a"))
    ).make()

    rows, _ = located(tokenizer, [f"ab {'a' * 201} a", "[UNK]"])

    assert rows == [
        [[("[UNK]", 0, 2)], [("[UNK]", 3, 204)], [("a", 205, 206)]],
        [[("[UNK]", 0, 1)], [("[UNK]", 1, 4)], [("[UNK]", 4, 5)]],
    ]


@pytest.mark.parametrize("case", CASES)
def test_invalid_bytes_are_no_characters(case):
    generator = random.Random(5)
    parts = [b"\xed\xa0\x80", b"\xc0\x80", b"\xe4\xb8", b"\xff", b"A", b" b"]
    parts += ["中".encode(), "É".encode(), "Σ".encode()]
    texts = [
        b"".join(generator.choices(parts, k=generator.randint(0, 6)))
        for _ in range(500)
    ]
    tokenizer = tokenizer_of(case)
    entries = set(tokenizer.vocabulary.tokens)

    ids, offsets = tokenizer.tokenize_with_offsets(tf.constant(texts))

    columns = [to_lists(part.merge_dims(1, 2)) for part in offsets]
    for text, *ends in zip(texts, *columns, strict=True):
        valid = text.decode("utf-8", "ignore")
        want = reference_squad.locate(valid, entries, case == "uncased")
        want = [piece[1:] for word in want for piece in word]
        starts, limits, byte_starts, byte_limits = ends
        assert list(zip(starts, limits)) == want, text
        for start, limit, first, last in zip(*ends, strict=True):
            cited = text[first:last].decode("utf-8", "ignore")
            assert cited == valid[start:limit]
    assert to_lists(ids) == to_lists(tokenizer.tokenize(tf.constant(texts)))


def test_offsets_in_a_data_set_are_those_of_each_text():
    tokenizer = tokenizer_of("uncased")
    texts = encode(["Die Größe, ÉTÉ", "", "中 x", "\u0301", "unaffable!"])
    eager = [tokenizer.tokenize_with_offsets(texts[i : i + 1]) for i in (0, 4)]
    batches = tf.data.Dataset.from_tensors(texts).map(
        tokenizer.tokenize_with_offsets
    )

    ids, offsets = next(iter(batches))

    for i, (ids_alone, alone) in zip((0, 4), eager):
        assert to_lists(ids)[i] == to_lists(ids_alone)[0]
        for part, part_alone in zip(offsets, alone):
            assert part.dtype == tf.int32
            assert to_lists(part)[i] == to_lists(part_alone)[0]
    assert to_lists(offsets.starts)[1] == []


def test_no_texts_have_no_offsets():
    ids, offsets = tokenizer_of("uncased").tokenize_with_offsets(
        tf.constant([], tf.string)
    )

    assert ids.shape.as_list() == [0, None, None]
    assert to_lists(offsets.limits) == []


def test_fast_tokenizer_tells_no_offsets():
    tokenizer = WordpieceSpec(
        Vocabulary(tokens=(*SPECIAL_TOKENS, "a")), True, True
    ).make()

    with pytest.raises(ValueError, match="`fast` must be False"):
        tokenizer.tokenize_with_offsets(tf.constant(["a"]))


def test_detokenized_text_is_its_words_again():
    tokenizer = tokenizer_of("uncased")
    entries = set(tokenizer.vocabulary.tokens)
    texts = [line["text"] for line in GOLDEN["lines"]]
    ids = tokenizer.tokenize(encode(texts))

    words = tokenizer.detokenize(ids)
    pieces = tokenizer.detokenize(ids.merge_dims(1, 2))

    assert words.numpy().tolist() == pieces.numpy().tolist()
    for text, got in zip(texts, words.numpy().tolist(), strict=True):
        want = [
            "[UNK]"
            if reference_text.wordpiece(word, entries) == ["[UNK]"]
            else word
            for word in reference_text.split_words(text, True)
        ]
        assert got.decode("utf-8") == " ".join(want)


def test_detokenized_piece_that_continues_nothing():
    tokens = (*SPECIAL_TOKENS, "un", "##aff")
    tokenizer = WordpieceSpec(Vocabulary(tokens=tokens)).make()

    texts = tokenizer.detokenize(tf.ragged.constant([[6, 5, 6, 5], []]))

    assert texts.numpy().tolist() == [b"aff unaff un", b""]


def test_detokenized_mark_of_continuation_is_nothing():
    tokens = (*SPECIAL_TOKENS, "un", "##", "##aff")
    tokenizer = WordpieceSpec(Vocabulary(tokens=tokens)).make()

    texts = tokenizer.detokenize(
        tf.ragged.constant([[5, 6, 7], [6], [6, 6, 5], [6, 7, 5]])
    )

    assert texts.numpy().tolist() == [b"unaff", b"", b"un", b"aff un"]
