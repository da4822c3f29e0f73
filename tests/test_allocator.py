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
# Of 4 KiB; a system that has larger pages has fewer faults.
NUM_PAGES = 6 * 64 * 256
BY_FUNCTION = f"""
{FAULTS}
from bert_tf import allocator
kept = allocator.keep_freed()
print(kept, use_again())
"""
IN_A_PROGRAM = f"""
{FAULTS}
from bert_tf import program
program.run(lambda argv: print(True, use_again()))
"""

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="glibc is Linux's."
)


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "PYTHONPATH": ":".join(sys.path)} | environment,
    )
    kept, num_faults = done.stdout.split()
    return kept == "True", int(num_faults)


@pytest.mark.parametrize("code", [BY_FUNCTION, IN_A_PROGRAM])
def test_what_is_freed_is_used_again(code):
    kept, num_faults = run(code)
    assert kept and num_faults < 1000


@pytest.mark.parametrize(
    "environment",
    [
        {"MALLOC_ARENA_MAX": "2"},
        {"GLIBC_TUNABLES": "glibc.malloc.mmap_max=65536"},
    ],
)
def test_what_the_environment_sets_holds(environment):
    kept, num_faults = run(BY_FUNCTION, **environment)
    assert not kept and num_faults > NUM_PAGES / 2


def test_another_c_library_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())
    monkeypatch.setattr(allocator.os, "environ", {})
    assert not allocator.keep_freed()
