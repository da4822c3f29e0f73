"""Admits only requests that have the playground's URL and come from its page.

Any page in a browser, and any user of this machine, can send requests to one of
its ports. So a request must have

- the token as the first part of its path, which is drawn anew at every start;
- a Host that is this server, and not another name that was made to lead here
  (DNS rebinding);
- for all methods but GET and HEAD, this server's Origin.

Everything else is answered with 403, without telling what was wrong.
"""

import hmac
from collections.abc import Awaitable
from collections.abc import Callable
from typing import Any

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_READS = ("GET", "HEAD")
_FORBIDDEN = b"403 Forbidden"
# For all answers, but the page has a Content-Security-Policy of its own.
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

_App = Callable[[Any, Any, Any], Awaitable[None]]


class Guard:
    """An ASGI application that passes only such requests on to another.

    The other application sees the path after the token.

    Args:
        app: The other application.
        token: A string that nobody can guess.
        port: The server's port.
    """

    def __init__(self, app: _App, token: str, port: int) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in _NAMES}
        if port == 80:
            self._hosts |= {name.encode() for name in _NAMES}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"No such requests: {scope['type']}.")
        path = scope["path"]
        # `OPTIONS *` and `GET name` have no path.
        _, token, *rest = path.split("/", 2) if path[:1] == "/" else ("", "")
        if not self._is_good(scope, token):
            await _respond(_with_headers(send), 403, _FORBIDDEN)
        elif not rest:
            # The page asks its questions below the folder of its URL.
            folder = (b"location", b"/%s/" % self._token)
            await _respond(_with_headers(send), 307, b"", folder)
        else:
            await self._app(
                scope
                | {"path": f"/{rest[0]}", "raw_path": None, "root_path": ""},
                receive,
                _with_headers(send),
            )

    def _is_good(self, scope, token):
        # All comparisons are made, so that the time does not tell what fails.
        is_good = hmac.compare_digest(token.encode(), self._token)
        is_good &= _all_of(scope, b"host") <= self._hosts
        is_good &= len(_all_of(scope, b"host")) == 1
        origins = _all_of(scope, b"origin")
        is_good &= origins <= self._origins
        return is_good and (scope["method"] in _READS or len(origins) == 1)


def _all_of(scope, wanted):
    """Returns the values of all headers of a name."""
    return {value for name, value in scope["headers"] if name == wanted}


async def _respond(send, status, body, *headers):
    """Sends a short answer, with more headers if any are given."""
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"text/plain"),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


def _with_headers(send):
    """Returns a `send` that adds those of `HEADERS` that a response lacks."""

    async def send_with_headers(message):
        if message["type"] == "http.response.start":
            headers = [*message.get("headers", ())]
            there = {name.lower() for name, _ in headers}
            headers += [
                (name.encode(), value.encode())
                for name, value in HEADERS.items()
                if name.encode() not in there
            ]
            message = message | {"headers": headers}
        await send(message)

    return send_with_headers
