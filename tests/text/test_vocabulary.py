import dataclasses

import pytest

from bert_tf.text import vocabulary as vocabulary_lib
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import Vocabulary

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "vocab.txt"
        path.write_bytes(
            content if isinstance(content, bytes) else content.encode("utf-8")
        )
        return path

    return write


def test_ids_are_the_order_of_the_entries():
    vocabulary = Vocabulary(
        tokens=["[MASK]", "a", "[SEP]", "##a", "[CLS]", "[PAD]", "b", "[UNK]"]
    )

    assert len(vocabulary) == 8
    assert vocabulary.index("##a") == 3
    assert vocabulary.pad_id == 5
    assert vocabulary.unk_id == 7
    assert vocabulary.cls_id == 4
    assert vocabulary.sep_id == 2
    assert vocabulary.mask_id == 0
    with pytest.raises(ValueError, match="no entry 'z'"):
        vocabulary.index("z")


def test_vocabulary_is_a_value():
    vocabulary = Vocabulary(tokens=SPECIAL)

    assert vocabulary == Vocabulary(tokens=list(SPECIAL))
    assert hash(vocabulary) == hash(Vocabulary(tokens=SPECIAL))
    assert vocabulary != Vocabulary(tokens=(*SPECIAL, "a"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        vocabulary.tokens = ()


def test_file_round_trip(write):
    text = "\n".join((*SPECIAL, "é", "##語", "##ing")) + "\n"

    vocabulary = vocabulary_lib.load_vocabulary(write(text))

    assert vocabulary.tokens == (*SPECIAL, "é", "##語", "##ing")
    assert vocabulary.to_text() == text


def test_last_line_needs_no_end(write):
    vocabulary = vocabulary_lib.load_vocabulary(write("\n".join(SPECIAL)))

    assert vocabulary.tokens == SPECIAL


def test_lines_end_at_newlines_only(write):
    # Google's Chinese vocabulary has the line separator as an entry.
    tokens = (*SPECIAL, "\u2028", "a\u0085b", "c", "\x0c", "é" * 128)

    vocabulary = vocabulary_lib.load_vocabulary(write("\n".join(tokens)))

    assert vocabulary.tokens == tokens


def test_lines_that_no_text_uses_keep_their_ids(write, caplog):
    lines = (*SPECIAL, "cat", "", "cat", "\u3000", "##s  ", "", "dog")
    text = "".join(f"{line}\r\n" for line in lines)
    path = write(f"\ufeff{text}")

    vocabulary = vocabulary_lib.load_vocabulary(path)

    assert vocabulary.tokens == (*lines[:9], "##s", *lines[10:])
    assert vocabulary.unused == (5, 6, 8, 10)
    assert vocabulary.index("cat") == 7
    (record,) = caplog.records
    for part in (str(path), "byte order mark", "'line 6', 'line 7', 'line 9'"):
        assert part in record.getMessage()
    # Written again, it is the same but for the ends of lines.
    again = vocabulary_lib.load_vocabulary(write(vocabulary.to_text()))
    assert again == vocabulary
    spec = WordpieceSpec(vocabulary)
    for each in (spec, dataclasses.replace(spec, fast=True)):
        ids = each.make().tokenize(["cats dog x"]).to_list()
        assert ids == [[[7, 9], [11], [1]]]
    entries = spec.tokenizer_json["model"]["vocab"]
    assert entries["cat"] == 7
    assert len(entries) == len(SPECIAL) + 3


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((*SPECIAL, "a", "b\t17"), "line 7: .* holds white space"),
        ((*SPECIAL, "a", "b\0c"), "line 7: .* holds white space or NUL"),
        ((*SPECIAL, "##" + "é" * 129), "line 6: .* at most 256 bytes.*é"),
        (SPECIAL[:2], r"special tokens \[CLS\], \[SEP\], \[MASK\] are missing"),
        ((), "the vocabulary is empty"),
    ],
)
def test_bad_file_is_named_with_the_line(write, lines, message):
    path = write("".join(f"{line}\n" for line in lines))

    with pytest.raises(ValueError, match=message) as error:
        vocabulary_lib.load_vocabulary(path)

    assert str(error.value).startswith(str(path))


def test_file_that_is_not_utf_8_is_named_with_the_line(write):
    path = write("\n".join(SPECIAL).encode() + b"\nol\xe9\n")

    with pytest.raises(ValueError, match="line 6: not UTF-8") as error:
        vocabulary_lib.load_vocabulary(path)

    assert str(path) in str(error.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="no file .*absent.txt"):
        vocabulary_lib.load_vocabulary(tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("token", "is_cased"),
    [
        ("a", False),
        ("##É", True),
        ("[unused7]", False),
        ("[CLS2]", False),
        ("的", False),
        ("İ", True),
    ],
)
def test_capitals_make_a_vocabulary_cased(token, is_cased):
    assert Vocabulary(tokens=(*SPECIAL, token)).is_cased == is_cased


LATIN = tuple(
    f"##{a}{b}{c}"
    for a in "abcdefghij"
    for b in "klmnopqrst"
    for c in "uvwxyzabcd"
)
CHINESE = tuple(chr(0x4E00 + index) for index in range(1200))


@pytest.mark.parametrize(
    ("tokens", "do_lower_case"),
    [
        ((*LATIN, "A"), False),
        ((*LATIN, "A", "##B"), True),
        (LATIN, True),
        (LATIN[:999], False),
        # Published with and without lower-casing.
        ((*CHINESE, *LATIN), True),
        ((*CHINESE, *LATIN), False),
    ],
)
def test_case_that_suits_the_vocabulary_passes(tokens, do_lower_case):
    vocabulary = Vocabulary(tokens=(*SPECIAL, *tokens))

    vocabulary_lib.check_case(vocabulary, do_lower_case)


def test_capitals_in_unused_slots_are_told(caplog):
    tokens = [f"[unused{number}]" for number in range(40)]
    tokens[3:5] = "COVID", "##kDa"
    vocabulary = Vocabulary(tokens=(*SPECIAL, *tokens, *LATIN))

    assert not vocabulary.is_cased
    for _ in range(2):
        vocabulary_lib.check_case(vocabulary, True)

    (record,) = caplog.records
    assert "2 entries" in record.getMessage()
    assert "['COVID', '##kDa']" in record.getMessage()


@pytest.mark.parametrize(
    ("tokens", "do_lower_case", "message"),
    [
        (
            (*LATIN, *map(str.upper, LATIN[:42])),
            True,
            "`do_lower_case` must be False with a cased",
        ),
        (("A",), True, "`do_lower_case` must be False with a cased"),
        (LATIN, False, "`do_lower_case` must be True with an uncased"),
    ],
)
def test_case_that_contradicts_the_vocabulary_is_refused(
    tokens, do_lower_case, message
):
    vocabulary = Vocabulary(tokens=(*SPECIAL, *tokens))

    with pytest.raises(ValueError, match=message):
        vocabulary_lib.check_case(vocabulary, do_lower_case)
