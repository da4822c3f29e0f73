"""Runs the commands and snippets of a page, as its reader would."""

import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import pytest

from support import pages
from support import program_server

_TIMEOUT_SECONDS = 600
# What a page shows is worth its time; here a flag of these that has a larger
# value, the page's or the program's default, is set again to this.
_LIMITS = {
    # Minutes to weeks. A second run, with more steps, resumes the first.
    "num_train_steps": 20,
    # Must be fewer than the steps.
    "num_warmup_steps": 4,
    # 12,000 docstrings, on which README tunes for three epochs.
    "max_examples_per_library": 100,
}

# What a page's snippets run in, one process for all of them.
_SESSION = """
import json, os, sys, traceback

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
names = {"__name__": "__main__"}
for line in sys.stdin:
    step = json.loads(line)
    # A traceback names the page and its line.
    code = "\\n" * (step["line"] - 1) + step["text"]
    try:
        exec(compile(code, step["page"], "exec"), names)
        error = None
    except BaseException:
        error = traceback.format_exc()
    print(json.dumps(error), file=answers, flush=True)
"""


class PageRun:
    """Runs steps in a folder.

    Args:
        folder: Where.
        python: The Python of an environment, of which alone everything is
            then run, in processes of their own; by default the checkout's.
    """

    def __init__(self, folder, python=None):
        self._folder = folder
        self._python = python
        self._session = None
        self._streams = [folder.parent / name for name in ("stdout", "stderr")]
        self._environment = os.environ | {"PYTHONUNBUFFERED": "1"}
        bin_folder = pathlib.Path(python or sys.executable).parent
        self._environment["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            self._environment.pop(name, None)

    def close(self):
        """Ends the process of the snippets."""
        if self._session is not None:
            self._session.communicate(timeout=60)
            self._session = None

    def run(self, step, flags=()):
        """Runs a step; fails the test with the end of its output.

        Args:
            step: A `pages.Step`.
            flags: More flags for its program, after those of the page.
        """
        for stream in self._streams:
            stream.write_text("")
        try:
            error = (
                self._run_snippet(step)
                if step.kind == "python"
                else self._run_command(step, flags)
            )
        except (TimeoutError, subprocess.TimeoutExpired):
            error = f"It ran for more than {_TIMEOUT_SECONDS} s."
        if error:
            ends = [
                stream.read_text("utf-8", "replace")[-3000:]
                for stream in self._streams
            ]
            pytest.fail(
                "\n".join([str(step), *map(str, flags), *ends, error]),
                pytrace=False,
            )

    def _run_snippet(self, step):
        if self._session is None:
            with open(self._streams[1], "ab") as stderr:
                self._session = subprocess.Popen(
                    [self._python or sys.executable, "-c", _SESSION],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    cwd=self._folder,
                    env=self._environment,
                )
        told = {"page": step.page, "line": step.line, "text": step.text}
        print(json.dumps(told), file=self._session.stdin, flush=True)
        answer = self._session.stdout.readline()
        return json.loads(answer) if answer else "Python has ended."

    def _run_command(self, step, flags):
        program, arguments = pages.program_of(step.commands[0])
        is_simple = program is not None and not step.is_for_a_shell
        if is_simple and self._python is None:
            status = program_server.run(
                program,
                [*arguments, *flags],
                self._folder,
                *self._streams,
                timeout=_TIMEOUT_SECONDS,
            )
        else:
            text = step.text
            if is_simple:
                text = f"{text} {shlex.join(flags)}"
            if self._python is None:
                # A checkout's environment may be older than the command.
                text = f'bert_tf() {{ python -m bert_tf "$@"; }}\n{text}'
            with open(self._streams[0], "wb") as stdout:
                status = subprocess.run(
                    ["bash", "-e", "-o", "pipefail", "-c", text],
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=subprocess.STDOUT,
                    cwd=self._folder,
                    env=self._environment,
                    timeout=_TIMEOUT_SECONDS,
                ).returncode
        return f"exit status {status}" if status else None


def small_flags(values):
    """Returns the flags that make a program's work small.

    Args:
        values: {flag: its value} of all flags of the program.
    """
    return [
        f"--{name}={limit}"
        for name, limit in _LIMITS.items()
        if (values.get(name) or 0) > limit
    ]


def run_page(page, folder, python=None):
    """Runs all that can be run of a page, in order, at small sizes.

    Returns:
        The number of steps that were run.
    """
    steps = [step for step in pages.steps(page) if step.is_run]
    programs = {
        step: pages.program_of(step.commands[0])
        for step in steps
        if step.kind == "bash"
    }
    ours = {step: command for step, command in programs.items() if command[0]}
    parsed = dict(zip(ours, pages.parse_flags([*ours.values()])))
    run = PageRun(folder, python)
    try:
        for step in steps:
            values = parsed[step]["values"] if step in parsed else {}
            start = time.monotonic()
            run.run(step, small_flags(values))
            first_line = str(step).partition("\n")[0]
            print(f"{time.monotonic() - start:6.1f} s  {first_line}")
    finally:
        run.close()
    return len(steps)
