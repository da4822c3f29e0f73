"""What `mkdocs build` does beside reading docs/: see mkdocs.yml.

- Pages that lie elsewhere (README.md, the dated results, the notebooks) are on
  the site too, and so is every file of the repository that a page links to. The
  Markdown has the links that GitHub needs; here they are turned to the site's.
- The reference is generated: a page for each command with its flags, and one
  for each public name, which mkdocstrings fills.
- An entry of the navigation that ends with / is filled with the pages there.
- Pages that are opened from a disk are searched too.
"""

import functools
import json
import pathlib
import posixpath
import re

import elsewhere
import reference
from mkdocs.structure.files import File


def on_config(config):
    """Sets what YAML cannot say, and fills the navigation."""
    # Links name GitHub's anchors.
    config.mdx_configs.setdefault("toc", {})["slugify"] = elsewhere.anchor
    _fill(config.nav, [*_generated()])
    return config


def on_files(files, config):
    """Adds the pages that are not in docs/."""
    for name, content in _generated().items():
        # A page is made of text, a picture of bytes.
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns the links of a page into the site's."""
    name = page.file.src_uri
    source = elsewhere.source_of(name)

    def link(target):
        path, hash_, rest = target.partition("#")
        path = posixpath.normpath(
            posixpath.join(posixpath.dirname(source), path)
        )
        found = elsewhere.page_of(path)
        if files.get_file_from_path(found) is None:
            # mkdocs refuses it, under the name that the page has.
            return target
        start = posixpath.dirname(name) or "."
        return posixpath.relpath(found, start) + hash_ + rest

    if source is None:
        return markdown
    return elsewhere.replace_links(markdown, link)


def on_post_build(config):
    """Writes what lets a page from a disk search: it may start no worker file.

    The worker is started from its text instead.
    """
    assets = pathlib.Path(config.site_dir) / "assets"
    (worker,) = (assets / "javascripts" / "workers").glob("search.*.js")
    text = json.dumps(worker.read_text("utf-8"))
    (assets / "iframe-worker.js").write_text(_SEARCH % text, "utf-8")


_SEARCH = """if (location.protocol === "file:") {
  const text = %s;
  const Built = window.Worker;
  window.Worker = class extends Built {
    constructor() {
      super(URL.createObjectURL(new Blob([text])));
    }
  };
}
"""


@functools.cache
def _generated():
    """Returns {name on the site: text or bytes}."""
    return {
        **elsewhere.pages(),
        **reference.program_pages(),
        **reference.python_pages(),
    }


def _fill(entries, names):
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        ((title, value),) = entry.items()
        if isinstance(value, list):
            _fill(value, names)
        elif value.endswith("/"):
            found = [
                name
                for name in names
                if name.startswith(value) and name.endswith(".md")
            ]
            # The newest first.
            if re.search(r"/\d{4}-", found[0]):
                found.sort(reverse=True)
            entry[title] = found
