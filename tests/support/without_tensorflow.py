"""Runs programs where TensorFlow and Keras cannot be imported.

    python without_tensorflow.py < commands.json

Each of the commands, [module or path, argument, ...], is run as `python` does,
in a fork of this process, which has imported what all of them need. Prints a
list of {"status", "stdout", "stderr"}.
"""

import json
import os
import runpy
import sys
import tempfile

import absl.app  # noqa: F401
import numpy as np  # noqa: F401

_HEAVY = ("grpc", "jax", "keras", "matplotlib", "tensorflow")


class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(_HEAVY):
            raise ImportError(f"{name} is imported before flags are checked.")


def run(program, *arguments):
    with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stdout.fileno(), 1)
            os.dup2(stderr.fileno(), 2)
            sys.argv = [program, *arguments]
            if program.endswith(".py"):
                runpy.run_path(program, run_name="__main__")
            else:
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        answer = {"status": status}
        for name, stream in (("stdout", stdout), ("stderr", stderr)):
            stream.seek(0)
            answer[name] = stream.read().decode("utf-8")
        return answer


if __name__ == "__main__":
    sys.meta_path.insert(0, Refused())
    print(json.dumps([run(*command) for command in json.load(sys.stdin)]))
