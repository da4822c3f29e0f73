"""Prints the head of a benchmark's page: where and how it was measured.

The benchmarks' programs import this and print it before their tables. Their
whole output is a page for benchmarks/results/.
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
# {flag of /proc/cpuinfo: its name}, the widest first.
_VECTORS = {
    "amx_tile": "AMX",
    "avx512_bf16": "AVX-512 with bfloat16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
# Run in an environment, this prints the versions of the measured libraries.
_VERSIONS = """
from importlib import metadata
found = {each.name.lower(): each.version for each in metadata.distributions()}
wanted = ("tensorflow tensorflow-cpu keras jax keras-hub tf-models-official "
          "torch transformers sentence-transformers tokenizers onnx "
          "onnxruntime")
print(*(f"{name} {found[name]}" for name in wanted.split() if name in found),
      sep=", ")
"""


def show(**pythons):
    """Prints the head, in Markdown.

    Args:
        **pythons: {side: the Python of its environment}. The running Python is
            always shown.
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
    """Returns its name and widest vectors, as one name covers many models."""
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
    """Returns the commit of a checkout, and says if it has changes."""
    found = _output(["git", "rev-parse", "--short", "HEAD"], folder)
    is_changed = _output(["git", "status", "--porcelain"], folder)
    # Both are "unknown" if there is no repository.
    return f"{found}, with changes" if is_changed not in ("", found) else found


def _output(command, folder=None):
    """Returns a command's output, or "unknown" if it fails or is missing."""
    try:
        process = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return process.stdout.strip()
