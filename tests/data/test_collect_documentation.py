"""The demonstration's text: English, split, labelled, nothing leaked."""

import csv
import subprocess
import sys


def test_documentation_is_collected(run_program, tmp_path):
    process = run_program(
        "bert_tf.data.collect_documentation",
        f"--output_dir={tmp_path}",
        "--max_examples_per_library=200",
    )
    assert "train.tsv" in process.stdout
    corpus = (tmp_path / "corpus_train.txt").read_text("utf-8")
    documents = corpus.split("\n\n")
    assert len(documents) > 500
    assert ">>>" not in corpus

    texts = {}
    for part in ("train", "dev", "test"):
        with open(tmp_path / f"{part}.tsv", encoding="utf-8") as stream:
            rows = list(
                csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
            )
        libraries = {row["library"] for row in rows}
        assert libraries <= {"python", "numpy", "keras", "tensorflow"}
        assert part != "train" or len(libraries) == 4
        assert all(2 < len(row["text"].split()) <= 40 for row in rows)
        texts[part] = {row["text"] for row in rows}
    assert sum(map(len, texts.values())) == 800
    assert len(texts["train"]) > 6 * len(texts["dev"])
    # Held-out docstrings are not learned from, neither with nor without
    # their labels.
    assert not texts["train"] & (texts["dev"] | texts["test"])
    learned = {" ".join(document.split()[:40]) for document in documents}
    assert not learned & (texts["dev"] | texts["test"])


def test_output_dir_is_required(run_program):
    process = run_program("bert_tf.data.collect_documentation", check=False)
    assert process.returncode == 1
    assert "--output_dir must be given" in process.stderr


def test_output_dir_is_made_before_the_libraries_are_read(tmp_path):
    (tmp_path / "file").write_text("")
    code = (
        "from bert_tf.data import collect_documentation\n"
        "collect_documentation.collect = None\n"
        "collect_documentation.program.run(collect_documentation.main)\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code, f"--output_dir={tmp_path}/file"],
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert "file must be a folder" in process.stderr
