"""Serves the playground to the browsers of this machine, and to nobody else."""

import contextlib
import secrets
import socket
from collections.abc import Iterator
from typing import Any

from bert_tf.playground import guard

# For what is being answered when it is stopped.
_SECONDS_TO_STOP = 2


def check_installed() -> None:
    """Raises `ValueError` if what serves is not installed."""
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
    """Yields a socket of this machine's own address, closed after the block.

    Args:
        port: Its port; 0 for any that is free.

    Raises:
        ValueError: If something else listens there, or it is not allowed.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as found:
        # Else one that has just ended keeps the port for a minute.
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((guard.HOST, port))
            # From here on nobody else gets it.
            found.listen()
        except OSError as error:
            raise ValueError(
                "--port must be one that is free; 0 takes any. "
                f"Received: --port={port} ({error.strerror})."
            ) from error
        yield found


def new_token() -> str:
    """Returns 32 random bytes as the part of a URL."""
    return secrets.token_urlsafe(32)


def url(port: int, token: str) -> str:
    """Returns where the page is."""
    return f"http://{guard.HOST}:{port}/{token}/"


def run(app: Any, listening: socket.socket) -> None:
    """Serves an application until Ctrl-C, or SIGTERM.

    Nothing is logged of requests: their paths have the token, and their bodies
    texts.

    Args:
        app: The ASGI application.
        listening: What `bound` yielded.

    Raises:
        KeyboardInterrupt: On Ctrl-C, when it has stopped.
    """
    import uvicorn

    uvicorn.Server(configure(app)).run(sockets=[listening])


def configure(app: Any) -> Any:
    """Returns the `uvicorn.Config` of an application.

    Args:
        app: The ASGI application. It counts the questions that it takes:
            `limit_concurrency` would count connections too, and those that
            have shown no token would keep all others out.
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
