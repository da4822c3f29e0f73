"""The list of benchmarks: all of them, with flags that they have."""

import dataclasses
import importlib.util
import re

import pytest

from bert_tf.pretraining.settings import Settings
from support import paths

FOLDER = paths.ROOT / "benchmarks"


def run_all():
    spec = importlib.util.spec_from_file_location(
        "run_all", FOLDER / "run_all.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


COMMANDS = run_all().make_commands("model", "data", "output")


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
    # TPUs and the tests have targets of their own; the others are what these
    # start.
    programs = {
        path.name
        for path in FOLDER.glob("*.py")
        if re.search(r"(app|program)\.run\(main\)", path.read_text("utf-8"))
    }
    assert programs - {"tpu.py", "suite_times.py", "run_all.py"} == {
        script for script, *_ in COMMANDS if not script.startswith("..")
    }
