"""Makes the playground's page: one HTML file that needs nothing else.

Its parts are in `page/`: the frame, the style, scripts that all tabs share, and
a script for each tab, which may have a style of its own. They are joined to one
file with the data, as JSON.

Texts are shown but never run: the data has no character that could end its
element, scripts make no HTML from strings, and the page tells the browser the
digests of the only scripts that it may run.
"""

import base64
import hashlib
import html
import json
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

_PAGE = pathlib.Path(__file__).parent / "page"
# The scripts that all tabs share, in this order, and the one that starts all.
_SHARED = ("core.js", "philox.js", "masks.js", "tokens.js")
_START = "start.js"
# Script and style that the tabs share that ask the server.
_OF_SERVER = "model"
# The tabs that need only records, no model.
RECORD_TABS = ("masking", "input", "sentence", "records")
# The most records of a page, by default.
NUM_RECORDS = 200
# Characters that JSON does not escape, but that could open or end an element,
# or that older JavaScript takes for the end of a line.
_ESCAPED = {
    ord(character): f"\\u{ord(character):04x}"
    for character in "<>&\u2028\u2029"
}


def tab_names() -> tuple[str, ...]:
    """Returns the names of all tabs: X for each script `tab_X.js`."""
    return tuple(
        sorted(
            path.stem.removeprefix("tab_") for path in _PAGE.glob("tab_*.js")
        )
    )


def build(
    data: Mapping[str, Any],
    tabs: Sequence[str] = RECORD_TABS,
    *,
    title: str,
    asks_server: bool = False,
) -> str:
    """Returns the page as text.

    Args:
        data: What the tabs show, ready for JSON; `record_data` makes it from
            records.
        tabs: Some of `tab_names`, in the order of the page.
        title: The title, as plain text.
        asks_server: Whether scripts may ask the server that the page is from.

    Raises:
        ValueError: If `tabs` is empty or has an unknown name.
    """
    unknown = [name for name in tabs if name not in tab_names()]
    if unknown or not tabs:
        raise ValueError(
            f"`tabs` must be some of {', '.join(tab_names())}. "
            f"Received: tabs={list(tabs)}."
        )
    asking = (_OF_SERVER,) if asks_server else ()
    names = (
        *_SHARED,
        *(f"{name}.js" for name in asking),
        *(f"tab_{name}.js" for name in tabs),
        _START,
    )
    styles = ["style.css", *(f"{name}.css" for name in asking)]
    styles += [
        f"tab_{name}.css"
        for name in tabs
        if (_PAGE / f"tab_{name}.css").exists()
    ]
    script = '"use strict";\n' + "\n".join(map(_read, names))
    style = "\n".join(map(_read, styles))
    parts = {
        "POLICY": policy([script], [style], asks_server),
        "TITLE": html.escape(_valid(title)),
        "STYLE": style,
        "DATA": to_json(data),
        "SCRIPT": script,
    }
    pieces = _read("page.html").split("@")
    # Text and names alternate; the inserted parts are not searched for names.
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)


def policy(
    scripts: Sequence[str], styles: Sequence[str], asks_server: bool
) -> str:
    """Returns a page's Content-Security-Policy: what a browser lets it do.

    Args:
        scripts, styles: The contents of its elements; the browser uses no
            other scripts and styles.
        asks_server: As in `build`.
    """
    return "; ".join(
        (
            "default-src 'none'",
            *(
                f"{kind}-src {' '.join(map(_digest, texts))}"
                for kind, texts in (("script", scripts), ("style", styles))
                if texts
            ),
            *(["connect-src 'self'"] if asks_server else []),
            # The icon, which the browser would otherwise ask the server for.
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _digest(text):
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
    return f"'sha256-{digest.decode()}'"


def to_json(data: Any) -> str:
    """Returns JSON that is safe inside an element of a page."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return _valid(text).translate(_ESCAPED)


def _valid(text):
    """Returns text without lone surrogates, which UTF-8 does not have.

    With one, e.g. from a file's name, the page could not be written.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _read(name):
    return (_PAGE / name).read_text("utf-8")
