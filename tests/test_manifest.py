"""The manifest beside the records: written, read, found."""

import dataclasses
import json
import pathlib
import threading

import pytest

from bert_tf import files
from bert_tf import manifest as manifests


def make_manifest(**records):
    return manifests.Manifest(
        max_seq_length=13,
        max_predictions_per_seq=3,
        vocab_size=50,
        vocab_sha256=manifests.text_sha256("[PAD]\n"),
        do_lower_case=True,
        settings={"random_seed": 5},
        inputs=[{"name": "a.txt", "bytes": 3, "sha256": "0"}],
        counts={"examples": 7},
        records={
            name: {"examples": 7, "bytes": size}
            for name, size in records.items()
        },
    )


def test_lies_beside_the_first_record_file():
    assert (
        manifests.path_beside(["/x/b.tfrecord", "/x/a.tfrecord"])
        == "/x/manifest-b.tfrecord.json"
    )
    assert manifests.path_beside(["b"]) == "manifest-b.json"
    assert manifests.path_beside(["gs://x/b"]) == "gs://x/manifest-b.json"


def test_written_and_read_back(tmp_path):
    path = str(tmp_path / "manifest-a.json")
    manifest = make_manifest(a=3)
    manifests.write(manifest, path)
    assert manifests.read(path) == manifest


def test_sha256_of_a_text():
    # `printf '[PAD]\n' | sha256sum`
    assert manifests.text_sha256("[PAD]\n") == (
        "cd66c3d348c719ac791d8a6bd5c74cce2e1966c7b4a1fe00c1ef4c30b8d30ce7"
    )


def test_found_for_each_record_file_that_has_one(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"123")
    (tmp_path / "manifest-of-mine.txt").write_text("")
    first, second = make_manifest(a=3), make_manifest(b=3, d=9)
    manifests.write(first, str(tmp_path / "manifest-a.json"))
    manifests.write(second, str(tmp_path / "manifest-b.json"))
    a, b, c = (str(tmp_path / name) for name in "abc")
    assert manifests.find([a, b, c]) == {a: first, b: second}
    monkeypatch.chdir(tmp_path)
    assert manifests.find(["b", "c"]) == {"b": second}


def test_files_are_not_asked_for_one_by_one(tmp_path, monkeypatch):
    paths = write_set(tmp_path, {f"x-{i}-of-4": 7 for i in range(4)})
    (tmp_path / "x-of-another").write_bytes(b"123")
    pathlib.Path(paths[3]).unlink()
    together = threading.Barrier(3, timeout=20)

    def size(path):
        assert path in paths
        together.wait()
        return 3

    def exists(path):
        assert "manifest" in path
        return True

    monkeypatch.setattr(files, "size", size)
    monkeypatch.setattr(files, "exists", exists)
    with pytest.raises(ValueError, match="x-3-of-4 is missing"):
        manifests.find_records(f"{tmp_path}/x-*", "input_file")


def test_a_wide_glob_finds_records_alone(tmp_path):
    for name in ("wiki.tfrecord-00000-of-00001", "b"):
        (tmp_path / name).write_bytes(b"")
        manifests.write(make_manifest(), tmp_path / f"manifest-{name}.json")
    found = manifests.find_records(f"{tmp_path}/*", "input_file")
    assert found.paths == [
        f"{tmp_path}/b",
        f"{tmp_path}/wiki.tfrecord-00000-of-00001",
    ]
    with pytest.raises(ValueError, match="eval_file.*manifests only"):
        manifests.find_records(f"{tmp_path}/manifest*", "eval_file")


def write_set(folder, sizes, **counts):
    """Writes a set's record files, and its manifest; returns their paths."""
    folder.mkdir(exist_ok=True)
    manifest = make_manifest(**dict.fromkeys(sizes, 3))
    for name, examples in sizes.items():
        (folder / name).write_bytes(b"123")
        manifest.records[name]["examples"] = examples
    paths = [str(folder / name) for name in sizes]
    manifest = dataclasses.replace(manifest, counts=counts)
    manifests.write(manifest, manifests.path_beside(paths))
    return paths


def test_a_missing_file_of_a_set_is_named(tmp_path):
    paths = write_set(tmp_path, {f"x-{i}-of-4": 7 for i in range(4)})
    whole = f"{tmp_path}/x-*"
    assert manifests.find_records(whole, "input_file").paths == paths
    for path in paths[1:3]:
        pathlib.Path(path).unlink()
    message = "x-1-of-4 is missing, .*: 2 of the 4 files of the set that match"
    with pytest.raises(ValueError, match=f"{message} eval_file='.*x-"):
        manifests.find_records(whole, "eval_file")
    # Who names files, or a narrower glob, wants no others.
    for patterns in (f"{paths[0]},{paths[3]}", f"{tmp_path}/x-[03]-*"):
        found = manifests.find_records(patterns, "input_file")
        assert found.paths == [paths[0], paths[3]]
    # Nor does a glob for another set of the folder.
    write_set(tmp_path, {"y-0": 7})
    patterns = f"{paths[0]},{tmp_path}/y-*"
    found = manifests.find_records(patterns, "input_file")
    assert len(found.paths) == 2


def test_a_missing_file_without_records_is_no_loss(tmp_path):
    paths = write_set(tmp_path, {"x-0": 7, "x-1": 0})
    pathlib.Path(paths[1]).unlink()
    found = manifests.find_records(f"{tmp_path}/x-*", "input_file")
    assert found.paths == paths[:1]


def test_a_part_of_a_set_is_told(tmp_path, caplog):
    caplog.set_level("INFO")
    sizes = {"x-0": 1200, "x-1": 1100}
    paths = [
        *write_set(tmp_path / "a", sizes, records=4600),
        *write_set(tmp_path / "b", sizes, records=4600),
    ]
    manifests.find_records(f"{tmp_path}/*/x-*", "input_file")
    assert not caplog.records
    manifests.find_records(f"{paths[0]},{paths[0]},{paths[3]}", "input_file")
    assert caplog.messages == [
        "--input_file has 2,300 of the 4,600 records of a set, in 2 files."
    ]


def test_a_file_that_is_named_twice_is_there_twice(tmp_path):
    (path,) = write_set(tmp_path, {"x": 7})
    found = manifests.find_records(f"{path},{tmp_path}/x*", "input_file")
    assert found.paths == [path, path]


def test_a_newer_manifest_of_the_same_file_is_preferred(tmp_path):
    (tmp_path / "b").write_bytes(b"12345")
    old, new = make_manifest(a=3, b=3), make_manifest(b=5)
    manifests.write(old, str(tmp_path / "manifest-a.json"))
    manifests.write(new, str(tmp_path / "manifest-b.json"))
    path = str(tmp_path / "b")
    assert manifests.find([path]) == {path: new}


def test_record_file_of_another_size_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"12")
    manifests.write(make_manifest(a=3), str(tmp_path / "manifest-a.json"))
    with pytest.raises(ValueError, match="2 bytes, but its manifest says 3"):
        manifests.find([str(tmp_path / "a")])


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"format": "other"}, "not a manifest"),
        ({"version": 4}, "version=4"),
        ({"version": 0}, "version=0"),
        ({"version": "1"}, "version='1'"),
        ({"version": 2}, "missing or unknown: tokenizer"),
        ({"tokenizer": None}, "missing or unknown: tokenizer"),
        ({"more": 1}, "missing or unknown: more"),
    ],
)
def test_other_files_are_refused(tmp_path, changes, reason):
    path = tmp_path / "manifest-a.json"
    manifests.write(make_manifest(a=3), str(path))
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=reason) as caught:
        manifests.read(str(path))
    assert str(path) in str(caught.value)


def test_every_field_is_written(tmp_path):
    path = tmp_path / "manifest-a.json"
    names = {"format", "version"} | {
        field.name for field in dataclasses.fields(manifests.Manifest)
    }
    manifest = make_manifest(a=3)
    manifests.write(manifest, str(path))
    written = json.loads(path.read_text())
    # As releases read it that know of one tokenizer.
    assert written["version"] == 1
    assert set(written) == names - {"tokenizer"}
    tokenizer = {"tokenizer_class": "ToyTokenizer", "settings": {"mark": "^"}}
    manifest = dataclasses.replace(manifest, tokenizer=tokenizer)
    manifests.write(manifest, str(path))
    written = json.loads(path.read_text())
    assert written["version"] == 2
    assert set(written) == names
    assert manifests.read(str(path)) == manifest
    # Masks of another rule would be taken for BERT's by earlier releases.
    for each in (manifest, dataclasses.replace(manifest, tokenizer=None)):
        each = dataclasses.replace(each, settings={"masking_rule": "roberta"})
        manifests.write(each, str(path))
        assert json.loads(path.read_text())["version"] == 3
        assert manifests.read(str(path)) == each
