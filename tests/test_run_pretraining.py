"""The pre-training program, end to end."""

import dataclasses
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import checkpoints
from bert_tf.models.pretrainer import BertPretrainer
from bert_tf.training import lock
from references import training as reference

CONFIG = dataclasses.replace(reference.tiny_config(0.1), num_hidden_layers=1)
KEYS = [
    "global_step",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "next_sentence_accuracy",
    "next_sentence_loss",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretraining")
    reference.write_records(
        folder / "a.tfrecord", reference.pretraining_arrays(21)
    )
    (folder / "config.json").write_text(json.dumps(CONFIG.to_dict()))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [f"w{index}" for index in range(reference.VOCAB_SIZE - 5)]
    (folder / "vocab.txt").write_text("\n".join(special + words) + "\n")
    return folder


def arguments(folder, **flags):
    flags = {
        "input_file": f"{folder}/*.tfrecord",
        "bert_config_file": folder / "config.json",
        "vocab_file": folder / "vocab.txt",
        "output_dir": folder / "output",
        "max_seq_length": reference.LENGTH,
        "max_predictions_per_seq": reference.PREDICTIONS,
        "train_batch_size": 4,
        "num_warmup_steps": 1,
        "learning_rate": 1e-2,
    } | flags
    return [
        f"--{name}={value}"
        for name, value in flags.items()
        if value is not None
    ]


def test_two_programs_in_one_output_directory(folder, run_program):
    output = folder / "held"
    with lock.hold(output / "train"):
        process = run_program(
            "bert_tf.run_pretraining",
            "--do_train",
            *arguments(folder, output_dir=output, num_train_steps=2),
            check=False,
        )
    assert process.returncode == 1
    last_line = process.stderr.strip().splitlines()[-1]
    assert f"{output} is in use: process {os.getpid()} on " in last_line
    assert not output.exists()


def read_results(path):
    lines = path.read_text("utf-8").splitlines()
    return [line.split(" = ") for line in lines]


def test_training_resumes_and_is_evaluated(folder, run_program):
    first = run_program(
        "bert_tf.run_pretraining",
        "--do_train",
        *arguments(folder, num_train_steps=2),
    )
    assert "Beginning with new weights" in first.stderr
    assert "Curves: tensorboard --logdir=" in first.stderr
    # The rest on two devices.
    second = run_program(
        "bert_tf.run_pretraining",
        "--do_train",
        "--do_eval",
        "--strategy=mirrored",
        "--num_cpu_devices=2",
        *arguments(
            folder,
            num_train_steps=4,
            iterations_per_loop=1,
            peak_tflops=2.5,
            save_checkpoints_steps=1,
            attention_chunk=128,
            keep_best=True,
            eval_file=f"{folder}/*.tfrecord",
        ),
    )
    assert "Resuming from step 2" in second.stderr
    assert "The evaluation is on records of the training" in second.stderr
    # Devices and intervals are not named: the schedule alone is another.
    assert (
        "Resuming from step 2 with other settings: num_train_steps 2 -> 4. "
        "The learning rate follows the new schedule from step 2 on.\n"
    ) in second.stderr
    assert "step 3/4  loss " in second.stderr
    assert "step 2/4" not in second.stderr
    assert "model_flops_utilization" in second.stderr
    output = folder / "output"
    summary = json.loads((output / "summary.json").read_text("utf-8"))
    assert (summary["step"], summary["num_train_steps"]) == (4, 4)
    entries = json.loads((output / "train" / "settings.json").read_text())
    assert [entry["from_step"] for entry in entries] == [0, 2]
    kept = entries[1]["settings"]
    (records,) = kept.pop("records")
    assert re.fullmatch(r"1 files \([0-9a-f]{8}\)", records)
    assert kept.pop("evaluation") == f"{records}, 100 batches of 8"
    assert kept == {
        "train_batch_size": [4],
        "phase_ends": [],
        "num_train_steps": 4,
        "input_shares": 1,
        "mixed_precision": "float32",
        "attention_masks": ["one for all queries"],
        "optimizer": "bert",
        "learning_rate": 0.01,
        "num_warmup_steps": 1,
        "learning_rate_decay": "linear",
        "learning_rate_drop": True,
        "num_decay_steps": None,
        "weight_decay": 0.01,
        "adam_beta_2": 0.999,
        "adam_epsilon": 1e-6,
        "clip_norm": 1.0,
        "bias_correction": None,
        "layerwise_learning_rate_decay": 1.0,
        "random_seed": 12345,
    }
    checkpoints_left = sorted(p.stem for p in output.glob("train/*.index"))
    assert checkpoints_left == ["state-2", "state-3", "state-4"]
    results = read_results(output / "eval_results.txt")
    assert [name for name, _ in results] == KEYS
    values = {name: float(value) for name, value in results}
    assert values["global_step"] == 4
    np.testing.assert_allclose(
        values["loss"],
        values["masked_lm_loss"] + values["next_sentence_loss"],
        rtol=1e-6,
    )
    # What the program says is what the file holds.
    assert second.stdout == (output / "eval_results.txt").read_text("utf-8")

    # Before both checkpoints, and the model of the better one is kept.
    losses = re.findall(r"Evaluated: step (\d+)  loss (\S+)", second.stderr)
    best = dict(read_results(output / "best" / "eval_results.txt"))
    found = {int(step): float(loss) for step, loss in losses}
    assert found.keys() == {3, 4}
    assert int(best["global_step"]) == min(found, key=found.get)
    np.testing.assert_allclose(
        float(best["loss"]), min(found.values()), rtol=1e-3
    )

    # Both models' cards tell of it, and that steps were made otherwise.
    card = (output / "README.md").read_text("utf-8")
    for line in (
        "- `steps`: 4",
        "- `from_step`: 2",
        "- `optimizer`: bert",
        f"- `loss`: {values['loss']:.4g}",
        r"On \*.tfrecord, which the model was trained on:",
    ):
        assert f"\n{line}\n" in card
    # The run that began is another.
    assert "Initial weights" not in card
    card = (output / "best" / "README.md").read_text("utf-8")
    assert f"\n- `steps`: {best['global_step']}\n" in card
    assert f"\n- `loss`: {float(best['loss']):.4g}\n" in card

    # The model folder holds what was evaluated.
    model = checkpoints.load(output, BertPretrainer)
    assert model.config == CONFIG
    batch = reference.as_batch(reference.pretraining_arrays(21))
    outputs = model(batch)
    expected = reference.pretraining_loss(
        outputs["masked_lm_logits"].numpy(),
        outputs["next_sentence_logits"].numpy(),
        batch,
        epsilon=0.0,
    )
    for name, value in expected.items():
        np.testing.assert_allclose(values[name], value, rtol=1e-4)

    # The best one does too; its own configuration and vocabulary are taken.
    again = run_program(
        "bert_tf.run_pretraining",
        "--do_eval",
        f"--input_file={folder}/*.tfrecord",
        f"--init_checkpoint={output}/best",
        f"--output_dir={folder}/elsewhere",
        f"--max_seq_length={reference.LENGTH}",
        f"--max_predictions_per_seq={reference.PREDICTIONS}",
        "--eval_batch_size=5",
    )
    repeated = dict(read_results(folder / "elsewhere" / "eval_results.txt"))
    np.testing.assert_allclose(
        float(repeated["loss"]), float(best["loss"]), rtol=1e-5
    )
    assert again.stdout.startswith("global_step = 0\n")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"do_eval": True}, "there must be a model in --output_dir"),
        (
            {"do_train": True, "max_seq_length": 12},
            "a.tfrecord: `input_ids` must have 12 int64 values in each "
            "record. Received: 11.",
        ),
        (
            {"do_train": True, "profile_steps": "5"},
            "--profile_steps must be two numbers, first:end, the first step "
            "and a later one. Received: --profile_steps=5.",
        ),
        (
            {
                "do_train": True,
                "profile_steps": "4:6",
                "num_train_steps": 4,
            },
            "--profile_steps must begin before the training ends, at step 4. "
            "Received: --profile_steps=4:6.",
        ),
        (
            {
                "do_train": True,
                "do_eval": True,
                "strategy": "mirrored",
                "num_cpu_devices": 3,
                "train_batch_size": 6,
            },
            "--eval_batch_size must be a multiple of 3, the number of "
            "replicas. Received: --eval_batch_size=8.",
        ),
        (
            {"do_train": True, "layerwise_learning_rate_decay": 2},
            "--layerwise_learning_rate_decay must be above 0, and at most 1. "
            "Received: --layerwise_learning_rate_decay=2.0.",
        ),
        (
            {"do_train": True, "num_train_steps": 60, "num_warmup_steps": None},
            "--num_warmup_steps=10000 with 60 steps. A tenth of them is usual: "
            "--num_warmup_steps=6.",
        ),
        (
            {"do_train": True, "num_train_steps": 7, "num_warmup_steps": 7},
            "--num_warmup_steps must be less than the steps of the training",
        ),
        (
            {"do_train": True, "keep_best": True},
            "--keep_best needs --do_train and --do_eval.",
        ),
        (
            {"do_train": True, "eval_file": "a.tfrecord"},
            "--eval_file must be given with --do_eval.",
        ),
        (
            {"do_train": True, "attention_chunk": 64},
            "--attention_chunk must be 0 or a positive multiple of 128. "
            "Received: --attention_chunk=64.",
        ),
        (
            {"do_train": True, "max_position_embeddings": 4096},
            "`max_position_embeddings` must be that of the checkpoint or the "
            "configuration, 16. Received: max_position_embeddings=4096. "
            "bert_tf convert --max_position_embeddings gives a checkpoint "
            "more.",
        ),
        (
            {
                "do_train": True,
                "bert_config_file": "tiny",
                "max_position_embeddings": 8,
            },
            "`max_seq_length` must be at most the model's "
            "max_position_embeddings=8. Received: max_seq_length=11. "
            "--max_position_embeddings gives more: to a new model in bert_tf "
            "pretrain, to a checkpoint in bert_tf convert.",
        ),
        (
            {"do_train": True, "use_tpu": True, "strategy": "mirrored"},
            "--use_tpu and --strategy must agree.",
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    folder, run_program, flags, message
):
    output = folder / "bad"
    process = run_program(
        "bert_tf.run_pretraining",
        *arguments(folder, output_dir=output, **flags),
        check=False,
    )
    assert process.returncode == 1
    assert message in process.stderr.strip().splitlines()[-1]
    assert "Traceback" not in process.stderr
    assert not output.exists()


def test_a_model_from_elsewhere_is_not_overwritten(folder, run_program):
    output = folder / "others"
    output.mkdir()
    (output / "config.json").write_text("{}")
    process = run_program(
        "bert_tf.run_pretraining",
        "--do_train",
        *arguments(folder, output_dir=output),
        check=False,
    )
    assert process.returncode == 1
    assert "holds a model that was not trained there" in process.stderr
    assert [path.name for path in output.iterdir()] == ["config.json"]


def test_one_thread_does_not_look_like_a_slow_input(
    folder, run_program, monkeypatch
):
    # TensorFlow reads them when it is first used: in the program's process.
    for name in ("TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        monkeypatch.setenv(name, "1")
    output = folder / "one_thread"
    config = dataclasses.replace(CONFIG, hidden_size=384, intermediate_size=768)
    (folder / "wide.json").write_text(json.dumps(config.to_dict()))
    run_program(
        "bert_tf.run_pretraining",
        "--do_train",
        *arguments(
            folder,
            bert_config_file=folder / "wide.json",
            output_dir=output,
            num_train_steps=20,
            iterations_per_loop=10,
            train_batch_size=16,
        ),
    )
    summary = json.loads((output / "summary.json").read_text("utf-8"))
    # The time of the step itself was taken for that of the input once.
    assert summary["input_share"] < 0.5


def test_deterministic_operations_give_the_same_bits(folder, run_program):
    # The loop's clock is not TensorFlow's then: that one is refused.
    weights = []
    for name in ("once", "again"):
        output = folder / name
        run_program(
            "bert_tf.run_pretraining",
            "--do_train",
            "--deterministic",
            "--notf32",
            *arguments(folder, output_dir=output, num_train_steps=2),
        )
        weights.append((output / "model.safetensors").read_bytes())
        summary = json.loads((output / "summary.json").read_text("utf-8"))
        assert 0 < summary["input_share"] < 1
    assert weights[0] == weights[1]


def test_phases_of_the_same_records_read_on_left_to_right(folder, run_program):
    records = f"{folder}/*.tfrecord"
    output = folder / "phases"
    process = run_program(
        "bert_tf.run_pretraining",
        "--do_train",
        "--attention=left_to_right",
        *arguments(
            folder,
            input_file=f"{records};{records}",
            output_dir=output,
            phases=f"{reference.LENGTH}:2:4,{reference.LENGTH}:1:6",
            max_seq_length=None,
            train_batch_size=None,
        ),
    )
    state = tf.train.load_checkpoint(str(output / "train"))
    assert (
        state.get_tensor("example/.ATTRIBUTES/VARIABLE_VALUE") == 2 * 4 + 1 * 6
    )
    # Models that see what is before them say so.
    assert "masked_lm_loss" in process.stderr
    assert "next_sentence_loss" not in process.stderr
    assert checkpoints.load(output, BertPretrainer).config.is_decoder
    # Without labels for pairs, nothing trained that head.
    config = json.loads((output / "config.json").read_text())
    assert config["architectures"] == ["BertForMaskedLM"]


def test_a_training_that_has_diverged_says_so(folder, run_program):
    output = folder / "diverged"
    result = run_program(
        "bert_tf.run_pretraining",
        *arguments(
            folder,
            do_train=True,
            output_dir=output,
            num_train_steps=30,
            learning_rate=30.0,
            clip_norm=0,
            iterations_per_loop=10,
        ),
    )
    *_, last = result.stderr.strip().splitlines()
    assert f"The model is in {output}, but its training has diverged" in last
    card = (output / "README.md").read_text()
    assert "the loss of masked words" in card

    # The next program has no steps of its own to tell by.
    again = run_program(
        "bert_tf.run_pretraining",
        *arguments(
            folder, do_train=True, output_dir=output, num_train_steps=30
        ),
    )
    *_, last = again.stderr.strip().splitlines()
    assert "but its training has diverged" in last
    assert "the loss of masked words" in (output / "README.md").read_text()
