"""Pages of the site that do not lie in docs/, and links between all of them."""

import functools
import pathlib
import posixpath
import re

import notebooks

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PICTURES = (".png", ".svg", ".jpg", ".gif", ".webp")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
# Fences and code in a line hold no links.
_CODE = re.compile(
    r"^(?P<fence> *```+)[^\n]*\n.*?^(?P=fence)$|(?P<ticks>`+).+?(?P=ticks)",
    re.MULTILINE | re.DOTALL,
)


def page_of(path):
    """Returns the site's name of a file of the repository.

    Args:
        path: In the repository, with slashes.
    """
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith(".md") or path.endswith(_PICTURES):
        return path
    if path.endswith(".ipynb"):
        return path.removesuffix(".ipynb") + ".md"
    return f"source/{path}.md"


def source_of(name):
    """Returns the file that a page of the site is made of, or None."""
    if name == "index.md":
        return "README.md"
    if name.startswith(("source/", "reference/")):
        return None
    notebook = posixpath.splitext(name)[0] + ".ipynb"
    for path in (f"docs/{name}", name, notebook):
        if (ROOT / path).exists():
            return path
    return None


@functools.cache
def pages():
    """Returns {name on the site: text, or a picture's bytes}, of all such."""
    found = {}
    waiting = [
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        *_names("benchmarks/results/*.md"),
        *_names("examples/*.ipynb"),
        *_names("docs/**/*.md"),
    ]
    seen = {*waiting}
    while waiting:
        path = waiting.pop(0)
        content = _content(path)
        if not path.startswith("docs/"):
            found |= content
        if not path.endswith((".md", ".ipynb")):
            continue
        for linked in _links(path, content[page_of(path)]):
            if linked not in seen and (ROOT / linked).is_file():
                seen.add(linked)
                waiting.append(linked)
    return found


def replace_links(markdown, replace):
    """Returns a page with its relative links replaced.

    Args:
        markdown: The page.
        replace: A function from a link to the new one.
    """
    parts, end = [], 0
    for code in [*_CODE.finditer(markdown), None]:
        start = len(markdown) if code is None else code.start()
        parts.append(
            _LINK.sub(
                lambda found: (
                    found[0]
                    if re.match(r"\w+:|#", found[2])
                    else found[1] + replace(found[2]) + found[3]
                ),
                markdown[end:start],
            )
        )
        if code is not None:
            parts.append(code[0])
            end = code.end()
    return "".join(parts)


def anchor(heading, separator):
    """Returns the anchor that GitHub makes of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return words.replace(" ", separator)


def _names(pattern):
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in ROOT.glob(pattern)
        if path.parent != ROOT / "docs" / "site"
    )


def _links(path, markdown):
    """Returns the files of the repository that a page links to."""
    found = []

    def note(link):
        folder = posixpath.dirname(path)
        name = posixpath.join(folder, link.partition("#")[0])
        found.append(posixpath.normpath(name))
        return link

    replace_links(markdown, note)
    return found


def _content(path):
    """Returns {name on the site: content} of a file, with its pictures."""
    file = ROOT / path
    if path.endswith(_PICTURES):
        return {page_of(path): file.read_bytes()}
    text = file.read_text("utf-8")
    if path.endswith(".md"):
        return {page_of(path): text}
    if path.endswith(".ipynb"):
        return notebooks.pages(page_of(path), text)
    language = "python" if path.endswith(".py") else "text"
    return {
        page_of(path): (
            # Found by links, not by a search for words.
            "---\nsearch:\n  exclude: true\nhide:\n  - toc\n---\n\n"
            f"# {path}\n\n``````{language}\n{text.rstrip()}\n``````\n"
        )
    }
