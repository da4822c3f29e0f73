"""The notebooks of examples/: whole, with their outputs; and they run.

Those of the marker docs are run by `make docs-check`.
"""

import json
import re

import nbformat
import pytest

from support import notebooks
from support.paths import ROOT

PATHS = sorted((ROOT / "examples").glob("*.ipynb"))
NAMES = [path.stem for path in PATHS]
# What a stored output would have from the machine that stored it.
_OF_A_MACHINE = re.compile(
    r"(?<![\w.:/~-])/(?:home|root|tmp|work|Users|usr|opt|var|content|mnt)\b"
)


def read(path):
    return nbformat.read(path, as_version=4)


def faults_of(notebook):
    """Returns what a stored notebook should not have, or should."""
    faults = []
    cells = [each for each in notebook.cells if each.cell_type == "code"]
    counts = [cell.execution_count for cell in cells]
    if counts != [*range(1, len(cells) + 1)]:
        faults.append(f"Cells were not run in their order: {counts}.")
    outputs = [output for cell in cells for output in cell.outputs]
    for output in outputs:
        if output.output_type == "error":
            faults.append(f"An error: {output.ename}.")
        if output.get("name") == "stderr":
            faults.append(f"A log: {output.text[:80]}")
    if not any("image/png" in each.get("data", {}) for each in outputs):
        faults.append("No picture.")
    for cell in notebook.cells:
        text = json.dumps(
            [
                cell.source,
                *(
                    # Pictures are base64, which has slashes.
                    {**each, "data": {**each.get("data", {}), "image/png": ""}}
                    for each in cell.get("outputs", [])
                ),
            ]
        )
        if found := _OF_A_MACHINE.search(text):
            faults.append(f"A path of a machine: {text[found.start() :][:60]}")
    return faults


def test_there_are_notebooks():
    assert {
        "fine_tune_in_keras",
        "questions_answered_and_cited",
        "from_text_to_a_served_model",
    } <= {*NAMES}


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_is_valid_and_stored_with_its_outputs(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert faults_of(notebook) == []


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_links_of_its_text_lead_somewhere(path):
    links = [
        link
        for cell in read(path).cells
        if cell.cell_type == "markdown"
        for link in re.findall(r"\]\(([^)\s#]+)", cell.source)
        if not re.match(r"https?://", link)
    ]
    assert links
    for link in links:
        assert (path.parent / link).exists(), link


def test_a_faulty_notebook_is_found():
    notebook = nbformat.v4.new_notebook()
    cell = nbformat.v4.new_code_cell("1 / 0", execution_count=2)
    cell.outputs = [
        nbformat.v4.new_output("error", ename="ZeroDivisionError"),
        nbformat.v4.new_output("stream", name="stderr", text="at /home/me/x"),
    ]
    notebook.cells = [cell]
    assert [each.partition(":")[0] for each in faults_of(notebook)] == [
        "Cells were not run in their order",
        "An error",
        "A log",
        "No picture.",
        "A path of a machine",
    ]


def test_logs_are_not_stored_and_lines_once():
    outputs = [
        nbformat.v4.new_output("stream", name=name, text=text)
        for name, text in (
            ("stdout", "read: 0%"),
            ("stdout", "\rread: 9%"),
            ("stdout", "\r    \r"),
            ("stdout", "1%\r50%\r\x1b[1m100%\x1b[0m\r\n"),
            ("stderr", "a log\n"),
            ("stdout", "INFO:tensorflow:Assets\nend\r\n"),
            ("stdout", "WARNING:x\nInstructions for updating:\nUse\nlast\n"),
        )
    ]
    (stored,) = notebooks._cleaned(outputs)
    assert stored.text == "100%\nend\nlast\n"
    logs = [each for each in outputs if each.name == "stderr"]
    assert logs and notebooks._cleaned(logs) == []


@pytest.mark.docs
@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_runs(path, tmp_path):
    assert faults_of(notebooks.run(path, tmp_path)) == []
