"""The page that the server shows, and what it may do in a browser."""

import dataclasses
import re
from typing import Any

from bert_tf.playground import build_page

# The element with the data has attributes and does not match: it is not run.
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of HTML with its scripts and styles inside.

    Attributes:
        text: The page. Its scripts and styles are `<script>` and `<style>`
            without any attribute.
        policy: Its Content-Security-Policy. It allows only these scripts and
            styles, by their hashes, and requests to the server.
    """

    text: str

    @property
    def policy(self) -> str:
        found: dict[str, list[str]] = {"script": [], "style": []}
        for kind, text in _INLINE.findall(self.text):
            found[kind].append(text)
        policy = build_page.policy(
            found["script"], found["style"], asks_server=True
        )
        # A page cannot declare this itself; it must be in a header.
        return f"{policy}; frame-ancestors 'none'"


def make(
    description: dict[str, Any], records: dict[str, Any] | None = None
) -> Page:
    """Returns the page with the tabs for a model, and for records if given.

    Args:
        description: What `PlaygroundModel.describe` returned.
        records: What `record_data.read` returned, if there are any.
    """
    tabs = ["tokens", "fill_mask", "attention", "task"]
    if not description["fills_masks"]:
        tabs.remove("fill_mask")
    if description["task"] is None:
        tabs.remove("task")
    data = {"model": description}
    if records is not None:
        data |= records
        tabs += build_page.RECORD_TABS
    return Page(
        build_page.build(
            data,
            tabs,
            title=description["name"],
            asks_server=True,
        )
    )
