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
        made = page.make(model.describe({}), records)
        shown = app.make(model, made, token, port)
        config = uvicorn.Config(
            shown, log_level="critical", lifespan="off", ws="none"
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(
            target=running.run, kwargs={"sockets": [listening]}
        )
        thread.start()
        try:
            yield server.url(port, token)
        finally:
            running.should_exit = True
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
