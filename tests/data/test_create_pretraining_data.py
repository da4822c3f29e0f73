"""The program that makes records, as users run it."""

import gzip
import json
import re

import pytest

from support.disk import full_disk

PROGRAM = "bert_tf.data.create_pretraining_data"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY = (*SPECIAL, *"abcdef.", "##a", "##b", "##c")


@pytest.fixture
def folder(tmp_path):
    """A folder with a vocabulary and a compressed text of four documents."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    document = "A b c. D e fa ab.\n\u00c9 f.\nBc d.\n"
    text = "\n".join([document] * 4)
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


def arguments(folder, **flags):
    values = {
        "input_file": folder / "text.txt.gz",
        "output_file": folder / "out" / "x.tfrecord",
        "vocab_file": folder / "vocab.txt",
        "max_seq_length": 17,
        "max_predictions_per_seq": 3,
    }
    return [f"--{name}={value}" for name, value in (values | flags).items()]


def table_of(output):
    return {
        name: float(value.replace(",", "").rstrip("%"))
        for name, value in re.findall(
            r"^(\S.*?)\s{2,}([\d.,]+%?)$", output, re.M
        )
    }


def test_makes_records_and_says_what_they_are(folder, run_program):
    process = run_program(
        PROGRAM,
        *arguments(
            folder,
            input_file=f"{folder}/te*.gz,{folder}/text.txt.gz",
            input_format="text",
            output_file=f"{folder}/out/x.tfrecord@2",
            dupe_factor=30,
            objective="sentence_order",
        ),
        "--do_whole_word_mask",
    )
    table = table_of(process.stdout)
    # The file is named twice, and so read twice.
    assert table["documents"] == 8
    assert table["sentences"] == 32
    assert table["tokens"] == 8 * 18
    assert table["unknown"] == 0
    assert table["examples"] >= 8 * 30
    assert 6 < table["mean length"] <= 17
    assert 30 < table["swapped"] < 70
    assert 8 < table["masked"] < 25
    assert {"seconds", "examples/s"} < set(table)
    assert "write" in process.stderr
    assert sorted(path.name for path in (folder / "out").iterdir()) == [
        "manifest-x.tfrecord-00000-of-00002.json",
        "x.tfrecord-00000-of-00002",
        "x.tfrecord-00001-of-00002",
    ]

    process = run_program(
        "bert_tf.data.inspect_records",
        f"--input_file={folder}/out/x*",
        f"--vocab_file={folder}/vocab.txt",
    )
    assert process.stdout.startswith("Example 0\n")
    assert "Example 2" not in process.stdout
    found = table_of(process.stdout)
    assert found["examples"] == table["examples"]
    assert found["swapped"] == table["swapped"]
    assert process.stdout.count("holds") == 10


def test_text_of_another_vocabulary_is_told(folder, run_program):
    (folder / "text.txt").write_text("A b.\nXyz d.\n\nC. .\n" * 4)
    process = run_program(
        PROGRAM, *arguments(folder, input_file=folder / "text.txt")
    )
    # Of 9 tokens, one is unknown.
    assert table_of(process.stdout)["unknown"] == 11.1
    warning = "Warning: 11.1% of the tokens (4 of 36) are unknown: the vocab"
    assert warning in process.stdout
    path = folder / "out" / "manifest-x.tfrecord.json"
    assert json.loads(path.read_text())["counts"]["unknown_tokens"] == 4
    process = run_program(
        "bert_tf.data.inspect_records",
        f"--input_file={folder}/out/x.tfrecord",
        f"--vocab_file={folder}/vocab.txt",
    )
    assert table_of(process.stdout)["unknown tokens"] > 5
    assert "are unknown: the vocabulary cannot spell" in process.stdout


def test_bad_flags_are_one_line(folder, run_program):
    process = run_program(
        PROGRAM, *arguments(folder, max_seq_length=4), check=False
    )
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("create_pretraining_data.py: error: ")
    assert "max_seq_length=4" in last
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"tfds_split": "dev"}, "--tfds_split must come with --tfds_name."),
        (
            {"text_field": "body", "input_format": "text"},
            "--text_field must come with --input_format=jsonl or --tfds_name. "
            "Received: --text_field='body', --input_format=text.",
        ),
    ],
)
def test_flags_that_nothing_reads_are_refused(
    folder, run_program, flags, message
):
    process = run_program(PROGRAM, *arguments(folder, **flags), check=False)
    assert process.returncode == 1
    assert message in process.stderr
    assert not (folder / "out").exists()


def test_full_disk_leaves_no_records(folder, run_program):
    with full_disk(20_000):
        process = run_program(
            PROGRAM, *arguments(folder, dupe_factor=40), check=False
        )
    assert process.returncode == 1
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("create_pretraining_data.py: error: ")
    assert "/.x.tfrecord.work' (Run again to resume" in last
    assert [path.name for path in (folder / "out").iterdir()] == [
        ".x.tfrecord.work"
    ]
