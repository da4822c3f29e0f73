"""An export driven through TensorFlow's C API, in a program without Python.

This is as near to TensorFlow Serving's loader as one comes without its binary:
TF_LoadSessionFromSavedModel on the same files.
"""

import os
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from support import paths
from support import serving_models

PROGRAM = paths.ROOT / "tests" / "serving" / "run_saved_model.c"
TEXT_OPS = os.path.join(os.path.dirname(tensorflow_text.__file__), "python/ops")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Returns the path of the program that calls a SavedModel."""
    if shutil.which("cc") is None:
        pytest.skip("There is no C compiler.")
    path = tmp_path_factory.mktemp("c_api") / "run_saved_model"
    libraries = tf.sysconfig.get_lib()
    subprocess.run(
        [
            *("cc", "-O2", "-Wall", "-Wextra", "-Werror"),
            f"-I{tf.sysconfig.get_include()}",
            str(PROGRAM),
            *("-o", str(path)),
            f"-L{libraries}",
            "-l:libtensorflow_cc.so.2",
            "-l:libtensorflow_framework.so.2",
            f"-Wl,-rpath,{libraries}",
            # TensorFlow's symbols are many: a quarter of the other's time.
            *(["-fuse-ld=gold"] if shutil.which("ld.gold") else []),
        ],
        check=True,
    )
    return path


def run(program, *arguments):
    return subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=120
    )


def answers_of(process):
    """Returns {(output, row): its elements} of what the program printed."""
    assert process.returncode == 0, process.stderr
    rows = (line.split("\t") for line in process.stdout.splitlines())
    return {(name, int(row)): elements for name, row, *elements in rows}


def test_answers_are_those_of_python(program):
    first = ["the quick", "Ünïcode 我", "", "x" * 1000]
    second = ["lorem", "the", "", "a\nb = c"]
    answers = answers_of(
        run(
            program,
            f"--libraries={TEXT_OPS}",
            serving_models.exported("pair"),
            "serving_default",
            *(f"sentence_1={text}" for text in first),
            *(f"class_={text}" for text in second),
        )
    )
    wanted = serving_models.loaded("pair").signatures["serving_default"](
        sentence_1=tf.constant(first), class_=tf.constant(second)
    )
    for row in range(len(first)):
        np.testing.assert_allclose(
            np.array(answers["probabilities", row], float),
            wanted["probabilities"][row],
            atol=1e-6,
        )
        assert answers["labels", row] == [
            wanted["labels"][row].numpy().decode()
        ]
        assert answers["classes", row] == ["nein", "ja", "vielleicht¿"]
    assert len(answers) == 3 * len(first)


def test_outputs_of_every_type_are_printed(program):
    answers = answers_of(
        run(
            program,
            f"--libraries={TEXT_OPS}",
            serving_models.exported("fill_mask"),
            "serving_default",
            "text=the [MASK]",
            f"text=[MASK]{' x' * 30}[MASK]",
        )
    )
    assert [answers["is_cut", row] for row in (0, 1)] == [["0"], ["1"]]
    assert [answers["num_masks", row] for row in (0, 1)] == [["1"], ["1"]]
