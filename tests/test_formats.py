"""Files of earlier releases are read, and those of later ones refused.

golden/formats_1.tar.xz holds what the release of 9e850ec made, on an AMD EPYC,
of a text, a vocabulary and a table of sentences: records, a pre-training and
a fine-tuning, each with its state half-way, and an export. Nothing in it has a
`format_version`; that is version 1. It stays as it is: a later format gets a
fixture of its own.
"""

import importlib
import json
import re
import shutil
import tarfile

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert_tf import formats
from bert_tf import manifest
from bert_tf.checkpoints import model_folder
from bert_tf.serving import options as options_lib
from bert_tf.serving import saved_model
from bert_tf.serving.kinds import opening
from bert_tf.serving.options import ExportOptions
from bert_tf.serving.proof import check
from bert_tf.training import checkpointing
from support import paths

FIXTURE = paths.GOLDEN / "formats_1.tar.xz"
PRETRAINING = {
    "input_file": "records/r.tfrecord",
    "bert_config_file": "config.json",
    "vocab_file": "vocab.txt",
    "train_batch_size": 4,
    "num_warmup_steps": 1,
    "learning_rate": 1e-2,
    "num_train_steps": 6,
    "save_checkpoints_steps": 3,
}
TUNING = {
    "task_name": "tsv",
    "data_dir": "tsv",
    "text_columns": "text",
    "label_column": "label",
    "init_checkpoint": "pretraining",
    "max_seq_length": 16,
    "train_batch_size": 4,
    "num_train_epochs": 2,
    "learning_rate": 1e-3,
    "random_seed": 5,
    "save_checkpoints_steps": 6,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("formats")
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def resume(run_program, folder, module, output, last_state, flags):
    """Makes a run's second half anew; returns its weights and the old ones."""
    copy = folder / f"{output}_resumed"
    shutil.copytree(folder / output, copy)
    for path in (copy / "train").glob(f"{last_state}.*"):
        path.unlink()
    (copy / "model.safetensors").unlink()
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    process = run_program(
        module, "--do_train", *arguments, f"--output_dir={copy}", cwd=folder
    )
    return process, *(
        load_file(path / "model.safetensors")
        for path in (copy, folder / output)
    )


def assert_close(tensors, expected):
    assert tensors.keys() == expected.keys()
    for name, value in tensors.items():
        # Other processors round otherwise.
        np.testing.assert_allclose(value, expected[name], atol=2e-5)


def test_records_are_made_and_read_as_then(folder, run_program):
    run_program(
        "bert_tf.data.create_pretraining_data",
        "--input_file=text.txt",
        "--output_file=again/r.tfrecord",
        "--vocab_file=vocab.txt",
        "--max_seq_length=32",
        "--max_predictions_per_seq=4",
        "--dupe_factor=2",
        "--random_seed=3",
        cwd=folder,
    )
    stored, again = (
        folder / name / "r.tfrecord" for name in ("records", "again")
    )
    assert again.read_bytes() == stored.read_bytes()
    told = manifest.read(str(folder / "records/manifest-r.tfrecord.json"))
    assert manifest.find([str(stored)]) == {str(stored): told}


def test_a_pretraining_goes_on(folder, run_program):
    process, tensors, expected = resume(
        run_program,
        folder,
        "bert_tf.run_pretraining",
        "pretraining",
        "state-6",
        PRETRAINING,
    )
    assert "Resuming from step 3" in process.stderr
    assert "other settings" not in process.stderr
    assert_close(tensors, expected)


def test_a_fine_tuning_goes_on(folder, run_program):
    process, tensors, expected = resume(
        run_program,
        folder,
        "bert_tf.run_classifier",
        "tuned",
        "state-12",
        TUNING,
    )
    saved = re.findall(r"Saved .*/(state-\d+)", process.stderr)
    assert saved == ["state-12"]
    assert_close(tensors, expected)


def test_an_export_answers_as_its_model_does(folder):
    # Its operations, where no other test has loaded them.
    importlib.import_module("tensorflow_text")
    export = str(folder / "export" / "1")
    assert saved_model.read_settings(export)["contents"] == options_lib.TEXT
    texts = [b"the fox jumps.", b"unbelievable", b""]
    served = tf.saved_model.load(export).signatures["serving_default"](
        text=tf.constant(texts)
    )
    servable = opening.open_folder(
        str(folder / "tuned"), ExportOptions(max_seq_length=16)
    )
    rows = [(text,) for text in texts]
    inputs = servable.encode(rows)
    answers = servable.trained_answers(inputs, rows)
    np.testing.assert_allclose(
        served["probabilities"], answers["probabilities"], atol=1e-6
    )
    # What it holds of its options is less than a later release stores.
    options = saved_model.read_options(export)
    assert (options.max_seq_length, options.freeze) == (16, False)
    stored = check.trained_servable(
        saved_model.read_options(export), str(folder / "tuned")
    )
    assert stored.options == servable.options


def read_training(folder):
    return checkpointing.read_description(folder / "tuned")


def read_export(folder):
    return saved_model.read_settings(folder / "export" / "1")


def read_task(folder):
    return model_folder.read_task(folder / "tuned")


@pytest.mark.parametrize(
    ("name", "read", "latest"),
    [
        ("tuned/task.json", read_task, 2),
        ("tuned/train/model.json", read_training, 4),
        ("export/1/assets.extra/bert_tf.json", read_export, 3),
    ],
)
def test_versions(folder, tmp_path, name, read, latest):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    path = tmp_path / name
    values = json.loads(path.read_text("utf-8"))
    assert formats.KEY not in values
    assert read(tmp_path) == values
    for version in range(1, latest + 1):
        path.write_text(json.dumps(formats.stamped(values, version)))
        assert read(tmp_path) == values
    for version in (latest + 1, 0, "1", None, True):
        path.write_text(json.dumps(formats.stamped(values, version)))
        with pytest.raises(ValueError, match=f"{name}: `format_version` must"):
            read(tmp_path)
