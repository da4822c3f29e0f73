"""The commands and snippets of README.md and docs/ run as they are written.

Those of the marker docs are run by `make docs-check`. What needs a TPU, a
cluster or a server is not run; tests/test_docs_flags.py checks it.
"""

import shutil
import sys

import pytest

from support import page_fixtures
from support import page_runs
from support import pages
from support.paths import ROOT

PAGES = [
    page
    for page in pages.PAGES
    if any(step.is_run for step in pages.steps(page))
]
GUIDES = [page for page in PAGES if page not in pages.TUTORIALS]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    page_fixtures.write(folder)
    return folder


@pytest.fixture(scope="module")
def tutorials(tmp_path_factory):
    """A function that runs a tutorial, and before it those that it needs."""
    folder = tmp_path_factory.mktemp("tutorials") / "folder"
    folder.mkdir()
    left = [page for page in pages.TUTORIALS if page in PAGES]

    def run(page):
        while page in left:
            page_runs.run_page(left.pop(0), folder)

    return run


@pytest.mark.docs
@pytest.mark.parametrize("page", GUIDES, ids=[page.stem for page in GUIDES])
def test_page_runs_from_top_to_bottom(page, files, tmp_path):
    folder = tmp_path / "folder"
    if page == ROOT / "README.md":
        # Its reader has nothing.
        folder.mkdir()
    else:
        shutil.copytree(files, folder)
    page_runs.run_page(page, folder)


@pytest.mark.docs
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page in pages.TUTORIALS],
    ids=lambda page: page.stem,
)
def test_tutorials_run_one_after_the_other(page, tutorials):
    tutorials(page)


def failure_of(run, line, kind, text):
    step = pages.Step(page="docs/page.md", line=line, kind=kind, text=text)
    with pytest.raises(pytest.fail.Exception) as failed:
        run.run(step)
    return str(failed.value)


def test_a_failure_names_page_line_and_command(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    run = page_runs.PageRun(folder, python=sys.executable)
    told = failure_of(run, 7, "bash", "echo first; cat nowhere | head")
    assert told.startswith("docs/page.md:7: echo first; cat nowhere | head\n")
    assert "first\ncat: nowhere: " in told
    assert told.endswith("exit status 1")
    good = pages.Step(page="p", line=1, kind="python", text="x = 2\nprint(x)")
    run.run(good)
    told = failure_of(run, 9, "python", "y = x\nassert y == 3")
    run.close()
    assert told.startswith("docs/page.md:9: y = x\n")
    assert 'File "docs/page.md", line 10' in told
