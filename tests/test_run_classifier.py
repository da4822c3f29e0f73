"""run_classifier from files to files, as a subprocess."""

import csv
import json
import re

import huggingface_hub
import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.models.classifier import BertClassifier
from bert_tf.text.vocabulary import SPECIAL_TOKENS
from support import releases

PROGRAM = "bert_tf.run_classifier"
WORDS = ("cat", "dog", "cow", "hen", "red", "blue", "green", "grey")
TOKENS = (*SPECIAL_TOKENS, *WORDS)


@pytest.fixture
def release(tmp_path):
    """The flags of an architecture and a vocabulary."""
    return (
        *releases.write_flags(tmp_path, TOKENS),
        "--max_seq_length=12",
    )


def write_tsv(folder, split, rows, header=None):
    folder.mkdir(exist_ok=True)
    lines = ["\t".join(row) for row in ([header] if header else []) + rows]
    (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def sentences(count, seed):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=4)) for _ in range(count)]


def assert_card_tells(folder, results):
    """What the Hub reads of the training and its scores."""
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    scores = {
        score.metric_name: score.metric_value
        for score in card.data.eval_results
    }
    assert scores == {
        name: results[name] for name in results if name.startswith("eval_")
    }
    assert card.data.model_name == "mrpc"
    assert "\nOn mrpc, 7 examples:\n" in card.text
    assert card.data.pipeline_tag == "text-classification"
    # Of the training, by whom the folder was evaluated last.
    for line in ("Examples: 10", "`steps`: 3", "`train_batch_size`: 6"):
        assert f"\n- {line}\n" in card.text


def test_pair_is_trained_evaluated_predicted_and_taken_up_again(
    tmp_path, release, run_program
):
    data, output = tmp_path / "MRPC", tmp_path / "output"
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    for seed, (split, count) in enumerate({"train": 10, "dev": 7}.items()):
        pairs = zip(sentences(count, seed), sentences(count, seed + 9))
        rows = [[str(i % 2), "1", "2", a, b] for i, (a, b) in enumerate(pairs)]
        write_tsv(data, split, rows, header)
    pairs = zip(sentences(5, 3), sentences(5, 4))
    rows = [[str(i), "1", "2", a, b] for i, (a, b) in enumerate(pairs)]
    write_tsv(data, "test", rows, ["index", *header[1:]])

    flags = (
        "--task_name=MRPC",
        f"--data_dir={data}",
        f"--output_dir={output}",
        "--eval_batch_size=3",
        "--predict_batch_size=2",
    )
    done = run_program(
        PROGRAM,
        *release,
        *flags,
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--train_batch_size=6",
        "--num_train_epochs=2",
        "--iterations_per_loop=1",
    )
    assert "step 3/3" in done.stderr
    assert "epoch 1/2" in done.stderr
    assert "epoch 2/2" in done.stderr
    results = releases.read_results(output)
    assert sorted(results) == [
        "eval_accuracy",
        "eval_f1",
        "eval_loss",
        "global_step",
        "loss",
    ]
    # int(10 / 6 * 2)
    assert results["global_step"] == 3
    assert 0.4 < results["eval_loss"] < 1.0
    assert results["loss"] == results["eval_loss"]
    assert f"eval_loss = {results['eval_loss']}" in done.stdout
    probabilities = np.loadtxt(output / "test_results.tsv", delimiter="\t")
    assert probabilities.shape == (5, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert done.stdout.endswith(
        f"5 predictions in {output / 'test_results.tsv'}\n"
        f"For GLUE's leaderboard: {output / 'MRPC.tsv'}\n"
    )
    lines = (output / "MRPC.tsv").read_text().splitlines()
    assert lines == ["index\tprediction"] + [
        f"{index}\t{row.argmax()}" for index, row in enumerate(probabilities)
    ]
    report = (output / "report.md").read_text()
    assert f"| eval\\_f1 | {results['eval_f1']:.4g} |" in report
    assert "| is 1 |" in report
    assert "--num_train_epochs=2" in report
    assert (output / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert_card_tells(output, results)
    assert json.loads((output / "task.json").read_text())["name"] == "mrpc"
    model = checkpoints.load(output, BertClassifier)
    assert model.config == releases.tiny_config(len(TOKENS))
    assert model.num_labels == 2

    # The tuned model alone gives the same answers.
    (output / "test_results.tsv").rename(tmp_path / "before.tsv")
    (output / "eval_results.txt").unlink()
    run_program(PROGRAM, *flags, "--do_eval", "--do_predict", *release[2:])
    assert releases.read_results(output) == pytest.approx(results, rel=1e-5)
    assert_card_tells(output, releases.read_results(output))
    np.testing.assert_allclose(
        np.loadtxt(output / "test_results.tsv"), probabilities, atol=1e-5
    )

    # Other settings are no continuation of this training.
    refused = run_program(
        PROGRAM,
        *release,
        *flags,
        "--do_train",
        "--train_batch_size=6",
        "--num_train_epochs=2",
        "--learning_rate=1",
        check=False,
    )
    assert refused.returncode == 1
    assert "begun with other settings: --learning_rate was" in refused.stderr
    assert "--learning_rate was 5e-05 and is 1.0." in refused.stderr


@pytest.mark.slow
def test_regression_on_mirrored_devices(tmp_path, release, run_program):
    data, output = tmp_path / "data", tmp_path / "output"
    for split in ("train", "dev"):
        rows = [
            [str(i), "g", "f", "y", "1", "s", "s", a, b, str(i / 2)]
            for i, (a, b) in enumerate(zip(sentences(8, 5), sentences(8, 6)))
        ]
        write_tsv(data, split, rows, [f"h{i}" for i in range(10)])
    write_tsv(data, "test", [row[:9] for row in rows], ["h"] * 9)
    run_program(
        PROGRAM,
        *release,
        "--task_name=STS-B",
        f"--data_dir={data}",
        f"--output_dir={output}",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--train_batch_size=4",
        "--num_train_epochs=1",
        "--strategy=mirrored",
        "--num_cpu_devices=2",
    )
    results = releases.read_results(output)
    assert sorted(results) == [
        "eval_loss",
        "eval_pearson",
        "eval_spearman",
        "global_step",
        "loss",
    ]
    scores = np.loadtxt(output / "test_results.tsv")
    assert scores.shape == (8,)
    assert np.square(scores - np.arange(8) / 2).mean() == pytest.approx(
        results["eval_loss"], rel=1e-4
    )


def test_any_tsv_from_a_model_folder(tmp_path, release, run_program):
    data, output = tmp_path / "data", tmp_path / "output"
    header = ["id", "subject", "team"]
    rows = [
        [str(i), text, ("sales", "law", "it")[i % 3]]
        for i, text in enumerate(sentences(9, 7))
    ]
    # One of them with commas.
    write_tsv(data, "dev", rows[:4], header)
    write_tsv(data, "test", [row[1::-1] for row in rows], header[1::-1])
    with (data / "train.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    flags = (
        *release,
        "--task_name=tsv",
        "--text_columns=subject",
        "--label_column=team",
        f"--data_dir={data}",
        "--train_batch_size=4",
        "--num_train_epochs=1",
    )
    # Deterministic operations refuse nothing of a fine-tuning.
    run_program(
        PROGRAM,
        *flags,
        f"--output_dir={output}",
        "--do_train",
        "--deterministic",
    )
    assert json.loads((output / "task.json").read_text()) == {
        "format_version": 1,
        "family": "glue",
        "name": "tsv",
        "kind": "classification",
        "text_features": ["subject"],
        "labels": ["it", "law", "sales"],
        "metrics": ["accuracy"],
    }
    config = json.loads((output / "config.json").read_text())
    assert config["id2label"] == {"0": "it", "1": "law", "2": "sales"}
    run_program(
        PROGRAM,
        "--task_name=tsv",
        f"--data_dir={data}",
        f"--init_checkpoint={output}",
        f"--output_dir={tmp_path / 'predictions'}",
        "--do_predict",
        "--max_seq_length=16",
    )
    probabilities = np.loadtxt(tmp_path / "predictions" / "test_results.tsv")
    assert probabilities.shape == (9, 3)

    # It is evaluated as it was tuned, or not at all; its columns may be named
    # otherwise.
    for flag, message in (
        (
            "--text_columns=subject,team",
            "--text_columns must be 1 name, as the model was tuned, or be "
            "given with --do_train. Received: --text_columns=subject,team.",
        ),
        (
            "--regression",
            "--regression must be false, as the model was tuned, or be given "
            "with --do_train. Received: --regression=true.",
        ),
    ):
        refused = run_program(
            PROGRAM,
            "--task_name=tsv",
            f"--data_dir={data}",
            f"--init_checkpoint={output}",
            f"--output_dir={tmp_path / 'refused'}",
            "--label_column=team",
            "--do_eval",
            "--max_seq_length=16",
            flag,
            check=False,
        )
        assert refused.returncode == 1
        assert message in refused.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--do_train",), "There is no file .*/nowhere/train.tsv"),
        (("--do_eval",), "there must be a model in --output_dir"),
    ],
)
def test_bad_flags_are_told_in_one_line(
    tmp_path, release, run_program, flags, message
):
    refused = run_program(
        PROGRAM,
        *release,
        "--task_name=cola",
        f"--data_dir={tmp_path / 'nowhere'}",
        f"--output_dir={tmp_path / 'output'}",
        *flags,
        check=False,
    )
    assert refused.returncode == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("run_classifier.py: error: ")
    assert re.search(message, last)
    assert not (tmp_path / "output").exists()
