"""The page that the server shows, and what it may do in a browser."""

import base64
import dataclasses
import hashlib
import pathlib
import re

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of HTML with its scripts and styles inside.

    Attributes:
        text: The page. Its scripts and styles are `<script>` and `<style>`
            without any attribute.
        policy: Its Content-Security-Policy: these scripts and styles, by their
            hashes, and requests to the server; nothing else.
    """

    text: str

    @property
    def policy(self) -> str:
        sources: dict[str, list[str]] = {"script": [], "style": []}
        for kind, text in _INLINE.findall(self.text):
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest())
            sources[kind].append(f"'sha256-{digest.decode()}'")
        return "; ".join(
            (
                "default-src 'none'",
                *(
                    f"{kind}-src {' '.join(hashes)}"
                    for kind, hashes in sources.items()
                    if hashes
                ),
                "connect-src 'self'",
                # The icon, which else the browser asks the server for.
                "img-src data:",
                "base-uri 'none'",
                "form-action 'none'",
                "frame-ancestors 'none'",
            )
        )


def make() -> Page:
    """Returns the page with the tabs of a model."""
    folder = pathlib.Path(__file__).parent
    page, script, style = (
        (folder / name).read_text("utf-8")
        for name in ("page.html", "model_tabs.js", "model_tabs.css")
    )
    return Page(page.replace("@TABS_CSS@", style).replace("@TABS_JS@", script))
