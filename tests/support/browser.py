"""A page in a real browser: Debian's chromium, without a window.

    apt-get install chromium chromium-driver

`with browser.opened(folder) as driver` gives selenium's driver; `folder` is
empty, and the browser's own.
"""

import contextlib
import shutil
import time

import pytest

# Without these it fails as root, or asks its maker's servers at the start.
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # /dev/shm is small in a container.
    "--disable-dev-shm-usage",
)
# As selenium names them, which is not installed where no browser is wanted.
CSS = "css selector"
END = "\ue010"
ARROW_LEFT = "\ue012"
WHAT_IS_MISSING = (
    "The browser's tests need chromium and its driver: "
    "apt-get install chromium chromium-driver"
)


def is_installed():
    return all(map(shutil.which, ("chromium", "chromedriver")))


@contextlib.contextmanager
def opened(folder, width=1200, height=900):
    """Gives a driver of a new browser; skips the test without chromium."""
    if not is_installed():
        pytest.skip(WHAT_IS_MISSING)
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed"
    )
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        *_ARGUMENTS,
        f"--user-data-dir={folder}",
        f"--window-size={width},{height}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


def set_size(driver, width, height, scheme="light"):
    """Makes the page as large as on a device, phones' sizes too.

    A window is never narrower than 500 pixels; what a device has, may be.
    """
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < 600,
        },
    )
    driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )


def wait_until(holds, seconds=120):
    """Waits until a function returns true."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"{seconds} s have not been enough."
        time.sleep(0.05)


def complaints(driver):
    """Returns what the page has written to the console since asked last."""
    return [entry["message"] for entry in driver.get_log("browser")]
