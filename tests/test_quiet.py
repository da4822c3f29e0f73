"""The logs of libraries, which programs hide, in a process without them."""

import subprocess
import sys

import pytest

from support.paths import ROOT

# In the place of TensorFlow.
LIBRARY = "import tensorflow.python.saver\n"
SAVER = """
import logging
from absl import logging as absl_logging
def save():
    absl_logging.info("Sharding callback")
    absl_logging.warning("slow disk")
    absl_logging.error("full disk")
    logging.getLogger("tensorflow").warning("deprecated")
    logging.getLogger("tensorflow").error("broken")
"""
PROGRAM = """
import logging
from absl import logging as absl_logging
from bert_tf import program
def main(argv):
    import tensorflow
    absl_logging.set_verbosity(absl_logging.INFO)
    tensorflow.python.saver.save()
    absl_logging.info("our info")
    logging.getLogger("bert_tf.training").info("our other info")
program.run(main)
"""
ERRORS = ["full disk", "broken", "our info"]


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (None, []),
        ("3", []),
        ("2", []),
        ("1", ["slow disk", "deprecated"]),
        ("0", ["slow disk", "deprecated", "Sharding callback"]),
    ],
)
def test_lines_of_libraries_are_shown_from_a_level_on(
    tmp_path, monkeypatch, level, shown
):
    package = tmp_path / "tensorflow" / "python"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text(LIBRARY)
    (package / "__init__.py").write_text("")
    (package / "saver.py").write_text(SAVER)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    if level is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [*ERRORS, "our other info", *shown]
    lines = done.stderr.splitlines()
    assert len(lines) == len(expected)
    for text in expected:
        assert any(text in line for line in lines), text
