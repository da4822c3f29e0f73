"""The list of benchmarks: all of them, with flags that they have."""

import dataclasses
import importlib.util
import re

import pytest

from bert_tf.pretraining.settings import Settings
from support import paths

FOLDER = paths.ROOT / "benchmarks"


def load(name):
    """Returns a module of the benchmarks, which are no package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMMANDS = load("run_all").make_commands("model", "data", "output")


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_have_the_flags_that_they_are_given(command):
    script, *options = command
    source = (FOLDER / script).read_text("utf-8")
    defined = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', source))
    if "define_flags(Settings" in source:
        defined |= {field.name for field in dataclasses.fields(Settings)}
    given = {re.match(r"--(\w+)", option)[1] for option in options}
    assert given <= defined
    required = re.findall(
        r'DEFINE_\w+\(\s*"(\w+)",[^()]*?required=True', source
    )
    assert set(required) <= given


def test_every_benchmark_is_run():
    # TPUs, GPUs and the tests have targets of their own, and operations.py
    # takes two exports; the others are what these start.
    programs = {
        path.name
        for path in FOLDER.glob("*.py")
        if re.search(r"(app|program)\.run\(main\)", path.read_text("utf-8"))
    }
    others = {
        *("tpu.py", "gpu.py", "gpu_layers.py", "suite_times.py"),
        *("run_all.py", "operations.py"),
    }
    assert programs - others == {
        script for script, *_ in COMMANDS if not script.startswith("..")
    }


def test_head_is_shown_wherever_it_is_measured(monkeypatch, capsys):
    heading = load("heading")
    # Neither git, nor such a Python, nor Linux.
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(heading.pathlib.Path, "exists", lambda path: False)
    heading.show(peer="no/python")
    lines = capsys.readouterr().out.splitlines()
    assert "- Commit: unknown" in lines
    assert "- Versions of peer: unknown" in lines


def test_head_tells_the_widest_vectors_of_a_processor(monkeypatch):
    heading = load("heading")
    text = "model name\t: A CPU\nflags\t\t: sse avx2 avx512f\n\nflags\t: sse\n"
    path = heading.pathlib.Path
    monkeypatch.setattr(path, "exists", lambda path: True)
    monkeypatch.setattr(path, "read_text", lambda path, encoding: text)
    assert heading._processor() == "A CPU (AVX-512)"


def test_python_of_a_peer_is_found_from_the_folder_it_is_in(
    monkeypatch, capsys, tmp_path
):
    heading = load("heading")
    (tmp_path / "python").symlink_to("/bin/echo")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(heading, "_VERSIONS", "here")
    heading.show(peer="./python")
    assert "- Versions of peer: -c here" in capsys.readouterr().out


def test_runs_of_another_precision_are_refused(tmp_path):
    recipe = load("recipe")
    for _ in range(2):
        folder = recipe.open_output_dir(tmp_path / "runs", "bfloat16")
    assert folder == tmp_path / "runs"
    with pytest.raises(ValueError, match="must be bfloat16, that of the runs"):
        recipe.open_output_dir(folder, "float32")


def test_environments_are_made_again_for_other_packages(tmp_path, monkeypatch):
    sides = load("sides")
    made, installed = [], []
    monkeypatch.setattr(
        sides.venv,
        "create",
        lambda path, **_: (path.mkdir(exist_ok=True), made.append(path.name)),
    )
    monkeypatch.setattr(
        sides.subprocess, "run", lambda command, **_: installed.append(command)
    )
    monkeypatch.setattr(
        sides, "REQUIREMENTS", {"a": (["x==1"], []), "b": (["y==1"], [])}
    )
    (tmp_path / "b").mkdir()
    # As it was left before it told what was installed.
    (tmp_path / "b/finished").touch()
    sides.make_environments(tmp_path)
    assert made == ["a", "b"]
    sides.make_environments(tmp_path)
    assert made == ["a", "b"]
    sides.REQUIREMENTS["a"] = (["x==2"], ["z==1"])
    sides.make_environments(tmp_path)
    assert made == ["a", "b", "a"]
    assert [command[-1] for command in installed] == [
        *("x==1", "y==1", "x==2", "z==1")
    ]
