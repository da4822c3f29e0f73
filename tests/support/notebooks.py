"""Runs the notebooks of examples/, as a reader would.

    python tests/support/notebooks.py examples/*.ipynb

stores their outputs in them: `make notebooks`.
"""

import os
import pathlib
import re
import sys
import tempfile

import nbclient
import nbformat

# A cell of a training takes minutes.
_TIMEOUT_SECONDS = 1200
# TensorFlow's, which it writes to a notebook's stdout.
_LOG = re.compile(
    r"^(?:INFO|WARNING):.*\n(?:Instructions for updating:\n.*\n)?", re.MULTILINE
)


def run(path, folder):
    """Returns a notebook as it is after all of its cells.

    Args:
        path: The notebook's.
        folder: Where its cells write.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    bin_folder = pathlib.Path(sys.executable).parent
    environment = os.environ | {
        "PATH": f"{bin_folder}:{os.environ['PATH']}",
        "PYTHONWARNINGS": "ignore",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    client = nbclient.NotebookClient(
        notebook,
        timeout=_TIMEOUT_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        # Times and the like.
        record_timing=False,
    )
    client.execute(env=environment)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = _cleaned(cell.outputs)
    notebook.metadata = {
        "kernelspec": notebook.metadata["kernelspec"],
        "language_info": {"name": "python"},
    }
    return notebook


def _cleaned(outputs):
    """Returns outputs as they are stored: without logs, lines as they ended."""
    found = []
    for output in outputs:
        if output.get("name") == "stderr":
            continue
        # A line may have come in parts.
        if (
            output.output_type == "stream"
            and found
            and found[-1].output_type == "stream"
        ):
            found[-1].text += output.text
        else:
            found.append(output)
    for output in found:
        if output.output_type == "stream":
            text = output.text.replace("\r\n", "\n")
            # Of a line that was written again and again, the end.
            text = re.sub(r"^.*\r", "", text, flags=re.MULTILINE)
            text = _LOG.sub("", text)
            output.text = re.sub(r"\x1b\[[\d;]*[A-Za-z]", "", text)
    return [each for each in found if each.get("text") != ""]


def main():
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(name, folder)
        nbformat.write(notebook, name)
        print(name)


if __name__ == "__main__":
    main()
