"""Work folders: whose they are, and what is left of them."""

import logging
import os

import pytest

from bert_tf import files
from bert_tf.pretraining import work_folder
from bert_tf.pretraining.sources.text_files import Part
from bert_tf.text.bad_lines import BadTextError

WORK = {"version": 3, "output_paths": ["x"], "inputs": [], "seed": 1}


def local(tmp_path, work=WORK, parts=()):
    return work_folder.local(str(tmp_path / "work"), work, parts)


def test_removes_what_it_made_and_no_more(tmp_path):
    with local(tmp_path) as folder:
        (tmp_path / "work" / "part-000000.json").write_text("{}")
        assert folder == str(tmp_path / "work")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}', None])
def test_folder_of_others_stays(tmp_path, text):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "letter").write_text("mine")
    if text:
        (tmp_path / "work" / "work.json").write_text(text)
    with (
        # Nothing is said of running again.
        pytest.raises(ValueError, match="`work_dir` must be empty.*work'\\.$"),
        local(tmp_path),
    ):
        pass
    assert (tmp_path / "work" / "letter").read_text() == "mine"
    assert (tmp_path / "work" / "work.json").exists() == bool(text)


def test_folder_of_a_run_killed_at_its_start_is_taken(tmp_path):
    (tmp_path / "work").mkdir()
    for name in ("lock", "lock.json", ".work.json.0a1b2c3d"):
        (tmp_path / "work" / name).write_text("{")
    with local(tmp_path) as folder:
        assert "work.json" in os.listdir(folder)
    assert not list(tmp_path.iterdir())


def test_nothing_is_done_in_a_folder_that_could_not_be_made(
    tmp_path, monkeypatch
):
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(files, "make_folder", refuse)
    # Nothing is said of going on.
    with pytest.raises(OSError, match="denied: '.*work'$"), local(tmp_path):
        pass


def test_one_process_works_in_it(tmp_path):
    with local(tmp_path) as folder:
        with (
            pytest.raises(OSError, match="Another process is working in"),
            local(tmp_path),
        ):
            pass
        assert os.path.exists(os.path.join(folder, "work.json"))


def test_next_ones_folder_is_not_removed(tmp_path, monkeypatch):
    """The lock is held as long as there is something to remove."""
    removed = []
    remove = files.remove

    def remove_slowly(path):
        with pytest.raises(OSError, match="Another process"), local(tmp_path):
            pass
        removed.append(os.path.basename(path))
        remove(path)

    monkeypatch.setattr(files, "remove", remove_slowly)
    with local(tmp_path):
        (tmp_path / "work" / "a").write_text("a")
    # Last what tells whose work it was: a killed removal is no obstacle.
    assert removed == ["a", "work.json"]


@pytest.mark.parametrize(
    "error, is_done, left",
    [
        (BadTextError("bad"), True, True),
        (BadTextError("bad"), False, False),
        (ValueError("no sentence"), True, False),
        (OSError("full"), True, True),
        (KeyboardInterrupt(), True, True),
    ],
)
def test_what_is_left_of_a_run_that_failed(tmp_path, error, is_done, left):
    with pytest.raises(type(error)), local(tmp_path):
        if is_done:
            (tmp_path / "work" / "part-000000.json").write_text("{}")
        raise error
    path = tmp_path / "work" / "part-000000.json"
    assert path.exists() == left == bool(list(tmp_path.iterdir()))
    with local(tmp_path):
        assert path.exists() == left


def test_temporary_files_of_a_killed_run_are_removed(tmp_path):
    names = [str(tmp_path / name) for name in "ab"]
    with pytest.raises(KeyboardInterrupt), local(tmp_path) as folder:
        work_folder.note_temporaries(folder, names)
        (tmp_path / "a").write_text("half")
        raise KeyboardInterrupt
    with local(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["work"]


def input_of(name):
    return {"name": name, "bytes": 1, "sha256": name}


PART = '{"file_number": 1, "start": 0, "end": 1, "last_file": %s}'


@pytest.mark.parametrize(
    "changes, last_file, is_kept",
    [
        ({}, 1, True),
        # The first file, before it; the second, which it is of; the third.
        ({"inputs": "zbc"}, 1, True),
        ({"inputs": "azc"}, 1, False),
        ({"inputs": "abz"}, 1, True),
        ({"inputs": "abz"}, 2, False),
        # It was open at the end of all files; it was not.
        ({"inputs": "abcd"}, 3, False),
        ({"inputs": "abcd"}, 2, True),
        ({"inputs": "abz", "seed": 2}, 1, False),
        ({"inputs": "abz"}, "null", False),
    ],
)
def test_parts_of_files_that_are_the_same_are_kept(
    tmp_path, changes, last_file, is_kept
):
    def work_of(inputs="abc", **others):
        return WORK | {"inputs": [input_of(name) for name in inputs]} | others

    parts = [Part(file_number=n, start=0, end=1) for n in range(3)]
    folder = tmp_path / "work"
    with pytest.raises(KeyboardInterrupt), local(tmp_path, work_of(), parts):
        (folder / "part-000001.origin").write_text(PART % last_file)
        (folder / "part-000001.json").write_text("{}")
        (folder / "block-000000.json").write_text("{}")
        raise KeyboardInterrupt
    with local(tmp_path, work_of(**changes), parts):
        assert (folder / "part-000001.json").exists() == is_kept
        assert (folder / "block-000000.json").exists() == (not changes)


def test_shared_folder_is_its_own(tmp_path):
    (tmp_path / "letter").write_text("mine")
    with (
        work_folder.shared(str(tmp_path), "/data/x", lambda: True) as one,
        work_folder.shared(str(tmp_path), "/data/x", lambda: True) as other,
    ):
        assert len({one, other, str(tmp_path)}) == 3
        for folder in (one, other):
            assert os.path.dirname(folder) == str(tmp_path)
            with open(os.path.join(folder, "segment"), "w") as stream:
                stream.write("a")
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]
    with work_folder.shared(None, f"{tmp_path}/x", lambda: True) as folder:
        assert os.path.dirname(folder) == str(tmp_path)


def test_shared_folder_of_a_running_job_stays(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with (
        pytest.raises(KeyboardInterrupt),
        work_folder.shared(str(tmp_path), "x", lambda: False) as folder,
    ):
        raise KeyboardInterrupt
    assert os.path.isdir(folder)
    assert folder in caplog.text
