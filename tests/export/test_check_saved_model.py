"""The program that checks an export and asks it, as users run it."""

import json
import pathlib
import re
import shutil

from support import serving_models

PROGRAM = "bert_tf.export.check_saved_model"


def test_equal_answers_are_reported_and_texts_answered(run_program, tmp_path):
    answers = [{"text": "quick", "answer_start": 4}]
    questions = [
        {"id": name, "question": name, "answers": answers}
        for name in ("the", "wo é?")
    ]
    paragraph = {"context": "the quick, lorem" * 3, "qas": questions}
    dev = tmp_path / "dev.json"
    dev.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    # The folder of versions: the newest is taken.
    servable = pathlib.Path(serving_models.exported("squad")).parent
    process = run_program(
        PROGRAM,
        f"--export_dir={servable}",
        f"--model_dir={serving_models.model_dir('squad')}",
        # The former name of --eval_file.
        f"--input_file={dev}",
        "--text=the fox\tquick the lorem quick",
        "--text=lorem\t",
    )
    header, cited, empty = (
        re.split("  +", line) for line in process.stdout.splitlines()[:3]
    )
    assert header == ["text", "answer", "characters", "score", "null odds"]
    assert cited[0] == "the fox | quick the lorem quick"
    start, limit = map(int, cited[2].split("-"))
    assert cited[1] == "quick the lorem quick"[start:limit] != ""
    assert empty == ["lorem |", "1.000", "1000000.000"]
    lines = [line.split() for line in process.stdout.splitlines()]
    checked = {line[0]: line[1:] for line in lines if line[-1] == "equal"}
    assert set(checked) == {
        *("serving_default", "ids", "examples", "ids_examples"),
    }
    for num_texts, difference, _ in checked.values():
        assert num_texts == "18"
        assert float(difference) <= 1e-5
    assert lines[-1][:5] == ["f1", "on", "2", "labelled", "texts:"]
    assert lines[-1][-2:] == ["lost", "0.0000"]


def test_a_difference_fails(run_program, tmp_path):
    shutil.copytree(serving_models.model_dir("encoder"), tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    # A sign of one number, at the end of the file.
    data[-1] ^= 0x80
    weights.write_bytes(data)
    process = run_program(
        PROGRAM,
        f"--export_dir={serving_models.exported('encoder', 'ids')}",
        f"--model_dir={tmp_path}/model",
        check=False,
    )
    assert process.returncode == 1
    assert process.stdout.count("DIFFERENT") == 2
    assert "does not answer as the trained model does" in process.stderr
    # What was exported is told by its hash.
    assert "other weights than those exported: model.saf" in process.stderr
    errors = [
        line for line in process.stderr.splitlines() if ": error: " in line
    ]
    assert len(errors) == 1
    assert "Traceback" not in process.stderr
