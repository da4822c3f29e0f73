"""The logs of libraries, which programs hide, in a process without them."""

import signal
import subprocess
import sys

import pytest

from support.paths import ROOT

# In the place of TensorFlow: what it writes, from C++ and from Python.
LIBRARY = """
import os
import warnings
from absl import logging
os.write(2, b"WARNING: All log messages before absl::InitializeLog() ...\\n")
os.write(2, b"I0000 00:00:1795453286.998 1 port.cc:153] oneDNN is on.\\n")
os.write(2, b"W0000 00:00:1795453286.999 1 gpu.cc:52] No libcudnn.\\n")
os.write(2, b"E0000 00:00:1795453287.000 1 cuda.cc:52] no cuInit\\n")
os.write(2, b"F0000 00:00:1795453287.001 1 cuda.cc:53] no way to go on\\n")
import tensorflow.python.saver
"""
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
ERRORS = ["no way to go on", "full disk", "broken", "our info"]


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        (None, []),
        ("3", []),
        ("2", ["cuInit"]),
        ("1", ["cuInit", "No libcudnn", "slow disk", "deprecated"]),
        (
            "0",
            [
                *("cuInit", "No libcudnn", "slow disk", "deprecated"),
                *("InitializeLog", "oneDNN", "Sharding callback"),
            ],
        ),
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


def test_last_words_of_a_crash_are_shown(tmp_path, monkeypatch):
    (tmp_path / "tensorflow.py").write_text(
        "import os\n"
        "os.write(2, b'I0000 00:00:1795453286.998 1 port.cc:153] oneDNN\\n')\n"
        "os.write(2, b'This processor has no AVX')\n"
        "os.abort()\n"
    )
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    code = "from bert_tf import quiet; quiet.quieten(); import tensorflow"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "This processor has no AVX"


@pytest.mark.parametrize("before", ["os.close(2)", "threading.Timer(1, print)"])
def test_nothing_is_filtered_where_it_cannot_be(tmp_path, monkeypatch, before):
    (tmp_path / "tensorflow.py").write_text("IS_IMPORTED = True\n")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    lines = (
        "import importlib.util, os, threading",
        "from bert_tf import quiet",
        "quiet.quieten()",
        # Who only looks for it takes nothing away.
        "importlib.util.find_spec('tensorflow')",
        f"timer = {before}",
        "timer and timer.start()",
        "import tensorflow",
        "print(tensorflow.IS_IMPORTED)",
        "timer and timer.cancel()",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "True\n"
