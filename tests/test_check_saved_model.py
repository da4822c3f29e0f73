"""The program that checks an export and asks it, as users run it."""

import pathlib
import shutil

import serving_models

PROGRAM = "bert_tf.export.check_saved_model"


def test_equal_answers_are_reported_and_texts_answered(run_program, tmp_path):
    texts = tmp_path / "dev.tsv"
    texts.write_bytes(b"the quick\tlorem\n\xff\t\n")
    # The folder of versions: the newest is taken.
    servable = pathlib.Path(serving_models.exported("pair")).parent
    process = run_program(
        PROGRAM,
        f"--export_dir={servable}",
        f"--model_dir={serving_models.model_dir('pair')}",
        f"--input_file={texts}",
        "--text=the fox\tis quick",
        "--text=lorem\t",
    )
    lines = [line.split() for line in process.stdout.splitlines()]
    assert lines[0] == ["text", "label", "probabilities"]
    assert lines[1][:5] == ["the", "fox", "|", "is", "quick"]
    assert lines[1][5] in serving_models.PAIR_TASK.labels
    assert lines[1][5] == lines[1][7].rstrip(",")
    checked = {line[0]: line[1:] for line in lines if line[-1] == "equal"}
    assert set(checked) == {"serving_default", "ids", "examples", "classify"}
    for num_texts, difference, _ in checked.values():
        assert num_texts == "2"
        assert float(difference) <= 1e-5


def test_a_difference_fails(run_program, tmp_path):
    shutil.copytree(serving_models.model_dir("pair"), tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    # A sign of one number, at the end of the file.
    data[-1] ^= 0x80
    weights.write_bytes(data)
    process = run_program(
        PROGRAM,
        f"--export_dir={serving_models.exported('pair')}",
        f"--model_dir={tmp_path}/model",
        check=False,
    )
    assert process.returncode == 1
    assert process.stdout.count("DIFFERENT") == 4
    assert "does not answer as the trained model does" in process.stderr


def test_a_text_that_is_no_pair_is_an_error_of_one_line(run_program):
    process = run_program(
        PROGRAM,
        f"--export_dir={serving_models.exported('pair')}",
        "--text=alone",
        check=False,
    )
    assert process.returncode == 1
    assert "--text, line 1: must be 2 strings" in process.stderr
    assert "Traceback" not in process.stderr
