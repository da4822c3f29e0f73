"""The playground's server in this process."""

import contextlib
import threading
import time

import uvicorn

from bert_tf.playground import app
from bert_tf.playground import page
from bert_tf.playground import server


@contextlib.contextmanager
def serving(model, records=None):
    """Yields the URL of a model's page, served by a thread.

    Args:
        model: A `PlaygroundModel`.
        records: As of `page.make`.
    """
    with server.bound(0) as listening:
        _, port = listening.getsockname()
        token = server.new_token()
        made = page.make(model.describe(), records)
        with running(app.make(model, made, token, port), listening):
            yield server.url(port, token)


@contextlib.contextmanager
def running(application, listening):
    """Serves an application by a thread, as the program does.

    Args:
        application: The ASGI application.
        listening: What `server.bound` yielded.
    """
    served = uvicorn.Server(server.configure(application))
    thread = threading.Thread(
        target=served.run, kwargs={"sockets": [listening]}
    )
    thread.start()
    try:
        yield
    finally:
        served.should_exit = True
        thread.join()


def wait_for(condition, seconds=120):
    """Returns what a condition returns as soon as it is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, "It did not happen."
        time.sleep(0.05)
