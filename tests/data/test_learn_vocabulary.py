import collections
import json
import lzma
import random
import re

import pytest

from bert_tf.text.learners import byte_bpe
from bert_tf.text.learners import unigram
from bert_tf.text.learners import wordpiece
from bert_tf.text.tokenizers import files as tokenizer_files
from bert_tf.text.vocabulary import load_vocabulary
from references import text as reference_text

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Sennrich et al. 2016, figure 1.
WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
TEXT = """\
The lowest of the low is lower than the newest and widest.

Lower, lower!  A Café is newer; the cafés are the newest: 20 of them.
The widest, lowest café of the 20.
"""


def random_words(seed, count):
    generator = random.Random(seed)
    words = collections.Counter()
    for _ in range(count):
        word = "".join(generator.choices("aabbcd", k=generator.randint(1, 8)))
        words[word] += generator.randint(1, 9)
    return words


def test_pieces_of_a_known_example():
    vocabulary = wordpiece.learn_vocabulary(WORDS, 100)

    assert vocabulary.tokens[:5] == SPECIAL
    # The commonest characters first. No word has an "l" but at its beginning.
    assert vocabulary.tokens[5:9] == ("e", "##e", "w", "##w")
    assert "l" in vocabulary.tokens
    assert "##l" not in vocabulary.tokens
    # 9 times "##e ##s" and "##s ##t": of equals the first in code point order
    # is merged. Then 9 times "##es ##t", then 7 times "##o ##w" and "l ##o".
    learned = [t for t in vocabulary.tokens[5:] if len(t.strip("#")) > 1]
    assert learned[:4] == ["##es", "##est", "##ow", "low"]
    assert {"lower", "newest", "widest"} <= set(learned)


def test_no_piece_is_too_long_to_be_looked_up():
    # Thai and others are written without blanks, three bytes a letter.
    vocabulary = wordpiece.learn_vocabulary({"กขคง" * 50: 9}, 100)

    longest = max(len(token.encode()) for token in vocabulary.tokens)
    assert 128 < longest <= 256


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pieces_equal_those_of_counting_anew(seed):
    words = random_words(seed, 60)

    vocabulary = wordpiece.learn_vocabulary(words, 10_000)

    learned = [t for t in vocabulary.tokens[5:] if len(t.strip("#")) > 1]
    assert learned == reference_text.learn_pieces(words, 10_000)


def test_most_used_of_the_surplus_stay():
    words = random_words(4, 300)
    num_characters = 2 * 4
    size = 5 + num_characters + 20

    vocabulary = wordpiece.learn_vocabulary(words, size)

    assert len(vocabulary) == size
    learned = reference_text.learn_pieces(words, 25)
    characters = [*"abcd", *(f"##{letter}" for letter in "abcd")]
    used = collections.Counter()
    for word, count in words.items():
        for piece in reference_text.wordpiece(word, {*characters, *learned}):
            used[piece] += count
    learned.sort(key=lambda piece: -used[piece])
    assert list(vocabulary.tokens[-20:]) == learned[:20]


def test_order_of_the_counts_changes_nothing():
    words = list(random_words(5, 80).items())
    one = wordpiece.learn_vocabulary(dict(words), 60)
    random.Random(6).shuffle(words)

    other = wordpiece.learn_vocabulary(dict(words), 60)

    assert one == other


def test_any_word_of_the_characters_has_pieces():
    vocabulary = wordpiece.learn_vocabulary(
        {"abc": 3, "ca": 2, "中": 1, ".": 9}, 50
    )

    entries = set(vocabulary.tokens)
    assert {"##a", "##b", "##c"} <= entries
    # What always stands alone never continues a word.
    assert not {"##中", "##."} & entries
    assert reference_text.wordpiece("bacab", entries) != ["[UNK]"]


def test_rare_characters_give_way():
    # "é" is in less than a millionth of the text, and there is no room.
    words = {"ab": 2_000_000, "ba": 1_000_000, "aé": 1}

    vocabulary = wordpiece.learn_vocabulary(words, 12)
    assert "é" not in vocabulary.tokens
    assert {"ab", "ba"} <= set(vocabulary.tokens)
    assert "é" in wordpiece.learn_vocabulary(words, 200).tokens


@pytest.mark.parametrize("vocab_size", [-1, 5, 16])
def test_vocabulary_without_room_for_the_characters_is_refused(vocab_size):
    words = {"abc": 3, "cab": 2, "def": 2, "x": 1}  # 6 + 5 characters' pieces.

    with pytest.raises(ValueError) as error:
        wordpiece.learn_vocabulary(words, vocab_size)

    assert "`vocab_size` must be at least 17" in str(error.value)
    assert f"vocab_size={vocab_size}" in str(error.value)
    wordpiece.learn_vocabulary(words, 17)


def test_measure_counts_pieces_and_unknown_words():
    vocabulary = wordpiece.learn_vocabulary({"ab": 9, "ba": 1}, 10)
    assert vocabulary.tokens[5:] == ("a", "##a", "b", "##b", "ab")

    measured = wordpiece.measure(
        vocabulary, {"ab": 3, "abba": 2, "xa": 4, "a": 1}
    )

    # ab; ab ##b ##a; [UNK]; a
    assert measured == ((3 * 1 + 2 * 3 + 4 * 1 + 1 * 1) / 10, 4 / 10)


@pytest.mark.parametrize("block_bytes", [7, 2**20])
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_words_are_counted_as_the_tokenizer_splits(
    tmp_path, monkeypatch, block_bytes, do_lower_case
):
    monkeypatch.setattr(wordpiece, "_BLOCK_BYTES", block_bytes)
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text(TEXT, "utf-8")
    two.write_text(f"{'y' * 200} {'z' * 201} the end", "utf-8")
    done = []

    counts = wordpiece.count_words([one, two], do_lower_case, done.append)

    want = collections.Counter(reference_text.split_words(TEXT, do_lower_case))
    want.update(["y" * 200, "the", "end"])
    assert counts == want
    assert done == sorted(done)
    assert done[-1] == one.stat().st_size + two.stat().st_size


def test_rare_words_are_forgotten_where_there_are_too_many(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(wordpiece, "_BLOCK_BYTES", 16)
    monkeypatch.setattr(wordpiece, "_MAX_COUNTED_WORDS", 20)
    path = tmp_path / "text.txt"
    path.write_text("".join(f"a b a w{i}\n" for i in range(200)), "utf-8")

    counts = wordpiece.count_words([path], True)

    assert counts["a"] == 400
    assert counts["b"] == 200
    assert len(counts) <= 20


@pytest.mark.parametrize("block_bytes", [8, 2**20])
def test_line_that_is_not_utf_8_is_named(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(wordpiece, "_BLOCK_BYTES", block_bytes)
    path = tmp_path / "text.txt"
    path.write_bytes("one\ntwé\n\nfour fo".encode() + b"\xe9 or\nfive\n")

    with pytest.raises(ValueError, match="line 4: not UTF-8 .*0xe9") as error:
        wordpiece.count_words([path], True)

    assert str(path) in str(error.value)


def test_bad_lines_are_left_out_and_told(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(wordpiece, "_BLOCK_BYTES", 8)
    path = tmp_path / "text.txt"
    path.write_bytes(b"a\xff b\na c\n" + b"\xe9\n" * 4 + b"\xc3\xa9\n")

    with pytest.raises(ValueError, match=r"line 6: .*max_bad_lines=4"):
        wordpiece.count_words([path], True, max_bad_lines=4)
    assert not caplog.records
    counts = wordpiece.count_words([path], True, max_bad_lines=5)

    assert counts == {"a": 1, "c": 1, "e": 1}
    (record,) = caplog.records
    assert re.search(
        r"^5 lines .*text\.txt, line 1: not UTF-8 \(byte 0xff\); .*line 3.*line"
        r" 4: [^;]*\)\. Left out",
        record.getMessage(),
    )


def test_byte_order_mark_is_no_text(tmp_path):
    """Byte-level BPE would learn it."""
    path = tmp_path / "text.txt"
    path.write_text("one\ntwo\n", encoding="utf-8-sig")
    batches = wordpiece.read_lines([path, path])
    lines = [line for batch in batches for line in batch if line]
    assert lines == [b"one", b"two"] * 2


@pytest.mark.parametrize("text", ["中é" * 4000, "x" * 9000, "the end\t" * 900])
def test_text_without_lines_is_read_in_blocks(tmp_path, monkeypatch, text):
    monkeypatch.setattr(wordpiece, "_BLOCK_BYTES", 1001)
    path = tmp_path / "text.txt"
    path.write_text(f"{text}\n{text}", "utf-8")

    blocks = [block for _, block in wordpiece._read_blocks(path)]

    assert b"".join(blocks) == path.read_bytes()
    assert max(map(len, blocks)) <= 2 * 1001
    for block in blocks:
        block.decode("utf-8")
    if text[0] != "x":
        want = collections.Counter(reference_text.split_words(text * 2, True))
        assert wordpiece.count_words([path], True) == want


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "There is no word in"),
        (" \n\n\t\x07\n", "There is no word in"),
        ("x" * 201, "There is no word of at most 200 characters in .*text"),
    ],
)
def test_text_without_words_is_refused(tmp_path, content, message):
    path = tmp_path / "text.txt"
    path.write_text(content, "utf-8")

    with pytest.raises(ValueError, match=message) as error:
        wordpiece.count_words([path], True)

    assert str(path) in str(error.value)


def test_program(run_program, tmp_path):
    # As the builder reads them: of an object, the text alone.
    line = json.dumps({"title": "Untold", "body": TEXT})
    (tmp_path / "a1.jsonl").write_text(f"{line}\n" * 3, "utf-8")
    (tmp_path / "a2.jsonl").write_text(f"{line}\nno JSON\n", "utf-8")
    out = tmp_path / "made" / "vocab.txt"

    process = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--input_file={tmp_path}/a*.jsonl",
        "--input_format=jsonl",
        "--text_field=body",
        "--max_bad_lines=1",
        f"--output_file={out}",
        "--vocab_size=70",
    )

    vocabulary = load_vocabulary(out)
    counts = collections.Counter(reference_text.split_words(TEXT * 4, True))
    assert vocabulary == wordpiece.learn_vocabulary(counts, 70)
    assert {"the", "lower", "cafe"} <= set(vocabulary.tokens)
    table = dict(
        line.rsplit(maxsplit=1)
        for line in process.stdout.splitlines()
        if not line.endswith(".")
    )
    pieces_a_word, _ = wordpiece.measure(vocabulary, counts)
    assert {name.strip(): value for name, value in table.items()} == {
        "entries": "70",
        "words": str(sum(counts.values())),
        "different words": str(len(counts)),
        "pieces a word": f"{pieces_a_word:.3f}",
        "unknown words": "0.000%",
        "seconds": table[next(name for name in table if "seconds" in name)],
    }
    assert [path.name for path in out.parent.iterdir()] == ["vocab.txt"]
    assert re.search(
        r"1 line cannot .*a2\.jsonl, line 2: not JSON.*Left out", process.stderr
    )


def test_program_leaves_the_old_file_when_it_refuses(run_program, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT, "utf-8")
    out = tmp_path / "vocab.txt"
    out.write_text("old")

    process = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--input_file={text}",
        f"--output_file={out}",
        "--vocab_size=9",
        "--nodo_lower_case",
        check=False,
    )

    assert process.returncode == 1
    assert "`vocab_size` must be at least" in process.stderr
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "text.txt",
        "vocab.txt",
    ]


def test_program_refuses_a_field_of_text_without_fields(run_program, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, "utf-8")
    process = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--input_file={tmp_path}/text.txt",
        "--text_field=body",
        f"--output_file={tmp_path}/vocab.txt",
        check=False,
    )
    assert process.returncode == 1
    assert "--text_field must come with --input_format=jsonl" in process.stderr
    assert not (tmp_path / "vocab.txt").exists()


def test_program_does_not_overwrite_its_input(run_program, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TEXT, "utf-8")

    process = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--input_file={tmp_path}/*.txt",
        f"--output_file={tmp_path}/./text.txt",
        check=False,
    )

    assert process.returncode == 1
    assert "also one of the input files" in process.stderr
    assert text.read_text("utf-8") == TEXT


@pytest.mark.parametrize("model", ["wordpiece", "byte_bpe"])
def test_program_asks_for_its_output_before_it_learns(
    run_program, tmp_path, model
):
    text, file = tmp_path / "text.txt", tmp_path / "file"
    text.write_text(TEXT, "utf-8")
    file.write_text("")
    done = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--model={model}",
        f"--input_file={text}",
        f"--output_file={file / 'vocab'}",
        check=False,
    )
    assert done.returncode == 1
    assert "but a file is in the way" in done.stderr
    assert "read text" not in done.stderr


def test_compressed_text_is_read(tmp_path):
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.xz"
    plain.write_text(TEXT)
    packed.write_bytes(lzma.compress(TEXT.encode()))
    assert wordpiece.count_words([str(packed)], True) == wordpiece.count_words(
        [str(plain)], True
    )
    packed.write_bytes(lzma.compress(TEXT.encode())[:-9])
    with pytest.raises(ValueError, match=r"a\.txt\.xz: .*damaged or cut"):
        wordpiece.count_words([str(packed)], True)


def test_byte_bpe_of_a_known_example():
    words = [word for word, count in WORDS.items() for _ in range(count)]
    # Each is a document.
    texts = [line for word in words for line in (word, "\n")]
    spec = byte_bpe.learn([texts[:4], texts[4:]], 267, ["x"])

    tokens = spec.vocabulary.tokens
    assert tokens[:4] == ("<s>", "<pad>", "</s>", "<unk>")
    assert tokens[-1] == "<mask>"
    # 9 times "e s" and "es t", 7 times "l o" and "lo w", 6 times "e w".
    assert tokens[-7:-1] == ("es", "est", "lo", "low", "ew", "new")
    assert spec.merges[:2] == (("e", "s"), ("es", "t"))
    lines = [f" {text}\r".encode() for text in texts]
    assert byte_bpe.learn([lines, [b" "]], 267, ["x"]) == spec


def test_byte_bpe_of_lines_is_that_of_their_paragraph():
    lines = ["low newer", "low\n", "newer low"]
    paragraph = byte_bpe.learn([["low newer low newer low"]], 275, ["x"])
    assert "Ġlow" in paragraph.vocabulary.tokens
    assert byte_bpe.learn([lines[:1], lines[1:]], 275, ["x"]) == paragraph


@pytest.mark.parametrize(
    ("texts", "vocab_size", "match"),
    [
        (["the the"], 261, "`vocab_size` must be at least 262.*vocab_size=261"),
        ([" ", "a"], 300, "words in x must have a pair of bytes"),
    ],
)
def test_byte_bpe_that_cannot_be_learned(texts, vocab_size, match):
    with pytest.raises(ValueError, match=match):
        byte_bpe.learn([texts], vocab_size, ["x"])


@pytest.mark.parametrize(
    "model, names",
    [
        ("byte_bpe", ["merges.txt", "vocab.json"]),
        ("unigram", ["spiece.model"]),
    ],
)
def test_program_learns_a_folder(run_program, tmp_path, model, names):
    text = tmp_path / "a.txt"
    text.write_bytes(TEXT.encode() * 3 + b"\xff\n")
    out = tmp_path / "made/tokenizer"
    command = (
        "bert_tf.data.learn_vocabulary",
        f"--model={model}",
        f"--input_file={text}",
        "--max_bad_lines=1",
        f"--output_file={out}/",
        "--vocab_size=300",
    )

    process = run_program(*command)

    assert re.search(r"a\.txt, line \d+: not UTF-8.*Left out", process.stderr)
    assert "InitializeLog" not in process.stderr
    spec = tokenizer_files.from_vocabulary_file(str(out), None)
    lines = (TEXT * 3).splitlines()
    if model == "byte_bpe":
        assert spec == byte_bpe.learn([lines], 300, ["x"])
        assert re.search(r"merges +39\n", process.stdout)
    else:
        assert spec == unigram.learn([lines], 300, True, ["x"])
    entries = re.search(r"entries +(\d+)\n", process.stdout)
    assert int(entries[1]) == len(spec.vocabulary)
    settings = ["tokenizer.json", "tokenizer_config.json"]
    found = sorted(path.name for path in out.iterdir())
    assert found == sorted([*names, *settings])

    # What is there stays, and is told before anything is read.
    (out / names[0]).write_text("mine")
    process = run_program(*command, check=False)
    assert f"an empty folder with --model={model}" in process.stderr
    assert "read text" not in process.stderr
    assert (out / names[0]).read_text() == "mine"
    process = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--model={model}",
        f"--input_file={text}",
        f"--output_file={text}",
        check=False,
    )
    assert "a.txt, a file" in process.stderr


@pytest.mark.parametrize(
    ("model", "size", "reason"),
    [
        ("wordpiece", "30,522", ": no other pair of pieces occurs twice"),
        ("byte_bpe", "50,265", ": no other pair of pieces occurs twice"),
        ("unigram", "30,000", ""),
    ],
)
def test_program_learns_the_published_size(
    run_program, tmp_path, model, size, reason
):
    text = tmp_path / "a.txt"
    text.write_text(TEXT * 3, "utf-8")
    process = run_program(
        "bert_tf.data.learn_vocabulary",
        f"--model={model}",
        f"--input_file={text}",
        f"--output_file={tmp_path}/learned",
    )
    assert process.stdout.splitlines()[-1] == (
        f"The text is too short for {size} entries{reason}."
    )
