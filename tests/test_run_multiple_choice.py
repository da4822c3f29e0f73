"""run_multiple_choice from files to files, as a subprocess."""

import json

import numpy as np
import pytest

from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import releases

PROGRAM = "bert_tf.run_multiple_choice"
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh?.")


def write(path, count, num_choices=3, has_labels=True):
    rows = []
    for index in range(count):
        row = {
            "context": "a b c" * (index + 1),
            "choices": ["d e", "f. g", "h", "a"][:num_choices],
        }
        if has_labels:
            row["label"] = index % num_choices
        rows.append(json.dumps(row) + "\n")
    path.write_text("".join(rows))
    return path


def write_race(folder, answers):
    passage = {
        "article": "a b c",
        "questions": ["d _ .", *["e?"] * (len(answers) - 1)],
        "options": [["d e", "f. g", "h"]] * len(answers),
        "answers": answers,
    }
    (folder / "high").mkdir(parents=True)
    (folder / "high" / "1.txt").write_text(json.dumps(passage))
    return folder


def test_choices_are_learned_scored_and_predicted(tmp_path, run_program):
    output = tmp_path / "output"
    flags = (
        *releases.write_flags(tmp_path, TOKENS),
        f"--output_dir={output}",
        "--max_seq_length=12",
    )
    test_file = write(tmp_path / "test.jsonl", 5, has_labels=False)
    done = run_program(
        PROGRAM,
        *flags,
        f"--train_file={write(tmp_path / 'train.jsonl', 10)}",
        f"--eval_file={write_race(tmp_path / 'dev', [*'ABCABCA'])}",
        f"--predict_file={test_file}",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--train_batch_size=4",
        "--num_train_epochs=2",
        "--iterations_per_loop=1",
    )
    assert "step 5/5" in done.stderr
    results = releases.read_results(output)
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step"]
    assert results["eval_loss"] == pytest.approx(np.log(3), abs=0.3)
    assert f"eval_accuracy = {results['eval_accuracy']}" in done.stdout
    report = (output / "report.md").read_text()
    accuracy = results["eval_accuracy"]
    assert report.startswith(
        f"# multiple_choice: eval_accuracy {accuracy:.4g}\n"
    )
    # The labels of the seven are 0, 1, 2, 0, 1, 2, 0.
    confusion = [
        [int(count) for count in line.split(" | ")[1:-1]]
        + [int(line.split(" | ")[-1].removesuffix(" |"))]
        for line in report.splitlines()
        if line.startswith("| is ") and line[5].isdigit()
    ]
    assert [sum(row) for row in confusion] == [3, 2, 2]
    hits = sum(confusion[place][place] for place in range(3))
    assert hits / 7 == pytest.approx(accuracy)
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((output / "task.json").read_text()) == {
        "format_version": 1,
        "family": "multiple_choice",
        "num_choices": 3,
    }
    table = np.loadtxt(output / "test_results.tsv", skiprows=1)
    assert table.shape == (5, 4)
    np.testing.assert_allclose(table[:, 1:].sum(axis=1), 1, rtol=1e-5)
    assert table[:, 0].tolist() == table[:, 1:].argmax(axis=1).tolist()

    # The tuned model takes as many choices as it was tuned to, and no others.
    refused = run_program(
        PROGRAM,
        *flags,
        f"--predict_file={write(tmp_path / 'more.jsonl', 2, 4)}",
        "--do_predict",
        check=False,
    )
    assert refused.returncode == 1
    assert "more.jsonl, line 1: a row must have 3 choices" in refused.stderr
