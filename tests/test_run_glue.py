"""run_glue over tasks, learning rates and seeds, as a subprocess."""

import json
import math
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import releases

PROGRAM = "bert_tf.run_glue"
TOKENS = (*SPECIAL_TOKENS, *"abcdefgh")


@pytest.fixture
def flags(tmp_path):
    write_tsv(tmp_path / "glue" / "RTE", ("train", "dev"), 4, "entailment")
    write_tsv(tmp_path / "glue" / "RTE", ("test",), 3)
    return (
        *releases.write_flags(tmp_path, TOKENS),
        f"--data_dir={tmp_path / 'glue'}",
        f"--output_dir={tmp_path / 'output'}",
        "--task_name=RTE",
        "--max_seq_length=12",
        "--train_batch_size=4",
        "--num_train_epochs=1",
    )


def write_tsv(folder, splits, num_columns, label=None):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(num_columns)
    for split in splits:
        lines = ["\t".join(f"h{index}" for index in range(num_columns))]
        for index in range(6):
            texts = [" ".join(random.choice(list("abcd"), 3)) for _ in "ab"]
            end = [("" if index % 2 else "not_") + label] if label else []
            lines.append("\t".join([str(index), *texts, *end]))
        (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def test_run_is_tabled_and_not_repeated(tmp_path, flags, run_program):
    output = tmp_path / "output"
    flags += (
        "--learning_rate=1.2345678e-5",
        "--do_predict",
        "--strategy=one_device",
    )
    # Its name in 0.2.0.
    done = run_program(PROGRAM, *flags, "--seeds=7")
    folder = output / "rte" / "lr1.2345678e-05-seed7"
    results = releases.read_results(folder)
    run = json.loads((folder / "run.json").read_text())
    assert run["results"] == results
    assert "--random_seed=7" in run["flags"]
    assert "--learning_rate=1.2345678e-05" in run["flags"]
    assert "--max_seq_length=12" in run["flags"]
    assert not (folder / "train").exists()
    score = f"{100 * results['eval_accuracy']:.4g}"
    row = (
        f"| rte | accuracy | 1.2345678e-05 | 1 | {score} | {score} "
        "| lr1.2345678e-05-seed7 |"
    )
    assert (output / "table.md").read_text().splitlines()[-1] == row
    assert row in done.stdout
    table = json.loads((output / "table.json").read_text())
    assert table["table"][0]["median"] == 100 * results["eval_accuracy"]
    submission = (output / "submission" / "RTE.tsv").read_text().splitlines()
    assert submission[0] == "index\tprediction"
    assert len(submission) == 7
    # What the runs print is shown, the prediction's too, which runs last.
    training, prediction = done.stderr.split("--do_predict")
    assert f"eval_accuracy = {results['eval_accuracy']}" in training
    assert "--do_train" not in prediction
    assert "--strategy=one_device" in prediction
    # A worse run, of a release in which each of them predicted.
    worse = dict(run, flags=[*run["flags"], "--do_predict"])
    worse["results"] = dict.fromkeys(results, 0.0)
    path = output / "rte" / "lr1.2345678e-05-seed8" / "run.json"
    path.parent.mkdir()
    text = re.sub("seed(=?)7", r"seed\g<1>8", json.dumps(worse))
    path.write_text(text)
    # That of 0.2.0, which could keep the states of its runs.
    kept = path.parent / "train"
    kept.mkdir()
    path.write_text(json.dumps(json.loads(text) | {"keeps_state": True}))
    # As a kill leaves it that came while the state was removed.
    (folder / "train").mkdir()
    again = run_program(PROGRAM, *flags, "--random_seed=7,8")
    assert not (folder / "train").exists()
    assert "is finished" in again.stderr
    assert "run_classifier" not in again.stderr
    assert kept.exists()

    # A correlation may not be defined. A run without a score is the worst.
    unknown = dict(run, results=dict.fromkeys(results, math.nan))
    path = output / "rte" / "lr1.2345678e-05-seed9" / "run.json"
    path.parent.mkdir()
    text = re.sub("seed(=?)7", r"seed\g<1>9", json.dumps(unknown))
    path.write_text(text)
    run_program(PROGRAM, *flags, "--random_seed=9,7")
    (row,) = json.loads((output / "table.json").read_text())["table"]
    assert (row["best"], row["best run"]) == (
        100 * results["eval_accuracy"],
        "lr1.2345678e-05-seed7",
    )
    assert row["median"] is None
    run_program(PROGRAM, *flags, "--random_seed=9,7,8")
    (row,) = json.loads((output / "table.json").read_text())["table"]
    assert row["median"] == 0
    flags += ("--random_seed=7", "--warmup_proportion=0")
    refused = run_program(PROGRAM, *flags, check=False)
    assert refused.returncode == 1
    assert "other flags: --warmup_proportion=0" in refused.stderr


@pytest.mark.slow
def test_median_and_best_over_seeds_and_a_failure(tmp_path, flags, run_program):
    # With so high a rate the loss is not finite.
    done = run_program(
        PROGRAM,
        *flags,
        "--learning_rate=1e-3,1e30",
        "--random_seed=1,2",
        "--num_train_epochs=4",
        check=False,
    )
    assert done.returncode == 1
    assert "2 of 4 runs failed" in done.stderr
    values = json.loads((tmp_path / "output" / "table.json").read_text())
    scores = [
        100 * run["results"]["eval_accuracy"]
        for run in values["runs"]
        if run["results"]
    ]
    assert len(scores) == 2
    (row,) = values["table"]
    assert row["median"] == pytest.approx(np.median(scores))
    assert row["best"] == max(scores)
    assert row["learning rate"] == "0.001"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_tells_its_program(tmp_path, number):
    # Stands for run_classifier.
    program = tmp_path / "python"
    program.write_text(
        "#!/bin/sh\n"
        f"trap 'echo saved > {tmp_path}/state; exit 0' TERM\n"
        f"kill -{int(number)} $PPID\n"
        "while true; do sleep 0.05; done\n"
    )
    program.chmod(0o755)
    code = (
        "import sys; from bert_tf import run_glue\n"
        f"sys.executable = {str(program)!r}\n"
        "run_glue._classify([])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=60)
    assert done.returncode == 75
    assert (tmp_path / "state").read_text() == "saved\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (("--task_name=RTE,AX",), "--task_name=AX must be given with MNLI"),
        (("--task_name=RTE,CoLA",), "There is no file .*CoLA/train.tsv"),
        (("--random_seed=a",), "--random_seed must be numbers"),
        (("--random_seed=-1",), "--random_seed must be in"),
        (("--learning_rate=nan",), "--learning_rate must be 0 or more"),
        (("--learning_rate=",), "--learning_rate must be given"),
        (("--num_train_epochs=0",), "--num_train_epochs must be positive"),
    ],
)
def test_bad_flags_are_told(flags, run_program, extra, message):
    refused = run_program(PROGRAM, *flags, *extra, check=False)
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("run_glue.py: error: ")
    assert re.search(message, last)


@pytest.mark.slow
def test_a_task_of_no_leaderboard_is_predicted(tmp_path, flags, run_program):
    folder = tmp_path / "glue" / "XNLI-de"
    (folder / "multinli").mkdir(parents=True)
    labels = ("contradictory", "entailment", "neutral")
    rows = ["premise\thypo\tlabel"] + [
        f"a b\tc d\t{name}" for name in 2 * labels
    ]
    path = folder / "multinli" / "multinli.train.de.tsv"
    path.write_text("\n".join(rows) + "\n")
    header = "\t".join(f"h{number}" for number in range(8))
    for split in ("dev", "test"):
        rows = [header] + [
            "\t".join(["de", name, *"....", "a b", "c d"])
            for name in ("contradiction", "entailment", "neutral")
        ]
        (folder / f"xnli.{split}.tsv").write_text("\n".join(rows) + "\n")
    flags += ("--task_name=XNLI-de", "--learning_rate=1e-3", "--do_predict")
    done = run_program(PROGRAM, *flags)
    assert "leaderboard" not in done.stdout
    (answers,) = (tmp_path / "output").glob("xnli-de/*/test_results.tsv")
    assert np.loadtxt(answers).shape == (3, 3)
