"""The playground's server in this process, and a browser at its page."""

import contextlib
import shutil
import threading
import time

import uvicorn

from bert_tf.playground import app
from bert_tf.playground import page
from bert_tf.playground import server


@contextlib.contextmanager
def serving(model):
    """Yields the URL of a model's page, served by a thread.

    Args:
        model: A `PlaygroundModel`.
    """
    with server.bound(0) as listening:
        _, port = listening.getsockname()
        token = server.new_token()
        shown = app.make(model, page.make(), token, port)
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


def has_browser():
    """Returns whether there are Debian's chromium and its driver."""
    return all(map(shutil.which, ("chromium", "chromedriver")))


@contextlib.contextmanager
def browser(width=1000, height=900, scheme="light"):
    """Yields a driver of chromium, without a window.

    Args:
        width, height: Of what it shows, in pixels.
        scheme: "light" or "dark".
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("headless=new", "no-sandbox", "disable-gpu"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    try:
        # Of the page alone, and narrower than a window may be.
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": width,
                "height": height,
                "deviceScaleFactor": 1,
                "mobile": False,
            },
        )
        driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
        )
        yield driver
    finally:
        driver.quit()


def wait_for(condition, seconds=30):
    """Returns what a condition returns as soon as it is true."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, "It did not happen."
        time.sleep(0.05)
