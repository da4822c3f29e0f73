"""Serves the playground to the browsers of this machine, and to nobody else."""

import contextlib
import secrets
import socket
from collections.abc import Iterator
from typing import Any

from bert_tf.playground import guard

# The time to finish current answers when the server is stopped.
_SECONDS_TO_STOP = 2


def check_installed() -> None:
    """Raises `ValueError` if starlette or uvicorn is not installed."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ValueError(
            "The playground needs starlette and uvicorn: pip install "
            "'bert_tf[playground]'."
        ) from error


@contextlib.contextmanager
def bound(port: int) -> Iterator[socket.socket]:
    """Yields a socket at this machine's own address, closed after the block.

    Args:
        port: Its port; 0 for any free one.

    Raises:
        ValueError: If the port is in use, or not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        # Otherwise a server that has just ended keeps the port for a minute.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((guard.HOST, port))
            # From here on, nobody else can get the port.
            found.listen()
        except OSError as error:
            raise ValueError(
                "--port must be a free port; 0 takes any. "
                f"Received: --port={port} ({error.strerror})."
            ) from error
        yield found


def new_token() -> str:
    """Returns 32 random bytes as a part of a URL."""
    return secrets.token_urlsafe(32)


def url(port: int, token: str) -> str:
    """Returns the URL of the page."""
    return f"http://{guard.HOST}:{port}/{token}/"


def run(app: Any, listening: socket.socket) -> None:
    """Serves an application until Ctrl-C, or SIGTERM.

    Requests are not logged: their paths contain the token, and their bodies
    texts.

    Args:
        app: The ASGI application.
        listening: What `bound` yielded.

    Raises:
        KeyboardInterrupt: On Ctrl-C, after the server has stopped.
    """
    import uvicorn

    uvicorn.Server(configure(app)).run(sockets=[listening])


def configure(app: Any) -> Any:
    """Returns the `uvicorn.Config` of an application.

    Args:
        app: The ASGI application. It limits the number of questions itself:
            `limit_concurrency` would count connections too, so that those
            without a token could keep all others out.
    """
    import uvicorn

    from bert_tf.playground.connections import Connection

    return uvicorn.Config(
        app,
        http=Connection,
        access_log=False,
        log_config=None,
        log_level="critical",
        lifespan="off",
        ws="none",
        interface="asgi3",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_SECONDS_TO_STOP,
    )
