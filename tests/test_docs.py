"""Pages for people: links that lead somewhere, fences of known languages."""

import re

import pytest

from support.paths import ROOT

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [
    *GUIDES,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "export/serving/README.md",
    *sorted((ROOT / "benchmarks/results").glob("*.md")),
]
_FENCE = re.compile(r"^```(.*?)$\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def read_prose(path):
    """Returns a page without its fenced blocks, where # is no heading."""
    return _FENCE.sub("", path.read_text("utf-8"))


def anchors(path):
    """Returns the anchors that GitHub makes of a page's headings."""
    found = []
    for heading in re.findall(r"^#+ (.+)$", read_prose(path), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        anchor = words.replace(" ", "-")
        count = found.count(anchor)
        found.append(f"{anchor}-{count}" if count else anchor)
    return found


def broken_links(path):
    """Returns the relative links of a page that lead nowhere."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", read_prose(path)):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(path):
    assert broken_links(path) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A `page`'s head: of_it\n```bash\n# No heading\n[no](link)\n```\n"
        "[here](#a-pages-head-of_it) [there](page.md#a-pages-head-of_it)\n"
        "[not](#no-heading) [nor](other.md) [web](https://example.org/x)\n"
    )
    assert broken_links(page) == ["#no-heading", "other.md"]


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_every_page_can_be_found(path):
    """From README on, over links."""
    linked, pages = set(), [ROOT / "README.md"]
    while pages:
        page = pages.pop()
        linked.add(page)
        for link in re.findall(r"\]\(([^)\s#]+\.md)", read_prose(page)):
            target = (page.parent / link).resolve()
            if target in GUIDES and target not in linked:
                pages.append(target)
    assert path in linked


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_fences_name_a_language(path):
    """`bash` and `python` are run in their order, `text` is output."""
    languages = {"bash", "python", "text"}
    if path.parent.name == "tutorials":
        # Commands of a cloud.
        languages.add("sh")
    for language, _ in _FENCE.findall(path.read_text("utf-8")):
        assert language in languages
