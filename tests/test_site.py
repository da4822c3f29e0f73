"""The documentation as a site: `make docs`, without building it.

mkdocs is in an environment of its own. What is ours of the build is run here.
"""

import importlib
import json
import pathlib
import re
import sys
import types

import pytest
import yaml

import bert_tf
from bert_tf.__main__ import COMMANDS
from support.paths import ROOT

FOLDER = ROOT / "docs" / "site"
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))


@pytest.fixture(scope="module")
def site():
    """The modules of docs/site, the hooks aside, which import mkdocs."""
    names = ("elsewhere", "notebooks", "reference")
    sys.path.insert(0, str(FOLDER))
    try:
        yield types.SimpleNamespace(
            **{name: importlib.import_module(name) for name in names}
        )
    finally:
        sys.path.remove(str(FOLDER))
        for name in names:
            del sys.modules[name]


@pytest.fixture(scope="module")
def pages(site):
    return site.elsewhere.pages()


def entries_of(nav):
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, list):
                yield from entries_of(value)
            else:
                yield value


def test_every_page_is_in_the_navigation_once(pages):
    entries = [*entries_of(CONFIG["nav"])]
    assert len(entries) == len({*entries})
    filled = tuple(entry for entry in entries if entry.endswith("/"))
    named = {entry for entry in entries if entry not in filled}
    own = {
        path.relative_to(ROOT / "docs").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
    }
    others = {
        name
        for name in pages
        if name.endswith(".md") and not name.startswith(("source/", *filled))
    }
    assert named == own | others


def test_pictures_and_linked_files_are_on_the_site(pages):
    name = "benchmarks/results/2026-11-22-two_hours"
    assert pages[f"{name}.png"] == (ROOT / f"{name}.png").read_bytes()
    assert f"({pathlib.PurePath(name).name}.png)" in pages[f"{name}.md"]
    source = pages["source/tests/test_house.py.md"]
    assert (ROOT / "tests/test_house.py").read_text("utf-8").rstrip() in source
    assert "index.md" in pages and "source/LICENSE.md" in pages


def test_links_are_replaced_but_not_in_code(site):
    page = (
        "[a](b.md#c) [web](https://example.org) [here](#c) ![p](d.png)\n"
        "`[no](e.md)` and [`code`](f.md)\n"
        "```text\n[no](g.md)\n```\n````sh\n```\n[no](h.md)\n````\n[i](j.md)\n"
    )
    found = []

    def replace(link):
        found.append(link)
        return "new"

    replaced = site.elsewhere.replace_links(page, replace)
    assert found == ["b.md#c", "d.png", "f.md", "j.md"]
    assert replaced.count("](new)") == 4
    assert "[web](https://example.org) [here](#c)" in replaced


@pytest.mark.parametrize(
    "path, name",
    [
        ("README.md", "index.md"),
        ("docs/tpu.md", "tpu.md"),
        ("docs/tutorials/distil.md", "tutorials/distil.md"),
        ("export/serving/README.md", "export/serving/README.md"),
        ("examples/fine_tune_in_keras.ipynb", "examples/fine_tune_in_keras.md"),
    ],
)
def test_a_page_knows_its_file_and_back(site, path, name):
    assert site.elsewhere.page_of(path) == name
    assert site.elsewhere.source_of(name) == path


def test_made_pages_have_no_file(site):
    for name in ("reference/python/load.md", "source/LICENSE.md"):
        assert site.elsewhere.source_of(name) is None


def test_flags_are_those_of_the_program(site):
    module = COMMANDS["create-data"]
    answer = site.reference._flags_of(module)
    page = site.reference._program_page("create-data", module, answer)
    assert page.startswith("---\ntitle: create-data\n---\n\n# bert_tf create-")
    assert "| `--max_seq_length` | `128` | Tokens of an example" in page
    assert "| `--[no]do_whole_word_mask` | `false` | " in page
    assert "One of `bert`, `roberta`, `electra`. |" in page
    # The commands of the docstring.
    assert "```sh\npython -m bert_tf.data.create_pretraining_data \\\n" in page
    assert r"manifest-\<first record file\>.json" in page


def test_shared_flags_stand_apart(site):
    answer = site.reference._flags_of(COMMANDS["tag"])
    titles = [title for title, _ in answer["groups"]]
    assert titles[0] == "Its own flags" and len(titles) == 3
    names = [flag["name"] for _, group in answer["groups"] for flag in group]
    assert len(names) == len({*names})
    assert {"data_dir", "learning_rate", "strategy"} <= {*names}
    assert "helpfull" not in names


def test_prose_of_a_docstring_stays_as_it_is(site):
    escaped = site.reference._escaped("a_b `c_d --e` *f* <g> [h]")
    assert escaped == r"a\_b `c_d --e` \*f\* \<g\> \[h\]"


def test_every_public_name_has_a_page(site):
    pages = site.reference.python_pages()
    assert len(pages) == len(bert_tf.__all__)
    assert "::: bert_tf.tuning.run" in pages["reference/python/tuning.run.md"]


def test_a_notebook_becomes_a_page_with_its_pictures(site):
    cells = [
        {"cell_type": "markdown", "source": ["# Head\n", "text"]},
        {
            "cell_type": "code",
            "source": "print('```')",
            "outputs": [
                {"output_type": "stream", "text": ["a\n", "b\n"]},
                {"output_type": "display_data", "data": {"image/png": "cG5n"}},
                {"output_type": "execute_result", "data": {"text/html": "<p>"}},
            ],
        },
    ]
    pages = site.notebooks.pages("examples/a.md", json.dumps({"cells": cells}))
    assert pages == {
        "examples/a.md": (
            "# Head\ntext\n\n````python\nprint('```')\n````\n\n"
            "```text\na\nb\n```\n\n![](a-0.png)\n\n<p>\n"
        ),
        "examples/a-0.png": b"png",
    }


def test_nothing_is_fetched():
    assert CONFIG["theme"]["font"] is False
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert not re.search(r"https?://|inventories", text)
    assert "http" not in (ROOT / "docs/site.css").read_text("utf-8")
