"""run_tagger from files to files, as a subprocess."""

import json
import shutil

import pytest

from bert_tf import checkpoints
from bert_tf.models.token_classifier import BertTokenClassifier
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from references import tagging as reference
from support import releases

PROGRAM = "bert_tf.run_tagger"
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh?.")
SENTENCE = "-DOCSTART- O\n\nA B-x\nB. I-x\n\u200b O\n"
LONG = "".join(f"{letter} O\n" for letter in "abcdefgh" * 4)


@pytest.fixture
def flags(tmp_path):
    return (
        *releases.write_flags(tmp_path, TOKENS),
        f"--output_dir={tmp_path / 'output'}",
        f"--data_dir={tmp_path}",
        "--max_seq_length=10",
    )


def f1_of(predictions):
    """Returns the F1 of the entities in lines of word, tag and prediction."""
    wanted, found = set(), set()
    for number, sentence in enumerate(predictions.strip().split("\n\n")):
        _, *columns = zip(*(line.split(" ") for line in sentence.split("\n")))
        for entities, tags in zip((wanted, found), columns, strict=True):
            entities.update(
                (number, *entity) for entity in reference.find_entities(tags)
            )
    assert wanted
    return 2 * len(wanted & found) / (len(wanted) + len(found))


def test_words_are_tagged_scored_and_tagged_again(tmp_path, flags, run_program):
    output = tmp_path / "output"
    (tmp_path / "train.txt").write_text(
        f"{SENTENCE}\n{LONG}\nd B-y\n\ne O\n" * 2, "utf-8"
    )
    (tmp_path / "dev.txt").write_text(
        f"{SENTENCE}\nc I-y\n\nd B-x\n\ne B-x\n\n{LONG}", "utf-8"
    )
    # The same, so that what is predicted gives the score once more.
    shutil.copy(tmp_path / "dev.txt", tmp_path / "test.txt")
    done = run_program(
        PROGRAM,
        *flags,
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--train_batch_size=5",
        "--num_train_epochs=2",
        "--iterations_per_loop=2",
    )
    # 2 * 10 windows: the long sentence has seven.
    assert ": 20 windows, 20 an epoch" in done.stderr
    assert "step 8/8" in done.stderr
    assert " windows/s " in done.stderr
    assert (
        "found the scheme bio and the tags O, B-x, I-x, B-y, I-y."
        in done.stderr
    )
    assert "1 tag breaks the bio scheme, first in line " in done.stderr
    results = releases.read_results(output)
    assert results["global_step"] == 8
    assert 0 < results["eval_loss"] < 5
    assert "eval_y_recall" in results
    assert f"eval_f1 = {results['eval_f1']}" in done.stdout
    report = (output / "report.md").read_text("utf-8")
    assert report.startswith(f"# tagging: eval_f1 {results['eval_f1']:.4g}\n")
    assert f"| eval\\_loss | {results['eval_loss']:.4g} |" in report
    # The types' scores are in a table of their own: x once, y once.
    assert "eval\\_y" not in report
    row = next(line for line in report.splitlines() if line[:6] == "| y | ")
    assert row.split(" | ")[1] == "1"
    assert row.endswith(f" | {results['eval_y_f1']:.4g} |")
    assert "## Worst errors" in report
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")
    task = {
        "format_version": 1,
        "family": "tagging",
        "scheme": "bio",
        "labels": ["O", "B-x", "I-x", "B-y", "I-y"],
    }
    assert json.loads((output / "task.json").read_text()) == task
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert list(config["id2label"].values()) == task["labels"]
    assert checkpoints.load(output, BertTokenClassifier).num_labels == 5

    predictions = (output / "test_predictions.txt").read_text("utf-8")
    lines = (tmp_path / "test.txt").read_text("utf-8").splitlines()
    for line, predicted in zip(lines, predictions.splitlines(), strict=True):
        if not line:
            assert predicted == ""
        else:
            assert predicted.rpartition(" ")[0] == line
            assert predicted.rpartition(" ")[2] in task["labels"]
    assert predictions.startswith("-DOCSTART- O O\n\n")
    assert "\u200b O O\n" in predictions
    assert results["eval_f1"] == pytest.approx(f1_of(predictions), rel=1e-5)

    # The tuned model alone gives the same answers, with files whose columns
    # have names.
    (output / "test_predictions.txt").unlink()
    for name in ("dev", "test"):
        text = (tmp_path / f"{name}.txt").read_text("utf-8")
        (tmp_path / f"{name}.named").write_text(f"word ner\n{text}", "utf-8")
    done = run_program(
        PROGRAM,
        "--do_eval",
        "--do_predict",
        "--label_column=ner",
        f"--eval_file={tmp_path / 'dev.named'}",
        f"--predict_file={tmp_path / 'test.named'}",
        *flags[2:],
    )
    assert releases.read_results(output) == pytest.approx(results, rel=1e-5)
    again = (output / "test_predictions.txt").read_text("utf-8")
    assert again == f"word ner predicted\n{predictions}"


def test_unknown_tag_is_told_before_training(tmp_path, flags, run_program):
    (tmp_path / "train.txt").write_text("a B-x\n")
    (tmp_path / "dev.txt").write_text("a B-x\nb B-z\n")
    refused = run_program(
        PROGRAM, *flags, "--do_train", "--do_eval", check=False
    )
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("run_tagger.py: error: ")
    assert f"{tmp_path / 'dev.txt'}, line 2: the tag must be one" in last
    assert not (tmp_path / "output").exists()
