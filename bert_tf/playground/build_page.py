"""Makes the playground's page: one HTML file that needs nothing else.

Its parts lie in `page/`: the frame, the style, scripts that all tabs share,
and a script for each tab, which may have a style of its own. They are put into
one file with the data, as JSON.

Whatever a text holds, the page shows it and runs none of it: the data has no
character that could end its element, scripts make no HTML of strings, and the
browser is told the digests of the only scripts that it may run.
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
# What all tabs share, in this order, and what starts the page.
_SHARED = ("core.js", "philox.js", "masks.js", "tokens.js")
_START = "start.js"
# What the tabs share that ask the server.
_OF_SERVER = "model"
# The tabs that records alone suffice for.
RECORD_TABS = ("masking", "input", "sentence", "records")
# Most records of a page, where nothing else is asked for.
NUM_RECORDS = 200
# Of what JSON leaves as it is: what could end or open an element, and what
# older JavaScript takes for the end of a line.
_ESCAPED = {
    ord(character): f"\\u{ord(character):04x}"
    for character in "<>&\u2028\u2029"
}


def tab_names() -> tuple[str, ...]:
    """Returns the tabs that there are: X of each script `tab_X.js`."""
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
        data: JSON-able, what the tabs show; `record_data` makes it of records.
        tabs: Names of `tab_names`, in the order of the page.
        title: What is shown, as plain text.
        asks_server: Whether scripts may ask the server that the page is from.

    Raises:
        ValueError: If there is no such tab, or none is asked for.
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
    # In turn text and a name: no part is looked through for names.
    pieces[1::2] = [parts[name] for name in pieces[1::2]]
    return "".join(pieces)


def policy(
    scripts: Sequence[str], styles: Sequence[str], asks_server: bool
) -> str:
    """Returns what a browser lets a page do, a Content-Security-Policy.

    Args:
        scripts, styles: What its elements hold: nothing else is run or styles.
        asks_server: As of `build`.
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
            # The icon, which else the browser asks the server for.
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

    One, of a file's name, too, would keep the page from disk.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def _read(name):
    return (_PAGE / name).read_text("utf-8")
