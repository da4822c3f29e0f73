"""The program convert_checkpoint, end to end."""

import json
import os

import numpy as np
import safetensors.numpy
import tensorflow as tf

from references import checkpoints as peer

PROGRAM = "bert_tf.export.convert_checkpoint"


def test_there_and_back(tmp_path, run_program):
    peer.write_folder(tmp_path / "a", "BertForPreTraining")
    process = run_program(
        PROGRAM,
        f"--init_checkpoint={tmp_path}/a",
        f"--output_dir={tmp_path}/b",
        "--format=google",
        "--hidden_act=gelu_new",
    )
    lines = process.stdout.splitlines()
    assert lines[0].split() == ["status", "name", "shape", "note"]
    assert (
        "loaded  bert/encoder/layer_{0-1}/intermediate/dense/kernel"
        in process.stdout
    )
    assert lines[-1].endswith("loaded 46 tensors; 0 initialised; 0 unused")
    shapes = dict(tf.train.list_variables(f"{tmp_path}/b/bert_model.ckpt"))
    assert shapes["bert/encoder/layer_1/intermediate/dense/kernel"] == [12, 10]
    assert len(shapes) == 46

    run_program(
        PROGRAM,
        f"--init_checkpoint={tmp_path}/b/bert_model.ckpt",
        f"--output_dir={tmp_path}/c",
        "--max_position_embeddings=13",
    )
    config = json.loads((tmp_path / "c/config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["max_position_embeddings"] == 13
    assert config["hidden_act"] == "gelu_new"
    tokenizer = json.loads((tmp_path / "c/tokenizer_config.json").read_text())
    assert tokenizer["do_lower_case"] is True
    assert tokenizer["model_max_length"] == 13
    tensors = safetensors.numpy.load_file(tmp_path / "c/model.safetensors")
    expected = peer.tensors("BertForPreTraining")
    assert tensors.keys() == expected.keys()
    for name, array in expected.items():
        if name.endswith("position_embeddings.weight"):
            array = np.concatenate([array, array[:4]])
        np.testing.assert_array_equal(tensors[name], array)


def test_bad_input_is_one_line_and_writes_nothing(tmp_path, run_program):
    peer.write_folder(tmp_path / "a", "BertModel")
    (tmp_path / "a/vocab.txt").write_text("\n".join([*peer.TOKENS, "f"]))
    process = run_program(
        PROGRAM,
        f"--init_checkpoint={tmp_path}/a",
        f"--output_dir={tmp_path}/b",
        check=False,
    )
    assert process.returncode == 1
    assert "vocab.txt: must have at most as many entries" in process.stderr
    assert "Traceback" not in process.stderr
    assert os.listdir(tmp_path) == ["a"]
