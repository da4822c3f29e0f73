"""Text files to documents of sentences, whole and by parts."""

import bz2
import codecs
import contextlib
import gzip
import hashlib
import json
import lzma
import random

import pytest

from bert_tf.pretraining.sources import text_files
from bert_tf.pretraining.sources.text_files import Part
from bert_tf.pretraining.sources.text_files import Reader
from bert_tf.pretraining.sources.text_files import TextFiles
from bert_tf.text import bad_lines
from bert_tf.text.learners import wordpiece


def write(folder, **contents):
    """Writes files a.txt, b.txt...; returns their paths in this order."""
    paths = []
    for name, data in contents.items():
        path = folder / f"{name}.txt"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        paths.append(str(path))
    return paths


def make_reader(paths, input_format="sentences", max_bad_lines=0, **fields):
    source = TextFiles(paths=tuple(paths), input_format=input_format, **fields)
    return Reader(source, max_bad_lines)


def read(paths, input_format="sentences", parts=None):
    """Returns {(file number, offset): sentences} of all parts."""
    reader = make_reader(paths, input_format)
    found = {}
    for part in parts or TextFiles(paths=tuple(paths)).parts():
        before = len(found)
        for key, sentence in reader.read(part):
            place = divmod(key, 1 << text_files.OFFSET_BITS)
            found.setdefault(place, []).append(sentence.strip())
        assert list(found)[before:] == sorted(list(found)[before:])
    return found


def all_parts(paths, size):
    """Returns parts of so many bytes."""
    return [
        Part(file_number=number, start=start, end=min(start + size, file_size))
        for number, path in enumerate(paths)
        for file_size in [text_files.files.size(path)]
        for start in range(0, file_size, size)
    ]


def test_blank_lines_end_documents_and_files_do_not(tmp_path):
    paths = write(
        tmp_path, a="a b\nab\n\n\nc\nd", b="e f\n\ng\n", c="\nh\n  \t\n"
    )
    # The number of the file, and where the document's first line begins.
    assert read(paths) == {
        (0, 0): ["a b", "ab"],
        (0, 9): ["c", "d", "e f"],
        (1, 5): ["g"],
        (2, 1): ["h"],
    }


def test_windows_line_ends_and_unicode_blanks(tmp_path):
    paths = write(tmp_path, a="a\r\n\r\nb\r\n\u00a0\u3000\nc d")
    assert list(read(paths).values()) == [["a"], ["b"], ["c d"]]


def random_text(input_format, rng):
    """Returns a text of some documents, with blank lines where they may be."""
    lines = []
    for number in range(rng.randint(1, 9)):
        paragraphs = [
            "x" * rng.randint(1, 30) + " é." for _ in range(rng.randint(1, 4))
        ]
        if input_format == "jsonl":
            text = json.dumps({"text": "\n".join(paragraphs)})
            paragraphs = [text] + [""] * rng.randint(0, 1)
        elif input_format == "wikiextractor":
            title = f'Quo"te &amp; {number}'
            start = f'<doc id="{number}" url="u" title="{title}">'
            paragraphs = [start, title, "", *paragraphs, "</doc>"]
            paragraphs += [""] * rng.randint(0, 2)
        else:
            paragraphs += [""] * rng.randint(1, 3)
        lines += paragraphs
    return "\n".join(lines) + rng.choice(["", "\n", "\n\n"])


@pytest.mark.parametrize("input_format", text_files.FORMATS)
def test_line_ends_of_old_macs_are_refused(tmp_path, input_format):
    """The whole file would be one line."""
    paths = write(tmp_path, a="A b.\rC d.\r\rE f.\r")
    with pytest.raises(ValueError, match=r"a.txt: lines must .*: \\r alone"):
        read(paths, input_format)
    # In a line that has an end, it is white space.
    paths = write(tmp_path, a="A\rb.\r\nC\rd.")
    assert read(paths) == {(0, 0): ["A\rb.", "C\rd."]}


@pytest.mark.parametrize("input_format", text_files.FORMATS)
def test_parts_of_any_size_read_the_same_documents(tmp_path, input_format):
    rng = random.Random(3)
    for _ in range(10):
        texts = {name: random_text(input_format, rng) for name in "abc"}
        paths = write(tmp_path, **texts)
        whole = read(paths, input_format)
        assert sum(map(len, whole.values())) > 3
        for size in (1, 7, 23, 100):
            parts = all_parts(paths, size)
            assert read(paths, input_format, parts) == whole


def test_raw_text_is_split_to_sentences_and_files_end_documents(tmp_path):
    paths = write(
        tmp_path,
        a="Mr. Smith came. He saw.\nThen he left.\n\nNext one.",
        b="Another! It is short.",
    )
    assert read(paths, "text") == {
        (0, 0): ["Mr. Smith came.", "He saw.", "Then he left."],
        (0, 39): ["Next one."],
        (1, 0): ["Another!", "It is short."],
    }


def test_jsonl_has_a_document_a_line(tmp_path):
    lines = [
        '{"text": "One. Two.\\n\\nThree \\ud83d", "id": 7}',
        "",
        '{"text": ""}',
    ]
    paths = write(tmp_path, a="\n".join([*lines, '{"text": "Four"}']))
    assert list(read(paths, "jsonl").values()) == [
        ["One.", "Two.", "Three"],
        ["Four"],
    ]


@pytest.mark.parametrize(
    "input_format, text",
    [
        ("sentences", "a b\nc\n\nd\n"),
        ("text", "A b. C.\n\nD.\n"),
        ("jsonl", '{"text": "A b. C."}\n{"text": "D."}\n'),
        (
            "wikiextractor",
            '<doc id="1" title="A">\nA\n\nB.\n</doc>\n'
            '<doc id="2" title="C">\nC\n\nD.\n</doc>\n',
        ),
    ],
)
def test_byte_order_mark_is_no_text(tmp_path, input_format, text):
    """The first article of a WikiExtractor's file was lost by it."""
    marked = codecs.BOM_UTF8 + text.encode()
    path, marked_path, both = write(
        tmp_path, a=text, b=marked, c="\ufeff" + text
    )
    expected = list(read([path], input_format).values())
    assert len(expected) == 2
    assert list(read([marked_path], input_format).values()) == expected
    by_parts = read([both], input_format, all_parts([both], 1))
    assert list(by_parts.values()) == expected


def test_jsonl_of_another_field(tmp_path):
    paths = write(tmp_path, a='{"body": "One. Two.", "text": 3}')
    reader = make_reader(paths, "jsonl", text_field="body")
    assert [s for _, s in reader.read(Part(file_number=0))] == ["One.", "Two."]


@pytest.mark.parametrize(
    "line, message",
    [
        ('{"text": "a"', "not JSON"),
        ('{"body": "a", "id": 3}', r"field 'text'.*\['body', 'id'\]"),
        ('{"text": 3}', "field 'text'"),
        ("[1, 2]", "field 'text'"),
    ],
)
def test_bad_json_names_file_and_line(tmp_path, line, message):
    paths = write(tmp_path, a=f'{{"text": "b"}}\n\n{line}\n')
    with pytest.raises(ValueError, match=rf"a\.txt, line 3: .*{message}"):
        read(paths, "jsonl")


def test_wikiextractor_drops_titles_and_entities(tmp_path):
    text = (
        '<doc id="12" url="https://x?curid=12" title="A &amp; B">\n'
        "A &amp; B\n\nA &amp; B is &lt;x&gt;. It\u2019s so.\nMore text.\n\n"
        '</doc>\nbetween\n<doc id="13" url="" title="C">\nC is C.\n</doc>\n'
    )
    assert list(read(write(tmp_path, a=text), "wikiextractor").values()) == [
        ["A & B is <x>.", "It\u2019s so.", "More text."],
        ["C is C."],
    ]


@pytest.mark.parametrize(
    "suffix, compress",
    [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)],
)
def test_compressed_files(tmp_path, suffix, compress):
    text = "".join(f"line {n} of it\n" + "\n" * (n % 3 == 0) for n in range(99))
    plain = write(tmp_path, a=text)
    path = tmp_path / f"a.txt.{suffix}"
    path.write_bytes(compress(text.encode()))
    assert read([str(path)]) == read(plain)
    assert len(TextFiles(paths=(str(path),)).parts()) == 1
    path.write_bytes(compress(text.encode())[:-20])
    with pytest.raises(ValueError, match=rf"a\.txt\.{suffix}: .*cut short"):
        read([str(path)])
    path.write_bytes(b"this is none of it")
    with pytest.raises(ValueError, match=rf"a\.txt\.{suffix}: .*damaged"):
        read([str(path)])


def test_long_lines_and_documents_are_cut_and_nothing_is_lost(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 20)
    monkeypatch.setattr(text_files, "MAX_DOCUMENT_BYTES", 60)
    words = " ".join(f"w{n}" for n in range(50))
    tight = "\u00e9\u4e2d" * 30
    text = f"{words}\n{tight}\nshort\n\nnext\n"
    paths = write(tmp_path, a=text)
    reader = make_reader(paths)
    found = list(reader.read(Part(file_number=0)))
    together = "".join(sentence for _, sentence in found)
    assert together == text.replace("\n\n", "\n")
    assert all(len(s.encode()) <= 20 for _, s in found)
    assert all(s.endswith((" ", "\n")) for _, s in found[:9])
    keys = [key for key, _ in found]
    assert keys == sorted(keys)
    assert reader.num_cut_documents == len(set(keys)) - 2 > 2
    assert reader.num_cut_lines == len(found) - 4 > 15
    for size in (5, 33):
        places = read(paths, parts=all_parts(paths, size))
        assert list(places) == [divmod(k, 1 << 44) for k in dict.fromkeys(keys)]

        parts = all_parts(paths, size)
        reader_of_parts = make_reader(paths)
        for part in parts:
            for _ in reader_of_parts.read(part):
                pass
        assert reader_of_parts.num_cut_lines == reader.num_cut_lines

    monkeypatch.setattr(text_files, "_MAX_JSON_BYTES", 100)
    paths = write(tmp_path, a='{"text": "a"}\n' + '{"text": "a"}' * 9)
    with pytest.raises(ValueError, match=r"a\.txt, line 2: .* longer than"):
        read(paths, "jsonl")


def test_input_is_described(tmp_path):
    data = b"a\n\nb"
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(data))
    assert text_files.describe(str(path)) == {
        "name": "a.txt.gz",
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }


def test_parts_cover_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "PART_BYTES", 4)
    paths = write(tmp_path, a="123456789", b="1234")
    assert TextFiles(paths=tuple(paths)).parts() == [
        Part(file_number=0, start=0, end=4),
        Part(file_number=0, start=4, end=8),
        Part(file_number=0, start=8, end=9),
        Part(file_number=1, start=0, end=4),
    ]


def test_input_paths_keep_the_order_of_the_globs(tmp_path):
    paths = write(tmp_path, b2="x", b1="x", a="x")
    globs = f"{tmp_path}/b*.txt, {tmp_path}/a.txt,{tmp_path}/b1.txt,"
    # The last one is read twice, as by google-research/bert.
    assert text_files.input_paths(globs) == [
        paths[1],
        paths[0],
        paths[2],
        paths[1],
    ]


@pytest.mark.parametrize("patterns", ["", " ,", "{folder}/none-*.txt"])
def test_input_that_names_no_file(tmp_path, patterns):
    with pytest.raises(ValueError, match="`input_file`"):
        text_files.input_paths(patterns.format(folder=tmp_path))


@pytest.mark.parametrize("size", [100, 3])
def test_not_utf8_names_file_and_line(tmp_path, size):
    paths = write(tmp_path, a="a\n", b=b"a\n\nb\xe9 c\nd\n")
    with pytest.raises(ValueError, match=r"b\.txt, line 3: not UTF-8.*0xe9"):
        read(paths, parts=all_parts(paths, size))


@pytest.mark.parametrize(
    ("empty", "told"),
    [
        ({"b": ""}, "b.txt is empty. Left out."),
        (
            {"b": "", "c": "", "d": ""},
            "b.txt is empty, and 2 more of 4 files. Left out.",
        ),
    ],
)
def test_empty_files_are_left_out_with_one_warning(
    tmp_path, caplog, empty, told
):
    (path, *others) = write(tmp_path, a="a\n", **empty)
    assert text_files.input_paths(f"{tmp_path}/*.txt") == [path]
    assert caplog.messages == [f"{tmp_path}/{told}"]
    with pytest.raises(ValueError, match=r"b\.txt is empty"):
        text_files.input_paths(",".join(others))


@pytest.mark.parametrize("input_format", text_files.FORMATS)
def test_web_archives_are_refused(tmp_path, input_format):
    archive = b"WARC/1.0\r\nWARC-Type: conversion\r\n\r\nText.\r\n"
    packed = tmp_path / "c.warc.wet.gz"
    packed.write_bytes(gzip.compress(archive))
    with pytest.raises(
        bad_lines.BadTextError, match="gz: must hold text.*--input_format=jsonl"
    ):
        read([str(packed)], input_format)
    with pytest.raises(bad_lines.BadTextError, match="web archive"):
        list(wordpiece.read_lines([packed]))


@pytest.mark.parametrize(
    "input_format", ["sentences", "text", "jsonl", "wikiextractor"]
)
def test_parts_inside_a_long_line_read_no_further_than_their_ends(
    tmp_path, monkeypatch, input_format
):
    """Else reading a file of one line takes quadratic time."""
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 10)
    monkeypatch.setattr(text_files, "_MAX_JSON_BYTES", 10)
    paths = write(tmp_path, a="word " * 1000, b="word\n")
    num_read = 0
    open_bytes = text_files.streams.open_bytes

    class Counted:
        def __init__(self, stream):
            self.stream = stream
            self.seek = stream.seek

        def readline(self, limit):
            nonlocal num_read
            line = self.stream.readline(limit)
            num_read += len(line)
            return line

    @contextlib.contextmanager
    def open_counted(path):
        with open_bytes(path) as stream:
            yield Counted(stream)

    monkeypatch.setattr(text_files.streams, "open_bytes", open_counted)
    reader = make_reader(paths, input_format, max_bad_lines=1)
    first, *others = all_parts(paths[:1], 50)
    for part in others:
        assert not list(reader.read(part))
        assert reader.last_file == 0
    assert len(others) == 99
    # The last byte before a part, and up to a piece too much.
    assert num_read <= 99 * 60
    assert reader.num_cut_lines == reader.bad_lines.count == 0
    text = "".join(sentence for _, sentence in reader.read(first))
    num_words = {"sentences": 1001, "text": 1000}.get(input_format, 0)
    assert text.count("word") == num_words


@pytest.mark.parametrize("input_format", text_files.FORMATS)
def test_bad_lines_are_left_out_and_each_is_counted_once(
    tmp_path, input_format
):
    rng = random.Random(5)
    for _ in range(5):
        texts = {
            name: random_text(input_format, rng).encode() for name in "abc"
        }
        whole = list(read(write(tmp_path, **texts), input_format).values())
        num_bad = 0
        for name, text in texts.items():
            lines = text.split(b"\n")
            for _ in range(rng.randint(0, 4)):
                # Not at the end, where it would be a line more.
                place = rng.randrange(len(lines))
                lines.insert(place, rng.choice([b"\xff", b" b\xe9 c"]))
                num_bad += 1
            texts[name] = b"\n".join(lines)
        paths = write(tmp_path, **texts)
        for size in (1, 7, 23, 100):
            reader = make_reader(paths, input_format, max_bad_lines=num_bad)
            found = {}
            for part in all_parts(paths, size):
                for key, sentence in reader.read(part):
                    found.setdefault(key, []).append(sentence.strip())
            assert list(found.values()) == whole
            assert reader.bad_lines.count == num_bad
            assert len(reader.bad_lines.places) == min(3, num_bad)


@pytest.mark.parametrize(
    "input_format, line, reason",
    [
        ("jsonl", "[" * 100_000, "nested too deeply"),
        ("jsonl", '{"text": "a", "b": ' + "[" * 100_000, "nested too deeply"),
        ("jsonl", "[" * 500 + "]" * 500, "field 'text'"),
        ("jsonl", "9" * 9000, "not JSON: Exceeds the limit"),
        ("jsonl", '{"text": "a"', "not JSON"),
        ("jsonl", '{"text": "' + "x" * 300_000 + '"}', "longer than"),
        ("wikiextractor", "&#" + "9" * 9000, "Exceeds the limit"),
    ],
)
def test_lines_not_in_the_format_are_bad(
    tmp_path, monkeypatch, input_format, line, reason
):
    monkeypatch.setattr(text_files, "_MAX_JSON_BYTES", 200_000)
    before, after = (
        ('{"text": "One."}', '{"text": "Two."}')
        if input_format == "jsonl"
        else ('<doc title="a">\nOne.', "Two.\n</doc>")
    )
    paths = write(tmp_path, a=f"{before}\n{line}\n{after}\n")
    number = before.count("\n") + 2
    with pytest.raises(ValueError, match=rf"line {number}: .*{reason}.*=0\.$"):
        read(paths, input_format)

    reader = make_reader(paths, input_format, max_bad_lines=1)
    found = [text for _, text in reader.read(Part(file_number=0))]

    assert found == ["One.", "Two."]
    assert reader.bad_lines.count == 1


def test_a_long_bad_line_is_one(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 20)
    (tmp_path / "a").write_bytes(b"one\n" + b"\xff" * 90 + b"\ntwo\n\xff\n")
    paths = [str(tmp_path / "a")]
    for size in (9, 30, 200):
        reader = make_reader(paths, max_bad_lines=2)
        found = [
            text.strip()
            for part in all_parts(paths, size)
            for _, text in reader.read(part)
        ]
        assert found == ["one", "two"]
        assert [place[:2] for place in reader.bad_lines.places] == [
            [0, 4],
            [0, 99],
        ]


def test_document_is_not_lost_by_its_first_line(tmp_path):
    titles = [b"a\xff", b"&#" + b"9" * 9000, b'title="' * 100_000]
    lines = [
        b'<doc id="1" title="' + title + b'">\nOne.\n</doc>' for title in titles
    ]
    paths = write(tmp_path, a=b"\n".join(lines))
    reader = make_reader(paths, "wikiextractor", max_bad_lines=1)

    found = [text for _, text in reader.read(Part(file_number=0))]

    assert found == ["One."] * 3
    assert reader.bad_lines.count == 1


def test_long_blank_line_ends_the_document_of_its_part(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 4)
    paths = write(tmp_path, a="a\n" + " " * 20 + "\nb\n")
    whole = read(paths)
    assert list(whole.values()) == [["a"], ["b"]]
    for size in (3, 5, 8):
        assert read(paths, parts=all_parts(paths, size)) == whole
