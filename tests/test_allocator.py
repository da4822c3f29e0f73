"""Training programs on CPUs take tensors from an allocator of TensorFlow's."""

import os
import subprocess
import sys

import pytest

from bert_tf import program

PROGRAM = """
import os, sys
from bert_tf import program
if "trains" in sys.argv:
    from bert_tf import training_flags
    sys.argv.remove("trains")
sys.argv[0] = "program"
program._NVIDIA = "/dev/there_is_none"
def main(_):
    print(os.environ.get("TF_CPU_ALLOCATOR_USE_BFC"))
program.run(main)
"""
# Of the C library's allocator TensorFlow has no numbers.
IN_TENSORFLOW = """
import tensorflow as tf
block = tf.zeros([1 << 20])
print(tf.config.experimental.get_memory_info("CPU:0")["current"])
"""


def run(code, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["trains"], "1"),
        ([], "None"),
        (["trains", "--use_tpu"], "None"),
        (["trains", "--strategy=tpu"], "None"),
    ],
)
def test_programs_that_step_on_the_cpu_set_it(arguments, value):
    assert run(PROGRAM, *arguments) == value


def test_what_the_environment_sets_holds():
    assert run(PROGRAM, "trains", TF_CPU_ALLOCATOR_USE_BFC="0") == "0"


def test_tensors_are_in_it():
    assert run(IN_TENSORFLOW, **program.ALLOCATOR) == str(4 << 20)
