"""From text to records: contents, determinism, statistics, failures."""

import dataclasses
import hashlib
import io
import json
import os
import random
import re
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import files
from bert_tf import manifest as manifests
from bert_tf import streams
from bert_tf.config import BertConfig
from bert_tf.input.pretraining import pretraining_records
from bert_tf.pretraining import plan
from bert_tf.pretraining import record_set
from bert_tf.pretraining import run_local
from bert_tf.pretraining.corpus import blocks
from bert_tf.pretraining.objectives.table import OBJECTIVES
from bert_tf.pretraining.records import example_runs
from bert_tf.pretraining.records import inspection
from bert_tf.pretraining.records import record_rules
from bert_tf.pretraining.records import survey
from bert_tf.pretraining.records import tfrecord
from bert_tf.pretraining.settings import Settings
from bert_tf.pretraining.sources import sentences
from bert_tf.pretraining.sources import text_files
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from bert_tf.text.vocabulary import Vocabulary
from references import pretraining as reference
from support.pretraining_data import LETTERS
from support.pretraining_data import VOCABULARY
from support.pretraining_data import contents
from support.pretraining_data import make_documents
from support.pretraining_data import make_small
from support.pretraining_data import read_all
from support.pretraining_data import write_text


@pytest.fixture(scope="module")
def tokenizer():
    return WordpieceSpec(VOCABULARY)


def tokens_of(texts):
    """The documents' tokens: each word is its letters."""
    return [
        [
            [
                letter if index == 0 else f"##{letter}"
                for word in sentence
                for index, letter in enumerate(word)
            ]
            for sentence in document
        ]
        for document in texts
    ]


SETTINGS = Settings(max_seq_length=37, max_predictions_per_seq=5, dupe_factor=3)
# Without the graph that masks, which takes a second to make.
CHEAP = dataclasses.replace(SETTINGS, dupe_factor=1, masking_mode="dynamic")


@pytest.mark.parametrize("whole_words", [False, True])
def test_every_rule_holds_and_the_text_is_recovered(
    tmp_path, tokenizer, whole_words
):
    texts = make_documents(40, seed=1)
    text = write_text(tmp_path / "a.txt", texts)
    settings = Settings(
        max_seq_length=37,
        max_predictions_per_seq=5,
        dupe_factor=3,
        do_whole_word_mask=whole_words,
    )
    counts = run_local.build(text, str(tmp_path / "x"), tokenizer, settings)
    found = read_all(tmp_path / "x")
    rules = settings.masking
    for rule, holds in record_rules.check(found, VOCABULARY, rules).items():
        assert holds.all(), rule

    # Every segment, unmasked, is a stretch of one document's tokens.
    stretches = [
        " " + " ".join(sum(document, [])) + " " for document in tokens_of(texts)
    ]
    original = inspection.restored(found)
    for row, ids in enumerate(original):
        tokens = [VOCABULARY.tokens[index] for index in ids]
        end = tokens.index("[SEP]")
        a, b = tokens[1:end], tokens[end + 1 :]
        b = b[: b.index("[SEP]")]
        of_a, of_b = (
            {
                number
                for number, stretch in enumerate(stretches)
                if f" {' '.join(segment)} " in stretch
            }
            for segment in (a, b)
        )
        assert of_a
        assert of_b
        if not found["next_sentence_labels"][row, 0]:
            assert of_a & of_b

    assert counts == record_set.Counts(
        documents=40,
        sentences=sum(map(len, texts)),
        tokens=sum(len(sum(document, [])) for document in tokens_of(texts)),
        unknown_tokens=0,
        examples=len(original),
        records=len(original),
        example_tokens=found["input_mask"].sum(),
        random_pairs=found["next_sentence_labels"].sum(),
        predictions=found["masked_lm_weights"].sum(),
        unmasked_examples=0,
        cut_lines=0,
        cut_documents=0,
        lone_documents=0,
        skipped_documents=0,
        bad_lines=0,
        one_sentence_documents=sum(len(document) == 1 for document in texts),
        long_sentence_tokens=0,
        padding=round(1 - found["input_mask"].mean(), 4),
        unpacked_padding=round(1 - found["input_mask"].mean(), 4),
    )


def test_same_seed_same_bytes_other_seed_other_bytes(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(20, seed=2))

    def build(name, seed):
        settings = Settings(max_seq_length=29, dupe_factor=2, random_seed=seed)
        folder = tmp_path / name
        run_local.build(text, str(folder / "x"), tokenizer, settings)
        return [
            (folder / file).read_bytes() for file in ("x", "manifest-x.json")
        ]

    first = build("one", 5)
    assert build("two", 5) == first
    other = build("three", 6)
    assert other[0] != first[0]

    # Not one example is the same.
    def records_of(name):
        return set(
            tf.data.TFRecordDataset(
                str(tmp_path / name / "x")
            ).as_numpy_iterator()
        )

    shared = records_of("one") & records_of("three")
    assert len(shared) < 0.05 * len(records_of("one"))


SUBMIT = ProcessPoolExecutor.submit


def test_shards_in_a_row_are_the_one_file(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(20, seed=3))
    run_local.build(text, str(tmp_path / "one"), tokenizer, SETTINGS)
    names = f"{tmp_path}/x@2,{tmp_path}/y"
    run_local.build(text, names, tokenizer, SETTINGS)

    def read(name):
        path = str(tmp_path / name)
        return list(tf.data.TFRecordDataset(path).as_numpy_iterator())

    one = read("one")
    parts = [read(name) for name in ("x-00000-of-00002", "x-00001-of-00002")]
    parts.append(read("y"))
    assert sum(parts, []) == one
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_files_that_get_no_example_are_passed_over(tmp_path, tokenizer, caplog):
    text = write_text(tmp_path / "a.txt", make_documents(1, seed=3))
    counts = run_local.build(text, f"{tmp_path}/x@40", tokenizer, CHEAP)
    paths = sorted(map(str, tmp_path.glob("x-*")))
    filled = [path for path in paths if os.path.getsize(path)]
    assert 0 < len(filled) == counts.records < 40 == len(paths)
    told = f"names 40 files for {counts.examples} examples: "
    assert f"{told}{40 - counts.examples} of them are empty" in caplog.text

    records = manifests.Records(paths, manifests.find(paths))
    found = survey.make(records, VOCABULARY, lambda examples, manifest: None)
    assert found.num_files == len(filled)
    assert found.totals["records"] == counts.records
    assert found.is_one_set
    records = pretraining_records(
        f"{tmp_path}/x-*",
        BertConfig.named("tiny", vocab_size=len(VOCABULARY)),
        tokenizer,
    )
    assert list(records.paths) == filled
    assert records.num_examples == counts.records

    # Without one that has an example there is nothing to look at.
    empty = [path for path in paths if path not in filled]
    records = manifests.Records(empty, manifests.find(empty))
    with pytest.raises(ValueError, match="There is no record in .*x-000"):
        survey.make(records, VOCABULARY, lambda examples, manifest: None)


def submit_when_started(executor, call, method, number, submit=SUBMIT):
    """Waits for the first process: else this one would do all meanwhile."""
    future = submit(executor, call, method, number)
    if method is None:
        future.result()
    return future


def test_tasks_and_processes_change_nothing(tmp_path, tokenizer, monkeypatch):
    """With the same blocks: other parts, segments, batches, processes."""
    text = write_text(tmp_path / "a.txt", make_documents(60, seed=4))
    last = write_text(tmp_path / "b.txt", make_documents(9, seed=5))
    for path in ("a.txt", "b.txt"):
        with open(tmp_path / path, "ab") as stream:
            stream.write(b"\n\xff")
    seen = []

    def build(name, num_workers, **sizes):
        make_small(monkeypatch, **sizes)
        seen.clear()
        run_local.build(
            f"{text},{last}",
            f"{tmp_path / name}/x@3",
            tokenizer,
            SETTINGS,
            lambda *report: seen.append(report),
            num_workers,
            max_bad_lines=2,
        )
        return contents(tmp_path / name)

    whole = build("whole", 1, part_bytes=10**6, range_size=10**6)
    num_examples = seen[-1][2]
    num_tokens = json.loads(whole["manifest-x-00000-of-00003.json"])["counts"][
        "tokens"
    ]
    # And once before the first task of each.
    stages_seen = ["tokenize"] * 3 + ["cut"] * (1 + -(-num_tokens // 1500))
    assert [report[0] for report in seen] == stages_seen + ["write"] * 4
    assert [report[:2] for report in seen if not report[1]] == [
        (stage, 0) for stage in ("tokenize", "cut", "write")
    ]
    assert sorted(whole) == ["manifest-x-00000-of-00003.json"] + [
        f"x-0000{n}-of-00003" for n in range(3)
    ]
    with monkeypatch.context() as patch:
        patch.setattr(ProcessPoolExecutor, "submit", submit_when_started)
        assert build("processes", 2) == whole
    size = len((tmp_path / "a.txt").read_bytes())
    size += len((tmp_path / "b.txt").read_bytes())
    assert len(seen) > 20
    assert ("tokenize", size, size) in seen
    assert seen[-1] == ("write", num_examples, num_examples)
    monkeypatch.setattr(plan, "_BATCH_SIZE", 17)
    assert build("batches", 1, part_bytes=301, range_size=37) == whole


@pytest.mark.parametrize("stop_at", [0, 3, 11])
def test_stopped_run_goes_on_and_ends_the_same(
    tmp_path, tokenizer, monkeypatch, stop_at
):
    make_small(monkeypatch, part_bytes=1500)
    text = write_text(tmp_path / "a.txt", make_documents(40, seed=6))
    whole, stopped = (f"{tmp_path}/{name}/x@2" for name in ("whole", "stopped"))
    run_local.build(text, whole, tokenizer, SETTINGS)

    done = []
    original = run_local._done

    def stop(path, numbers):
        # Before it is told that the task is done.
        if len(done) == stop_at:
            raise KeyboardInterrupt
        done.append(path)
        return original(path, numbers)

    monkeypatch.setattr(run_local, "_done", stop)
    with pytest.raises(KeyboardInterrupt):
        run_local.build(text, stopped, tokenizer, SETTINGS)
    assert [path.name for path in (tmp_path / "stopped").iterdir()] == [
        ".x-00000-of-00002.work"
    ]
    stop_at = 10**6
    first = list(done)
    run_local.build(text, stopped, tokenizer, SETTINGS)
    # No task was done twice.
    assert len(set(done)) == len(done) > len(first)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def test_work_folder_is_not_searched_for_every_task(
    tmp_path, tokenizer, monkeypatch
):
    """It has the files of all tasks: the time would grow with their square."""
    make_small(monkeypatch, part_bytes=300)
    text = write_text(tmp_path / "a.txt", make_documents(40, seed=6))
    searched = []
    scandir = os.scandir

    def note(path="."):
        searched.append(os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(
        os,
        "fsync",
        lambda number: (
            synced.append(os.path.basename(os.readlink(f"/dev/fd/{number}"))),
            fsync(number),
        ),
    )
    done = []
    run_local.build(
        text,
        f"{tmp_path}/made/x",
        tokenizer,
        CHEAP,
        lambda *report: done.append(report),
    )
    assert len(done) > 20
    assert not [path for path in searched if path.endswith(".work")]
    # What a task wrote is on the disk before it is done, as before.
    assert {
        name.partition("-")[0] + name[name.rfind(".") :]
        for name in synced
        if re.match(r"(part|block|segment)-", name)
    } == {
        *("part.tokens", "part.lengths", "part.documents"),
        *("block.rows", "block.tokens", "block.index", "segment.tfrecord"),
    }


def test_work_of_other_text_is_not_gone_on_with(
    tmp_path, tokenizer, monkeypatch
):
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=6))
    work = tmp_path / "work"

    def build(name):
        run_local.build(
            text, f"{tmp_path}/{name}", tokenizer, SETTINGS, work_dir=str(work)
        )
        return (tmp_path / name).read_bytes()

    with monkeypatch.context() as patch:
        patch.setattr(run_local, "_publish", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build("x")
    assert (work / "segment-000000.tfrecord").exists()
    write_text(tmp_path / "a.txt", make_documents(10, seed=7))
    assert build("x") == build("y")
    assert not work.exists()


def test_work_of_another_tokenizer_is_not_gone_on_with(
    tmp_path, tokenizer, monkeypatch
):
    # A fast one takes "ª" for an "a".
    documents = [[["a", "ª", "b"], ["ª", "b"]], [["b", "ª"], ["ª", "a"]]]
    text = write_text(tmp_path / "a.txt", documents)
    fast = dataclasses.replace(tokenizer, fast=True)

    def build(name, spec):
        run_local.build(
            text, f"{tmp_path}/{name}", spec, SETTINGS, work_dir=str(work)
        )
        return (tmp_path / name).read_bytes()

    work = tmp_path / "work"
    with monkeypatch.context() as patch:
        stop_before(patch, "write_records")
        with pytest.raises(KeyboardInterrupt):
            build("x", fast)
    told = json.loads((work / "work.json").read_text())
    assert told["fast"] is True
    # What earlier releases have written too.
    names = {field.name for field in dataclasses.fields(manifests.Manifest)}
    assert told.keys() == names - {"tokenizer"} | {
        "fast",
        "version",
        "output_paths",
    }
    assert build("x", tokenizer) == build("y", tokenizer)
    assert build("z", fast) != build("y", tokenizer)


def test_work_of_other_sentence_rules_is_not_gone_on_with(
    tmp_path, tokenizer, monkeypatch
):
    (tmp_path / "a.txt").write_text(f"{PROSE}\n\n" * 9)
    settings = dataclasses.replace(CHEAP, input_format="text")

    def build(stage):
        with monkeypatch.context() as patch:
            stop_before(patch, stage)
            with pytest.raises(KeyboardInterrupt):
                run_local.build(
                    f"{tmp_path}/a.txt", f"{tmp_path}/x", tokenizer, settings
                )

    build("cut_block")
    parts = [*tmp_path.glob(".x.work/part-*.json")]
    assert parts
    # What is read is not read again, but by other rules.
    build("cut_block")
    assert [*tmp_path.glob(".x.work/part-*.json")] == parts
    monkeypatch.setattr(sentences, "VERSION", sentences.VERSION + 1)
    build("tokenize_part")
    assert not [*tmp_path.glob(".x.work/part-*.json")]


def test_folder_of_others_is_no_work_folder(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(3, seed=6))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter").write_text("mine")
    with pytest.raises(ValueError, match="`work_dir` must be empty"):
        run_local.build(
            text,
            f"{tmp_path}/x",
            tokenizer,
            SETTINGS,
            work_dir=f"{tmp_path}/home",
        )
    assert (tmp_path / "home" / "letter").read_text() == "mine"
    with pytest.raises(ValueError, match="`work_dir` must name a folder"):
        run_local.build(text, "gs://nowhere/x", tokenizer, SETTINGS)


def test_bad_input_leaves_nothing(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"a b\n\nc \xff\n")
    with pytest.raises(ValueError, match=r"a\.txt, line 3: not UTF-8"):
        run_local.build(
            f"{tmp_path}/a.txt", f"{tmp_path}/out/x", tokenizer, SETTINGS
        )
    (tmp_path / "a.txt").write_text("\n\u200b\n\n")
    with pytest.raises(ValueError, match=r"no sentence in .*a\.txt"):
        run_local.build(
            f"{tmp_path}/a.txt", f"{tmp_path}/out/x", tokenizer, SETTINGS
        )
    assert not (tmp_path / "out").exists()


def stop_before(monkeypatch, stage):
    """Interrupts a run before the first task of a stage."""

    def stop(self, number):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_local.Tasks, stage, stop)


def test_bad_lines_are_left_out_and_told(
    tmp_path, tokenizer, monkeypatch, caplog
):
    monkeypatch.setattr(text_files, "PART_BYTES", 700)
    text = tmp_path / "a.txt"
    write_text(text, make_documents(30, seed=6))
    lines = text.read_bytes().split(b"\n")
    counts = run_local.build(str(text), f"{tmp_path}/x", tokenizer, CHEAP)
    # Two, five lines apart, in each of several parts; and in the last line.
    for number in (190, 185, 95, 90, 5, 0):
        lines.insert(number, b"a \xff b")
    text.write_bytes(b"\n".join([*lines, b"\xff"]))
    out = tmp_path / "out"

    def build(max_bad_lines):
        return run_local.build(
            str(text),
            f"{out}/x",
            tokenizer,
            CHEAP,
            max_bad_lines=max_bad_lines,
        )

    with pytest.raises(ValueError, match=r"a\.txt, line 1: not UTF-8 .*=0\.$"):
        build(0)
    # What is counted over all parts is told with the first places.
    with pytest.raises(ValueError, match=r"^7 lines .*line 1: .*=6\. \(Run"):
        build(6)
    assert not caplog.records
    assert [path.name for path in out.iterdir()] == [".x.work"]
    with monkeypatch.context() as patch:
        # All that was read is there still.
        stop_before(patch, "tokenize_part")
        found = build(7)
    (record,) = caplog.records
    assert re.search(
        r"^7 lines .*a\.txt, line 1: not.*, line 7: [^;]*;.*, line 93: [^;]*"
        r"\)\. Left",
        record.getMessage(),
    )
    assert (found.bad_lines, found.tokens) == (7, counts.tokens)
    assert manifests.read(f"{out}/manifest-x.json").counts["bad_lines"] == 7
    # How many may be left out changes nothing.
    first = contents(out)
    build(99)
    assert contents(out) == first


def test_mended_file_is_read_again_and_no_other(
    tmp_path, tokenizer, monkeypatch
):
    texts = [make_documents(6, seed=seed) for seed in range(4)]
    paths = [tmp_path / f"{name}.txt" for name in "abcd"]
    for path, text in zip(paths, texts):
        write_text(path, text)
    whole = paths[2].read_bytes()
    paths[2].write_bytes(whole + b"\xff\n")
    names = ",".join(map(str, paths))
    done = []
    tokenize_part = run_local.Tasks.tokenize_part

    def read(self, number):
        done.append(number)
        return tokenize_part(self, number)

    monkeypatch.setattr(run_local.Tasks, "tokenize_part", read)
    with pytest.raises(ValueError, match=r"c\.txt, .*Run again to resume"):
        run_local.build(names, f"{tmp_path}/out/x", tokenizer, CHEAP)
    paths[2].write_bytes(whole)
    run_local.build(names, f"{tmp_path}/out/x", tokenizer, CHEAP)
    # The last document of b ends in c.
    assert done == [0, 1, 2, 1, 2, 3]
    run_local.build(names, f"{tmp_path}/all/x", tokenizer, CHEAP)
    assert contents(tmp_path / "out") == contents(tmp_path / "all")


def test_killed_publishing_leaves_no_files(tmp_path, tokenizer, monkeypatch):
    text = write_text(tmp_path / "a.txt", make_documents(30, seed=6))
    make_small(monkeypatch)
    run_local.build(text, f"{tmp_path}/all/x@3", tokenizer, CHEAP)
    with monkeypatch.context() as patch:
        # Killed after the first of the three: nothing tidies up any more.
        replace = os.replace
        moved = []

        def move(source, target):
            if os.path.dirname(target) == f"{tmp_path}/out":
                if moved:
                    raise KeyboardInterrupt
                moved.append(target)
            replace(source, target)

        patch.setattr(os, "replace", move)
        patch.setattr(files, "remove", lambda path: None)
        with pytest.raises(KeyboardInterrupt):
            run_local.build(text, f"{tmp_path}/out/x@3", tokenizer, CHEAP)
    # The manifest, the work folder, and what was to become records.
    assert len(list((tmp_path / "out").iterdir())) == 1 + 1 + 3
    with monkeypatch.context() as patch:
        # And again, before it publishes: what is there is still its own.
        stop_before(patch, "write_records")
        with pytest.raises(KeyboardInterrupt):
            run_local.build(text, f"{tmp_path}/out/x@3", tokenizer, CHEAP)
    run_local.build(text, f"{tmp_path}/out/x@3", tokenizer, CHEAP)
    assert contents(tmp_path / "out") == contents(tmp_path / "all")


PROSE = "A b c d. E f g! A h. I j k l. B m a b. "


@pytest.mark.parametrize(
    "objective, input_format, text, found",
    [
        # A paragraph a line, and blank lines between them or not.
        ("next_sentence", "sentences", f"{PROSE}\n\n" * 9, "100%.*=text"),
        ("next_sentence", "sentences", f"{PROSE * 9}\n" * 9, "100% .*=text"),
        ("full_sentences", "sentences", f"{PROSE * 9}\n" * 9, None),
        ("next_sentence", "text", f"{PROSE * 9}\n" * 9, None),
        ("next_sentence", "text", "A b.\n\n" * 9, r"9 of 9 .*100%.*=full"),
        ("next_sentence", "text", f"A b.\n\n{PROSE}\n\n" * 9, "9 of 18 .*50%"),
        ("next_sentence", "sentences", "A b.\n\nA\nB\n\n" * 9, None),
    ],
)
def test_paragraphs_that_are_taken_for_sentences_are_told(
    tmp_path, tokenizer, objective, input_format, text, found
):
    (tmp_path / "a.txt").write_text(text)
    settings = dataclasses.replace(
        CHEAP, objective=objective, input_format=input_format
    )
    counts = run_local.build(
        f"{tmp_path}/a.txt", f"{tmp_path}/x", tokenizer, settings
    )
    warnings = [
        warning
        for warning in record_set.warnings(counts, settings)
        if "%" in warning and "unknown" not in warning
    ]
    assert len(warnings) == (found is not None)
    assert re.search(found or "^$", "".join(warnings))


class LongFile(io.RawIOBase):
    """A file that takes ten seconds to read."""

    def __init__(self):
        super().__init__()
        self.end = time.monotonic() + 10
        self.was_read = False
        self.is_begun = threading.Event()

    def readable(self):
        return True

    def readinto(self, buffer):
        self.is_begun.set()
        time.sleep(0.01)
        self.was_read = time.monotonic() > self.end
        return 0 if self.was_read else len(buffer)


def test_an_error_ends_the_hashing_of_other_files(
    tmp_path, tokenizer, monkeypatch
):
    """So does a signal: threads do not notice it, and are waited for."""
    paths = [
        write_text(tmp_path / name, make_documents(1, seed=1))
        for name in ("bad.txt", "long.txt")
    ]
    long_file = LongFile()

    def open_bytes(path, decompress):
        if path == paths[0]:
            long_file.is_begun.wait(timeout=10)
            raise OSError(path)
        return long_file

    monkeypatch.setattr(streams, "open_bytes", open_bytes)
    with pytest.raises(OSError, match=r"bad\.txt"):
        run_local.build(
            ",".join(paths),
            str(tmp_path / "x"),
            tokenizer,
            CHEAP,
            num_workers=2,
        )
    assert not long_file.was_read


@pytest.mark.parametrize("rule", ["do_whole_word_mask", "do_ngram_mask", None])
def test_examples_without_a_prediction_are_told(tmp_path, tokenizer, rule):
    # Words of 12 tokens, more than the 9 that are masked, and of 1.
    documents = ["abcdefghijkl\nmlkjihgfedcb", "a b c d\ne f g h"]
    text = "\n\n".join(documents[n % 4 == 3] for n in range(40))
    (tmp_path / "a.txt").write_text(text)

    def build(name, num_a_row):
        settings = Settings(
            max_seq_length=60,
            max_predictions_per_seq=9,
            dupe_factor=1,
            max_sequences_per_row=num_a_row,
            **{rule: True} if rule else {},
        )
        counts = run_local.build(
            f"{tmp_path}/a.txt", f"{tmp_path}/{name}", tokenizer, settings
        )
        return counts, record_set.warnings(counts, settings)

    counts, warnings = build("x", 1)
    rows, warnings_of_rows = build("rows", 4)
    weights = read_all(tmp_path / "x")["masked_lm_weights"]
    found = int((weights.sum(1) == 0).sum())
    # Of rows it is their examples that are counted.
    assert rows.records < counts.records
    assert counts.unmasked_examples == rows.unmasked_examples == found
    assert warnings == warnings_of_rows
    assert counts.predictions == rows.predictions == weights.sum() > 0
    if rule is None:
        assert not found
        assert not warnings
        return
    share = found / counts.examples
    assert share > 0.3
    (warning,) = warnings
    assert warning.startswith(
        f"{found} of {counts.examples} examples ({share:.0%}) have no token "
        "to predict: their words have "
    )
    assert "Leave out --do_whole_word_mask and --do_ngram_mask" in warning
    few = dataclasses.replace(
        counts, unmasked_examples=int(0.1 * counts.examples)
    )
    assert not record_set.warnings(few, Settings())


@pytest.mark.parametrize(
    "length, predictions, told",
    [
        (512, 20, "=20 is 3.9% of 512 tokens: .* max_predictions_per_seq=77."),
        (512, 75, "=75 is 14.6% of 512 tokens: .*max_predictions_per_seq=77."),
        # ELECTRA's rule rounds down, google-research/bert's examples too.
        (512, 76, None),
        (128, 19, None),
        (128, 20, None),
        # 0.15 * 20 is a little above 3.
        (20, 2, None),
    ],
)
def test_fewer_predictions_than_the_rate_are_told(length, predictions, told):
    settings = Settings(
        max_seq_length=length, max_predictions_per_seq=predictions
    )
    found = record_set.warnings(some_counts(), settings)
    assert len(found) == (told is not None)
    assert re.search(told or "^$", "".join(found))


def test_unknown_tokens_are_told_from_2_percent_on():
    few = some_counts(tokens=1000, unknown_tokens=19)
    assert not record_set.warnings(few, CHEAP)
    many = some_counts(tokens=1000, unknown_tokens=20)
    (warning,) = record_set.warnings(many, CHEAP)
    assert warning.startswith("2.0% of the tokens (20 of 1,000) are unknown: ")


def test_manifests_without_a_count_are_still_read(tmp_path, tokenizer):
    """As those of releases that did not count unknown tokens."""
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=6))
    counts = run_local.build(text, f"{tmp_path}/x", tokenizer, CHEAP)
    path = tmp_path / "manifest-x.json"
    told = json.loads(path.read_text())
    del told["counts"]["unknown_tokens"]
    path.write_text(json.dumps(told))
    again = run_local.build(text, f"{tmp_path}/x", tokenizer, CHEAP)
    assert again == counts


def some_counts(**numbers):
    names = [field.name for field in dataclasses.fields(record_set.Counts)]
    some = dict.fromkeys(("documents", "tokens", "examples"), 9)
    return record_set.Counts(**(dict.fromkeys(names, 0) | some | numbers))


def test_dynamic_masking_needs_one_pass():
    assert Settings().dupe_factor == 10
    assert Settings(masking_mode="dynamic").dupe_factor == 1
    given = Settings(masking_mode="dynamic", dupe_factor=10)
    assert given.dupe_factor == 10
    # A changed copy keeps its value.
    assert dataclasses.replace(given, random_seed=1).dupe_factor == 10


@pytest.mark.parametrize(
    "count, number, told",
    [
        ("cut_lines", 1, "1 cut of a line longer than 1 MiB."),
        ("cut_lines", 1234, "1,234 cuts of lines longer than 1 MiB."),
        ("cut_documents", 1, "1 cut of a document longer than 4 MiB."),
        ("cut_documents", 2, "2 cuts of documents longer than 4 MiB."),
        ("lone_documents", 1, "1 document had no other document to draw"),
        ("lone_documents", 2, "2 documents had no other document to draw"),
        ("skipped_documents", 1, "1 document of one sentence was left out."),
        ("skipped_documents", 2, "2 documents of one sentence were left out."),
    ],
)
def test_one_cut_or_document_is_told_in_the_singular(count, number, told):
    (warning,) = record_set.warnings(some_counts(**{count: number}), CHEAP)
    assert warning.startswith(told)


def test_one_document_is_counted(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(1, seed=8))
    counts = run_local.build(text, f"{tmp_path}/x", tokenizer, SETTINGS)
    assert (counts.documents, counts.lone_documents) == (1, 1)


def test_manifest_tells_what_the_records_are(tmp_path, tokenizer):
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=6))
    names = f"{tmp_path}/p/x@2,{tmp_path}/q/y"
    counts = run_local.build(text, names, tokenizer, SETTINGS)
    paths = tfrecord.output_paths(names)
    found = manifests.find(paths)
    assert sorted(found) == sorted(paths)
    manifest = found[paths[0]]
    assert manifest.max_seq_length == 37
    assert manifest.max_predictions_per_seq == 5
    assert manifest.vocab_size == len(VOCABULARY)
    assert manifest.vocab_sha256 == manifests.text_sha256(VOCABULARY.to_text())
    assert manifest.do_lower_case
    assert manifest.settings == {
        "random_seed": 12345,
        "dupe_factor": 3,
        "masked_lm_prob": 0.15,
        "short_seq_prob": 0.1,
        "do_whole_word_mask": False,
        "input_format": "sentences",
        "text_field": "text",
        "objective": "next_sentence",
        "masking_mode": "static",
        "do_span_mask": False,
        "do_ngram_mask": False,
        "masking_rule": "bert",
        "max_sequences_per_row": 1,
    }
    inspection.check_vocabulary("x", manifest, VOCABULARY)
    other = Vocabulary(tokens=(*VOCABULARY.tokens, "z"))
    message = "x: .*another vocabulary: one of 31 .* Received: one of 32"
    with pytest.raises(ValueError, match=message):
        inspection.check_vocabulary("x", manifest, other)
    data = (tmp_path / "a.txt").read_bytes()
    assert manifest.inputs == [
        {
            "name": "a.txt",
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    ]
    assert manifest.counts["examples"] == counts.examples
    assert list(manifest.records) == ["x-00000-of-00002", "x-00001-of-00002"]
    assert list(found[paths[2]].records) == ["y"]
    assert counts.examples == sum(
        found[path].records[path.rpartition("/")[2]]["examples"]
        for path in paths
    )


def test_failure_leaves_what_was_there(tmp_path, tokenizer, monkeypatch):
    text = write_text(tmp_path / "a.txt", make_documents(10, seed=7))
    old = tmp_path / "x-00001-of-00003"
    old.write_text("old")
    write = tfrecord.write
    segment = f"{tmp_path}/.x-00000-of-00003.work/segment-000002.tfrecord"

    def fail_on_the_third(path, batches):
        if path == segment:
            write(path, [])
            raise OSError("No space left on device")
        return write(path, batches)

    def build():
        run_local.build(
            text, f"{tmp_path}/x@3", tokenizer, SETTINGS, overwrite=True
        )

    with monkeypatch.context() as patch:
        patch.setattr(tfrecord, "write", fail_on_the_third)
        with pytest.raises(OSError, match=r"No space left.*[Rr]un again"):
            build()
    assert old.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3
    build()
    assert len(list(tmp_path.iterdir())) == 5


def test_records_are_not_overwritten_unless_they_may_be(
    tmp_path, tokenizer, caplog, monkeypatch
):
    text = write_text(tmp_path / "a.txt", make_documents(5, seed=7))
    out = tmp_path / "out"

    def build(tokenizer=tokenizer, **changes):
        overwrite = changes.pop("overwrite", False)
        settings = dataclasses.replace(CHEAP, **changes)
        return run_local.build(
            text, f"{out}/x@2", tokenizer, settings, overwrite=overwrite
        )

    counts = build()
    first = contents(out)
    assert not caplog.records

    # Of the same text there is nothing to do, and that is said.
    named = Vocabulary(tokens=VOCABULARY.tokens, path="/home/bert/vocab.txt")
    for spec in (tokenizer, dataclasses.replace(tokenizer, vocabulary=named)):
        caplog.clear()
        assert build(spec) == counts
        assert "already exist" in caplog.text
    assert contents(out) == first

    message = "x-00000-of-00002 already exists, made with other "
    with pytest.raises(ValueError, match=f"{message}random_seed. .*overwrite"):
        build(random_seed=9)
    assert contents(out) == first
    build(
        tokenizer=dataclasses.replace(tokenizer, vocabulary=named),
        random_seed=9,
        overwrite=True,
    )
    assert contents(out) != first
    (path,) = out.glob("manifest-*")
    assert manifests.read(path).settings["vocab_file"] == "bert/vocab.txt"

    # Of prose, other rules of sentences make other records.
    prose = dataclasses.replace(CHEAP, input_format="text")

    def build_prose():
        run_local.build(text, f"{tmp_path}/prose", tokenizer, prose)

    build_prose()
    with monkeypatch.context() as patch:
        patch.setattr(sentences, "VERSION", sentences.VERSION + 1)
        with pytest.raises(ValueError, match="with other sentence_rules"):
            build_prose()

    second = out / "x-00001-of-00002"
    second.rename(tmp_path / "away")
    with pytest.raises(ValueError, match="exists, in an incompl.*overwrite"):
        build(random_seed=9)
    (tmp_path / "away").rename(second)
    with open(second, "ab") as stream:
        stream.write(b"more")
    with pytest.raises(ValueError, match="exists, in an incomplete set of rec"):
        build(random_seed=9)
    assert [name.name for name in out.iterdir() if "work" in name.name] == []
    build(overwrite=True)
    assert contents(out) == first
    with pytest.raises(ValueError, match="`output_file` is also one of the i"):
        run_local.build(text, str(text), tokenizer, SETTINGS, overwrite=True)


def statistics(examples):
    """Returns {name: value} of a set of examples, as records have them."""
    ids = examples["input_ids"]
    mask = examples["input_mask"]
    length = mask.sum(axis=1)
    b_length = (examples["segment_ids"] * mask).sum(axis=1) - 1
    a_length = length - 3 - b_length
    is_random = examples["next_sentence_labels"][:, 0] == 1
    totals = inspection.count(examples, VOCABULARY)
    predictions = examples["masked_lm_weights"].sum(axis=1)
    return {
        "examples": len(ids),
        "length": length.mean(),
        "squared length": (length**2).mean(),
        "full": (length == ids.shape[1]).mean(),
        "random pairs": is_random.mean(),
        "length of A": a_length.mean(),
        "length of B": b_length.mean(),
        "length of random B": b_length[is_random].mean(),
        "length of true B": b_length[~is_random].mean(),
        "squared length of A": (a_length**2).mean(),
        "predictions": predictions.mean(),
        "masked": totals["masked"] / totals["predictions"],
        "kept": totals["kept"] / totals["predictions"],
        "replaced": totals["replaced"] / totals["predictions"],
        "mean position": (
            examples["masked_lm_positions"].sum() / predictions.sum()
        ),
        "pieces masked": (
            (
                examples["masked_lm_ids"] >= len(SPECIAL_TOKENS) + len(LETTERS)
            ).sum()
            / predictions.sum()
        ),
        "opens with a piece": (
            inspection.restored(examples)[:, 1]
            >= len(SPECIAL_TOKENS) + len(LETTERS)
        ).mean(),
    }


def as_arrays(examples, settings):
    """Returns the oracle's examples as records have them."""
    length, most = settings.max_seq_length, settings.max_predictions_per_seq

    def padded(values, width):
        return list(values) + [0] * (width - len(values))

    def ids(tokens):
        return [VOCABULARY.index(token) for token in tokens]

    columns = {
        "input_ids": [padded(ids(e.masked_tokens), length) for e in examples],
        "input_mask": [padded([1] * len(e.tokens), length) for e in examples],
        "segment_ids": [padded(e.segment_ids, length) for e in examples],
        "masked_lm_positions": [padded(e.positions, most) for e in examples],
        "masked_lm_ids": [padded(ids(e.labels), most) for e in examples],
        "masked_lm_weights": [
            padded([1.0] * len(e.positions), most) for e in examples
        ],
        "next_sentence_labels": [[int(e.is_random)] for e in examples],
    }
    return {name: np.array(values) for name, values in columns.items()}


@pytest.mark.parametrize(
    "max_seq_length, short_seq_prob, whole_words",
    [(37, 0.1, False), (24, 0.5, True)],
)
def test_statistics_are_those_of_the_originals_rules(
    tmp_path, tokenizer, max_seq_length, short_seq_prob, whole_words
):
    """Against the oracle: the same means within 4.5 standard errors.

    The errors are those of the mean over builds with other seeds, because
    examples of one build are not independent of each other.
    """
    texts = make_documents(110, seed=8)
    text = write_text(tmp_path / "a.txt", texts)
    num_builds = 12

    def settings(seed):
        return Settings(
            max_seq_length=max_seq_length,
            max_predictions_per_seq=5,
            dupe_factor=1,
            short_seq_prob=short_seq_prob,
            do_whole_word_mask=whole_words,
            random_seed=seed,
        )

    # The seed is in the examples: the masking of one plan serves all.
    made = plan.make_plan(text, tokenizer, settings(0))
    part = str(tmp_path / "part")
    made.tokenize_part(made.parts[0], part)
    block = blocks.read_block([part], np.dtype(np.uint16), 0, 1)
    ours, originals = [], []
    for seed in range(num_builds):
        _, cuts = OBJECTIVES["next_sentence"].cut(
            block, settings(seed), VOCABULARY
        )
        run = str(tmp_path / f"run-{seed}")
        example_runs.write_run(
            block, cuts.shuffled(), np.dtype(np.uint16), run, VOCABULARY.special
        )
        unmasked = example_runs.Runs([run], np.dtype(np.uint16)).read(
            0, len(cuts)
        )
        ours.append(statistics(made.record_features(unmasked)))
        oracles = reference.make_examples(
            tokens_of(texts),
            VOCABULARY.tokens,
            random.Random(seed),
            max_seq_length=max_seq_length,
            dupe_factor=1,
            short_seq_prob=short_seq_prob,
            masked_lm_prob=0.15,
            max_predictions_per_seq=5,
            do_whole_word_mask=whole_words,
        )
        originals.append(statistics(as_arrays(oracles, settings(seed))))

    for name in ours[0]:
        values = np.array(
            [[each[name] for each in builds] for builds in (ours, originals)]
        )
        mean = values.mean(axis=1)
        error = (values.var(axis=1, ddof=1).sum() / num_builds) ** 0.5
        assert abs(mean[0] - mean[1]) < 4.5 * error, (name, mean, error)


@pytest.mark.parametrize(
    "field, value",
    [
        ("max_seq_length", 4),
        ("max_predictions_per_seq", 0),
        ("masked_lm_prob", 0.0),
        ("dupe_factor", 0),
    ],
)
def test_bad_settings_name_the_field(field, value):
    with pytest.raises(ValueError, match=f"{field}\\b.*{field}={value}"):
        Settings(**{field: value})
