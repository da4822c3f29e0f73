import pickle
import random
import re
import time
import unicodedata

import pytest
import tensorflow as tf

from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers import wordpiece as tokenizer_lib
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import text as reference_text
from support.tokenizer_texts import ASSIGNED
from support.tokenizer_texts import CASES
from support.tokenizer_texts import GOLDEN
from support.tokenizer_texts import encode
from support.tokenizer_texts import to_lists
from support.tokenizer_texts import tokenizer_of
from support.tokenizer_texts import vocabulary_of

GOLDEN_TEXTS = [line["text"] for line in GOLDEN["lines"]]

# White space, controls, formats, marks, sigmas and what is near them, letters
# whose lower case is special or new, ideographs, jamo, emoji, private use.
NASTY = [
    *"aAzZ09 .,:'-_$^`|+<=>[]#\t\n\r\x00\x0b\x1c\x1f\x7f\x85\xa0\xad",
    *"ΑΑΣΣΣσςΒªºʰⅠⓐ\U0001f130·’\u0345\u0301\u0308\u0307\u0323\u093e\u20dd",
    *"İıIßẞŁÉéǅⱯꟀꟐꟖ\U00010570\U00010595Ⱟ\u1c80ᏣꭰÅ½²ﬁＡ２",
    *"\u200b\u200c\u200d\u2060\ufeff\ufffd\u180e\u1680\u2003\u3000",
    *"\u2028\u2029\U000e0041\ue000\uffff",
    *"中國豈\ufa0e\U0002f800\U00020000々ーカ가각ᄀ\u1161😀\U0001f3fb「」。।",
    "[SEP]",
    "[UNK]",
    "##",
]


def to_pieces(ids, vocabulary):
    return [
        [[vocabulary.tokens[index] for index in word] for word in row]
        for row in to_lists(ids)
    ]


def words_of(texts, do_lower_case):
    words = tokenizer_lib.split_words(encode(texts), do_lower_case)
    return [[word.decode("utf-8") for word in row] for row in to_lists(words)]


def assert_same_words(texts, do_lower_case):
    got = words_of(texts, do_lower_case)
    want = [reference_text.split_words(text, do_lower_case) for text in texts]
    wrong = [ascii(row) for row in zip(texts, got, want) if row[1] != row[2]]
    assert len(got) == len(texts)
    assert wrong == []


def random_texts(generator, count):
    return [
        "".join(
            generator.choice(NASTY if generator.random() < 0.9 else ASSIGNED)
            for _ in range(generator.randint(0, 14))
        )
        for _ in range(count)
    ]


@pytest.fixture(scope="module", params=CASES)
def saved(request, tmp_path_factory):
    """(case, folder of a SavedModel of the tokenizer)"""
    folder = str(tmp_path_factory.mktemp("tokenizer"))
    tokenizer = tokenizer_of(request.param)
    module = tf.Module()
    module.tokenizer = tokenizer
    module.tokenize = tf.function(
        tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(module, folder)
    return request.param, folder


def golden_pieces(case):
    return [line[case]["pieces"] for line in GOLDEN["lines"]]


@pytest.mark.parametrize("case", CASES)
def test_golden_words(case):
    words = words_of(GOLDEN_TEXTS, case == "uncased")

    assert words == [line[case]["words"] for line in GOLDEN["lines"]]


@pytest.mark.parametrize("case", CASES)
def test_golden_pieces_eagerly(case):
    ids = tokenizer_of(case).tokenize(encode(GOLDEN_TEXTS))

    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [len(GOLDEN_TEXTS), None, None]
    assert to_pieces(ids, vocabulary_of(case)) == golden_pieces(case)


@pytest.mark.parametrize("batch_size", [1, 7])
@pytest.mark.parametrize("case", CASES)
def test_golden_pieces_in_a_data_set(case, batch_size):
    tokenizer = tokenizer_of(case)
    batches = tf.data.Dataset.from_tensor_slices(encode(GOLDEN_TEXTS))
    batches = batches.batch(batch_size).map(tokenizer.tokenize)

    pieces = []
    for ids in batches:
        pieces += to_pieces(ids, tokenizer.vocabulary)

    assert pieces == golden_pieces(case)


def test_golden_pieces_from_a_saved_model(saved):
    case, folder = saved
    reloaded = tf.saved_model.load(folder)

    ids = reloaded.tokenize(encode(GOLDEN_TEXTS))

    assert to_pieces(ids, vocabulary_of(case)) == golden_pieces(case)


@pytest.mark.parametrize("saved", ["uncased"], indirect=True)
def test_new_process_with_a_turkish_locale_gives_the_same(
    saved, tmp_path, monkeypatch, run_program
):
    case, folder = saved
    texts = encode([*GOLDEN_TEXTS, "I AM ISTANBUL İI"])
    tf.io.write_file(str(tmp_path / "in"), tf.io.serialize_tensor(texts))

    # ICU reads the locale when it is first used; a Turkish one lower-cases
    # "I" to a letter without a dot.
    for name in ("LC_ALL", "LANG"):
        monkeypatch.setenv(name, "tr_TR.UTF-8")
    run_program(
        "support.serve_texts", folder, tmp_path / "in", tmp_path / "out"
    )

    got = tf.io.parse_tensor(tf.io.read_file(str(tmp_path / "out")), tf.int32)
    want = tokenizer_of(case).tokenize(texts).flat_values
    assert got.numpy().tolist() == want.numpy().tolist()


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_every_assigned_code_point(do_lower_case):
    assert_same_words([f"a{char}b" for char in ASSIGNED], do_lower_case)


def test_final_sigma_beside_every_assigned_code_point():
    # Ideographs and Hangul syllables are alike, and most of all.
    is_ideograph = re.compile(
        "[\u3400-\u9fff\uac00-\ud7a3\U00020000-\U0003ffff]"
    )
    assert_same_words(
        [
            f"ΑΣ{char} Α{char}Σ Σ{char}Σ"
            for char in ASSIGNED
            if not is_ideograph.match(char)
        ],
        True,
    )


def test_random_marks_between_letters():
    marks = [
        char for char in ASSIGNED if unicodedata.category(char).startswith("M")
    ]
    # Those that the canonical order moves and that are no accents.
    spacing = [
        char
        for char in marks
        if unicodedata.combining(char) and unicodedata.category(char) == "Mc"
    ]
    # Long accents; class 0; marks and letters that are decomposed to marks.
    others = [*"aéΣ가\u0301\u0323\u034f\u0344\u0f73\u0f75\U0001d160"]
    generator = random.Random(4)
    texts = [
        "".join(
            generator.choice(generator.choice((marks, spacing, others)))
            for _ in range(generator.randint(1, 30))
        )
        for _ in range(3000)
    ]

    assert_same_words(texts, True)


@pytest.mark.parametrize(
    "marks", ["\u0301\u0323", "\U0001d165\u302e", "\u0323\u302e\u0344\u1b44"]
)
def test_a_megabyte_of_marks_takes_no_second(marks):
    texts = encode(["a" + marks * (1_000_000 // len(marks.encode())) + " b"])
    tokenizer = tokenizer_of("uncased")
    tokenizer.tokenize_with_offsets(encode(["a"]))

    start = time.process_time()
    ids, offsets = tokenizer.tokenize_with_offsets(texts)
    seconds = time.process_time() - start

    assert len(to_lists(ids)[0]) == 2
    assert offsets.starts.flat_values.numpy()[0] == 0
    assert seconds < 1


@pytest.mark.parametrize("case", CASES)
def test_random_lines(case):
    vocabulary = vocabulary_of(case)
    entries = set(vocabulary.tokens)
    texts = random_texts(random.Random(1), 4000)

    ids = tokenizer_of(case).tokenize(encode(texts))

    for text, pieces in zip(texts, to_pieces(ids, vocabulary), strict=True):
        want = reference_text.tokenize(text, entries, case == "uncased")
        assert pieces == want, ascii(text)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_invalid_utf_8_is_dropped_as_the_original_does(do_lower_case):
    generator = random.Random(2)
    parts = [
        "aΣ中😀".encode(),
        b"\xed\xa0\x80",  # A surrogate.
        b"\xc0\x80",  # NUL, a byte too long.
        b"\xf4\x90\x80\x80",  # Beyond Unicode.
        b"\xe4\xb8",  # The beginning of an ideograph.
        b"\xff",
        b"A ",
    ]
    texts = [
        b"".join(generator.choices(parts, k=generator.randint(0, 5)))
        + bytes(generator.choices(range(1, 256), k=generator.randint(0, 5)))
        + b"."
        for _ in range(2000)
    ]

    words = to_lists(
        tokenizer_lib.split_words(tf.constant(texts), do_lower_case)
    )

    for text, row in zip(texts, words, strict=True):
        want = reference_text.split_words(text, do_lower_case)
        assert [word.decode("utf-8") for word in row] == want, text


@pytest.mark.parametrize("char", ["x", "é", "中", "😀"])
def test_words_of_201_characters_are_unknown(char):
    vocabulary = Vocabulary(tokens=(*SPECIAL_TOKENS, char, f"##{char}"))
    tokenizer = WordpieceSpec(vocabulary, do_lower_case=False).make()

    ids = to_lists(tokenizer.tokenize(encode([char * 200, char * 201])))

    if char == "中":  # Every ideograph is a word.
        assert ids == [[[5]] * 200, [[5]] * 201]
    else:
        assert ids == [[[5] + [6] * 199], [[1]]]


@pytest.mark.parametrize("place", [0, 1, 7, 12])
def test_unknown_token_may_be_any_entry(place):
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "##a", "b"]
    tokens += ["ab", "##ba", "c", "##c"]
    tokens.insert(place, "[UNK]")
    tokenizer = WordpieceSpec(Vocabulary(tokens=tokens)).make()
    texts = ["abba cab", "", "abd d [UNK]"]

    pieces = to_pieces(tokenizer.tokenize(encode(texts)), tokenizer.vocabulary)

    assert pieces == [
        [["ab", "##ba"], ["c", "##a", "##b"]],
        [],
        [["[UNK]"], ["[UNK]"], ["[UNK]"], ["[UNK]"], ["[UNK]"]],
    ]


def test_pieces_are_the_longest_that_fit():
    generator = random.Random(3)
    letters = "abc"
    words = [
        "".join(generator.choices(letters, k=generator.randint(1, 9)))
        for _ in range(500)
    ]
    for _ in range(10):
        pieces = {
            generator.choice(["", "##"])
            + "".join(generator.choices(letters, k=generator.randint(1, 5)))
            for _ in range(25)
        }
        tokens = (*SPECIAL_TOKENS, *sorted(pieces))
        tokenizer = WordpieceSpec(Vocabulary(tokens=tokens)).make()

        ids = tokenizer.tokenize(encode([" ".join(words)]))

        assert to_pieces(ids, tokenizer.vocabulary) == [
            [reference_text.wordpiece(word, pieces) for word in words]
        ]


@pytest.mark.parametrize("fast", [False, True])
def test_no_texts_give_no_pieces(fast):
    ids = tokenizer_of("uncased", fast).tokenize(tf.constant([], tf.string))

    assert ids.shape.as_list() == [0, None, None]
    assert to_lists(ids) == []


@pytest.mark.parametrize("fast", [False, True])
def test_a_pickled_spec_makes_the_same_tokenizer(fast):
    tokenizer = tokenizer_of("uncased", fast)
    texts = encode(["The quick, unaffable fox", ""])
    expected = to_lists(tokenizer.tokenize(texts))
    spec = pickle.loads(pickle.dumps(tokenizer.spec))
    assert spec == tokenizer.spec
    assert to_lists(spec.make().tokenize(texts)) == expected


def test_case_of_the_vocabulary_is_checked():
    with pytest.raises(ValueError, match="`do_lower_case` must be False"):
        WordpieceSpec(vocabulary_of("cased"), do_lower_case=True)


def test_fast_equals_exact_on_plain_text():
    texts = [
        "The quick brown fox, jumped!",
        "",
        "  don't stop now ",
        "Café unaffable qqq",
        "日本",
    ]

    fast = tokenizer_of("uncased", fast=True).tokenize(encode(texts))

    exact = tokenizer_of("uncased").tokenize(encode(texts))
    assert fast.dtype == tf.int32
    assert to_lists(fast) == to_lists(exact)


def test_fast_wants_a_vocabulary_of_words():
    vocabulary = Vocabulary(
        tokens=(*vocabulary_lib.SPECIAL_TOKENS, "[unused0]")
    )
    with pytest.raises(ValueError, match="`vocabulary` must have an entry"):
        WordpieceSpec(vocabulary, fast=True).make()


def test_fast_differs_as_documented():
    tokens = (
        *SPECIAL_TOKENS,
        *"sx2.",
        "##s",
        "##x",
        "##2",
        "\ufffd",
        "##\ufffd",
    )
    vocabulary = Vocabulary(tokens=tokens)
    texts = ["²", "ß", "…", "s\x01s", "x\ufffd", "x" * 101]

    fast = WordpieceSpec(vocabulary, fast=True).make()

    pieces = to_pieces(fast.tokenize(encode(texts)), vocabulary)
    assert pieces == [
        [["2"]],
        [["s", "##s"]],
        [["."], ["."], ["."]],
        [["s"], ["s"]],
        [["x", "##\ufffd"]],
        [["[UNK]"]],
    ]


def test_fast_keeps_the_case_of_cased_text():
    tokenizer = tokenizer_of("cased", fast=True)

    ids = tokenizer.tokenize(encode(["The Café café", "ÉCOLE"]))

    assert to_pieces(ids, tokenizer.vocabulary) == [
        [["The"], ["Café"], ["caf", "##é"]],
        [["ÉCOLE"]],
    ]
