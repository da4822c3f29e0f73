"""The commands and snippets of README.md and docs/ run as they are written.

Run by `make docs-check`. Those that need a TPU, a cluster or a server are not
run; their flags are checked by tests/test_docs_flags.py.
"""

import shutil

import pytest

from support import page_fixtures
from support import page_runs
from support import pages
from support.paths import ROOT

pytestmark = pytest.mark.docs
PAGES = [
    page
    for page in pages.PAGES
    if any(step.is_run for step in pages.steps(page))
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    page_fixtures.write(folder)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_page_runs_from_top_to_bottom(page, files, tmp_path):
    folder = tmp_path / "folder"
    if page == ROOT / "README.md":
        # Its reader has nothing.
        folder.mkdir()
    else:
        shutil.copytree(files, folder)
    page_runs.run_page(page, folder)
