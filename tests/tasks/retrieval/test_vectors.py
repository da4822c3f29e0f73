"""Vectors in files: stopped runs go on, and others' vectors are refused."""

import io
import json
import os
import re

import numpy as np
import pytest

from bert_tf.checkpoints.sentence_folder import SentenceVectors
from bert_tf.tasks.retrieval import search
from bert_tf.tasks.retrieval import vectors
from bert_tf.tasks.retrieval.corpora import Texts
from bert_tf.training import lock
from support.disk import full_disk

TEXTS = Texts(
    ids=tuple(map(str, range(10))), texts=tuple("x" * n for n in range(1, 11))
)


class Counted:
    """Stands for an embedder: the vector of a text is [its length, 1].

    Args:
        stop: After how many texts it is interrupted; None for never.
    """

    vectors = SentenceVectors(pooling="mean", is_normalized=False)
    dimension = 2
    prompt = ""
    precision = "float32"
    max_seq_length = 9
    model_sha256 = "m"

    def __init__(self, stop=None, **others):
        self.seen = []
        self._stop = stop
        vars(self).update(others)

    def batches(self, texts, batch_size):
        for start in range(0, len(texts), batch_size):
            rows = np.arange(start, min(start + batch_size, len(texts)))[::-1]
            if self._stop is not None and len(self.seen) >= self._stop:
                raise KeyboardInterrupt
            self.seen += [texts[row] for row in rows]
            found = np.ones((len(rows), self.dimension))
            found[:, 0] = [len(texts[row]) for row in rows]
            yield rows, found


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    monkeypatch.setattr(vectors, "TEXTS_PER_FILE", 4)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


WANTED = np.array([[n, 1] for n in range(1, 11)], np.float32)


def test_a_stopped_run_goes_on_with_the_file_that_is_missing(tmp_path):
    folder = tmp_path / "vectors"
    with pytest.raises(KeyboardInterrupt):
        vectors.compute(folder, TEXTS, Counted(stop=6), batch_size=3)
    # The second file was begun: nothing of it is there.
    assert names_in(folder) == ["manifest.json", "vectors-00000-of-00003.npy"]
    rest = Counted()
    found = vectors.compute(folder, TEXTS, rest, batch_size=3)
    assert sorted(rest.seen) == list(TEXTS.texts[4:])
    np.testing.assert_array_equal(found[:], WANTED)
    assert found.shape == (10, 2)
    again = Counted()
    vectors.compute(folder, TEXTS, again)
    assert again.seen == []


def test_what_a_killed_run_left_is_removed(tmp_path):
    folder = tmp_path / "vectors"
    folder.mkdir()
    # Killed as it wrote the manifest, the next time a file.
    (folder / ".manifest.json.0123abcd").write_text("{")
    (folder / "lock.json").write_text("{}")
    with pytest.raises(KeyboardInterrupt):
        vectors.compute(folder, TEXTS, Counted(stop=6), batch_size=3)
    (folder / ".vectors-00001-of-00003.npy.0123abcd").write_bytes(b"x")
    (folder / "lock.json").write_text("{}")
    rest = Counted()
    vectors.compute(folder, TEXTS, rest)
    assert sorted(rest.seen) == list(TEXTS.texts[4:])
    assert names_in(folder) == [
        "manifest.json",
        *(f"vectors-{number:05d}-of-00003.npy" for number in range(3)),
    ]


def test_one_process_at_a_time_computes(tmp_path):
    folder = tmp_path / "vectors"
    with lock.hold(folder):
        with pytest.raises(
            ValueError, match=f"vectors: process {os.getpid()} on .* computing"
        ):
            vectors.compute(folder, TEXTS, Counted())
        assert names_in(folder) == ["lock.json"]
    vectors.compute(folder, TEXTS, Counted())
    # What is there is read by any number of them.
    with lock.hold(folder):
        vectors.compute(folder, TEXTS, Counted())


def test_a_file_that_is_written_in_part_is_none(tmp_path):
    """Also where it is only the last bytes that have no room."""
    wanted = io.BytesIO()
    np.save(wanted, WANTED[:4])
    folder = tmp_path / "vectors"
    texts = Texts(ids=tuple("ab"), texts=("a", "b"))
    wide = Counted(dimension=1000)
    # More than the manifest has.
    with (
        full_disk(8100),
        pytest.raises(OSError, match="vectors-00000-of-00001.npy"),
    ):
        vectors.compute(folder, texts, wide)
    assert names_in(folder) == ["manifest.json"]
    # The bytes are NumPy's.
    vectors.compute(tmp_path / "a", TEXTS, Counted())
    path = tmp_path / "a" / "vectors-00000-of-00003.npy"
    assert path.read_bytes() == wanted.getvalue()


def test_slices_are_those_of_an_array(tmp_path):
    found = vectors.compute(f"{tmp_path}/a/", TEXTS, Counted())
    for start in range(11):
        for stop in (start, start + 1, start + 5, 99):
            np.testing.assert_array_equal(found[start:stop], WANTED[start:stop])
    scores, indices = search.top_k(WANTED[:2], found, 3, "dot")
    assert indices.tolist() == [[9, 8, 7]] * 2
    np.testing.assert_array_equal(scores[0], [11, 10, 9])


@pytest.mark.parametrize(
    "others, message",
    [
        ({"dimension": 3}, "`dimension` must be 3. Received: 2."),
        ({"model_sha256": "n"}, "`model_sha256` must be 'n'. Received: 'm'."),
        ({"prompt": "q: "}, "`prompt` must be 'q: '. Received: ''."),
        (
            {"vectors": SentenceVectors(pooling="cls", is_normalized=False)},
            "`pooling` must be 'cls'. Received: 'mean'.",
        ),
    ],
)
def test_vectors_of_another_model_are_refused(tmp_path, others, message):
    vectors.compute(tmp_path / "a", TEXTS, Counted())
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        vectors.compute(tmp_path / "a", TEXTS, Counted(**others))
    assert "a/manifest.json: the vectors are of another model" in str(
        raised.value
    )


def test_vectors_of_other_texts_are_refused(tmp_path):
    vectors.compute(tmp_path, TEXTS, Counted())
    for rows, name in ((range(9), "num_texts"), (range(9, -1, -1), "sha256")):
        with pytest.raises(ValueError, match=name):
            vectors.compute(tmp_path, TEXTS.take(rows), Counted())


def test_other_sizes_of_files_are_read(tmp_path, monkeypatch):
    vectors.compute(tmp_path, TEXTS, Counted())
    monkeypatch.setattr(vectors, "TEXTS_PER_FILE", 7)
    found = vectors.compute(tmp_path, TEXTS, Counted(stop=0))
    np.testing.assert_array_equal(found[3:9], WANTED[3:9])


def test_damaged_folders_are_named(tmp_path):
    found = vectors.compute(tmp_path, TEXTS, Counted())
    path = tmp_path / "vectors-00001-of-00003.npy"
    np.save(path, np.zeros((4, 3), "float32"))
    with pytest.raises(ValueError, match=r"00001-of.*float32 \(4, 2\)"):
        found[:]
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="00001-of-00003.npy: damaged"):
        vectors.Vectors(str(tmp_path), found.manifest)[:]
    (tmp_path / "manifest.json").write_text(json.dumps({"dimension": 2}))
    with pytest.raises(ValueError, match="must be a manifest of vectors"):
        vectors.compute(tmp_path, TEXTS, Counted())
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ValueError, match="without manifest.json"):
        vectors.compute(tmp_path, TEXTS, Counted())
