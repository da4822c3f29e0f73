"""The distillation program: both kinds of data end to end, and its refusals."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from bert_tf import checkpoints
from bert_tf.models.classifier import BertClassifier
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.tasks.classification import glue_files
from bert_tf.tasks.classification.task import ClassificationTask
from bert_tf.text.tokenizers.wordpiece import WordpieceSpec
from references import training as reference

TASK = ClassificationTask(
    name="letters",
    text_features=("text",),
    labels=("no", "yes"),
    metrics=("accuracy",),
)
SCORES = dataclasses.replace(TASK, labels=(), metrics=("pearson",))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Records, a table, and a teacher for each."""
    folder = tmp_path_factory.mktemp("distillation")
    reference.write_records(
        folder / "a.tfrecord", reference.pretraining_arrays(8)
    )
    rows = ["text\tanswer"]
    rows += [f"w{n} w{n + 1}\t{TASK.labels[n % 2]}" for n in range(8)]
    (folder / "train.tsv").write_text("\n".join(rows) + "\n")
    config = reference.tiny_config()
    tokenizer = WordpieceSpec(reference.vocabulary())
    for name, model, options in (
        ("pretrained", BertPretrainer(config), {}),
        (
            "tuned",
            BertClassifier(config, 2),
            {"task": TASK.to_dict(), "label_names": TASK.labels},
        ),
        ("regression", BertClassifier(config, 1), {"task": SCORES.to_dict()}),
    ):
        reference.set_weights(model)
        checkpoints.save(folder / name, model, tokenizer, 11, **options)
    return folder


def arguments(folder, teacher, **values):
    values = {
        "teacher": folder / teacher,
        "student_layers": "1",
        "train_batch_size": 4,
        "max_seq_length": 11,
        "learning_rate": 1e-2,
    } | values
    return [
        f"--{name}={value}"
        for name, value in values.items()
        if value is not None
    ]


def test_distils_on_records(folder, tmp_path, run_program):
    process = run_program(
        "bert_tf.run_distillation",
        *arguments(
            folder,
            "pretrained",
            input_file=folder / "a.tfrecord",
            max_predictions_per_seq=3,
            num_train_steps=2,
            num_warmup_steps=1,
            losses="soft_targets,cosine:0.5",
            soft_positions="masked",
            output_dir=tmp_path / "small",
        ),
    )
    assert "The student begins with the teacher's layers 1." in process.stderr
    assert "soft_targets_loss" in process.stderr
    model = checkpoints.load(str(tmp_path / "small"), BertPretrainer)
    assert model.config.num_hidden_layers == 1


@pytest.mark.parametrize("student", ["layers", "config"])
def test_a_release_that_does_not_tell_its_case_is_told(
    student, folder, tmp_path, run_program
):
    teacher = tmp_path / "teacher"
    shutil.copytree(folder / "pretrained", teacher)
    for path in teacher.glob("tokenizer*.json"):
        path.unlink()
    if student == "config":
        values = {
            "student_layers": None,
            "bert_config_file": teacher / "config.json",
        }
    else:
        values = {}
    run_program(
        "bert_tf.run_distillation",
        *arguments(
            folder,
            teacher,
            input_file=folder / "a.tfrecord",
            max_predictions_per_seq=3,
            num_train_steps=1,
            losses="masked_lm",
            do_lower_case="false",
            output_dir=tmp_path / "small",
            **values,
        ),
    )
    told = json.loads(
        (tmp_path / "small" / "tokenizer_config.json").read_text()
    )
    assert told["do_lower_case"] is False


def test_distils_on_a_tasks_table(folder, tmp_path, run_program):
    process = run_program(
        "bert_tf.run_distillation",
        "--do_eval",
        "--do_predict",
        *arguments(
            folder,
            "tuned",
            train_file=folder / "train.tsv",
            eval_file=folder / "train.tsv",
            predict_file=folder / "train.tsv",
            label_column="answer",
            num_train_epochs=1,
            output_dir=tmp_path / "small",
        ),
    )
    assert "eval_accuracy = " in process.stdout
    stored = json.loads((tmp_path / "small" / "task.json").read_text())
    assert stored["labels"] == ["no", "yes"]
    answers = (tmp_path / "small" / "test_results.tsv").read_text()
    assert np.loadtxt(answers.splitlines()).shape == (8, 2)
    report = (tmp_path / "small" / "report.md").read_text()
    assert "temperature" in report


@pytest.mark.slow
def test_glues_test_set_is_answered_as_its_leaderboard_takes_it(
    folder, tmp_path, run_program
):
    task = glue_files.GLUE_TASKS["mrpc"].task
    teacher = BertClassifier(reference.tiny_config(), 2)
    reference.set_weights(teacher)
    checkpoints.save(
        tmp_path / "teacher",
        teacher,
        WordpieceSpec(reference.vocabulary()),
        11,
        task=task.to_dict(),
        label_names=task.labels,
    )
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
    rows = [f"{row % 2}\t{row}\t{row}\tw{row} w1\tw2 w3" for row in range(4)]
    for split in ("train", "test"):
        path = tmp_path / f"{split}.tsv"
        path.write_text("\n".join([header, *rows]) + "\n")
    process = run_program(
        "bert_tf.run_distillation",
        "--do_predict",
        *arguments(
            tmp_path,
            "teacher",
            data_dir=tmp_path,
            num_train_epochs=1,
            output_dir=tmp_path / "small",
        ),
    )
    path = tmp_path / "small" / "MRPC.tsv"
    assert f"For GLUE's leaderboard: {path}" in process.stdout
    assert path.read_text().splitlines()[0] == "index\tprediction"
    assert len(path.read_text().splitlines()) == 5


REFUSED = {
    "no data": ({}, "One of --input_file, --data_dir and --train_file must"),
    "two data": (
        {"input_file": "a", "data_dir": "b"},
        "Received: --input_file --data_dir.",
    ),
    "flag of tasks": (
        {"input_file": "a", "num_train_epochs": 2},
        "--num_train_epochs must not be given with --input_file.",
    ),
    "flag of records": (
        {"data_dir": "a", "num_train_steps": 2},
        "--num_train_steps must not be given with --data_dir.",
    ),
    "calibration of records": (
        {"input_file": "a", "calibrate": "true"},
        "--calibrate must not be given with --input_file.",
    ),
    "threshold of records": (
        {"input_file": "a", "tune_null_threshold": "true"},
        "--tune_null_threshold must not be given with --input_file.",
    ),
    "threshold without evaluation": (
        {"data_dir": "a", "tune_null_threshold": "true"},
        "--tune_null_threshold must be given with --do_eval.",
    ),
    "loss of records": (
        {"data_dir": "a", "losses": "masked_lm"},
        "must be different names from soft_targets, labels, cosine",
    ),
    "not training": (
        {"data_dir": "a", "do_train": "false"},
        "--do_train must be true",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_flags_are_refused_in_a_line(case, tmp_path, run_program):
    values, message = REFUSED[case]
    process = run_program(
        "bert_tf.run_distillation",
        *arguments(tmp_path, "a", output_dir=tmp_path / "b", **values),
        check=False,
    )
    assert process.returncode == 1
    assert message in process.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "teacher, values, message",
    [
        (
            "pretrained",
            {"train_file": "{folder}/train.tsv", "label_column": "answer"},
            "the teacher must be tuned to a task; it has no task.json.",
        ),
        (
            "tuned",
            {"train_file": "{folder}/train.tsv", "student_layers": "2"},
            "`student_layers` must be layers of the teacher, 0 to 1.",
        ),
        (
            "tuned",
            {"data_dir": "{folder}"},
            "--label_column must be given.",
        ),
        (
            "regression",
            {"train_file": "{folder}/train.tsv", "temperature": "3"},
            "--temperature must not be given with a regression, whose scores "
            "have none.",
        ),
        (
            "tuned",
            {
                "train_file": "{folder}/train.tsv",
                "do_eval": "true",
                "tune_null_threshold": "true",
            },
            "with a teacher of SQuAD 2.0. Received: a teacher of 'letters'.",
        ),
    ],
)
def test_wrong_teachers_are_refused_in_a_line(
    folder, teacher, values, message, tmp_path, run_program
):
    values = {
        name: value.format(folder=folder) for name, value in values.items()
    }
    process = run_program(
        "bert_tf.run_distillation",
        *arguments(folder, teacher, output_dir=tmp_path / "b", **values),
        check=False,
    )
    assert process.returncode == 1
    assert message in process.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "b").exists()
