"""The head of a benchmark's page: where, with what and how it was measured.

Imported by the benchmarks' programs, which print it before their tables: what
they print is a page for benchmarks/results/ as it stands.
"""

import datetime
import os
import pathlib
import platform
import shlex
import subprocess
import sys

from bert_tf.cores import num_cores

_ROOT = pathlib.Path(__file__).resolve().parents[1]
# {flag of /proc/cpuinfo: what it is called}, the widest first.
_VECTORS = {
    "amx_tile": "AMX",
    "avx512_bf16": "AVX-512 with bfloat16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
# Run in an environment: prints those of its libraries that are measured.
_VERSIONS = """
from importlib import metadata
found = {each.name.lower(): each.version for each in metadata.distributions()}
wanted = ("tensorflow tensorflow-cpu keras keras-hub tf-models-official torch "
          "transformers sentence-transformers tokenizers onnx onnxruntime")
print(*(f"{name} {found[name]}" for name in wanted.split() if name in found),
      sep=", ")
"""


def show(**pythons):
    """Prints the head, in Markdown.

    Args:
        **pythons: {side: the Python of its environment}; this one is shown
            anyway.
    """
    lines = {
        "Date": datetime.date.today().isoformat(),
        "Processor": f"{_processor()}, {num_cores()} cores",
        "System": f"{platform.system()} {platform.release()}, load at the "
        f"start {os.getloadavg()[0]:.1f}",
        "Commit": commit(_ROOT),
        "Command": f"`{shlex.join(['python', *sys.orig_argv[1:]])}`",
        "Python": platform.python_version(),
    }
    for side, python in {"bert_tf": sys.executable, **pythons}.items():
        lines[f"Versions of {side}"] = _output([python, "-c", _VERSIONS])
    for name, value in lines.items():
        print(f"- {name}: {value}")
    print(flush=True)


def _processor():
    """Returns its name and widest vectors: one name stands for several."""
    path = pathlib.Path("/proc/cpuinfo")
    if not path.exists():  # E.g. on macOS.
        return platform.machine()
    found = {}
    for line in path.read_text("utf-8").splitlines():
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    name = found.get("model name", platform.machine())
    flags = found.get("flags", "").split()
    vectors = [told for flag, told in _VECTORS.items() if flag in flags]
    return f"{name} ({vectors[0]})" if vectors else name


def commit(folder):
    """Returns the commit of a checkout, and whether it has changes."""
    found = _output(["git", "rev-parse", "--short", "HEAD"], folder)
    is_changed = _output(["git", "status", "--porcelain"], folder)
    # Both are unknown where there is no repository.
    return f"{found}, with changes" if is_changed not in ("", found) else found


def _output(command, folder=None):
    """Returns what a command prints; "unknown" where it fails or is not."""
    try:
        process = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return process.stdout.strip()
