"""Runs programs as `python -m` does, without TensorFlow's import each time.

A server process imports the libraries once, and forks for every program. It
keeps nothing of bert_tf, whose modules are executed anew in each fork, and
calls no operation: a fork has no thread of TensorFlow's runtime to miss.
"""

import gc
import multiprocessing
import os
import resource
import runpy
import sys
from multiprocessing import forkserver
from unittest import mock

# Imported in the server, which finds it on PYTHONPATH: it does not have this
# process's path in all releases of Python.
_LIBRARIES = "program_libraries"
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def run(module, arguments, cwd, stdout, stderr, timeout):
    """Runs a module as __main__; returns the exit status.

    Args:
        module: Its name, e.g. "bert_tf.run_pretraining".
        arguments: Strings, without the program's name.
        cwd: The working directory, or None for this process's.
        stdout, stderr: Paths of the files that take the streams.
        timeout: Seconds after which the program is killed.

    Raises:
        TimeoutError: If it was killed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_LIBRARIES])
    python_path = [_FOLDER, *filter(None, [os.environ.get("PYTHONPATH")])]
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(python_path)):
        forkserver.ensure_running()
    process = context.Process(
        target=_run_as_main,
        args=(
            *(module, arguments, cwd, stdout, stderr, dict(os.environ)),
            resource.getrlimit(resource.RLIMIT_FSIZE),
        ),
    )
    process.start()
    process.join(timeout)
    if process.is_alive():
        process.kill()
        process.join()
        raise TimeoutError(f"{module} {arguments} ran for {timeout} s.")
    return process.exitcode


def _run_as_main(
    module, arguments, cwd, stdout, stderr, environment, limits_of_files
):
    # As in a program, whose imports are frozen: a full collection would visit
    # a million objects of libraries and copy the pages that they are in.
    gc.freeze()
    # The server has what these were when it began.
    os.environ.clear()
    os.environ.update(environment)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits_of_files)
    for path, descriptor in ((stdout, 1), (stderr, 2)):
        with open(path, "wb") as stream:
            os.dup2(stream.fileno(), descriptor)
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = [module, *arguments]
    sys.orig_argv = [sys.executable, "-m", module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
