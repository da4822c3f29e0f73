r"""Shows where the test suite's processor time goes, by file and kind.

    make test-times

Runs pytest with the arguments after `--`, or with none, and prints a table in
Markdown: for each file of tests the processor seconds of all its processes.

- start: imports, in pytest's processes and in the programs that tests start;
- tracing: TensorFlow turning Python functions into graphs;
- export: writing SavedModels, including the tracing that this needs;
- work: the rest, on all threads.

The first test to use something is charged for it, also on behalf of later
tests. A process that a test kills is not counted. Counting costs 2 to 3 %.
"""

import collections
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from absl import app
from absl import flags

_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes", 2, "Processes that run tests in parallel.", lower_bound=1
)

_FOLDER = pathlib.Path(__file__).resolve().parent
_KINDS = ("start", "tracing", "export", "work")
_SHORT_S = 2
_NO_TEST = "(no test: pytest and collection)"


def read_times(folder):
    """Returns {test file: {kind: seconds}}.

    Args:
        folder: Where `suite_recorder` wrote its lines.
    """
    times = collections.defaultdict(lambda: dict.fromkeys(_KINDS, 0.0))
    for path in pathlib.Path(folder).glob("*.jsonl"):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            file, _, _ = entry["test"].partition("::")
            row = times[file.removeprefix("tests/") or _NO_TEST]
            for kind in _KINDS[:-1]:
                row[kind] += entry[kind]
            row["work"] += entry["total"] - sum(entry[k] for k in _KINDS[:-1])
    return dict(times)


def format_table(times):
    """Returns a Markdown table of `read_times`, the longest file first."""
    rows = sorted(times.items(), key=lambda item: -sum(item[1].values()))
    is_short = [sum(row.values()) < _SHORT_S for _, row in rows]
    short = [row for _, row in itertools.compress(rows, is_short)]
    rows = rows[: len(rows) - len(short)]
    if short:
        rows.append((f"{len(short)} files below {_SHORT_S} s", _sum(short)))
    rows.append(("all", _sum(times.values())))
    lines = [f"| File | {' | '.join(_KINDS)} | seconds |"]
    lines.append("|---" * (len(_KINDS) + 2) + "|")
    for name, row in rows:
        cells = [f"{row[kind]:.1f}" for kind in _KINDS]
        lines.append(
            f"| {name} | {' | '.join(cells)} | {sum(row.values()):.1f} |"
        )
    return "\n".join(lines)


def _sum(rows):
    return {kind: sum(row[kind] for row in rows) for kind in _KINDS}


def main(argv):
    with tempfile.TemporaryDirectory() as folder:
        recorder = str(_FOLDER / "suite_recorder")
        start = time.monotonic()
        status = subprocess.run(
            [
                sys.executable,
                *("-m", "pytest", "-p", "suite_recorder"),
                *("-n", str(_NUM_PROCESSES.value), "--dist", "worksteal"),
                *argv[1:],
            ],
            env=os.environ
            | {
                "BERT_TF_SUITE_TIMES": folder,
                "PYTHONPATH": os.pathsep.join(
                    filter(None, [recorder, os.environ.get("PYTHONPATH")])
                ),
            },
            cwd=_FOLDER.parent,
        ).returncode
        elapsed_s = time.monotonic() - start
        print(format_table(read_times(folder)))
        print(f"\n{elapsed_s:.0f} s from start to end.")
    return status


if __name__ == "__main__":
    app.run(main)
