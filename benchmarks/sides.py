"""Processes that a benchmark asks in turns, each with one library.

Imported by the benchmarks' programs. A side runs in its own environment and
answers each line of its standard input with one line.
"""

import json
import pathlib
import subprocess
import venv

# What pip installs into a peer's environment. tf-models-official requires much
# that pre-training does not use, so it is installed without its requirements.
REQUIREMENTS = {
    "keras_hub": (["tensorflow-cpu==2.21.0", "keras-hub==0.32.0"], []),
    "model_garden": (
        [
            "tensorflow-cpu==2.20.0",
            "tf_keras==2.20.1",
            "tensorflow-text==2.20.1",
            "absl-py",
            "gin-config",
            "pyyaml",
            "scipy",
            "sentencepiece",
            "six",
            "tensorflow-hub",
            "tf-slim",
        ],
        ["tf-models-official==2.20.0"],
    ),
    # The last two are for writing ONNX.
    "transformers": (
        [
            "torch==2.13.0",
            "transformers==5.23.0",
            "onnx==1.23.2",
            "onnxscript==0.7.2",
        ],
        [],
    ),
    "sentence_transformers": (
        [
            "torch==2.13.0",
            "transformers==5.23.0",
            "sentence-transformers==6.2.0",
        ],
        [],
    ),
    "onnxruntime": (["onnxruntime==1.32.0", "tokenizers==0.23.3"], []),
}


class Side:
    """A process that answers.

    Args:
        name: Its name in a table.
        command: The program and its arguments.
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
        """Sends a line; returns the line that answers it."""
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} has stopped.")
        return line

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def make_environments(folder):
    """Makes the environments that are missing or out of date.

    Returns:
        {library: path of its Python}.
    """
    pythons = {}
    for library, steps in REQUIREMENTS.items():
        python = pathlib.Path(folder, library, "bin", "python")
        finished = pathlib.Path(folder, library, "finished")
        # Records what was installed; if it changes, the environment is remade.
        wanted = json.dumps(steps)
        if not finished.exists() or finished.read_text("utf-8") != wanted:
            venv.create(python.parent.parent, clear=True, with_pip=True)
            pip = [str(python), "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, *steps[0]], check=True)
            if steps[1]:
                subprocess.run([*pip, "--no-deps", *steps[1]], check=True)
            finished.write_text(wanted, "utf-8")
        pythons[library] = str(python)
    return pythons
