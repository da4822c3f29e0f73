"""`bert_tf COMMAND`: the programs under one name."""

import pathlib
import subprocess
import sys

import pytest

import bert_tf
from bert_tf import __main__ as command
from support.paths import ROOT


def programs():
    """Returns {module: first line of its help} of what users start."""
    folders = {"bert_tf": ROOT / "bert_tf"}
    folders |= {f"bert_tf.{name}": ROOT / name for name in ("data", "export")}
    return {
        f"{package}.{path.stem}": text.split('"""')[1].partition("\n")[0]
        for package, folder in folders.items()
        for path in folder.glob("*.py")
        if "program.run(main)" in (text := path.read_text("utf-8"))
    }


def test_help_lists_every_program(monkeypatch, capsys):
    # Python binds the package of that name here when it is looked into.
    monkeypatch.setattr(bert_tf, "export", bert_tf.export)
    monkeypatch.setattr(sys, "argv", ["bert_tf"])
    command.main()
    lines = capsys.readouterr().out.splitlines()
    found = programs()
    assert len(found) == 21
    assert sorted(command.COMMANDS.values()) == sorted(found)
    for name, module in command.COMMANDS.items():
        line = next(line for line in lines if line.startswith(f"  {name} "))
        assert line.endswith(f"  {found[module]}")


def test_unknown_command_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bert_tf", "pretrian"])
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 1
    assert capsys.readouterr().err == (
        "bert_tf: error: unknown command 'pretrian'. bert_tf --help lists "
        "them.\n"
    )


def test_an_interrupt_at_the_start_is_one_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["bert_tf", "search"])
    monkeypatch.setattr(command.importlib, "import_module", interrupted)
    with pytest.raises(SystemExit) as stop:
        command.main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == "bert_tf search: stopped by Ctrl-C\n"


def test_command_is_its_program(run_program):
    # The script that pip makes: its `__main__` is not the package's.
    script = pathlib.Path(sys.executable).with_name("bert_tf")
    installed = subprocess.run(
        [script, "predict", "--help"], capture_output=True, text=True
    )
    assert (installed.returncode, installed.stderr) == (0, "")
    shown = [installed.stdout]
    for program in (("bert_tf", "predict"), ("bert_tf.run_predict",)):
        done = run_program(*program, "--help", check=False)
        shown.append(done.stdout)
    # One of the lines is the name under which it was started.
    names = (".py:", "bert_tf predict:")
    first, *others = (
        [line for line in text.splitlines() if not line.endswith(names)]
        for text in shown
    )
    assert "  --input_file: A file of texts." in first
    assert others == [first, first]
    refused = run_program("bert_tf", "predict", "--top_k=a", check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("bert_tf predict: error: ")
    assert refused.stderr.count("\n") == 1
