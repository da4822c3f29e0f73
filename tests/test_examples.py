"""The example of a family of one's own, from training to serving."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401

from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import releases
from support.paths import ROOT

EXAMPLE = ROOT / "examples" / "word_scores"
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh")
# How much a word of each letter is to score.
SCORES = {letter: number / 4 - 1 for number, letter in enumerate("abcdefgh")}


@pytest.fixture
def run(tmp_path):
    """Runs a module where the example is installed."""
    info = tmp_path / "site" / "word_scores-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: word_scores\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(
        "[bert_tf.families]\nword_scores = word_scores:FAMILY\n"
    )
    path = os.pathsep.join([str(EXAMPLE), str(tmp_path / "site"), str(ROOT)])

    def run(*command):
        done = subprocess.run(
            [sys.executable, *command],
            env=os.environ | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def write(path, count, seed):
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = generator.choice([*SCORES], size=5).tolist()
        scores = [SCORES[word] for word in words]
        # One word in five has none.
        scores[generator.integers(5)] = None
        rows.append(json.dumps({"words": words, "scores": scores}))
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_family_of_ones_own_is_trained_and_served(tmp_path, run):
    dev = write(tmp_path / "dev.jsonl", 20, 2)
    told = run(
        *("-m", "word_scores"),
        *releases.write_flags(tmp_path, TOKENS),
        f"--train_file={write(tmp_path / 'train.jsonl', 200, 1)}",
        f"--eval_file={dev}",
        f"--predict_file={dev}",
        f"--output_dir={tmp_path / 'scored'}",
        *("--do_train", "--do_eval", "--do_predict", "--max_seq_length=9"),
        *("--num_train_epochs=8", "--learning_rate=0.01"),
        "--train_batch_size=16",
    )
    results = releases.read_results(tmp_path / "scored")
    # Words without a score have no say: only then is the rest learned.
    assert results["eval_pearson"] > 0.9, told
    report = (tmp_path / "scored" / "report.md").read_text()
    assert "## Worst words" in report
    lines = (tmp_path / "scored" / "test_results.tsv").read_text().splitlines()
    assert len(lines) == 100
    answers = [float(line.split("\t")[1]) for line in lines]

    run(
        *("-m", "bert_tf.export.export_saved_model"),
        f"--model_dir={tmp_path / 'scored'}",
        f"--export_dir={tmp_path / 'served'}",
    )
    (version,) = (tmp_path / "served").glob("[0-9]*")
    run(
        *("-m", "bert_tf.export.check_saved_model"),
        f"--export_dir={version}",
        f"--model_dir={tmp_path / 'scored'}",
    )
    rows = [json.loads(line)["words"] for line in dev.read_text().splitlines()]
    served = tf.saved_model.load(str(version)).signatures["serving_default"](
        text=tf.constant([" ".join(row) for row in rows])
    )
    np.testing.assert_allclose(
        served["scores"].numpy().ravel(), answers, atol=1e-4
    )
    assert served["starts"][0].numpy().tolist() == [0, 2, 4, 6, 8]
    assert served["num_words"].numpy().tolist() == [5] * 20
    told = run(
        *("-m", "bert_tf.run_predict"),
        f"--model_dir={tmp_path / 'scored'}",
        f"--text={' '.join(rows[0])}",
    )
    answer = json.loads(told)["answer"]
    assert answer["scores"] == pytest.approx(answers[:5], abs=1e-4)
    assert (answer["num_words"], answer["is_cut"]) == (5, False)
