"""What a release is made of: sdist, wheel, and the README run from the wheel.

Run by `make release-check`, which makes the environment of the tools:

    BERT_TF_RELEASE_PYTHON=.venv-release/bin/python \
        pytest -m release tests/test_release.py
"""

import os
import subprocess
import tarfile
import venv
import zipfile

import pytest

import bert_tf
from support import page_runs
from support.paths import ROOT

NAME = f"bert_tf-{bert_tf.__version__}"

pytestmark = pytest.mark.release


def call(*command, cwd):
    """Returns what a command prints; fails the test with it if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
    )
    if done.returncode != 0:
        pytest.fail(f"{command}\n{done.stdout[-5000:]}", pytrace=False)
    return done.stdout


def tool(*arguments, cwd):
    return call(
        os.path.abspath(os.environ["BERT_TF_RELEASE_PYTHON"]),
        *("-m", *arguments),
        cwd=cwd,
    )


@pytest.fixture(scope="module")
def files():
    """Names of the checkout's files."""
    listed = call("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT)
    return sorted(name for name in listed.split("\n") if name)


@pytest.fixture(scope="module")
def releases(tmp_path_factory, files):
    """A folder with sdist and wheel.

    They are built in a copy of the checkout's files: what an earlier build has
    left there would come into the wheel.
    """
    copy = tmp_path_factory.mktemp("checkout")
    for name in files:
        path = copy / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((ROOT / name).read_bytes())
    folder = tmp_path_factory.mktemp("releases")
    told = tool(
        *("build", "--sdist", "--wheel", "--outdir", folder, copy), cwd=folder
    )
    assert "deprecated" not in told.lower()
    return folder


@pytest.fixture(scope="module")
def python(tmp_path_factory, releases):
    """The Python of an environment with the wheel, and what it requires."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    path = folder / "bin" / "python"
    wheel = releases / f"{NAME}-py3-none-any.whl"
    call(path, "-m", "pip", "install", "--quiet", wheel, cwd=folder)
    call(path, "-m", "pip", "check", cwd=folder)
    return path


def test_there_is_an_sdist_and_a_wheel(releases):
    names = {path.name for path in releases.iterdir()}
    assert names == {f"{NAME}.tar.gz", f"{NAME}-py3-none-any.whl"}


def test_the_metadata_is_well_formed(releases):
    tool(
        *("twine", "check", "--strict", *releases.iterdir()),
        cwd=releases,
    )


def test_the_sdist_holds_all_files(releases, files):
    with tarfile.open(releases / f"{NAME}.tar.gz") as archive:
        names = {
            member.name.partition("/")[2]
            for member in archive.getmembers()
            if member.isfile()
        }
    made = {name for name in names if name.startswith("bert_tf.egg-info/")}
    assert sorted(names - made - {"PKG-INFO", "setup.cfg"}) == files


def test_the_sdist_builds_the_wheel(releases, tmp_path):
    with tarfile.open(releases / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    tool(
        *("build", "--wheel", "--outdir", tmp_path, tmp_path / NAME),
        cwd=tmp_path,
    )
    contents = []
    for folder in (releases, tmp_path):
        with zipfile.ZipFile(folder / f"{NAME}-py3-none-any.whl") as wheel:
            contents.append(
                {name: wheel.read(name) for name in wheel.namelist()}
            )
    ours, theirs = contents
    assert sorted(ours) == sorted(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_the_wheel_holds_files_that_are_no_modules(releases):
    with zipfile.ZipFile(releases / f"{NAME}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    assert {
        "bert_tf/py.typed",
        f"{NAME}.dist-info/licenses/LICENSE",
        *(
            f"bert_tf/export/serving/{path.name}"
            for path in (ROOT / "export" / "serving").iterdir()
            if path.is_file()
        ),
        *(
            f"bert_tf/playground/page/{path.name}"
            for path in (ROOT / "bert_tf/playground/page").iterdir()
        ),
    } <= names
    assert {name.partition("/")[0] for name in names} == {
        "bert_tf",
        f"{NAME}.dist-info",
    }


_WHERE = """
import sys
import bert_tf

print(bert_tf.__file__, bert_tf.__version__, *sys.path, sep="\\n")
"""


def test_the_wheel_stands_alone(python, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    where, version, *paths = call(python, "-c", _WHERE, cwd=folder).split("\n")
    assert where.startswith(str(python.parent.parent))
    assert version == bert_tf.__version__
    assert not [path for path in paths if path.startswith(str(ROOT))]


def test_the_quickstarts_run_from_the_wheel(python, tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    assert page_runs.run_page(ROOT / "README.md", folder, python) >= 8
