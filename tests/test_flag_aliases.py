"""Former names of flags are still accepted, with a warning."""

import pytest

from bert_tf import flag_aliases


@pytest.mark.parametrize(
    ("argument", "names", "wanted"),
    [
        ("--loss=triplet", {"loss_name"}, "--loss_name=triplet"),
        ("--loss", {"loss_name"}, "--loss_name"),
        ("-test_file=a=b", {"predict_file"}, "--predict_file=a=b"),
        # The program's own.
        ("--input_file=a", {"input_file", "eval_file"}, None),
        ("--loss=triplet", {"losses"}, None),
        ("loss", {"loss_name"}, None),
    ],
)
def test_former_names_become_todays(caplog, argument, names, wanted):
    renamed = flag_aliases.renamed(["program", argument], names)
    assert renamed == ["program", wanted or argument]
    assert ("is now called" in caplog.text) == (wanted is not None)


def test_former_names_are_known_in_files_of_flags(tmp_path, run_program):
    (tmp_path / "flags").write_text("--serving_precision=half\n")
    process = run_program(
        "bert_tf.export.export_saved_model",
        f"--flagfile={tmp_path / 'flags'}",
        check=False,
    )
    assert process.returncode == 1
    assert "--serving_precision is now called --precision" in process.stderr
    assert "flag --precision=half: value should be" in process.stderr
