"""The program that exports, as users run it."""

import serving_models

PROGRAM = "bert_tf.export.export_saved_model"


def test_exports_a_checked_servable_and_tells_what_it_holds(
    run_program, tmp_path
):
    process = run_program(
        PROGRAM,
        f"--model_dir={serving_models.model_dir('pair')}",
        f"--export_dir={tmp_path}/pair",
        "--max_seq_length=11",
    )
    assert (tmp_path / "pair" / "1" / "saved_model.pb").exists()
    assert f"Exported {tmp_path}/pair/1" in process.stdout
    assert "classify (tensorflow/serving/classify)" in process.stdout
    assert "<- sentence_1: string [?]" in process.stdout
    assert process.stdout.count(" equal") == 4


def test_a_version_that_is_there_is_an_error_of_one_line(run_program, tmp_path):
    taken = tmp_path / "taken" / "3"
    taken.mkdir(parents=True)
    (taken / "saved_model.pb").write_text("another")
    process = run_program(
        PROGRAM,
        f"--model_dir={serving_models.model_dir('pretrainer')}",
        f"--export_dir={taken.parent}",
        "--version=3",
        check=False,
    )
    assert process.returncode == 1
    errors = [
        line for line in process.stderr.splitlines() if ": error: " in line
    ]
    assert len(errors) == 1 and "version=3" in errors[0]
    assert "Traceback" not in process.stderr
    assert sorted(taken.parent.rglob("*")) == [taken, taken / "saved_model.pb"]
    assert (taken / "saved_model.pb").read_text() == "another"
