"""Files are read with clear errors and written whole or not at all.

Each case runs on the local disk and on TensorFlow's in-memory file system,
ram://, which like an object store is reached through tf.io.gfile alone.
"""

import bz2
import errno
import gzip
import hashlib
import lzma
import os
import uuid

import pytest
import tensorflow as tf

from bert_tf import atomic
from bert_tf import files
from bert_tf import messages
from bert_tf import streams


@pytest.fixture(params=["local", "remote"])
def folder(request, tmp_path):
    if request.param == "local":
        return str(tmp_path)
    path = f"ram://{uuid.uuid4().hex}"
    tf.io.gfile.makedirs(path)
    return path


def test_text_round_trip(folder):
    atomic.write_text(f"{folder}/a/b.txt", "Ünï\r\ncode\n")
    assert files.read_text(f"{folder}/a/b.txt") == "Ünï\r\ncode\n"
    atomic.write_text(f"{folder}/a/b.txt", "shorter")
    assert files.read_text(f"{folder}/a/b.txt") == "shorter"
    assert files.list_folder(f"{folder}/a") == ["b.txt"]


def test_values_of_a_file_are_checked():
    checks = {"rate": (lambda value: 0 <= value < 1, "a number in [0, 1)")}
    values = {"rate": 0.5, "name": None}
    assert files.checked("c.json", values, checks) == values
    assert files.checked("c.json", {"rate": None}, checks) == {}
    with pytest.raises(ValueError, match=r"c.json: `rate` .*\[0, 1\).*rate=2"):
        files.checked("c.json", {"rate": 2}, checks)


def test_errors_get_their_place():
    with (
        pytest.raises(ValueError, match="^c.json: too small$"),
        messages.errors_named("c.json"),
    ):
        raise ValueError("too small")


def test_globs_are_sorted_and_named_when_empty(folder):
    for name in ("b.txt", "a.txt", "c.tsv"):
        atomic.write_text(f"{folder}/{name}", "x")
    assert files.expand_globs(f"{folder}/*.txt, {folder}/c.*") == [
        f"{folder}/a.txt",
        f"{folder}/b.txt",
        f"{folder}/c.tsv",
    ]
    with pytest.raises(ValueError, match="`train_file` matches no file.*z"):
        files.expand_globs(f"{folder}/*.txt,{folder}/*.z", "train_file")
    with pytest.raises(ValueError, match="at least one file"):
        files.expand_globs(" , ")


def test_a_file_may_have_a_largest_size(folder):
    atomic.write_text(f"{folder}/a.json", "[12]")
    assert files.read_json(f"{folder}/a.json", max_bytes=4) == [12]
    with pytest.raises(ValueError, match=r"a\.json: must hold at most 3 bytes"):
        files.read_json(f"{folder}/a.json", max_bytes=3)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" * 10_000, "x: JSON is nested too deeply"),
        ("9" * 5000, "x: not JSON: .*digits"),
        (r'["\ud83d"]', "x: not JSON: .*surrogates"),
        ("{", "x: not JSON: .*line 1"),
    ],
)
def test_json_that_cannot_be_held_is_told_with_its_place(text, match):
    with pytest.raises(ValueError, match=match):
        files.parse_json(text, "x")


def test_json_may_begin_with_a_byte_order_mark(folder):
    atomic.write_text(f"{folder}/a.json", '\ufeff{"a": "\ufeff"}')
    assert files.read_json(f"{folder}/a.json") == {"a": "\ufeff"}


def test_pairs_of_surrogates_are_characters():
    assert files.parse_json(r'"\ud83d\ude00"', "x") == "😀"


def test_json_is_indented_and_not_escaped():
    assert files.to_json({"a": "ü😀"}) == '{\n  "a": "ü😀"\n}\n'


def test_a_value_is_shown_in_one_short_line():
    assert messages.shortened("a\nb") == r"'a\nb'"
    assert messages.shortened(["a"] * 3) == "['a', 'a', 'a']"
    for value in ("x" * 10**6, [["x" * 99] * 99] * 99, 10**999):
        assert len(messages.shortened(value)) < 250


@pytest.mark.parametrize(
    ("number", "told"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows")]
)
def test_one_is_told_in_the_singular(number, told):
    assert messages.counted(number, "row", "rows") == told


def test_thousands_are_separated_on_demand():
    assert messages.counted(1234, "row", "rows") == "1234 rows"
    assert messages.counted(1234, "row", "rows", separator=",") == "1,234 rows"


def test_bad_utf8_names_the_line(folder):
    atomic.write_bytes(f"{folder}/bad.txt", b"one\ntwo \xff\n")
    with pytest.raises(ValueError, match=r"bad.txt, line 2: not UTF-8.*0xff"):
        files.read_text(f"{folder}/bad.txt")


def test_a_failed_write_leaves_the_old_file(folder):
    path = f"{folder}/a.txt"
    atomic.write_text(path, "old")
    with pytest.raises(RuntimeError), atomic.whole_file(path) as temporary:
        with tf.io.gfile.GFile(temporary, "w") as stream:
            stream.write("half")
        raise RuntimeError
    assert files.read_text(path) == "old"
    assert files.list_folder(folder) == ["a.txt"]


def test_a_full_disk_is_told_with_the_file(tmp_path):
    with (
        pytest.raises(OSError, match=r"space left.*'.*/a.txt'"),
        atomic.whole_stream(tmp_path / "a.txt"),
    ):
        # As a stream of Python's says it.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert files.list_folder(tmp_path) == []


def test_no_file_takes_the_place_of_a_pipe_or_of_what_is_open(tmp_path):
    """With the rights to, /dev/null was replaced, for the whole machine."""
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/proc/self/fd/1", tmp_path / "stdout")
    for path in (tmp_path / "pipe", tmp_path / "stdout", "/proc/self/fd/1"):
        with pytest.raises(ValueError, match=f"{path}: must be a file to"):
            atomic.write_text(path, "new")
    assert sorted(os.listdir(tmp_path)) == ["pipe", "stdout"]
    # Another link is replaced, and what it leads to stays.
    os.symlink(tmp_path / "old", tmp_path / "link")
    atomic.write_text(tmp_path / "link", "new")
    assert files.read_text(tmp_path / "link") == "new"


def test_a_file_that_is_read_is_not_written(tmp_path):
    (tmp_path / "a").write_text("old")
    os.link(tmp_path / "a", tmp_path / "b")
    for path in (tmp_path / "a", tmp_path / "b"):
        with pytest.raises(ValueError, match="`output` is also one of .*/a"):
            atomic.check_is_no_input("output", [path], [tmp_path / "a"])
    atomic.check_is_no_input("output", [tmp_path / "c"], [tmp_path / "a"])


def test_a_failed_folder_leaves_nothing(folder):
    with (
        pytest.raises(RuntimeError),
        atomic.whole_folder(f"{folder}/1") as temporary,
    ):
        atomic.write_text(f"{temporary}/a.txt", "half")
        raise RuntimeError
    assert files.list_folder(folder) == []


def test_a_hash_is_of_the_bytes_as_they_lie_there(folder):
    path = f"{folder}/a.gz"
    atomic.write_bytes(path, b"abc")
    assert streams.sha256(path) == hashlib.sha256(b"abc").hexdigest()


def test_temporary_names_are_known(tmp_path):
    for name in ("config.json", "sentencepiece.bpe.model"):
        with (
            atomic.whole_file(f"{tmp_path}/{name}") as first,
            atomic.whole_file(first) as second,
        ):
            atomic.write_text(second, "x")
            for path in (first, second):
                assert atomic.is_temporary(os.path.basename(path))
        assert not atomic.is_temporary(name)
    with atomic.whole_folder(tmp_path / "best") as temporary:
        temporary = os.path.basename(temporary)
        assert atomic.is_temporary(temporary, folders=("other", "best"))
        # Its end may be a word.
        assert not atomic.is_temporary(temporary)
    for name in (".env.template", ".backup.20261127", ".hidden", "a.01234567"):
        assert not atomic.is_temporary(name, folders=("best",))


def test_a_whole_folder_appears_with_its_subfolders(folder):
    with atomic.whole_folder(f"{folder}/1", last="z") as temporary:
        atomic.write_text(f"{temporary}/z", "last")
        atomic.write_text(f"{temporary}/variables/a", "first")
        assert not files.exists(f"{folder}/1/z")
    assert files.read_text(f"{folder}/1/z") == "last"
    assert files.read_text(f"{folder}/1/variables/a") == "first"
    with (
        pytest.raises(ValueError, match="1 is there already"),
        atomic.whole_folder(f"{folder}/1"),
    ):
        pass


def test_local_copy_has_the_bytes(folder):
    atomic.write_bytes(f"{folder}/w.safetensors", b"\0\1\2")
    with files.local_copy(f"{folder}/w.safetensors") as path:
        assert os.path.basename(path) == "w.safetensors"
        with open(path, "rb") as stream:
            assert stream.read() == b"\0\1\2"
    with (
        pytest.raises(ValueError, match="There is no file"),
        files.local_copy(f"{folder}/absent"),
    ):
        pass


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path, monkeypatch):
    (tmp_path / "out").write_text("x")
    for check in (files.make_folder, files.check_may_be_written_into):
        for path in (tmp_path / "out", tmp_path / "out" / "below"):
            with pytest.raises(ValueError, match="out.* a file is in the way"):
                check(path)
    files.check_may_be_written_into(tmp_path / "new" / "below")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match="below must be a folder to write"):
        files.check_may_be_written_into(tmp_path / "new" / "below")
    assert not (tmp_path / "new").exists()


COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_are_read_and_cut_and_sought_anywhere(folder, suffix):
    data = b"one\ntwo and more\n\nlast"
    path = f"{folder}/a.txt{suffix}"
    atomic.write_bytes(path, COMPRESS[suffix](data))
    with streams.open_bytes(path) as stream:
        assert stream.readline() == b"one\n"
        assert stream.readline(6) == b"two an"
        assert stream.readline(99) == b"d more\n"
        assert stream.read() == b"\nlast"
        assert stream.readline(5) == b""
        assert stream.seek(2) == 2
        assert list(stream) == [b"e\n", b"two and more\n", b"\n", b"last"]
        assert stream.tell() == len(data)


@pytest.mark.parametrize(
    "suffix, compress",
    [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)],
)
def test_damage_of_a_compressed_file_is_told_as_such(folder, suffix, compress):
    whole = compress(os.urandom(20_000))
    middle = len(whole) // 2
    flipped = bytearray(whole)
    flipped[middle] ^= 0xFF
    path = f"{folder}/a.txt{suffix}"
    for data in (b"none of it " * 9, whole[:middle], bytes(flipped)):
        atomic.write_bytes(path, data)
        with (
            streams.open_bytes(path) as stream,
            pytest.raises(streams.DAMAGE_ERRORS),
        ):
            stream.read()
        # To seek is to read up to there.
        with (
            streams.open_bytes(path) as stream,
            pytest.raises(streams.DAMAGE_ERRORS),
        ):
            stream.seek(len(whole))
            stream.read()


def test_a_disk_that_fails_is_no_damage(tmp_path, monkeypatch):
    (tmp_path / "a.bz2").write_bytes(bz2.compress(b"abc"))

    def fail(file, buffer):
        raise OSError(errno.EIO, "Input/output error")

    with streams.open_bytes(tmp_path / "a.bz2") as stream:
        monkeypatch.setattr(bz2.BZ2File, "readinto", fail)
        with pytest.raises(OSError, match="Input/output error") as raised:
            stream.read()
    assert raised.value.errno == errno.EIO


def test_the_end_is_sought_from_there(folder):
    atomic.write_bytes(f"{folder}/a", b"abcdef")
    with streams.open_bytes(f"{folder}/a") as stream:
        assert stream.seek(-2, os.SEEK_END) == 4
        assert stream.read(1) == b"e"
        assert stream.seek(-3, os.SEEK_CUR) == 2
        assert stream.read() == b"cdef"


def make_pipe(path):
    os.mkfifo(path)


def link_device(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_pipe, link_device])
def test_a_bounded_file_is_no_pipe_and_no_device(tmp_path, make):
    path = tmp_path / "a.json"
    make(path)
    match = r"a\.json: must be a file, and no folder, pipe or device"
    with pytest.raises(ValueError, match=match):
        files.read_json(path, max_bytes=9)
    with pytest.raises(ValueError, match=match), files.local_copy(path):
        pass


def test_a_file_that_tells_no_size_has_a_largest_size():
    # Linux makes its text while it is read.
    path = "/proc/self/status"
    assert os.path.getsize(path) == 0
    with pytest.raises(ValueError, match=f"{path}: must hold at most 9 bytes"):
        files.read_bytes(path, max_bytes=9)
    assert files.read_bytes(path).startswith(b"Name:")
