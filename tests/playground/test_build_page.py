"""The page as a file: whole, alone, and safe whatever a text holds."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from bert_tf.playground import build_page

HOSTILE = (
    "</script><img src=x onerror=alert(1)> & \u2028\u2029 @DATA@ \ud800 字"
)


class Page(HTMLParser):
    """Collects elements, and checks that tags are closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.found = []
        self.texts = {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        tag = self.open[-1] if self.open else ""
        self.texts.setdefault(tag, []).append(data)


def test_page_stands_alone():
    text = build_page.build({}, build_page.tab_names(), title="x")
    page = Page(text)
    assert page.open == []
    assert not re.search("@[A-Z]+@", text)
    assert [attrs["href"] for tag, attrs in page.found if tag == "link"] == [
        "data:,"
    ]
    for _, attrs in page.found:
        assert "src" not in attrs
        assert not any(name.startswith("on") for name in attrs)
    # Only the namespace of SVG, which no browser asks for.
    assert set(re.findall(r"\w+://[^\s\"']+", text)) == {
        "http://www.w3.org/2000/svg"
    }
    # No script makes HTML of strings.
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text
    )


def test_text_injects_nothing():
    text = build_page.build({"text": HOSTILE}, title=f"a{HOSTILE}")
    assert text.encode("utf-8").decode("utf-8") == text
    page = Page(text)
    kinds = [tag for tag, _ in page.found]
    assert "img" not in kinds
    assert kinds.count("script") == 2
    data, script = page.texts["script"]
    assert not re.search("[<>&\u2028\u2029]", data)
    # A lone surrogate is no text; the rest is what it was.
    valid = HOSTILE.replace("\ud800", "?")
    assert json.loads(data) == {"text": valid}
    assert page.texts["title"] == ["a" + valid]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(
        attrs["content"]
        for _, attrs in page.found
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "connect-src" not in policy


def test_tabs_are_those_asked_for():
    text = build_page.build({}, ["records"], title="x", asks_server=True)
    assert 'name: "records"' in text
    assert 'name: "masking"' not in text
    assert "connect-src 'self'" in text
    with pytest.raises(ValueError, match="`tabs` must be some of .*, input, "):
        build_page.build({}, ["records", "recordz"], title="x")
    with pytest.raises(ValueError, match=r"Received: tabs=\[\]"):
        build_page.build({}, [], title="x")
