"""Processes that a benchmark asks in turn: one library each.

Imported by the benchmarks' programs. A side answers each line of its standard
input with one line, in an environment of its own.
"""

import subprocess


class Side:
    """A process that answers.

    Args:
        name: What it is called in a table.
        command: Its program and arguments.
    """

    def __init__(self, name, command):
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, question=""):
        """Returns the line that answers a line."""
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has stopped.")
        return line

    def close(self):
        self._process.stdin.close()
        self._process.wait()
