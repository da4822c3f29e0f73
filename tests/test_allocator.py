"""Memory that is freed is kept, for all threads of a program."""

import subprocess
import sys

import pytest

from bert_tf import allocator

# A block of 64 MiB is taken, written and freed, here and in other threads.
FAULTS = """
import ctypes, resource, sys, threading
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
c.malloc.argtypes = [ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
SIZE = 64 << 20

def use():
    block = c.malloc(SIZE)
    c.memset(block, 1, SIZE)
    c.free(block)

def use_again():
    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        use()
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""
BY_FUNCTION = f"""
{FAULTS}
from bert_tf import allocator
print(allocator.keep_freed(), use_again())
"""
IN_A_PROGRAM = f"""
{FAULTS}
from unittest import mock
from bert_tf import allocator, program
if "trains" in sys.argv:
    from bert_tf import training_flags
    sys.argv.remove("trains")
sys.argv[0] = "program"
program._NVIDIA = "/dev/there_is_none"
allocator.keep_freed = keep = mock.Mock(wraps=allocator.keep_freed)
program.run(lambda argv: print(keep.called, use_again()))
"""

# Of the C library's allocator TensorFlow has no numbers.
IN_TENSORFLOW = """
from bert_tf import allocator
allocator.keep_freed()
import tensorflow as tf
block = tf.zeros([1 << 20])
print(True, tf.config.experimental.get_memory_info("CPU:0")["current"])
"""

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="glibc is Linux's."
)


def run(code, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)} | environment,
    )
    kept, num_faults = done.stdout.split()
    return kept == "True", int(num_faults)


@pytest.mark.parametrize(
    "code, arguments", [(BY_FUNCTION, []), (IN_A_PROGRAM, ["trains"])]
)
def test_what_is_freed_is_used_again(code, arguments):
    kept, num_faults = run(code, *arguments)
    assert kept and num_faults < 1000


@pytest.mark.parametrize(
    "arguments",
    [[], ["trains", "--use_tpu"], ["trains", "--strategy=tpu"]],
)
def test_programs_without_a_step_on_the_cpu_give_memory_back(arguments):
    kept, _ = run(IN_A_PROGRAM, *arguments)
    assert not kept


@pytest.mark.parametrize(
    "environment",
    [
        {"MALLOC_ARENA_MAX": "2"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=65536"},
    ],
)
def test_what_the_environment_sets_holds(environment):
    kept, _ = run(BY_FUNCTION, **environment)
    assert not kept


def test_tensors_are_in_an_allocator_of_tensorflow():
    assert run(IN_TENSORFLOW) == (True, 4 << 20)
    # What the environment sets holds here, too.
    left = {"TF_CPU_ALLOCATOR_USE_BFC": "0", "TF_ENABLE_ONEDNN_OPTS": "0"}
    with pytest.raises(subprocess.CalledProcessError) as error:
        run(IN_TENSORFLOW, **left)
    assert "Allocator stats not available" in error.value.stderr


def test_a_process_may_be_started_so():
    kept, num_faults = run(BY_FUNCTION, **allocator.VARIABLES)
    assert not kept and num_faults < 1000


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(allocator.os, "environ", {})
    assert not allocator.keep_freed()
